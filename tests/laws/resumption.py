"""Small models of every algorithm in the circumstances that a training may have, made again in another process.

Run as a program it trains models, which a callback saves in the middle, and is killed (``begin``); or it loads these
files and trains on (``resume``). What each model is in the end is written to a file of its own.
"""

from __future__ import annotations

import copy
import os
import signal
import sys
import warnings
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from polyak.algorithms import REGISTRY, get
from polyak.algorithms.tabular.planning import Planning
from polyak.callbacks import BaseCallback
from polyak.envs import SubprocVecEnv, VecNormalize, make_vec_env
from polyak.envs.testing.bit_flipping import BitFlippingEnv
from polyak.experience import Dataset, HerReplayBuffer, collect
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.fields.offline import OfflineAlgorithm
from polyak.logging import configure
from tests.trials import trial

CELLS = (
    *("one", "vector", "workers", "normalised", "memory", "hindsight", "prioritised", "mixture", "runners"),
    "normalised-runners",
)
MODEL_BASED = ("pets", "mbpo")
"""Have no goals and no priorities."""
TOTAL = 120
"""Steps of a training."""
ROWS = 60
"""Of a dataset that is learned from beside the environments."""


def is_offline(name: str) -> bool:
    """Whether it is given a dataset."""
    return issubclass(get(name), OfflineAlgorithm) and isinstance(trial(get(name)).get("env"), Dataset)


def cells(name: str) -> tuple[str, ...]:
    """The circumstances that there are for an algorithm."""
    cls: Any = get(name)
    replays = issubclass(cls, OffPolicyAlgorithm)
    if is_offline(name):
        return ("one", "prioritised") if replays and name != "dagger" else ("one",)
    if not getattr(cls, "steps_environments", True) or name == "dagger":
        return ("one",)
    if "policy" not in cls.__dataclass_fields__ or name == "ars":
        return ("one", "vector", "workers")
    found = ["one", "vector", "workers", "normalised", "runners", "normalised-runners"]
    if supported(name, **extra(name, "memory")):
        found.append("memory")
    if replays:
        found += ["mixture"] if name in MODEL_BASED else ["hindsight", "prioritised", "mixture"]
    if name == "maskable_ppo":
        found = [cell for cell in found if "normalised" not in cell]  # whose observations are numbers of states
        found.remove("workers")  # whose environment draws from a stream of its process
    return tuple(cell for cell in CELLS if cell in found)


def supported(name: str, **options: Any) -> bool:
    """Whether an algorithm takes these arguments."""
    try:
        get(name)(**{**trial(get(name)), **options})
    except (ValueError, TypeError, NotImplementedError):
        return False
    return True


def goal_env(discrete: bool) -> gym.Env[Any, Any]:
    """A task with goals."""
    return BitFlippingEnv(n_bits=3, continuous=not discrete, max_steps=5)


def environment(name: str, cell: str) -> Any:
    """What a model of this algorithm learns in, made again each time."""
    env = trial(get(name)).get("env")
    if isinstance(env, gym.Env):
        env = partial(copy.deepcopy, env)
    if isinstance(env, Dataset) or not getattr(get(name), "steps_environments", True):
        return env
    if cell in ("one", "memory", "prioritised", "mixture"):
        return make_vec_env(env, n_envs=1)
    if cell == "workers":
        return make_vec_env(env, n_envs=2, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"})
    if cell == "hindsight":
        return make_vec_env(partial(goal_env, env == "CartPole-v1"), n_envs=2)
    if cell == "normalised-runners":
        return lambda: VecNormalize(make_vec_env(env, n_envs=1))
    return env if cell == "runners" else make_vec_env(env, n_envs=2)


def extra(name: str, cell: str) -> dict[str, Any]:
    """Arguments of the cell."""
    kwargs = trial(get(name)).get("policy_kwargs", {})
    return {
        "memory": {"policy_kwargs": {**kwargs, "memory": "lstm", "memory_size": 4}},
        "hindsight": {"policy": "MultiInputPolicy", "replay_buffer_class": HerReplayBuffer},
        "prioritised": {"prioritized": True},
        "mixture": {} if name in MODEL_BASED else {"prioritized": False},
        "runners": {"n_runners": 2, "transport": "local"},
    }.get(cell.removeprefix("normalised-"), {})


def shown(env: Any) -> Dataset:
    """A dataset for a mixture."""
    return collect(env, None, ROWS, seed=5)


def model_of(name: str, cell: str) -> Any:
    """A model that has not been trained."""
    env = environment(name, cell)
    if cell == "normalised":
        env = VecNormalize(env)
    model = get(name)(**{**trial(get(name)), **extra(name, cell), "env": env})
    if cell == "mixture":
        model.set_dataset(shown(trial(get(name))["env"]))
    return model


def again(name: str, cell: str, path: Path) -> Any:
    """The model of a file, with environments that are made again."""
    cls = get(name)
    given = {key: value for key, value in trial(cls).items() if key in ("demonstrations", "target", "expert")}
    model = cls.load(path, env=environment(name, cell), resume=True, device="cpu", **given)
    if cell == "mixture":
        model.set_dataset(shown(trial(cls)["env"]))
    return model


class SaveAt(BaseCallback):
    """Saves the model at its first step from ``at`` on."""

    def __init__(self, at: int, path: Path) -> None:
        super().__init__()
        self.at, self.path, self.saved = at, path, False

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.at and not self.saved:
            self.model.save(self.path, include=self.model.saves_also)
            self.saved = True
        return True


def moment(name: str, cell: str) -> int:
    """At which step it is saved: by chance, but always the same; a planner is done in a few sweeps."""
    if issubclass(get(name), Planning):
        return 1
    return 20 + zlib.crc32(f"{name} {cell}".encode()) % (TOTAL - 40)


def train(model: Any, callback: Any, folder: Path) -> None:
    """The rest of the training, with logs."""
    model.set_logger(configure(str(folder), ["csv"]))
    begun = model.num_timesteps
    model.learn(TOTAL - begun, callback=callback, reset_num_timesteps=begun == 0, log_interval=1)


def begin(names: list[tuple[str, str]], folder: Path) -> None:
    """Train all, and be killed."""
    for name, cell in names:
        path = folder / f"{name} {cell}"
        model = model_of(name, cell)
        train(model, SaveAt(moment(name, cell), path / "half.zip"), path / "logs")
        model.save(path / "whole.zip", include=model.saves_also)
    os.kill(os.getpid(), signal.SIGKILL)


def resume(names: list[tuple[str, str]], folder: Path) -> None:
    """Continue from all files."""
    for name, cell in names:
        path = folder / f"{name} {cell}"
        torch.manual_seed(99)
        np.random.seed(99)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "training resumes with new episodes")
                model = again(name, cell, path / "half.zip")
            train(model, SaveAt(sys.maxsize, path / "none.zip"), path / "resumed logs")
            model.save(path / "resumed.zip", include=model.saves_also)
        except Exception as error:  # the others are tried, too
            (path / "error.txt").write_text(f"{type(error).__name__}: {error}")


STEPS: dict[str, Callable[[list[tuple[str, str]], Path], None]] = {"begin": begin, "resume": resume}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    wanted = [tuple(case.split(" ")) for case in sys.argv[3:]]
    STEPS[sys.argv[1]](wanted, Path(sys.argv[2]))  # type: ignore[arg-type]
    assert REGISTRY
