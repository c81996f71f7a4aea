"""Which algorithm is trained on which environment, and for how many steps.

The pairs are those that have tuned settings here and a published score there. Where the tuned number of steps takes
much longer than five minutes on one core, a suite asks for fewer; the table shows both numbers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError
from polyak.zoo.registry import find_algorithm
from polyak.zoo.settings import Settings, load_settings, tuned_blocks

_LANDER = {"a2c": None, "dqn": None, "ppo": None, "qrdqn": None, "trpo": None}
_LANDER_CONTINUOUS = {"a2c": None, "ars": None, "ppo": None, "trpo": None, "ddpg": 50_000, "sac": 50_000}
_GAMES = ("Asteroids", "BeamRider", "Breakout", "Enduro", "Pong", "Qbert", "RoadRunner", "Seaquest", "SpaceInvaders")
_ON_POLICY = dict.fromkeys(("a2c", "ars", "ppo", "trpo"), 1_000_000)
_OFF_POLICY = dict.fromkeys(("sac", "td3", "tqc"), 30_000)

#: Suite -> environment -> algorithm -> steps; None is the tuned number.
SUITES: dict[str, dict[str, dict[str, int | None]]] = {
    "classic": {
        "CartPole-v1": dict.fromkeys(("a2c", "ars", "dqn", "ppo", "qrdqn", "trpo")),
        "Acrobot-v1": dict.fromkeys(("a2c", "ars", "dqn", "ppo", "qrdqn", "trpo")),
        "MountainCar-v0": dict.fromkeys(("a2c", "dqn", "ppo", "qrdqn", "trpo")),
        "Pendulum-v1": dict.fromkeys(("a2c", "ars", "ddpg", "ppo", "sac", "td3", "tqc", "trpo")),
        "MountainCarContinuous-v0": {
            **dict.fromkeys(("a2c", "ars", "ppo", "sac", "tqc", "trpo")),
            **dict.fromkeys(("ddpg", "td3"), 50_000),
        },
    },
    "box2d": {
        "LunarLander-v3": {**_LANDER},
        "LunarLanderContinuous-v3": {**_LANDER_CONTINUOUS, "td3": 50_000, "tqc": 50_000},
        "BipedalWalker-v3": {"tqc": 50_000, "trpo": None},
    },
    "mujoco": {
        env: {**_ON_POLICY, **_OFF_POLICY}
        for env in ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Swimmer-v5")
    },
    "atari": {f"{game}NoFrameskip-v4": dict.fromkeys(("a2c", "dqn", "ppo", "qrdqn")) for game in _GAMES},
}


@dataclass(frozen=True)
class Row:
    """One line of the table: an algorithm, an environment, and the steps of a training run."""

    algo: str
    env: str
    n_timesteps: int


def settings_of(algo: str, env: str) -> Settings:
    """Return the tuned settings of `algo` for `env`."""
    return load_settings(find_algorithm(algo), algo, env)


def as_stored(raw: dict[str, Any]) -> dict[str, Any]:
    """Return settings as they come back from a JSON file, so that they can be compared with those of a result."""
    stored: dict[str, Any] = json.loads(json.dumps(raw))
    return stored


def suite_of(env: str) -> str:
    """Return the suite that an environment belongs to; ``other`` if to none."""
    return next((suite for suite, envs in SUITES.items() if env in envs), "other")


def rows(suite: str, algos: Sequence[str] = (), envs: Sequence[str] = (), n_timesteps: int = -1) -> list[Row]:
    """Return the rows of `suite`, or those of them that are asked for.

    Args:
        suite: one of `SUITES`.
        algos: only these algorithms; those beyond the suite's take part where they have settings tuned for it.
        envs: only these environments of the suite.
        n_timesteps: steps of each run; -1 takes the suite's.

    Raises:
        ZooError: there is no such suite, algorithm or environment, or nothing is left.
    """
    if suite not in SUITES:
        raise ZooError(f"Unknown --suite {suite!r}.{did_you_mean(suite, SUITES)} Available: {', '.join(SUITES)}.")
    tasks = SUITES[suite]
    for env in envs:
        if env not in tasks:
            raise ZooError(
                f"--envs {env!r} is not in the suite {suite}.{did_you_mean(env, tasks)} It has {', '.join(tasks)}."
            )
    found = []
    for env in envs or tasks:
        for algo in [algo.lower() for algo in algos] or tasks[env]:
            if env in tuned_blocks(find_algorithm(algo))[0] or algo in tasks[env]:
                steps = n_timesteps if n_timesteps > 0 else tasks[env].get(algo) or settings_of(algo, env).n_timesteps
                found.append(Row(algo, env, steps))
    if not found:
        raise ZooError(f"--algos {' '.join(algos)} are tuned for no environment that was asked for. See `polyak list`.")
    return found
