"""What ``train()`` returns: nested dicts under RLlib's names, counted from what really happened."""

from __future__ import annotations

import datetime
import importlib.util
import os
import platform
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.logging.logger import Logger

NAMES = {
    "loss": "total_loss",
    "policy_gradient_loss": "policy_loss",
    "actor_loss": "policy_loss",
    "value_loss": "vf_loss",
    "value_loss_unclipped": "vf_loss_unclipped",
    "critic_loss": "qf_loss",
    "approx_kl": "mean_kl_loss",
    "kl_coef": "curr_kl_coeff",
    "explained_variance": "vf_explained_var",
    "learning_rate": "default_optimizer_learning_rate",
    "ent_coef": "alpha_value",
    "ent_coef_loss": "alpha_loss",
    "n_updates": "num_gradient_passes_lifetime",
}
"""Polyak's names of what a learner reports -> RLlib's."""


class Means(Logger):
    """A logger that writes nowhere, and keeps the mean of each number until it is asked for."""

    def __init__(self) -> None:
        super().__init__(None, [])

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        """Note a number; its mean is what counts, but of counters the last one."""
        if key.endswith("n_updates"):
            super().record(key, value, exclude)
        else:
            self.record_mean(key, value, exclude)

    def taken(self) -> dict[str, float]:
        """The means of what learners reported, by polyak's names without ``train/``; all is forgotten."""
        found = {k.removeprefix("train/"): v for k, v in self.name_to_value.items() if k.startswith("train/")}
        self.dump()
        return {name: float(value) for name, value in found.items()}


class LatestEpisodes(deque[dict[str, Any]]):
    """The latest episodes, and how many there have been.

    Args:
        size: how many are kept.
    """

    def __init__(self, size: int | None) -> None:
        super().__init__(maxlen=size)
        self.lifetime = 0

    def append(self, episode: dict[str, Any]) -> None:
        """One more."""
        self.lifetime += 1
        super().append(episode)

    def extend(self, episodes: Iterable[dict[str, Any]]) -> None:
        """Several more."""
        for episode in episodes:
            self.append(episode)


def of_episodes(returns: Any, lengths: Any) -> dict[str, Any]:
    """Statistics of some episodes; nothing of none."""
    if not len(returns):
        return {}
    found: dict[str, Any] = {}
    for name, values in (("return", np.asarray(returns, float)), ("len", np.asarray(lengths, float))):
        found |= {
            f"episode_{name}_mean": float(values.mean()),
            f"episode_{name}_min": float(values.min()),
            f"episode_{name}_max": float(values.max()),
        }
    mean = found["episode_return_mean"]
    by_name = {"agent_episode_return_mean": "default_agent", "module_episode_return_mean": DEFAULT_MODULE_ID}
    return {**found, **{key: {name: mean} for key, name in by_name.items()}}


def of_training(episodes: LatestEpisodes, n_envs: int) -> dict[str, Any]:
    """Statistics of the latest episodes of training, which so many environments played at once."""
    found = of_episodes([episode["r"] for episode in episodes], [episode["l"] for episode in episodes])
    if len(episodes) > 1:
        ends = [episode["t"] for episode in episodes]
        found["episode_duration_sec_mean"] = max(max(ends) - min(ends), 0.0) * n_envs / (len(ends) - 1)
    return found


def of_learner(
    means: Mapping[str, float], parameters: int, rows: int, lifetime: float, seconds: float
) -> dict[str, Any]:
    """What the learner reports, under ``learners``. Throughputs are rows in a second of the iteration."""
    own = {NAMES.get(name, name): value for name, value in means.items()}
    if "entropy_loss" in own:
        own["entropy"] = -own.pop("entropy_loss")
    own |= {
        "num_trainable_parameters": parameters,
        "num_module_steps_trained": rows,
        "num_module_steps_trained_lifetime": lifetime,
        "num_module_steps_trained_lifetime_throughput": rows / seconds,
    }
    of_all = {
        "num_env_steps_trained": rows,
        "num_env_steps_trained_lifetime": lifetime,
        "num_env_steps_trained_lifetime_throughput": rows / seconds,
    }
    return {DEFAULT_MODULE_ID: own, "__all_modules__": of_all}


def of_machine() -> dict[str, Any]:
    """Percentages of processors and memory in use; nothing without psutil."""
    if importlib.util.find_spec("psutil") is None:
        return {}
    import psutil

    return {"cpu_util_percent": psutil.cpu_percent(), "ram_util_percent": psutil.virtual_memory().percent}


def of_now() -> dict[str, Any]:
    """When and where."""
    now = time.time()
    date = datetime.datetime.fromtimestamp(now).strftime("%Y-%m-%d_%H-%M-%S")
    return {"date": date, "timestamp": int(now), "pid": os.getpid(), "hostname": platform.node()}


def summary(result: Mapping[str, Any]) -> str:
    """One line of what matters in a result."""
    runners = result.get("env_runners", {})
    words = [f"iteration {result['training_iteration']}", f"{result['num_env_steps_sampled_lifetime']:,} steps"]
    if "episode_return_mean" in runners:
        words.append(f"return {runners['episode_return_mean']:.2f} over {runners['num_episodes_kept']} episodes")
    if "evaluation" in result and "episode_return_mean" in (found := result["evaluation"]["env_runners"]):
        words.append(f"evaluated {found['episode_return_mean']:.2f}")
    return ", ".join(words)
