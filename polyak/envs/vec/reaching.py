"""Reaching into the environments of a VecEnv: attributes and methods through wrappers, states, statistics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np

from polyak.envs.state import get_state, layers_of, set_state, states_of_all
from polyak.envs.vec.vec_env import VecEnv, VecEnvIndices
from polyak.envs.wrapper_statistics import Found, found_in, put_into
from polyak.warning import warn_user


@contextmanager
def noted(note: str) -> Iterator[None]:
    """Add a line to the printed message of an exception of the block."""
    try:
        yield
    except (Exception, SystemExit) as error:
        add_note(error, note)
        raise


def add_note(error: BaseException, note: str) -> None:
    """Add a line to the printed message of an exception (before Python 3.11: to its arguments)."""
    if hasattr(error, "add_note"):
        error.add_note(note)
    elif error.args and isinstance(error.args[0], str):
        error.args = (f"{error.args[0]}\n{note}", *error.args[1:])


def get_env_attr(env: gym.Env, name: str) -> Any:
    """Read an attribute of the outermost wrapper that has it, or of the environment itself."""
    return env.get_wrapper_attr(name)


def set_env_attr(env: gym.Env, name: str, value: Any) -> None:
    """Set an attribute on the outermost wrapper that has it, or on the environment itself.

    Setting it on the outermost wrapper, whether or not it has it, would leave the environment's own value as it was.
    An attribute that none has yet is created on the outermost wrapper, with a warning.
    """
    layer = next((layer for layer in layers_of(env) if _can_set(layer, name)), None)
    if layer is None and isinstance(env, gym.Wrapper):
        _warn_created(env, name)
    setattr(env if layer is None else layer, name, value)


def _can_set(env: gym.Env, name: str) -> bool:
    if name in vars(env):
        return True
    inherited = getattr(type(env), name, None)
    if isinstance(inherited, property):
        return inherited.fset is not None
    # `hasattr` on the type, not on the instance: wrappers of old gymnasium versions forwarded reads inwards.
    return hasattr(type(env), name)


_warned: set[tuple[str, str]] = set()


def _warn_created(env: gym.Env, name: str) -> None:
    place = f"{type(env).__module__}.{type(env).__qualname__}"
    if (place, name) in _warned:
        return
    _warned.add((place, name))
    warn_user(
        f"set_attr({name!r}): neither the environment nor a wrapper around it had this attribute; it was created on "
        f"the outermost wrapper, {type(env).__name__}, where the environment itself does not see it."
    )


def is_env_wrapped(env: gym.Env, wrapper_class: type[gym.Wrapper]) -> bool:
    """Whether a wrapper of the class is around the environment."""
    return any(isinstance(layer, gym.Wrapper) and isinstance(layer, wrapper_class) for layer in layers_of(env))


def _call_method(env: gym.Env, argument: tuple[str, tuple[Any, ...], dict[str, Any]]) -> Any:
    name, args, kwargs = argument
    return get_env_attr(env, name)(*args, **kwargs)


CALLS: dict[str, Callable[[gym.Env, Any], Any]] = {
    "get_attr": get_env_attr,
    "set_attr": lambda env, argument: set_env_attr(env, *argument),
    "env_method": _call_method,
    "env_is_wrapped": is_env_wrapped,
    "get_state": lambda env, _: get_state(env),
    "set_state": set_state,
    "get_statistics": lambda env, _: found_in(env),
    "set_statistics": put_into,
}
"""The operations on one environment, each with an argument."""


class GymEnvs(VecEnv):
    """A VecEnv of separate Gymnasium environments, here or in other processes."""

    @abstractmethod
    def _call(self, what: str, argument: Any, indices: VecEnvIndices) -> list[Any]:
        """Calls ``CALLS[what]`` with each chosen environment and the argument; returns the results."""

    def get_state(self) -> dict[str, Any]:
        """Returns the states of the environments: see :meth:`polyak.envs.VecEnv.get_state`. Global random generators of
        processes are not included.

        Raises:
            EnvStateError: the state of an environment cannot be read.
        """
        return {"envs": self._call("get_state", None, None)}

    def set_state(self, state: dict[str, Any]) -> None:
        for index, one in enumerate(states_of_all(state, self.num_envs)):
            self._call("set_state", one, index)

    def get_statistics(self, indices: VecEnvIndices = None) -> list[Found]:
        return self._call("get_statistics", None, indices)

    def set_statistics(self, found: list[Found], indices: VecEnvIndices = None) -> None:
        for index, one in zip(self._get_indices(indices), found, strict=True):
            self._call("set_statistics", one, index)

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return self._call("get_attr", attr_name, indices)

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        self._call("set_attr", (attr_name, value), indices)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        return self._call("env_method", (method_name, method_args, method_kwargs), indices)

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        return self._call("env_is_wrapped", wrapper_class, indices)

    def get_images(self) -> Sequence[np.ndarray | None]:
        if self.render_mode != "rgb_array":
            warn_user(
                f"get_images() needs environments made with render_mode='rgb_array', these have {self.render_mode!r}."
            )
            return [None] * self.num_envs
        return self.env_method("render")
