"""The exact state of an environment: everything that determines its next steps, as plain data.

An environment or wrapper may define it by ``get_state()`` and ``set_state(state)``. Otherwise its attributes are read,
from the outermost wrapper to the innermost environment: numbers, text, arrays, collections of them, random generators,
and objects made of these. MuJoCo's simulation state is read through its library.

Plain data are ``None``, bool, int, float, str, numpy scalars and arrays, and lists, tuples and dicts of these.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

PLAIN = (bool, int, float, str, np.generic, type(None))
_INERT = frozenset({"env", "spec", "metadata", "render_mode", "_saved_kwargs", "_cached_spec"})
"""Attributes that no step changes."""
_TABLES = frozenset({"P", "initial_state_distrib"})
"""Attributes of Gymnasium's toy texts."""
_DISPLAYS = ("pygame", "mujoco", "gymnasium.envs.mujoco.mujoco_rendering", "gymnasium.envs.registration", "matplotlib")
"""Modules of objects that render or describe an environment."""
_FIXED = (slice, range, type(...), type, np.dtype)
"""Constants that collections may hold."""
_CONSTANT = (*_FIXED, FunctionType, BuiltinFunctionType, MethodType, ModuleType, np.ufunc)


class EnvStateError(ValueError):
    """The state of an environment cannot be read or set. The message names the part and the fix."""


def get_state(env: gym.Env) -> dict[str, Any]:
    """The state of an environment with all its wrappers, as plain data.

    Raises:
        EnvStateError: a part of it is no plain data, such as an object of another library.
    """
    layers = [_own_state(layer) for layer in layers_of(env)]
    state: dict[str, Any] = {"layers": layers}
    if _has_mujoco(env):
        state["mujoco"] = _mujoco_state(env.unwrapped)
    return state


def set_state(env: gym.Env, state: dict[str, Any]) -> None:
    """Put an environment of the same kind, wrapped alike, into a state that :func:`get_state` returned.

    Raises:
        EnvStateError: the state is of another kind of environment, or was not written by :func:`get_state`.
    """
    layers = list(layers_of(env))
    if not isinstance(state, dict) or not isinstance(found := state.get("layers"), list):
        raise EnvStateError("state must be what get_state() returned: a dict with its layers.")
    names = [layer.get("class") if isinstance(layer, dict) else None for layer in found]
    own = [type(layer).__qualname__ for layer in layers]
    if names != own:
        raise EnvStateError(f"the state is of {names}, the environment is made of {own}: wrap it in the same way.")
    _make_random(env)
    for layer, saved in zip(layers, found, strict=True):
        _load_own_state(layer, saved)
    if "mujoco" in state:
        _load_mujoco(env.unwrapped, state["mujoco"])


def attributes_of(holder: Any, skip: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Returns the attributes of an object that may change, as plain data by name.

    Args:
        holder: the object.
        skip: names to leave out.

    Raises:
        EnvStateError: one of them is no plain data.
    """
    return _Reader(type(holder).__qualname__).attributes(holder, skip)


def load_attributes(holder: Any, state: dict[str, Any]) -> None:
    """Set the attributes of an object as :func:`attributes_of` found them; others are left as they are.

    Raises:
        EnvStateError: an attribute is now of another kind, is code, or is a text that differs. Texts may name files,
            which a state from an untrusted file must not choose.
    """
    _Writer(type(holder).__qualname__).attributes(holder, state)


def states_of_all(state: dict[str, Any], num_envs: int) -> list[dict[str, Any]]:
    """Returns the state of each environment of a vector.

    Raises:
        EnvStateError: there are not ``num_envs`` of them.
    """
    states = state.get("envs")
    if not isinstance(states, list) or len(states) != num_envs:
        raise EnvStateError(f"the state is not one of {num_envs} environments.")
    return states


def check_class(holder: Any, state: dict[str, Any]) -> None:
    """Refuse a state that was read from an object of another class.

    Raises:
        EnvStateError: it was.
    """
    if (name := state.get("class")) != type(holder).__qualname__:
        raise EnvStateError(f"the state is of {name}, not of {type(holder).__qualname__}: wrap it in the same way.")


# -- layers ------------------------------------------------------------------------------------------------------------


def layers_of(env: gym.Env) -> Iterator[gym.Env]:
    """Yields the environment and the ones it wraps, the outermost first."""
    yield env
    while isinstance(env, gym.Wrapper):
        env = env.env
        yield env


def _own_state(layer: gym.Env) -> dict[str, Any]:
    named = {"class": type(layer).__qualname__}
    if (method := _method(layer, "get_state")) is not None and _method(layer, "set_state") is not None:
        return {**named, "own": _Reader(type(layer).__qualname__).read(method(), "get_state()")}
    inert = frozenset({"data", "model"}) if _is_mujoco(layer) else frozenset()
    tables = _TABLES if type(layer).__module__.startswith("gymnasium.envs.toy_text") else frozenset()
    return {**named, "attributes": attributes_of(layer, _INERT | inert | tables)}


def _load_own_state(layer: gym.Env, saved: dict[str, Any]) -> None:
    if "own" in saved:
        method = _method(layer, "set_state")
        if method is None:
            raise EnvStateError(f"{type(layer).__qualname__} had get_state() when the state was read; it has no more.")
        method(_Writer(type(layer).__qualname__, texts=True).value(None, saved["own"], "get_state()"))
    else:
        load_attributes(layer, saved["attributes"])


def _method(layer: gym.Env, name: str) -> Callable[..., Any] | None:
    """A method of the layer itself. MuJoCo's environments have a ``set_state`` of another meaning."""
    if _is_mujoco(layer) or getattr(type(layer), name, None) is None:
        return None
    method: Callable[..., Any] = getattr(layer, name)
    return method


def _make_random(env: gym.Env) -> None:
    """Reset the environment, so that the attributes to be set exist."""
    if getattr(env.unwrapped, "_np_random", None) is None:
        env.reset(seed=0)


# -- attributes --------------------------------------------------------------------------------------------------------


class _Reader:
    """Converts attributes to plain data. An object that occurs twice is written once and referred to afterwards.

    Args:
        owner: name of the object with the attributes, for messages.
    """

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []  # so that no other object gets the identity of one that was read

    def attributes(self, holder: Any, skip: frozenset[str] = frozenset(), path: str = "") -> dict[str, Any]:
        found = {}
        for name, value in vars(holder).items():
            if name not in skip and not _is_constant(value) and not (name == "_np_random" and value is None):
                found[name] = self.read(value, path + name)
        return found

    def read(self, value: Any, path: str) -> Any:
        if isinstance(value, PLAIN) and not isinstance(value, np.void):
            return value
        if isinstance(value, _FIXED):
            return {"fixed": repr(value)}
        if id(value) in self._met:
            return {"same": self._met[id(value)]}
        self._met[id(value)] = len(self._met)
        self._kept.append(value)
        if isinstance(value, np.ndarray):
            return {"texts": _texts(value)} if value.dtype.kind in "SU" else self._array(value, path)
        if isinstance(value, deque):
            return {"deque": [self.read(item, f"{path}[{i}]") for i, item in enumerate(value)]}
        if type(value) in (list, tuple, set, frozenset):
            items = [self.read(item, f"{path}[{i}]") for i, item in enumerate(value)]
            return {type(value).__name__: items}
        if type(value) is dict:
            pairs = value.items()
            return {"dict": [[self._key(key, path), self.read(item, f"{path}[{key!r}]")] for key, item in pairs]}
        if isinstance(value, np.random.Generator):
            return {"generator": value.bit_generator.state}
        if isinstance(value, np.random.RandomState):
            return {"generator": value.get_state(legacy=False)}
        if isinstance(value, random.Random):
            version, words, spare = value.getstate()
            return {"random": [version, np.array(words, np.uint64), spare]}
        if isinstance(value, spaces.Space):
            return {"space": _states_of(value)}
        if _is_made_of_attributes(value):
            return {"object": self.attributes(value, path=path + ".")}
        raise EnvStateError(
            f"the attribute {path} of {self.owner} is a {type(value).__module__}.{type(value).__qualname__}, which is "
            "no plain data. Give the environment get_state(), which returns all that decides what happens next as "
            "numbers, text, arrays and collections of them, and set_state(state)."
        )

    def _array(self, value: np.ndarray, path: str) -> np.ndarray:
        if value.dtype.kind not in "biufc":
            raise EnvStateError(f"the attribute {path} of {self.owner} is an array of {value.dtype}: use numbers.")
        return value.copy()

    def _key(self, key: Any, path: str) -> Any:
        if isinstance(key, PLAIN):
            return key
        if type(key) is tuple:
            return {"tuple": [self._key(item, path) for item in key]}
        raise EnvStateError(f"the attribute {path} of {self.owner} is a dict with keys that are no plain data.")


class _Writer:
    """Sets attributes from the output of :class:`_Reader`.

    Args:
        owner: name of the object with the attributes, for messages.
        texts: whether texts may differ from the current ones.
    """

    def __init__(self, owner: str, texts: bool = False) -> None:
        self.owner, self.texts = owner, texts
        self._met: list[Any] = []

    def attributes(self, holder: Any, state: dict[str, Any], path: str = "") -> None:
        for name, saved in state.items():
            old = getattr(holder, name, None)
            if name.startswith("__") or (callable(old) and not (isinstance(saved, dict) and "object" in saved)):
                raise self._error(path + name, "it is code, which no state replaces")
            setattr(holder, name, self.value(old, saved, path + name))

    def value(self, old: Any, saved: Any, path: str) -> Any:
        """The value that was written; ``old`` is the current one."""
        if isinstance(saved, str) and not self.texts and saved != old:
            raise self._error(path, f"it was the text {saved!r:.100} and is {old!r:.100} here")
        if isinstance(saved, PLAIN):
            return saved
        if isinstance(saved, dict) and "fixed" in saved:
            if repr(old) != saved["fixed"]:
                raise self._error(path, f"it was {saved['fixed']!s:.100} and is {old!r:.100} here")
            return old
        if isinstance(saved, dict) and "same" in saved:
            return self._met[saved["same"]]
        place = len(self._met)
        self._met.append(None)
        self._met[place] = value = self._remade(old, saved, path)
        return value

    def _remade(self, old: Any, saved: Any, path: str) -> Any:
        if isinstance(saved, np.ndarray):
            return saved.copy()
        if not isinstance(saved, dict) or len(saved) != 1:
            raise self._error(path, f"the state holds {saved!r:.100}, which get_state() does not write")
        kind, body = next(iter(saved.items()))
        if kind in _COLLECTIONS:
            there = _paired(old, body)
            pairs = enumerate(zip(there, body, strict=True))
            items = [self.value(was, item, f"{path}[{i}]") for i, (was, item) in pairs]
            return deque(items, getattr(old, "maxlen", None)) if kind == "deque" else _COLLECTIONS[kind](items)
        if kind == "dict":
            known = old if isinstance(old, dict) else {}
            named = [(_key(key), item) for key, item in body]
            return {key: self.value(known.get(key), item, f"{path}[{key!r}]") for key, item in named}
        if kind == "generator":
            return self._generator(old, body, path)
        if kind == "texts" and isinstance(old, np.ndarray) and _texts(old) == body:
            return old
        if kind == "random" and isinstance(old, random.Random):
            old.setstate((body[0], tuple(map(int, body[1])), body[2]))
            return old
        if kind == "space" and isinstance(old, spaces.Space):
            self._space(old, body, path)
            return old
        if kind == "object" and hasattr(old, "__dict__"):
            self.attributes(old, body, path + ".")
            return old
        raise self._error(path, f"the state is of a {kind!r}, and there is {old!r:.100}")

    def _generator(self, old: Any, state: dict[str, Any], path: str) -> Any:
        if isinstance(old, np.random.RandomState):
            old.set_state(state)
            return old
        if not isinstance(old, np.random.Generator):
            raise self._error(path, "the state is of a random generator, and there is none")
        if old.bit_generator.state["bit_generator"] != state.get("bit_generator"):
            raise self._error(path, f"the state is of the generator {state.get('bit_generator')!r}, not of {old!r}")
        old.bit_generator.state = state
        return old

    def _space(self, space: spaces.Space, states: list[Any], path: str) -> None:
        found = list(_parts(space))
        if len(found) != len(states):
            raise self._error(path, f"the state is of a space of {len(states)} parts, this one has {len(found)}")
        for part, state in zip(found, states, strict=True):
            if state is not None:
                part.np_random.bit_generator.state = state

    def _error(self, path: str, what: str) -> EnvStateError:
        return EnvStateError(
            f"the attribute {path} of {self.owner} cannot be set: {what}. Make the environment as it was, or give it "
            "get_state() and set_state(state)."
        )


def _paired(old: Any, saved: list[Any]) -> list[Any]:
    """The current value for each item of a collection; of a set the item itself, if it is in it."""
    if isinstance(old, set | frozenset):
        return [item if isinstance(item, PLAIN) and item in old else None for item in saved]
    fits = isinstance(old, list | tuple | deque) and len(old) == len(saved)
    return list(old) if fits else [None] * len(saved)


def _texts(array: np.ndarray) -> list[str]:
    return [str(item) for item in array.ravel()]


def _key(saved: Any) -> Any:
    """A key of a dict, as :class:`_Reader` wrote it."""
    return tuple(map(_key, saved["tuple"])) if isinstance(saved, dict) else saved


_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
}


def _states_of(space: spaces.Space) -> list[Any]:
    """Returns the state of the random generator of each part of a space, in order; ``None`` for one that has drawn
    nothing."""
    return [None if part._np_random is None else part._np_random.bit_generator.state for part in _parts(space)]


def _parts(space: spaces.Space) -> Iterator[spaces.Space]:
    yield space
    inner = getattr(space, "spaces", ())
    for part in inner.values() if isinstance(inner, dict) else inner:
        yield from _parts(part)


def _is_constant(value: Any) -> bool:
    """Whether a value is no part of the state: code, a renderer, a space that was not sampled."""
    if isinstance(value, spaces.Space):
        return all(state is None for state in _states_of(value))
    return isinstance(value, (*_CONSTANT, gym.Env)) or type(value).__module__.startswith(_DISPLAYS)


def _is_made_of_attributes(value: Any) -> bool:
    """Whether copying its attributes copies the object, by Python's own rules of copying."""
    cls = type(value)
    copied = cls.__reduce__ is object.__reduce__ and cls.__reduce_ex__ is object.__reduce_ex__
    if not copied or getattr(cls, "__getstate__", None) is not getattr(object, "__getstate__", None):
        return False
    try:
        _, _, state, *more = value.__reduce_ex__(2)
    except TypeError:  # written in C
        return False
    return (state is None or type(state) is dict) and all(part is None for part in more)


# -- MuJoCo ------------------------------------------------------------------------------------------------------------


def _has_mujoco(env: gym.Env) -> bool:
    return _is_mujoco(env.unwrapped)


def _is_mujoco(layer: Any) -> bool:
    return type(vars(layer).get("data")).__module__.startswith("mujoco.")


def _mujoco_state(env: Any) -> dict[str, Any]:
    """Positions, velocities and the integrator's state; and the quantities derived at the step before, which rewards
    and observations read."""
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    whole = np.empty(mujoco.mj_stateSize(env.model, kind))
    mujoco.mj_getState(env.model, env.data, whole, kind)
    derived = {name: array.copy() for name, array in _mujoco_arrays(env.data)}
    return {"whole": whole, "derived": derived}


def _load_mujoco(env: Any, state: dict[str, Any]) -> None:
    import mujoco

    kind = mujoco.mjtState.mjSTATE_INTEGRATION
    if len(state["whole"]) != mujoco.mj_stateSize(env.model, kind):
        raise EnvStateError("the state is of another MuJoCo model: make the environment in the same way.")
    mujoco.mj_setState(env.model, env.data, np.asarray(state["whole"], np.float64), kind)
    for name, array in _mujoco_arrays(env.data):
        if (saved := state["derived"].get(name)) is not None and saved.shape == array.shape:
            array[...] = saved


def _mujoco_arrays(data: Any) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of fixed size that a simulation holds, by name; those of contacts differ from step to step."""
    for name in dir(type(data)):
        if not name.startswith(("_", "efc", "iefc")):
            value = getattr(data, name)
            if isinstance(value, np.ndarray) and value.size and value.dtype != object:
                yield name, value
