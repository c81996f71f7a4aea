"""A model and its statistics as two files of Stable-Baselines3's."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym

from polyak import formats


def is_sb3_file(path: Path) -> bool:
    """Say whether a zip is a model of Stable-Baselines3's."""
    with zipfile.ZipFile(path) as archive:
        return not formats.MODELS.keys().isdisjoint(archive.namelist())


def write_sb3(model: Any, path: Path, statistics: Path) -> None:
    """Write `model` to `path` and, if it normalises, its statistics to `statistics`.

    Args:
        model: loaded without an environment.
        path: of the model's zip.
        statistics: of the ``VecNormalize`` file.

    Raises:
        ValueError: Stable-Baselines3 has no equal of the model; AttributeError if not of its algorithm.
    """
    from polyak.envs import DummyVecEnv

    model.save_sb3(path)
    model.set_env(DummyVecEnv([lambda: _Spaces(model.observation_space, model.action_space)] * model.n_envs))
    normalizer = model.get_vec_normalize_env()  # the one that the model's file holds
    if normalizer is not None:
        normalizer.save_sb3(statistics)


class _Spaces(gym.Env):
    """An environment's spaces, which the statistics are written with; it is never stepped."""

    def __init__(self, observation_space: gym.Space, action_space: gym.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space
