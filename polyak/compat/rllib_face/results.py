"""The results of ``train()``: nested dicts under RLlib's names, from actual counts."""

from __future__ import annotations

import datetime
import importlib.util
import os
import platform
import socket
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from functools import cache
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
    "excess": "cql_loss",
    "explained_variance": "vf_explained_var",
    "learning_rate": "default_optimizer_learning_rate",
    "ent_coef": "alpha_value",
    "ent_coef_loss": "alpha_loss",
    "n_updates": "num_gradient_passes_lifetime",
}
"""Polyak's names of learners' metrics -> RLlib's."""


COUNTERS = {"rows": 0, "steps": 0, "seconds": 0.0, "evaluations": 0, "evaluated_steps": 0, "evaluated_episodes": 0}
"""Counters of an algorithm besides its model's."""


class Means(Logger):
    """A logger without outputs, which keeps the mean of each number until it is read."""

    def __init__(self) -> None:
        super().__init__(None, [])

    def record(self, key: str, value: Any, exclude: Any = None) -> None:
        """Record a number in its mean; of counters the last one is kept."""
        if key.endswith("n_updates"):
            super().record(key, value, exclude)
        else:
            self.record_mean(key, value, exclude)

    def taken(self) -> dict[str, float]:
        """Returns the means of learners' metrics, by polyak's names without ``train/``, and drops all."""
        found = {k.removeprefix("train/"): v for k, v in self.name_to_value.items() if k.startswith("train/")}
        self.dump()
        return {name: float(value) for name, value in found.items()}


class LatestEpisodes(deque[dict[str, Any]]):
    """The latest episodes, and how many there have been.

    Args:
        size: number of episodes to keep.
    """

    def __init__(self, size: int | None) -> None:
        super().__init__(maxlen=size)
        self.lifetime = 0

    def append(self, episode: dict[str, Any]) -> None:
        """Add an episode."""
        self.lifetime += 1
        super().append(episode)

    def extend(self, episodes: Iterable[dict[str, Any]]) -> None:
        """Several more."""
        for episode in episodes:
            self.append(episode)


def of_episodes(returns: Any, lengths: Any) -> dict[str, Any]:
    """Returns statistics of some episodes; nothing of none."""
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
    """Returns statistics of the latest episodes of training, which so many environments played at once."""
    found = of_episodes([episode["r"] for episode in episodes], [episode["l"] for episode in episodes])
    if len(episodes) > 1:
        ends = [episode["t"] for episode in episodes]
        found["episode_duration_sec_mean"] = max(max(ends) - min(ends), 0.0) * n_envs / (len(ends) - 1)
    return found


class Since:
    """Counts of this process since it built or restored an algorithm."""

    def __init__(self) -> None:
        self.iterations, self.seconds = 0, 0.0
        self._counts = {"steps": 0.0, "rows": 0.0}

    def rates(self, name: str, count: float, seconds: float) -> dict[str, float]:
        """Adds to a count; returns its rates per second of the iteration, and of all iterations."""
        self._counts[name] += count
        return {
            "throughput_since_last_reduce": count / seconds,
            "throughput_since_last_restore": self._counts[name] / (self.seconds + seconds),
        }


def of_steps(steps: int, lifetime: int, episodes: int, episodes_lifetime: int) -> dict[str, Any]:
    """Returns counts of environment steps and episodes, now and so far; there is one agent, and one module."""
    by_name: dict[str, Any] = {}
    for ending, count in (("", steps), ("_lifetime", lifetime)):
        by_name[f"num_env_steps_sampled{ending}"] = count
        by_name[f"num_agent_steps_sampled{ending}"] = {"default_agent": count}
        by_name[f"num_module_steps_sampled{ending}"] = {DEFAULT_MODULE_ID: count}
    return {**by_name, "num_episodes": episodes, "num_episodes_lifetime": episodes_lifetime}


def of_replay(buffer: Any, steps: int, lifetime: int, rows: int, rows_lifetime: float) -> dict[str, Any]:
    """Returns counts of steps that were added to a replay buffer, evicted and sampled, now and so far."""
    stored = buffer.size() * buffer.n_envs
    lost = max(lifetime - stored, 0)
    counts = {
        "added": (steps, lifetime),
        "evicted": (min(steps, lost), lost),
        "sampled": (rows, rows_lifetime),
    }
    found: dict[str, Any] = {"num_env_steps_stored": stored}
    for what, both in counts.items():
        for ending, count in zip(("", "_lifetime"), both, strict=True):
            found[f"num_env_steps_{what}{ending}"] = count
            found[f"num_agent_steps_{what}{ending}"] = {"default_agent": count}
            found[f"num_module_steps_{what}{ending}"] = {DEFAULT_MODULE_ID: count}
    return found


def named(means: Mapping[str, float]) -> dict[str, Any]:
    """Renames a learner's metrics from polyak's names to RLlib's."""
    own = {NAMES.get(name, name): value for name, value in means.items()}
    return own | ({"entropy": -own.pop("entropy_loss")} if "entropy_loss" in own else {})


def of_learner(
    means: Mapping[str, float], learner: Any, rows: int, updates: int, lifetime: float, seconds: float, since: Since
) -> dict[str, Any]:
    """Returns the learner's results, under ``learners``; counts are rows. Learner-only modules are in
    ``learner.beside``."""
    own = named(means)
    sizes = Counter[bool]()
    for parameter in learner.parameters():
        sizes[parameter.requires_grad] += parameter.numel()
    trained: dict[str, Any] = {"num_module_steps_trained": rows, "num_module_steps_trained_lifetime": lifetime}
    trained["num_module_steps_trained_lifetime_throughput"] = rates = since.rates("rows", rows, seconds)
    own |= {"num_trainable_parameters": sizes[True], "module_train_batch_size_mean": rows / max(updates, 1), **trained}
    of_all = {
        **trained,
        "num_module_steps_trained_throughput": rows / seconds,
        "num_env_steps_trained": rows,
        "num_env_steps_trained_lifetime": lifetime,
        "num_env_steps_trained_lifetime_throughput": dict(rates),
        "num_env_steps_trained_throughput": rows / seconds,
        "num_trainable_parameters": sizes[True],
        "num_non_trainable_parameters": sizes[False],
    }
    return {DEFAULT_MODULE_ID: own, "__all_modules__": of_all}


def of_machine() -> dict[str, Any]:
    """Percentages of processors and memory in use; nothing without psutil."""
    if importlib.util.find_spec("psutil") is None:
        return {}
    import psutil

    return {"cpu_util_percent": psutil.cpu_percent(), "ram_util_percent": psutil.virtual_memory().percent}


def of_now() -> dict[str, Any]:
    """Returns date, time, process and host."""
    now = time.time()
    date = datetime.datetime.fromtimestamp(now).strftime("%Y-%m-%d_%H-%M-%S")
    return {"date": date, "timestamp": int(now), "pid": os.getpid(), "hostname": platform.node(), "node_ip": _node_ip()}


@cache
def _node_ip() -> str:
    """Returns the address by which other machines reach this one, without contacting any; 127.0.0.1 without a
    network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an unused address; connecting a datagram socket sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def summary(result: Mapping[str, Any]) -> str:
    """Returns one line with the main entries of a result."""
    runners = result.get("env_runners", {})
    words = [f"iteration {result['training_iteration']}", f"{result['num_env_steps_sampled_lifetime']:,} steps"]
    if "episode_return_mean" in runners:
        words.append(f"return {runners['episode_return_mean']:.2f} over {runners['num_episodes_kept']} episodes")
    if "evaluation" in result and "episode_return_mean" in (found := result["evaluation"]["env_runners"]):
        words.append(f"evaluated {found['episode_return_mean']:.2f}")
    return ", ".join(words)
