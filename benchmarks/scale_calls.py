"""What ``scale.py`` times, under either library: the same words build the same algorithm, and train it.

It imports nothing but the standard library before the clock starts.
"""

from __future__ import annotations

import os
import time
from importlib import import_module
from typing import Any

LEARNS_FROM_ROWS = ("IMPALA", "APPO")
"""Those whose learner need not have seen all that was sampled."""


def make_config(job: dict[str, Any]) -> Any:
    """The config of a job: ``{"algo": ..., "config": {method: {setting: value}}}``."""
    algo = job["algo"]
    home = "polyak.rllib" if job["library"] == "polyak" else f"ray.rllib.algorithms.{algo.lower()}"
    config = getattr(import_module(home), f"{algo}Config")()
    for method, settings in job["config"].items():
        values = {name: tuple(v) if name == "n_step" and isinstance(v, list) else v for name, v in settings.items()}
        getattr(config, method)(**values)
    return config


def start_ray(job: dict[str, Any]) -> None:
    """Ray, where a library needs it, with as many slots as processes will ask for: RLlib always does."""
    runners = job["config"].get("env_runners", {}).get("num_env_runners", 0)
    if job["library"] != "polyak" or runners > 0:
        slots = max(os.cpu_count() or 1, runners + 1)
        options = {"address": "local", "include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
        import_module("ray").init(num_cpus=slots, **options)


def learned_from(result: dict[str, Any], job: dict[str, Any]) -> float:
    """Environment steps so far that were learned from, each counted once; the first calls may have brought none."""
    sampled = float(result["env_runners"].get("num_env_steps_sampled_lifetime", 0))
    if job["algo"] not in LEARNS_FROM_ROWS:
        return sampled
    of_all = result.get("learners", {}).get("__all_modules__", {})
    uses = job["config"]["training"].get("circular_buffer_iterations_per_batch", 1)
    return min(sampled, float(of_all.get("num_env_steps_trained_lifetime", 0)) / uses)


class ProcessorTime:
    """Seconds of the processor used since this was made: by this process, and by it with all processes below it."""

    def __init__(self) -> None:
        self._began = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        psutil = import_module("psutil")
        me = psutil.Process()
        seconds = []
        for process in (me, *me.children(recursive=True)):
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            seconds.append(times.user + times.system)
        return seconds[0], sum(seconds)

    def since(self) -> tuple[float, float]:
        """Returns seconds of this process, and of all."""
        (mine_then, all_then), (mine, everyone) = self._began, self._now()
        return mine - mine_then, everyone - all_then


class LastEpisodes:
    """The mean return of the last hundred episodes, which polyak reports; RLlib's is that of one iteration's alone,
    be they two, whatever ``metrics_num_episodes_for_smoothing`` says.

    Args:
        library: whose results they are.
    """

    SIZE = 100

    def __init__(self, library: str) -> None:
        self._library = library
        self._seen: list[tuple[int, float]] = []

    def mean(self, result: dict[str, Any]) -> float | None:
        """With another iteration's; of fewer episodes where there were fewer; None before the first one."""
        runners = result["env_runners"]
        newest = runners.get("episode_return_mean")
        if self._library == "polyak":
            return newest
        if newest is not None and runners.get("num_episodes"):
            self._seen.append((int(runners["num_episodes"]), float(newest)))
        episodes, total = 0, 0.0
        for number, mean in reversed(self._seen):
            counted = min(number, self.SIZE - episodes)
            episodes, total = episodes + counted, total + counted * mean
        return total / episodes if episodes else None


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Build and train: seconds to begin, environment steps per second, seconds to a return."""
    began = time.perf_counter()
    config = make_config(job)
    start_ray(job)
    algo = config.build_algo()
    import_build_s = time.perf_counter() - began
    began = time.perf_counter()
    until, goal, cap = job["seconds"], job["goal"], job["cap_s"]
    warm: tuple[float, float, ProcessorTime] | None = None
    rate, driver_us, all_us, steps_timed, seconds_to_goal, score = None, None, None, 0.0, None, None
    episodes = LastEpisodes(job["library"])
    while True:
        result = algo.train()
        now, steps = time.perf_counter() - began, learned_from(result, job)
        score = episodes.mean(result)
        if goal is not None and seconds_to_goal is None and score is not None and score >= goal:
            seconds_to_goal = now
        if warm is None:
            warm = (now, steps, ProcessorTime()) if steps > job["warm_up"] else None
        elif rate is None and now - warm[0] >= until:
            steps_timed = steps - warm[1]
            rate = steps_timed / (now - warm[0])
            driver_us, all_us = (1e6 * seconds / steps_timed for seconds in warm[2].since())
        over = goal is None or seconds_to_goal is not None or now >= cap
        if (rate is not None and over) or now >= max(cap, 4 * until):
            break
    algo.stop()
    return {
        "import_build_s": import_build_s,
        "env_steps_per_s": rate,
        "driver_us_per_step": driver_us,
        "processor_us_per_step": all_us,
        "steps_timed": steps_timed,
        "seconds_to_goal": seconds_to_goal,
        "last_return": score,
        "steps": steps,
        "iterations": result["training_iteration"],
    }


class Sleeper:
    """Registered under a name of its own: an environment that does nothing but take its time."""

    name = "sleeper"

    @staticmethod
    def make(context: Any) -> Any:
        """An environment whose step sleeps for ``context["seconds"]``."""
        import gymnasium as gym
        import numpy as np

        class Sleeping(gym.Env):
            observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
            action_space = gym.spaces.Discrete(2)

            def reset(self, *, seed: Any = None, options: Any = None) -> Any:
                super().reset(seed=seed)
                self.left = 200
                return np.zeros(4, np.float32), {}

            def step(self, action: Any) -> Any:
                time.sleep(context["seconds"])
                self.left -= 1
                return np.zeros(4, np.float32), 1.0, False, self.left == 0, {}

        return Sleeping()


def scaling(job: dict[str, Any]) -> dict[str, Any]:
    """PPO on environments that sleep: environment steps per second of its whole loop, and of its sampling alone."""
    home = "polyak.rllib" if job["library"] == "polyak" else "ray.tune.registry"
    getattr(import_module(home), "register_env")(Sleeper.name, Sleeper.make)  # noqa: B009 - of either library
    config = make_config(job)
    start_ray(job)
    algo = config.build_algo()
    for _ in range(2):
        result = algo.train()
    before = result["env_runners"]["num_env_steps_sampled_lifetime"]
    began, sampling = time.perf_counter(), 0.0
    while (elapsed := time.perf_counter() - began) < job["seconds"]:
        result = algo.train()
        sampling += result["timers"]["env_runner_sampling_timer"] if job["library"] == "polyak" else 0.0
    steps = result["env_runners"]["num_env_steps_sampled_lifetime"] - before
    algo.stop()
    return {"env_steps_per_s": steps / elapsed, "sampled_per_s": steps / sampling if sampling else None}
