"""Conversion of ``data`` of a model's zip, the model's attributes, to the description in polyak's own files."""

from __future__ import annotations

import base64
import binascii
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from torch import Tensor
from torch.optim import RMSprop

from polyak import algorithms
from polyak.checkpoint.serialise import UntrustedError, decode, encode
from polyak.compat.sb3_face.files import unpickle
from polyak.compat.sb3_face.files.names import ALGORITHMS, BUFFER_OPTIONS, NOT_ATTRIBUTES, PolicyName
from polyak.compat.sb3_face.files.translate import number, whole
from polyak.compat.sb3_face.maskable.buffers import MaskableDictRolloutBuffer, MaskableRolloutBuffer
from polyak.compat.sb3_face.recurrent.options import to_polyak
from polyak.experience import (
    DictReplayBuffer,
    DictRolloutBuffer,
    HerReplayBuffer,
    NStepReplayBuffer,
    ReplayBuffer,
    RolloutBuffer,
)
from polyak.schedules import ConstantSchedule, FloatSchedule

_COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_total_timesteps", "_num_timesteps_at_start")
_HYPERPARAMETERS = frozenset(
    name
    for algorithm in ALGORITHMS
    for name in inspect.signature(getattr(algorithms, algorithm)).parameters
    if name not in NOT_ATTRIBUTES | {"policy", "env"}
)
"""Arguments of polyak's algorithms: the peer keeps them as attributes of the same names."""
_MASKABLE_BUFFERS = (MaskableRolloutBuffer, MaskableDictRolloutBuffer)
_USUAL_BUFFERS = (
    *(ReplayBuffer, DictReplayBuffer, NStepReplayBuffer),
    *(RolloutBuffer, DictRolloutBuffer, *_MASKABLE_BUFFERS),
)
"""The buffer classes that polyak chooses by itself."""
_OTHER_ATTRIBUTES = (
    *("policy_class", "observation_space", "action_space", "n_envs", "_last_obs", "_last_original_obs"),
    *("_last_episode_starts", "ep_info_buffer", "ep_success_buffer", "_current_progress_remaining"),
    *("exploration_rate", "_n_calls", "_stats_window_size", "delta_std_schedule"),
)
_RMS_PROP = {"alpha": 0.99, "weight_decay": 0}


READ = frozenset((*_HYPERPARAMETERS, *_COUNTERS, *_OTHER_ATTRIBUTES))
"""Attributes that are used here. The others are ignored: schedules that are made from numbers, the clock ..."""


@dataclass(frozen=True)
class Unreadable:
    """A pickle that is not read without trust; ``code`` is kept for users that trust it."""

    code: str
    kind: str
    reason: str


Entry = Any
"""A value of ``data``: as JSON has it, as the pickle has it, or :class:`Unreadable`."""


def read_entry(value: Any, trust: bool) -> Entry:
    """Decodes one value of ``data``."""
    if not isinstance(value, dict) or ":serialized:" not in value:
        return value
    origin = f" of {value['__module__']}" if "__module__" in value else ""
    code, kind = value[":serialized:"], f"{value.get(':type:', '?')}{origin}"[:200]
    try:
        return unpickle.loads(base64.b64decode(code, validate=True), trust)
    except (UntrustedError, ValueError, TypeError, binascii.Error) as error:
        return Unreadable(str(code), kind, str(error))
    except Exception as error:
        if not trust:
            raise
        return Unreadable(str(code), kind, f"{type(error).__name__}: {error}")  # of another version of Python, perhaps


def describe(
    entries: Mapping[str, Entry], weights: Mapping[str, Tensor], optimizers: Mapping[str, Any], name: str
) -> dict[str, Any]:
    """Returns the description of the model, in the form of ``polyak.json``.

    Raises:
        ValueError: the algorithm is not one of polyak's, or the description lacks an entry.
    """
    policy = entries.get("policy_class")
    algorithm = algorithm_of(entries, policy)
    if algorithm == "PPO" and any(key.startswith("actor_memory.") for key in weights):  # with a user's policy
        algorithm = "RecurrentPPO"
    hyper = {key: _encoded(entries[key]) for key in _HYPERPARAMETERS if key in entries}
    hyper |= {key: value for key, value in _adjusted(entries, weights, optimizers).items() if key in hyper}
    if algorithm == "A2C" and isinstance(entries.get("policy_kwargs"), dict):
        hyper |= _rms_prop(hyper["policy_kwargs"])
    if algorithm == "ARS" and (length := entries.get("delta_std_schedule")) is not None:
        hyper["delta_std"] = _encoded(length) if (constant := _constant(length)) is None else constant
    if isinstance(window := entries.get("_stats_window_size"), int):
        hyper["stats_window_size"] = window
    return {
        "format": "polyak",
        "format_version": 1,
        "algorithm": algorithm,
        "bases": ["DDPG", "TD3"] if algorithm == "DDPG" else [algorithm],
        "policy": policy.alias if isinstance(policy, PolicyName) else _encoded(policy),
        "hyperparameters": hyper,
        **{key: _space(entries, key, name) for key in ("observation_space", "action_space")},
        "n_envs": whole(entries.get("n_envs", 1), "n_envs", 1),
        "counters": {key: whole(entries[key], key) for key in _COUNTERS if entries.get(key) is not None}
        | {"_current_progress_remaining": number(entries.get("_current_progress_remaining", 1.0), "progress")},
        "learner_steps": whole(entries.get("_n_updates", 0), "_n_updates"),
        "extra_state": _extra_state(entries) if algorithm in ("DQN", "QRDQN") else {},
        "ep_info_buffer": encode([dict(episode) for episode in _items(entries, "ep_info_buffer")]),
        "ep_success_buffer": [bool(success) for success in _items(entries, "ep_success_buffer")],
    }


def algorithm_of(entries: Mapping[str, Entry], policy: Entry) -> str | None:
    """Returns the algorithm that wrote the file, by its attributes and its policy's class: the file does not name
    it."""
    algorithms = policy.algorithms if isinstance(policy, PolicyName) else ()
    if len(algorithms) == 1:
        return algorithms[0]
    if "policy_delay" in entries and "target_entropy" in entries:
        return "CrossQ"
    if any(entries.get("rollout_buffer_class") is kind for kind in _MASKABLE_BUFFERS):
        return "MaskablePPO"
    for attribute, algorithm in (
        ("cg_max_steps", "TRPO"),
        ("top_quantiles_to_drop_per_net", "TQC"),
        ("n_delta", "ARS"),
        ("clip_range", "PPO"),
        ("gae_lambda", "A2C"),
        ("n_quantiles", "QRDQN"),
        ("exploration_fraction", "DQN"),
        ("target_entropy", "SAC"),
    ):
        if attribute in entries:
            return algorithm
    if "policy_delay" in entries:
        options = entries.get("policy_kwargs")
        single = isinstance(options, dict) and options.get("n_critics") == 1 and entries["policy_delay"] == 1
        return "DDPG" if single else "TD3"
    return None


def observations_in_hand(entries: Mapping[str, Entry]) -> dict[str, np.ndarray]:
    """Returns the runner's state: the last results of the environments."""
    state: dict[str, np.ndarray] = {}
    for key, name in (("_last_obs", "obs"), ("_last_original_obs", "original_obs")):
        value = entries.get(key)
        if isinstance(value, np.ndarray):
            state[f"runner/{name}"] = np.array(value)
        elif isinstance(value, dict) and all(isinstance(part, np.ndarray) for part in value.values()):
            state |= {f"runner/{name}/{part}": np.array(array) for part, array in value.items()}
    starts = entries.get("_last_episode_starts")
    if not state or not isinstance(starts, np.ndarray):
        return {}
    return {**state, "runner/episode_starts": np.array(starts, bool)}


# -- parts of the description ------------------------------------------------------------------------------------------


def _encoded(value: Entry) -> Any:
    """Encodes a value as :func:`~polyak.checkpoint.serialise.encode` does; an unread one stays a pickle, reported when
    it is decoded."""
    if isinstance(value, Unreadable):
        return {"$pickle": value.code, "repr": value.kind}
    return encode(value)


def _space(entries: Mapping[str, Entry], key: str, name: str) -> Any:
    value = entries.get(key)
    if value is None:
        return None  # the caller gives it, or gets an error
    if isinstance(value, Unreadable):
        raise ValueError(f"{name}: its {key} cannot be read ({value.reason}). Pass custom_objects={{{key!r}: ...}}.")
    if not isinstance(value, spaces.Space):
        raise ValueError(f"{name} is damaged: its {key} is a {type(value).__name__}.")
    return encode(value)


def _items(entries: Mapping[str, Entry], key: str) -> list[Any]:
    value = entries.get(key)
    if value is None or isinstance(value, Unreadable):
        return []
    if not isinstance(value, Iterable) or isinstance(value, str):
        raise ValueError(f"the file's {key} is {value!r:.80}, not a list: it is damaged.")
    return list(value)


def _extra_state(entries: Mapping[str, Entry]) -> dict[str, Any]:
    """Counters of DQN and QRDQN; files before 2.0 lack the first."""
    steps = whole(entries.get("num_timesteps", 0), "num_timesteps")
    n_envs = whole(entries.get("n_envs", 1), "n_envs", 1)
    rate = number(entries.get("exploration_rate", 0.0), "exploration_rate")
    return {"_n_calls": whole(entries.get("_n_calls", steps // n_envs), "_n_calls"), "exploration_rate": rate}


def _adjusted(
    entries: Mapping[str, Entry], weights: Mapping[str, Tensor], optimizers: Mapping[str, Any]
) -> dict[str, Any]:
    """Hyper-parameters with another form there."""
    changed: dict[str, Any] = {}
    for key in ("clip_range", "clip_range_vf", "learning_rate"):
        if (constant := _constant(entries.get(key))) is not None:
            changed[key] = constant
    if isinstance(entries.get("target_entropy"), np.generic):
        changed["target_entropy"] = float(entries["target_entropy"])
    if isinstance(options := entries.get("policy_kwargs"), dict):
        changed["policy_kwargs"] = encode(_policy_kwargs(options, weights, optimizers))
    for key in ("replay_buffer_class", "rollout_buffer_class"):
        if any(entries.get(key) is usual for usual in _USUAL_BUFFERS):
            changed[key] = None
    kind, options = entries.get("replay_buffer_class"), entries.get("replay_buffer_kwargs")
    if isinstance(options, dict) and any(kind is usual for usual in (None, HerReplayBuffer, *_USUAL_BUFFERS)):
        changed["replay_buffer_kwargs"] = encode({key: options[key] for key in BUFFER_OPTIONS if key in options})
    if isinstance(frequency := entries.get("train_freq"), tuple | list):
        count, unit = frequency
        changed["train_freq"] = encode((count, str(getattr(unit, "value", unit))))
    return changed


def _rms_prop(policy_kwargs: dict[str, Any]) -> dict[str, Any]:
    """Returns A2C's choice of optimizer, which the peer keeps in ``policy_kwargs``."""
    options = dict(policy_kwargs)
    kind, settings = decode(options.pop("optimizer_class", None)), decode(options.pop("optimizer_kwargs", None))
    if kind is None:
        return {"use_rms_prop": False}
    if kind is not RMSprop or not isinstance(settings, dict) or settings != _RMS_PROP | {"eps": settings.get("eps")}:
        return {}
    return {"policy_kwargs": options, "use_rms_prop": True, "rms_prop_eps": settings["eps"]}


def _constant(value: Entry) -> float | None:
    """Returns the number that a schedule always gives."""
    while isinstance(value, FloatSchedule):
        value = value.value_schedule
    return float(value.val) if isinstance(value, ConstantSchedule) else None


def _policy_kwargs(
    options: dict[str, Any], weights: Mapping[str, Tensor], optimizers: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns arguments of the policy, by present names."""
    kept = {key: value for key, value in options.items() if key not in ("device", "use_sde", "sde_net_arch")}
    arch = kept.get("net_arch")
    if isinstance(arch, list) and arch and isinstance(arch[0], dict):
        kept["net_arch"] = arch[0]
    critic = [key for key in weights if key.startswith("critic.")]
    own = [key for key in critic if not key.startswith("critic.features_extractor.")]
    groups = optimizers.get("critic.optimizer", {}).get("param_groups")
    # Sharing features was the default before 1.8, which the file does not record.
    if groups and len(own) < len(critic) and len(groups[0].get("params", ())) == len(own):
        kept.setdefault("share_features_extractor", True)
    return to_polyak(kept)
