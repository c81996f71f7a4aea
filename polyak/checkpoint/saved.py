"""Model files: a description (JSON) and the learned arrays (safetensors), in one zip.

=======================  ===============================================================================================
``polyak.json``          format version, algorithm, policy, hyper-parameters, spaces, counters, small state
``networks.safetensors`` policy, target networks, temperature
``optimizers.safetensors`` the optimizers' tensors; their numbers are in ``polyak.json``
``state.safetensors``    random states, current observations, normalisation statistics
``replay.safetensors``   the replay buffer, if it was included
=======================  ===============================================================================================

Files are written under a temporary name and renamed, so that a failed write keeps the old file. Reading runs no code.
"""

import inspect
import json
import math
import platform
import zipfile
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from importlib import metadata
from pkgutil import resolve_name
from typing import IO, Any, ClassVar, Protocol, TypeVar

import gymnasium as gym
import numpy as np
import safetensors.numpy
import torch
from typing_extensions import Self

from polyak import formats
from polyak.archive import DAMAGED, begins_with, check_members, name_of, open_zip, opened
from polyak.arrays import under
from polyak.checkpoint.arrays import read_arrays, warn_not_finite
from polyak.checkpoint.building import no_larger_than
from polyak.checkpoint.damage import MisfitError, damage_named
from polyak.checkpoint.serialise import Untrusted, UntrustedError, decode, encode, holds_untrusted, warn_untrusted
from polyak.envs.reading import plain_json
from polyak.envs.reading.untrusted import Author
from polyak.hyperparameters.changing import SAVED_WITH, why_fixed
from polyak.hyperparameters.declaration import as_declared, left_out
from polyak.seeding import rng_state, set_rng_state
from polyak.suggestions import did_you_mean
from polyak.warning import printable, warn_user

FORMAT_VERSION = 1
_COUNTERS = (
    *("num_timesteps", "_n_updates", "_episode_num"),
    *("_total_timesteps", "_num_timesteps_at_start", "_current_progress_remaining"),
)
_MAX_COUNT = 2**62
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class LoadRequest:
    """The arguments of :meth:`Algorithm.load`."""

    env: Any = None
    device: torch.device | str = "auto"
    custom_objects: Mapping[str, Any] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Hyper-parameters to change."""
    force_reset: bool = True
    trust: bool = False
    resume: bool = False

    @property
    def given(self) -> dict[str, Any]:
        """Everything that replaces values of the file."""
        return {**self.custom_objects, **self.overrides}

    @property
    def brought(self) -> set[str]:
        """Names of hyper-parameters that are not read from the file."""
        return self.custom_objects.keys() | (self.overrides.keys() - {"policy_kwargs"})


NOTHING_ELSE = LoadRequest()


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass
class Saved:
    """A model file in memory."""

    info: dict[str, Any]
    networks: Arrays = field(default_factory=dict)
    optimizers: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)
    replay: Arrays = field(default_factory=dict)
    foreign: frozenset[str] = frozenset()
    """All names in another library's description. Those that are not hyper-parameters are ignored."""

    def state_of(self, prefix: str) -> Arrays:
        """Returns the arrays of ``state`` under ``prefix/``."""
        return under(prefix, self.state)

    def put(self, name: str, part: Self) -> None:
        """Include another file's contents under a name: of a model that this one owns."""
        self.info[name] = part.info
        for kind in ("networks", "optimizers", "state", "replay"):
            setattr(self, kind, {**getattr(self, kind), **prefixed(name, getattr(part, kind))})

    def part(self, name: str) -> Self:
        """Returns the contents that :meth:`put` included under a name."""
        arrays = {kind: under(name, getattr(self, kind)) for kind in ("networks", "optimizers", "state", "replay")}
        return replace(self, info=self.info[name], foreign=frozenset(), **arrays)

    def without(self, name: str) -> Self:
        """Returns the file without the networks that :meth:`put` included under a name."""
        own = {key: value for key, value in self.networks.items() if not key.startswith(name + "/")}
        return replace(self, networks=own)


def prefixed(prefix: str, arrays: Mapping[str, Any]) -> Arrays:
    """Returns arrays under names that begin with ``prefix/``."""
    return {f"{prefix}/{key}": np.asarray(value) for key, value in arrays.items()}


class Model(Protocol):
    """An algorithm's interface for saving and loading, documented in :class:`~polyak.algorithm.Algorithm`."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def saves_also(self) -> frozenset[str]: ...

    observation_space: gym.Space
    action_space: gym.Space
    ep_info_buffer: deque[dict[str, Any]]
    ep_success_buffer: deque[float]
    clock: Any

    def hyperparameters(self) -> dict[str, Any]: ...
    def _description(self) -> dict[str, Any]: ...
    def _save_state(self, saved: Saved, include: set[str]) -> None: ...
    def _extra_state(self) -> dict[str, Any]: ...
    @classmethod
    def _takes(cls, name: str) -> bool: ...
    @classmethod
    def _unbuilt(cls, policy: Any, device: Any, hyperparameters: dict[str, Any]) -> Self: ...
    def _enter(self, saved: Saved, env: Any) -> None: ...
    def _setup_model(self) -> None: ...
    def _load_state(self, saved: Saved) -> None: ...
    def _load_extra_state(self, state: dict[str, Any]) -> None: ...
    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None: ...
    def _call_built(self) -> None: ...


M = TypeVar("M", bound=Model)


# -- saving ------------------------------------------------------------------------------------------------------------


def save(model: Model, target: Any, exclude: set[str], include: set[str]) -> None:
    """Write ``model``; see :meth:`Algorithm.save`."""
    write(contents(model, exclude, include), target)


def contents(model: Model, exclude: Collection[str], include: Collection[str]) -> Saved:
    """Returns the contents of a model's file. See :meth:`Algorithm.save`."""
    exclude, include = set(exclude), set(include)
    if unknown := include - {*model.saves_also, *model.hyperparameters(), *_COUNTERS}:
        also = " and ".join(map(repr, sorted(model.saves_also))) or "nothing"
        raise ValueError(f"include={sorted(unknown)} cannot be saved: only {also} and what is saved anyway.")
    if nothing := sorted(
        name for name in exclude - include if not (hasattr(model, name) or hasattr(type(model), name))
    ):
        hint = did_you_mean(nothing[0], [*model.hyperparameters(), *_COUNTERS])
        raise ValueError(f"exclude={nothing} leaves nothing out: the model has no such attribute.{hint}")
    saved = taken(model, exclude, include)
    rng_values, rng_arrays = rng_state()
    saved.info["rng"] = rng_values | {"action_space": encode(model.action_space.np_random.bit_generator.state)}
    saved.state |= prefixed("rng", rng_arrays)
    return saved


def write(saved: Saved, target: Any) -> None:
    """Write a file: to a path (``.zip`` is added to a name without a suffix), or to an open file."""
    with opened(target, "wb") as file:
        _write(saved, file)


def taken(model: Model, exclude: Collection[str] = (), include: Collection[str] = ()) -> Saved:
    """Returns the contents of a model's file, without random states. See :meth:`Algorithm.save`."""
    saved = Saved(_describe(model, set(exclude) - set(include)))
    model._save_state(saved, set(include))
    return saved


def _describe(model: Model, exclude: set[str]) -> dict[str, Any]:
    hyper = {name: _encode_named(name, value) for name, value in model.hyperparameters().items() if name not in exclude}
    hyper.pop("device", None)
    return {
        "format": "polyak",
        "format_version": FORMAT_VERSION,
        "algorithm": type(model).__name__,
        "bases": lineage(type(model)),
        "hyperparameters": hyper,
        "observation_space": encode(model.observation_space),
        "action_space": encode(model.action_space),
        **model._description(),
        "counters": {name: getattr(model, name) for name in _COUNTERS if name not in exclude},
        "extra_state": encode(model._extra_state()),
        "ep_info_buffer": encode([dict(episode) for episode in model.ep_info_buffer]),
        "ep_success_buffer": [bool(success) for success in model.ep_success_buffer],
        "system": system_info(),
    }


def lineage(cls: type) -> list[str]:
    """Returns the names of an algorithm's class and its bases, up to the first of polyak's own.

    A user's subclass of an algorithm counts as that algorithm; polyak's own subclasses, such as C51 of DQN, do not.

    A user's subclass of an algorithm counts as that algorithm; polyak's own subclasses, such as C51 of DQN, do not.
    """
    names = []
    for base in cls.__mro__:
        names.append(base.__name__)
        if base.__module__.partition(".")[0] == __name__.partition(".")[0]:
            break
    return names


def _encode_named(name: str, value: Any) -> Any:
    try:
        return encode(value)
    except Exception as error:  # pickling raises almost anything
        raise ValueError(
            f"{name}={value!r:.100} cannot be saved ({type(error).__name__}: {error}). Leave it out: "
            f"save(path, exclude=[{name!r}])."
        ) from error


def split_state(state: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """Splits a flat state dict into JSON values and arrays."""
    values: dict[str, Any] = {}
    arrays: Arrays = {}
    for key, value in state.items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            arrays[key] = value
        elif isinstance(value, Mapping) and value and all(isinstance(item, np.ndarray) for item in value.values()):
            arrays |= {f"{key}//{part}": item for part, item in value.items()}
        else:
            values[key] = encode(value)
    return values, arrays


def join_state(values: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """Inverts :func:`split_state`."""
    state: dict[str, Any] = {key: decode(value) for key, value in values.items()}
    for key, array in arrays.items():
        outer, _, inner = key.partition("//")
        if inner:
            state.setdefault(outer, {})[inner] = array
        else:
            state[key] = array
    return state


def split_tree(tree: Any, arrays: Arrays) -> Any:
    """Converts nested dicts and lists to JSON values; their arrays are added to ``arrays`` under numbers."""
    if isinstance(tree, np.ndarray):
        name = str(len(arrays))
        arrays[name] = tree
        return {"$in": name}
    if isinstance(tree, list):
        return [split_tree(item, arrays) for item in tree]
    if isinstance(tree, dict):
        return {key: split_tree(item, arrays) for key, item in tree.items()}
    return encode(tree)


def join_tree(values: Any, arrays: Arrays) -> Any:
    """Inverts :func:`split_tree`."""
    if isinstance(values, list):
        return [join_tree(item, arrays) for item in values]
    if not isinstance(values, dict):
        return values
    if "$in" in values:
        return arrays[values["$in"]]
    if any(key.startswith("$") for key in values):
        return decode(values)
    return {key: join_tree(item, arrays) for key, item in values.items()}


def _write(saved: Saved, file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("polyak.json", json.dumps(saved.info, indent=1, allow_nan=False))
        for name in ("networks", "optimizers", "state", "replay"):
            if arrays := getattr(saved, name):
                tensors = {key: np.asarray(array, order="C") for key, array in arrays.items()}
                archive.writestr(f"{name}.safetensors", safetensors.numpy.save(tensors))


# -- loading -----------------------------------------------------------------------------------------------------------


def read(
    source: Any,
    suffix: str = ".zip",
    kind: str | None = "polyak",
    *,
    trust: bool = False,
    skip: Collection[str] = (),
    weights_only: bool = False,
) -> Saved:
    """Read a model file, or, with ``kind="polyak-replay"``, a replay buffer's.

    Args:
        source: a path or an open file.
        suffix: added to a path if there is no file of that name.
        kind: the required kind; None: any.
        trust: also read objects pickled by another library, which can run any code.
        skip: for another library's file: names whose values the caller gives, so that they are not read.
        weights_only: for another library's file: read the weights only.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a model file, is damaged, or was written by a newer polyak.
    """
    with opened(source, "rb", suffix) as file:
        name = name_of(file, source)
        try:
            with damage_named(name), open_zip(file, name) as archive:
                foreign = _foreign_reader(archive) if kind == "polyak" else None
                if foreign is None:
                    saved = _read_archive(archive, name)
                else:
                    how: dict[str, Any] = {"trust": trust, "skip": skip, "weights_only": weights_only}
                    saved = resolve_name(foreign)(archive, name, **how)
        except DAMAGED as error:
            reason = "it wasn't a zip-file, or only a part of one" if "not a zip file" in str(error) else error
            raise ValueError(
                f"{name} is not a model file, or it is damaged ({reason}). Save the model again."
            ) from error
    warn_not_finite({**saved.optimizers, **saved.networks}, name)
    if foreign is None and kind not in (None, saved.info.get("format")):
        raise ValueError(f"{name} is a file of kind {saved.info.get('format')!r}, not {kind!r}. Is it the right file?")
    return saved


def description(source: Any) -> dict[str, Any]:
    """Returns the description in a file of polyak's, without reading arrays; errors as of :func:`read`."""
    with opened(source, "rb") as file, damage_named(name := name_of(file, source)), open_zip(file, name) as archive:
        return _description(archive, name, check_members(archive, name))


def _foreign_reader(archive: zipfile.ZipFile) -> str | None:
    members = set(archive.namelist())
    if "polyak.json" in members:
        return None
    return next((reader for marker, reader in formats.MODELS.items() if marker in members), None)


def _read_archive(archive: zipfile.ZipFile, name: str) -> Saved:
    members = check_members(archive, name)
    saved = Saved(_description(archive, name, members))
    for part in ("networks", "optimizers", "state", "replay"):
        if f"{part}.safetensors" in members:
            setattr(saved, part, read_arrays(archive.read(f"{part}.safetensors"), f"{name}: {part}.safetensors"))
    return saved


def _description(archive: zipfile.ZipFile, name: str, members: Collection[str]) -> dict[str, Any]:
    if "polyak.json" not in members:
        raise ValueError(f"{name} was not written by polyak: it holds no polyak.json. Found {sorted(members)[:8]}.")
    info = plain_json.parse_object(archive.read("polyak.json"), f"{name}: polyak.json")
    if not isinstance(version := info.get("format_version", 0), int) or version > FORMAT_VERSION:
        raise ValueError(
            f"{name} has format version {version}; this polyak reads up to {FORMAT_VERSION}. Upgrade polyak."
        )
    return info


def load(
    cls: type[M] | Callable[[Mapping[str, Any]], type[M]], source: Any, wanted: LoadRequest, print_system_info: bool
) -> M:
    """Build a model from a file; see :meth:`Algorithm.load`.

    Args:
        cls: the model's class, or a function that finds it from the file's description.
        source: the file.
        wanted: the caller's arguments.
        print_system_info: print the versions that wrote the file, and the present ones.
    """
    saved = read(source, trust=wanted.trust, skip=wanted.brought)
    info = saved.info
    if print_system_info:
        _print_system_info(info)
    if wanted.resume and saved.foreign:
        raise ValueError("resume=True needs a file that polyak wrote: another library's holds no random states.")
    if not isinstance(cls, type):
        with damage_named(source):
            cls = cls(info)
    return built(cls, saved, source, wanted)


def built(cls: type[M], saved: Saved, source: Any, wanted: LoadRequest = NOTHING_ELSE) -> M:
    """Builds a model from the contents of the file ``source``; see :meth:`Algorithm.load`."""
    try:
        return _built(cls, saved, source, wanted)
    except MisfitError as error:
        if not (blamed := _to_blame(cls, saved, source, wanted)):
            raise
        fix = "Leave it out of load(), or make a new model with it."
        raise MisfitError(f"path={str(source)!r}: what the file holds does not fit {blamed}. {fix}") from error


def _to_blame(cls: type[M], saved: Saved, source: Any, wanted: LoadRequest) -> str:
    """Returns the caller's hyper-parameters that do not fit the file, in words, if it fits its own."""

    def fits(**overrides: Any) -> bool:
        try:
            _built(cls, saved, source, LoadRequest(overrides=overrides, trust=wanted.trust))
        except Exception:  # any error means that it does not fit
            return False
        return True

    given = wanted.given
    unlike = _unlike(saved, given)
    if not unlike or not fits():
        return ""
    return " and ".join(words for name, words in unlike.items() if not fits(**{name: given[name]}))


def _built(cls: type[M], saved: Saved, source: Any, wanted: LoadRequest) -> M:
    info = saved.info
    with damage_named(source):
        _check_algorithm(cls, info)
        hyper, policy = _hyperparameters(cls, saved, wanted)
        observation_space, action_space = (
            wanted.custom_objects.get(name) or decode(info[name]) for name in ("observation_space", "action_space")
        )
        for name, space in (("observation_space", observation_space), ("action_space", action_space)):
            if not isinstance(space, gym.Space):
                raise ValueError(f"the file holds no {name}. Pass custom_objects={{{name!r}: ...}}.")
    _check_overrides(cls, saved, wanted.overrides)

    with damage_named(source):
        _check_saved_with(cls, _unlike(saved, wanted.given))
        model = cls._unbuilt(policy, wanted.device, hyper)
        model.observation_space, model.action_space = observation_space, action_space
        model._enter(saved, wanted.env)
        with no_larger_than(saved.networks.values(), hyper.get("policy_kwargs"), wanted.trust):
            model._setup_model()
        restore(model, saved, wanted.trust)
        model._resume(saved, wanted.resume, wanted.force_reset)
        if wanted.resume:
            set_rng_state(info["rng"], saved.state_of("rng"))
            model.action_space.np_random.bit_generator.state = decode(info["rng"]["action_space"])
            with damage_named(source):
                model.clock.beside = _beside(info)
    model._call_built()
    return model


def _check_algorithm(cls: type, info: Mapping[str, Any]) -> None:
    """Refuse files of other algorithms. A file may be of a subclass, and a subclass may load its base's files."""
    written = info["algorithm"]
    if written is not None and not str(written).isidentifier():
        raise ValueError(f"the file's algorithm is {written!r:.100}, which is no name of a class: it is damaged.")
    if written is not None and written not in lineage(cls) and cls.__name__ not in info["bases"]:
        raise ValueError(f"the file holds a model of {written}, not of {cls.__name__}. Use {written}.load().")


def _hyperparameters(cls: type[Model], saved: Saved, wanted: LoadRequest) -> tuple[dict[str, Any], Any]:
    """Returns the hyper-parameters, from the file except for those that the caller gives, and the policy."""
    custom_objects, overrides, trust = wanted.custom_objects, wanted.overrides, wanted.trust
    given, brought = wanted.given, wanted.brought
    info, known = saved.info, {f.name for f in fields(cls)}
    stored = info["hyperparameters"]
    if saved.foreign or cls.__name__ != info["algorithm"]:  # a subclass may have further attributes
        stored = {name: value for name, value in stored.items() if cls._takes(name)}
    no_use = left_out(cls)  # of earlier versions
    stored = {name: value for name, value in stored.items() if name not in no_use}
    known |= stored.keys()
    hyper = {name: decode(value, trust) for name, value in stored.items() if name not in brought}
    for name, value in as_declared(cls, hyper).items():
        Author(trust).check_values(value, source="its description", key=name, kind="hyperparameter", sizes=True)
    if "policy_kwargs" not in custom_objects:
        _check_policy_kwargs(hyper, overrides)
    policy = _policy(info, custom_objects, trust)
    hyper = warn_untrusted({name: value for name, value in hyper.items() if name not in given})
    let_be = (saved.foreign | _NOT_HYPERPARAMETERS) - known
    if unknown := sorted(custom_objects.keys() - known - let_be - overrides.keys()):
        warn_user(f"custom_objects={unknown} replace nothing: the file has no such values.")
        let_be |= set(unknown)
    return hyper | {name: value for name, value in given.items() if name not in let_be}, policy


def _policy(info: Mapping[str, Any], custom_objects: Mapping[str, Any], trust: bool) -> Any:
    """Returns the policy's name or class; ``None`` for an algorithm without one."""
    if (policy := custom_objects.get("policy_class")) is None:
        if "policy" not in info:
            return None
        policy = info["policy"]
    if isinstance(policy, dict):
        policy = decode(policy, trust)
    if not isinstance(policy, str | type | Untrusted):
        raise ValueError(f"the file's policy is {policy!r:.100}. Pass custom_objects={{'policy_class': ...}}.")
    if isinstance(policy, Untrusted):
        raise UntrustedError(
            f"the file's policy is {policy}. Pass custom_objects={{'policy_class': ...}}, or trust=True if you trust "
            "the file."
        )
    return policy


_NOT_HYPERPARAMETERS = frozenset(
    ("observation_space", "action_space", "policy_class", "lr_schedule", "exploration_schedule")
)
"""Attributes that programs for Stable-Baselines3 pass as custom objects. The schedules follow from other values."""


def _check_overrides(cls: type, saved: Saved, overrides: Mapping[str, Any]) -> None:
    """Refuse unknown names, because not every constructor does."""
    if not overrides:
        return
    parameters = inspect.signature(cls).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    known = {*(f.name for f in fields(cls)), *parameters, *saved.info["hyperparameters"], *saved.foreign}
    known -= left_out(cls)
    if unknown := sorted(overrides.keys() - known - _NOT_HYPERPARAMETERS):
        hint = did_you_mean(unknown[0], known)
        raise TypeError(f"{cls.__name__}.load() got an unexpected keyword argument {unknown[0]!r}.{hint}")


def _unlike(saved: Saved, given: Mapping[str, Any]) -> dict[str, str]:
    """Returns the caller's hyper-parameters that differ from the file's, in words."""
    stored = saved.info["hyperparameters"]
    found = {}
    for name, value in given.items():
        if saved.foreign and name in stored and stored[name] is None:  # another library's file may omit it
            continue
        if name in saved.foreign and name not in stored:
            found[name] = f"{name}={value!r:.100}"
        elif name in stored and not isinstance(was := stored[name], dict) and not np.array_equal(value, was):
            found[name] = f"{name}={value!r:.100}, which is {was!r:.100} in the file"
    return found


def _check_saved_with(cls: type, unlike: Mapping[str, str]) -> None:
    """Refuse a change of hyper-parameters that the file's networks and optimizers depend on."""
    for name, words in unlike.items():
        if name != "policy_kwargs" and (why := why_fixed(cls, name)) in SAVED_WITH:
            fix = "Leave it out of load(), or make a new model with it."
            raise ValueError(f"{words}, cannot be used: {why.partition('.')[0]}. {fix}")


def _check_policy_kwargs(hyper: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    given, stored = overrides.get("policy_kwargs"), hyper.get("policy_kwargs")
    if holds_untrusted(stored):
        if given is None:
            raise UntrustedError(
                f"the file's policy_kwargs={stored} hold pickled code. Pass them through custom_objects="
                "{'policy_kwargs': ...}, or pass trust=True if you trust the file."
            )
    elif given is not None and given != stored:
        raise ValueError(
            f"policy_kwargs={given} differ from those in the file, {stored}. Leave them out: the networks must be"
            " those that were saved."
        )


def restore(model: Model, saved: Saved, trust: bool = False) -> None:
    """Load the contents of a file into a model that was set up."""
    info = saved.info
    for name, value in info["counters"].items():
        if name in _COUNTERS:
            check_counter(name, value)
            setattr(model, name, value)
    model._load_state(saved)
    model.ep_info_buffer.extend(_episodes(decode(info["ep_info_buffer"])))
    model.ep_success_buffer.extend(_successes(info["ep_success_buffer"]))
    extra = decode(info["extra_state"], trust)
    _check_kinds(extra, model._extra_state())
    model._load_extra_state(extra)


def _beside(info: Mapping[str, Any]) -> Any:
    """Returns a full checkpoint's training state outside of the model; ``None`` for other files."""
    if (found := info.get("beside")) is not None:
        for name in ("total", "started_at", "iterations", "seconds"):
            check_counter(name, found["clock"][name])
    return found


def check_counter(name: str, value: Any, least: int = 0, most: int = _MAX_COUNT) -> None:
    """Refuse an implausible counter.

    Raises:
        ValueError: the value is not a number from ``least`` to ``most``, or a fraction of an integer counter.
    """
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if name == "_current_progress_remaining":  # negative in a run that is longer than planned
        least = -most
    elif name not in ("_total_timesteps", "seconds"):
        number = number and value == int(value)
    if not number or not least <= value <= most:
        raise ValueError(f"the file's {name} is {value!r:.80}, which no training arrives at: it is damaged.")


def _episodes(found: Any) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(episode, dict) for episode in found):
        raise ValueError(f"the file's ep_info_buffer is {found!r:.80}, not a list of episodes: it is damaged.")
    return found


def _successes(found: Any) -> list[bool]:
    if not isinstance(found, list) or not all(isinstance(success, bool | int | float) for success in found):
        raise ValueError(f"the file's ep_success_buffer is {found!r:.80}, not a list of truths: it is damaged.")
    return found


def _check_kinds(found: Any, own: Mapping[str, Any]) -> None:
    """Refuse values whose types differ from the model's own."""
    if not isinstance(found, dict):
        raise ValueError(f"the file's extra_state is {found!r:.80}, not names and values: it is damaged.")
    for name in found.keys() & own.keys():
        value, mine = found[name], own[name]
        if isinstance(mine, bool) and not isinstance(value, bool):
            raise ValueError(f"the file's {name} is {value!r:.80}, neither true nor false: it is damaged.")
        if isinstance(mine, int) and not isinstance(mine, bool):
            check_counter(name, value, least=min(mine, 0))
        elif isinstance(mine, float) and (type(value) not in (int, float) or not math.isfinite(value)):
            raise ValueError(f"the file's {name} is {value!r:.80}, not a number: it is damaged.")


# -- replay buffers ----------------------------------------------------------------------------------------------------


class BufferInFile(Protocol):
    """A replay buffer's interface for saving."""

    observation_space: gym.Space
    action_space: gym.Space

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def save_buffer(buffer: BufferInFile, target: Any) -> None:
    """Write the filled part of a replay buffer; see :meth:`OffPolicyAlgorithm.save_replay_buffer`."""
    values, arrays = split_state(buffer.state_dict())
    info = {"format": "polyak-replay", "format_version": FORMAT_VERSION, "replay": values}
    info |= {name: encode(getattr(buffer, name)) for name in ("observation_space", "action_space")}
    with opened(target, "wb", suffix=".pkl") as file:
        _write(Saved(info, replay=arrays), file)


def load_buffer(
    buffer: BufferInFile,
    source: Any,
    trust: bool = False,
    make_room: Callable[[dict[str, Any]], BufferInFile] | None = None,
) -> None:
    """Read a file of :func:`save_buffer`, or a replay buffer of another library.

    Args:
        buffer: takes the contents.
        source: a path or an open file.
        trust: also read objects pickled by another library, which can run any code.
        make_room: returns the buffer for a file of :func:`save_buffer`, given its state; ``None``: ``buffer``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a replay buffer, or does not fit this one.
    """
    with opened(source, "rb", suffix=".pkl") as file:
        for start, reader in formats.BUFFERS.items():
            if begins_with(file, start):
                resolve_name(reader)(file, name_of(file, source), buffer, trust=trust)
                return
    with damage_named(source):
        saved = read(source, suffix=".pkl", kind="polyak-replay")
        state = join_state(saved.info["replay"], saved.replay)
        (buffer if make_room is None else make_room(state)).load_state_dict(state)


# -- system information ------------------------------------------------------------------------------------------------


_version = cache(metadata.version)  # reading it takes milliseconds


def system_info() -> dict[str, str]:
    """Returns the versions of all relevant software."""
    return {
        "OS": platform.platform(),
        "Python": platform.python_version(),
        "polyak": _version("polyak"),
        "PyTorch": torch.__version__,
        "GPU": str(torch.cuda.is_available()),
        "NumPy": np.__version__,
        "Gymnasium": gym.__version__,
    }


def _print_system_info(info: Mapping[str, Any]) -> None:
    for title, system in (("CURRENT SYSTEM INFO", system_info()), ("SAVED MODEL SYSTEM INFO", info["system"])):
        print(f"== {title} ==")
        for key, value in system.items():
            print(printable(f"- {key}: {value}"))
        print()
