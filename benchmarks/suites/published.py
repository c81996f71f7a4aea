"""The scores that RL Baselines3 Zoo publishes, from published.csv."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class PublishedAgent:
    """One published agent: mean and standard deviation of the returns of ``episodes`` episodes, and its training."""

    env: str
    mean: float
    std: float
    n_timesteps: int
    episodes: int


@cache
def scores() -> dict[tuple[str, str], PublishedAgent]:
    """Return all of them by algorithm and `base_name` of the environment."""
    text = Path(__file__).with_name("published.csv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return {
        (row["algo"], base_name(row["env_id"])): PublishedAgent(
            row["env_id"],
            float(row["mean_reward"]),
            float(row["std_reward"]),
            int(row["n_timesteps"]),
            int(row["eval_episodes"]),
        )
        for row in csv.DictReader(lines)
    }


def base_name(env: str) -> str:
    """Return an environment's id without its version: ``Hopper-v5`` -> ``Hopper``."""
    return re.sub(r"-v\d+$", "", env)


def published(algo: str, env: str) -> PublishedAgent | None:
    """Return the score of `algo` on `env`, or on another version of it; None if there is none."""
    return scores().get((algo, base_name(env)))
