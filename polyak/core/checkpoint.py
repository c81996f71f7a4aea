"""Models as files: how to build it (JSON) and what it learned (safetensors), in one zip.

=======================  ===============================================================================================
``polyak.json``          format version, algorithm, policy, hyper-parameters, spaces, counters, small state
``networks.safetensors`` policy, target networks, temperature
``optimizers.safetensors`` the optimizers' tensors; their numbers are in ``polyak.json``
``state.safetensors``    random states, observations in hand, normalisation statistics
``replay.safetensors``   the replay buffer, if it was included
=======================  ===============================================================================================

Files are written under a temporary name and renamed, so that a broken write leaves the old file. Reading runs no code.
"""

import contextlib
import json
import os
import platform
import struct
import tempfile
import zipfile
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

import gymnasium as gym
import numpy as np
import safetensors.numpy
import torch
from safetensors import SafetensorError
from torch import Tensor

from polyak.core.learner import Learner
from polyak.core.runner import Runner
from polyak.core.seeding import rng_state, set_rng_state
from polyak.core.serialise import Untrusted, UntrustedError, decode, encode, holds_untrusted, warn_untrusted
from polyak.envs import VecEnv, VecNormalize, as_vec_env, unwrap_vec_normalize
from polyak.envs.spaces import check_for_correct_spaces

FORMAT_VERSION = 1
_COUNTERS = (
    "num_timesteps",
    "_n_updates",
    "_episode_num",
    "_total_timesteps",
    "_num_timesteps_at_start",
    "_current_progress_remaining",
)
_MAX_JSON_BYTES = 64 * 2**20
Arrays = dict[str, np.ndarray]


class Model(Protocol):
    """What saving and loading need of an algorithm."""

    learner: Learner
    runner: Runner | None
    verbose: int
    n_envs: int
    observation_space: gym.Space
    action_space: gym.Space
    ep_info_buffer: deque[dict[str, Any]]
    ep_success_buffer: deque[bool]
    _policy_name: Any

    def __init__(self, policy: Any, env: Any, **hyperparameters: Any) -> None: ...
    def hyperparameters(self) -> dict[str, Any]: ...
    def get_vec_normalize_env(self) -> VecNormalize | None: ...
    def _use_env(self, env: VecEnv) -> None: ...
    def _setup_model(self) -> None: ...
    def _extra_state(self) -> dict[str, Any]: ...
    def _load_extra_state(self, state: dict[str, Any]) -> None: ...


M = TypeVar("M", bound=Model)


# -- parameters by Stable-Baselines3's names ---------------------------------------------------------------------------


def _optimizer_key(name: str) -> str:
    return "ent_coef_optimizer" if name == "ent_coef" else f"{name}.optimizer"


def parameters(learner: Learner) -> dict[str, Any]:
    """``{"policy": ..., "actor.optimizer": ..., ...}``, and the learner's own tensors by their names."""
    own = {name: p.detach() for name, p in learner.named_parameters(recurse=False)}
    optimizers = {_optimizer_key(name): optimizer.state_dict() for name, optimizer in learner.optimizers.items()}
    return {"policy": learner.policy.state_dict(), **optimizers, **own}


def set_parameters(learner: Learner, values: Mapping[str, Any], exact_match: bool = True) -> None:
    """Load what :func:`parameters` returned; see :meth:`Algorithm.set_parameters`."""
    targets = parameters(learner).keys()
    optional = {name for name, _ in learner.named_parameters(recurse=False)}
    if unknown := sorted(values.keys() - targets):
        raise ValueError(f"{unknown[0]!r} is not a part of this model, whose parts are {sorted(targets)}.")
    if exact_match and (missing := sorted(targets - optional - values.keys())):
        raise ValueError(
            f"exact_match=True needs every part of the model, but {missing} are missing. Pass exact_match=False to"
            " load only what is there."
        )
    if "policy" in values:
        learner.policy.load_state_dict(values["policy"], strict=exact_match)
    for name in learner.optimizers:
        if (key := _optimizer_key(name)) in values:
            learner.load_optimizer(name, values[key])
    for name in optional & values.keys():
        with torch.no_grad():
            learner.get_parameter(name).copy_(values[name])


# -- the file ----------------------------------------------------------------------------------------------------------


@dataclass
class Saved:
    """A model file in memory."""

    info: dict[str, Any]
    networks: Arrays = field(default_factory=dict)
    optimizers: Arrays = field(default_factory=dict)
    state: Arrays = field(default_factory=dict)
    replay: Arrays = field(default_factory=dict)

    def optimizer_state(self, name: str) -> dict[str, Any]:
        """A torch optimizer's state dict."""
        stored = self.info["optimizers"][name]
        state: dict[int, dict[str, Any]] = {int(i): dict(values) for i, values in stored["state"].items()}
        prefix = f"{name}/"
        for key, array in self.optimizers.items():
            if key.startswith(prefix):
                index, value_name = key[len(prefix) :].split("/")
                state.setdefault(int(index), {})[value_name] = torch.from_numpy(array)
        groups = [{key: decode(value) for key, value in group.items()} for group in stored["groups"]]
        return {"state": state, "param_groups": groups}

    def parameters(self) -> dict[str, Any]:
        """As :func:`parameters` returns them."""
        tensors = {name: torch.from_numpy(array) for name, array in self.networks.items()}
        policy = {k.removeprefix("policy."): v for k, v in tensors.items() if k.startswith("policy.")}
        own = {k: v for k, v in tensors.items() if not k.startswith("policy.")}
        optimizers = {_optimizer_key(name): self.optimizer_state(name) for name in self.info["optimizers"]}
        return {"policy": policy, **optimizers, **own}

    def state_of(self, prefix: str) -> Arrays:
        """The arrays of ``state`` under ``prefix/``."""
        return {key[len(prefix) + 1 :]: value for key, value in self.state.items() if key.startswith(prefix + "/")}


def _split_optimizer(name: str, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], Arrays]:
    """An optimizer's state as numbers for JSON and arrays for safetensors."""
    saved = optimizer.state_dict()
    numbers: dict[str, dict[str, Any]] = {}
    arrays: Arrays = {}
    for index, values in saved["state"].items():
        numbers[str(index)] = {key: value for key, value in values.items() if not isinstance(value, Tensor)}
        arrays |= {f"{name}/{index}/{k}": v.numpy(force=True) for k, v in values.items() if isinstance(v, Tensor)}
    groups = [{key: _number(value) for key, value in group.items()} for group in saved["param_groups"]]
    return {"state": numbers, "groups": groups}, arrays


def _number(value: Any) -> Any:
    return encode(value.item() if isinstance(value, Tensor) and value.dim() == 0 else value)


def _prefixed(prefix: str, arrays: Mapping[str, Any]) -> Arrays:
    return {f"{prefix}/{key}": np.asarray(value) for key, value in arrays.items()}


# -- saving ------------------------------------------------------------------------------------------------------------


def save(model: Model, target: Any, exclude: set[str], include: set[str]) -> None:
    """Write ``model``; see :meth:`Algorithm.save`."""
    if unknown := include - {"replay_buffer"}:
        raise ValueError(f"include={sorted(unknown)} cannot be saved. Known: ['replay_buffer'].")
    info, saved = _describe(model, exclude), Saved({})
    info["optimizers"] = {}
    for name, optimizer in model.learner.optimizers.items():
        info["optimizers"][name], arrays = _split_optimizer(name, optimizer)
        saved.optimizers |= arrays
    saved.networks = {name: tensor.numpy(force=True) for name, tensor in model.learner.networks().items()}
    rng_values, rng_arrays = rng_state()
    info["rng"] = rng_values | {"action_space": encode(model.action_space.np_random.bit_generator.state)}
    saved.state |= _prefixed("rng", rng_arrays)
    if model.runner is not None:
        saved.state |= _prefixed("runner", model.runner.state())
    if (normalizer := model.get_vec_normalize_env()) is not None:
        info["normalizer"], arrays = _split_state(normalizer.state_dict())
        saved.state |= _prefixed("normalizer", arrays)
    if "replay_buffer" in include:
        buffer = getattr(model, "replay_buffer", None)
        if buffer is None:
            raise ValueError("include=['replay_buffer']: this model has no replay buffer.")
        info["replay"], saved.replay = _split_state(buffer.state_dict())
    saved.info = info
    with _opened(target, "wb") as file:
        _write(saved, file)


def _describe(model: Model, exclude: set[str]) -> dict[str, Any]:
    hyper = {name: encode(value) for name, value in model.hyperparameters().items() if name not in exclude}
    hyper.pop("device", None)
    policy = model._policy_name
    return {
        "format": "polyak",
        "format_version": FORMAT_VERSION,
        "algorithm": type(model).__name__,
        "bases": [cls.__name__ for cls in type(model).__mro__],
        "policy": policy if isinstance(policy, str) else encode(policy),
        "hyperparameters": hyper,
        "observation_space": encode(model.observation_space),
        "action_space": encode(model.action_space),
        "n_envs": model.n_envs,
        "counters": {name: getattr(model, name) for name in _COUNTERS if name not in exclude},
        "learner_steps": model.learner.steps,
        "extra_state": encode(model._extra_state()),
        "ep_info_buffer": encode([dict(episode) for episode in model.ep_info_buffer]),
        "ep_success_buffer": [bool(success) for success in model.ep_success_buffer],
        "system": system_info(),
    }


def _split_state(state: Mapping[str, Any]) -> tuple[dict[str, Any], Arrays]:
    """A flat state dict as JSON values and arrays."""
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


def _join_state(values: Mapping[str, Any], arrays: Arrays) -> dict[str, Any]:
    """The inverse of :func:`_split_state`."""
    state: dict[str, Any] = {key: decode(value) for key, value in values.items()}
    for key, array in arrays.items():
        outer, _, inner = key.partition("//")
        if inner:
            state.setdefault(outer, {})[inner] = array
        else:
            state[key] = array
    return state


def _write(saved: Saved, file: IO[bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("polyak.json", json.dumps(saved.info, indent=1, allow_nan=False))
        for name in ("networks", "optimizers", "state", "replay"):
            if arrays := getattr(saved, name):
                tensors = {key: np.asarray(array, order="C") for key, array in arrays.items()}
                archive.writestr(f"{name}.safetensors", safetensors.numpy.save(tensors))


@contextlib.contextmanager
def _opened(target: Any, mode: str, suffix: str = ".zip") -> Iterator[IO[bytes]]:
    """A file given by path (``suffix`` added where there is no suffix) or already open.

    Writing to a path goes to a temporary file beside it, renamed once complete.
    """
    if not isinstance(target, str | os.PathLike):
        if not hasattr(target, "write" if mode == "wb" else "read"):
            raise TypeError(f"path={target!r} is neither a path nor an open binary file.")
        yield target
        return
    path = Path(target)
    if (mode == "wb" and not path.suffix) or (mode == "rb" and not path.is_file()):
        path = path.with_name(path.name + suffix)
    if mode == "rb":
        if not path.is_file():
            raise FileNotFoundError(f"path={str(target)!r}: there is no file {str(path)!r}.")
        with path.open("rb") as file:
            yield file
        return
    with replacing(path) as file:
        yield file


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of ``path`` only when the block has ended without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


# -- loading -----------------------------------------------------------------------------------------------------------


def read(source: Any, suffix: str = ".zip", kind: str = "polyak") -> Saved:
    """Read a model file (or, with ``kind="polyak-replay"``, a replay buffer's).

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not a model file of polyak's, it is damaged, or a newer polyak wrote it.
    """
    with _opened(source, "rb", suffix) as file:
        name = str(getattr(file, "name", None) or repr(source))
        try:
            with zipfile.ZipFile(file) as archive:
                saved = _read_archive(archive, name)
        except (zipfile.BadZipFile, EOFError, SafetensorError, struct.error, UnicodeDecodeError) as error:
            raise ValueError(
                f"{name} is not a model file, or it is damaged ({error}). Save the model again."
            ) from error
    if saved.info.get("format") != kind:
        raise ValueError(f"{name} is a file of kind {saved.info.get('format')!r}, not {kind!r}. Is it the right file?")
    return saved


def _read_archive(archive: zipfile.ZipFile, name: str) -> Saved:
    members = set(archive.namelist())
    if "polyak.json" not in members:
        foreign = "It looks like a Stable-Baselines3 file. " if "policy.pth" in members else ""
        raise ValueError(
            f"{name} was not written by polyak: it holds no polyak.json. {foreign}Found {sorted(members)[:8]}."
        )
    if archive.getinfo("polyak.json").file_size > _MAX_JSON_BYTES:
        raise ValueError(f"{name} is damaged: polyak.json is larger than {_MAX_JSON_BYTES} bytes.")
    try:
        info = json.loads(archive.read("polyak.json"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{name} is damaged: polyak.json cannot be read ({error}).") from error
    if info.get("format_version", 0) > FORMAT_VERSION:
        raise ValueError(
            f"{name} has format version {info['format_version']}; this polyak reads up to {FORMAT_VERSION}."
            " Upgrade polyak."
        )
    for member in members:
        if archive.getinfo(member).compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{name} is damaged: {member} is compressed, which polyak never does.")
    arrays = {}
    for part in ("networks", "optimizers", "state", "replay"):
        stored = archive.read(f"{part}.safetensors") if f"{part}.safetensors" in members else None
        arrays[part] = safetensors.numpy.load(stored) if stored else {}
    return Saved(info, **arrays)


def load(
    cls: type[M],
    source: Any,
    env: Any,
    device: torch.device | str,
    overrides: dict[str, Any],
    print_system_info: bool,
    force_reset: bool,
    trust: bool,
    resume: bool,
) -> M:
    """Build a model from a file; see :meth:`Algorithm.load`."""
    saved = read(source)
    info = saved.info
    if print_system_info:
        _print_system_info(info)
    if cls.__name__ != info["algorithm"] and cls.__name__ not in info["bases"]:
        raise ValueError(
            f"the file holds a model of {info['algorithm']}, not of {cls.__name__}. Use {info['algorithm']}.load()."
        )
    hyper = {name: decode(value, trust) for name, value in info["hyperparameters"].items()}
    _check_policy_kwargs(hyper, overrides)
    hyper = warn_untrusted({name: value for name, value in hyper.items() if name not in overrides}) | overrides
    policy = info["policy"] if isinstance(info["policy"], str) else decode(info["policy"], trust)
    if isinstance(policy, Untrusted):
        raise ValueError(f"the file's policy is {policy}. Pass trust=True if you trust the file.")
    observation_space, action_space = decode(info["observation_space"]), decode(info["action_space"])

    model = cls(policy, None, **hyper, device=device, _init_setup_model=False)
    model.observation_space, model.action_space, model.n_envs = observation_space, action_space, info["n_envs"]
    if env is not None:
        vec_env = as_vec_env(env, verbose=model.verbose)
        if "normalizer" in info:
            vec_env = _with_statistics(vec_env, saved)
        check_for_correct_spaces(vec_env, observation_space, action_space)
        model._use_env(vec_env)
    model._setup_model()
    _restore(model, saved)
    if env is not None and not force_reset and model.runner is not None:
        model.runner.load_state(saved.state_of("runner"))
    if resume:
        if saved.replay:
            model.replay_buffer.load_state_dict(_join_state(info["replay"], saved.replay))  # type: ignore[attr-defined]
        set_rng_state(info["rng"], saved.state_of("rng"))
        model.action_space.np_random.bit_generator.state = decode(info["rng"]["action_space"])
    return model


def _check_policy_kwargs(hyper: dict[str, Any], overrides: dict[str, Any]) -> None:
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


def _with_statistics(env: Any, saved: Saved) -> Any:
    """``env`` under the file's normalisation: wrapped, unless it has a normalising wrapper of its own already."""
    if unwrap_vec_normalize(env) is not None:
        return env
    return VecNormalize.from_state_dict(env, _join_state(saved.info["normalizer"], saved.state_of("normalizer")))


def _restore(model: Model, saved: Saved) -> None:
    learner, info = model.learner, saved.info
    learner.load_networks({name: torch.from_numpy(array) for name, array in saved.networks.items()})
    for name in learner.optimizers:
        learner.load_optimizer(name, saved.optimizer_state(name))
    for name, value in info["counters"].items():
        if name in _COUNTERS:
            setattr(model, name, value)
    learner.steps = info["learner_steps"]
    model.ep_info_buffer.extend(decode(info["ep_info_buffer"]))
    model.ep_success_buffer.extend(info["ep_success_buffer"])
    model._load_extra_state(decode(info["extra_state"]))


# -- replay buffers ----------------------------------------------------------------------------------------------------


class Buffer(Protocol):
    """What saving needs of a replay buffer."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def save_buffer(buffer: Buffer, target: Any) -> None:
    """Write the filled part of a replay buffer; see :meth:`OffPolicyAlgorithm.save_replay_buffer`."""
    values, arrays = _split_state(buffer.state_dict())
    info = {"format": "polyak-replay", "format_version": FORMAT_VERSION, "replay": values}
    with _opened(target, "wb", suffix=".pkl") as file:
        _write(Saved(info, replay=arrays), file)


def load_buffer(buffer: Buffer, source: Any) -> None:
    """Read what :func:`save_buffer` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not such a file, or it does not fit the buffer.
    """
    saved = read(source, suffix=".pkl", kind="polyak-replay")
    buffer.load_state_dict(_join_state(saved.info["replay"], saved.replay))


# -- what wrote a file -------------------------------------------------------------------------------------------------


def system_info() -> dict[str, str]:
    """Versions of everything that matters to a model."""
    return {
        "OS": platform.platform(),
        "Python": platform.python_version(),
        "polyak": metadata.version("polyak"),
        "PyTorch": torch.__version__,
        "GPU": str(torch.cuda.is_available()),
        "NumPy": np.__version__,
        "Gymnasium": gym.__version__,
    }


def _print_system_info(info: Mapping[str, Any]) -> None:
    for title, system in (("CURRENT SYSTEM INFO", system_info()), ("SAVED MODEL SYSTEM INFO", info["system"])):
        print(f"== {title} ==")
        for key, value in system.items():
            print(f"- {key}: {value}")
        print()
