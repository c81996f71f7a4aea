"""``vecnormalize.pkl``: the statistics of ``VecNormalize``, read as numbers, and written for Stable-Baselines3."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

import numpy as np
from gymnasium import spaces

from polyak.checkpoint.serialise import UntrustedError
from polyak.compat.sb3_face.files import names, unpickle
from polyak.compat.sb3_face.files.translate import SavedObject, number
from polyak.compat.sb3_face.files.writer import Object, dumps
from polyak.envs import VecNormalize
from polyak.envs.wrappers.running import RunningMeanStd
from polyak.writing import replacing

_NUMBERS = ("clip_obs", "clip_reward", "gamma", "epsilon")
_SWITCHES = ("training", "norm_obs", "norm_reward")


def read(file: IO[bytes], trust: bool = False) -> dict[str, Any]:
    """Returns the settings and statistics, as :meth:`polyak.envs.VecNormalize.state_dict` gives them.

    Args:
        file: open for reading.
        trust: also run a pickle with other content.

    Raises:
        UntrustedError: without ``trust``, the pickle has other content than Stable-Baselines3 writes.
        ValueError: it is damaged, or holds something else.
    """
    what = str(getattr(file, "name", "the file"))
    try:
        saved = unpickle.loads(file.read(), trust)
    except UntrustedError as error:
        raise UntrustedError(f"{what}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
    if not isinstance(saved, SavedObject) or saved.name != names.VEC_NORMALIZE:
        raise ValueError(f"{what} does not hold a VecNormalize, but a {_kind(saved)}.")
    return _state(saved.state, what)


def _kind(value: Any) -> str:
    return value.name[1] if isinstance(value, SavedObject) else type(value).__name__


def _state(attributes: dict[str, Any], what: str) -> dict[str, Any]:
    missing = [name for name in (*_NUMBERS, *_SWITCHES, "obs_rms", "ret_rms") if name not in attributes]
    if missing:
        raise ValueError(f"{what} is damaged: its VecNormalize lacks {missing}.")
    state: dict[str, Any] = {name: number(attributes[name], name) for name in _NUMBERS}
    state |= {name: bool(attributes[name]) for name in _SWITCHES}
    state["norm_obs_keys"] = _keys(attributes, what)
    observed = attributes["obs_rms"]
    parts = {"ret_rms": attributes["ret_rms"]}
    if isinstance(observed, dict):
        parts |= {f"obs_rms/{key}": statistics for key, statistics in observed.items()}
    elif observed is not None:
        parts["obs_rms"] = observed
    for name, statistics in parts.items():
        if not isinstance(statistics, RunningMeanStd):
            raise ValueError(f"{what} is damaged: its {name} is a {type(statistics).__name__}.")
        if not np.isfinite(statistics.mean).all() or not (statistics.var >= 0).all():
            raise ValueError(f"{what} is damaged: its {name} has a mean or a variance that is none.")
        state |= {f"{name}/{key}": value for key, value in statistics.state_dict().items()}
    return {**state, "returns": np.zeros(0)}


def _keys(attributes: dict[str, Any], what: str) -> list[str] | None:
    """Returns the keys of a Dict that are normalised; files before 1.3 have none, since it was all of them."""
    keys = attributes.get("norm_obs_keys")
    if keys is None and isinstance(space := attributes.get("observation_space"), spaces.Dict):
        return list(space.spaces)
    if keys is not None and not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)):
        raise ValueError(f"{what} is damaged: its norm_obs_keys are {keys!r:.80}.")
    return keys


def save(normalizer: VecNormalize, path: str | os.PathLike[str]) -> None:
    """Write the pickle that ``VecNormalize.load`` of Stable-Baselines3 2.9 reads.

    Args:
        normalizer: the normaliser to write.
        path: the file; it appears under its name only when it is complete.

    Raises:
        ValueError: the normaliser subtracts the mean of rewards, which Stable-Baselines3's does not.
    """
    if normalizer.center_reward:
        raise ValueError(
            "center_reward=True: Stable-Baselines3's VecNormalize divides rewards only. Write the statistics with "
            "save(), or train with center_reward=False."
        )
    observed = normalizer.obs_rms
    state = {name: getattr(normalizer, name) for name in (*_NUMBERS, *_SWITCHES, "norm_obs_keys")}
    state |= {
        "num_envs": normalizer.num_envs,
        "observation_space": normalizer.observation_space,
        "action_space": normalizer.action_space,
        "obs_rms": {key: _running(part) for key, part in observed.items()}
        if isinstance(observed, dict)
        else None
        if observed is None
        else _running(observed),
        "ret_rms": _running(normalizer.ret_rms),
        "old_obs": np.array([]),
        "old_reward": np.array([]),
        "reset_infos": [{} for _ in range(normalizer.num_envs)],
        "_seeds": [None] * normalizer.num_envs,
        "_options": [{} for _ in range(normalizer.num_envs)],
        "metadata": {"render_modes": []},
        "render_mode": None,
    }
    with replacing(Path(path)) as file:
        file.write(dumps(Object(names.VEC_NORMALIZE, state)))


def _running(statistics: RunningMeanStd) -> Object:
    return Object(names.RUNNING_MEAN_STD, statistics.state_dict())
