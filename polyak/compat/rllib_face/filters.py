"""Observations and rewards brought to one scale by running statistics, which all runners share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from polyak.envs import VecEnv, VecNormalize, unwrap_vec_normalize
from polyak.hyperparameters.declaration import require


@dataclass(frozen=True)
class MeanStdFilter:
    """Observations less their running mean, divided by their running deviation.

    Args:
        clip_by_value: they stay within plus and minus this.
        rewards: also divide rewards by the running deviation of the discounted return, within plus and minus the same.
    """

    clip_by_value: float = 10.0
    rewards: bool = False

    def __post_init__(self) -> None:
        require(self.clip_by_value > 0, "clip_by_value", self.clip_by_value, "it must be positive.")


class FilteredEnv(VecNormalize):
    """Environments with a filter.

    Args:
        env: the environments.
        how: the filter.
        gamma: discount of one step.
        training: whether statistics are updated, and rewards are for learning.
    """

    def __init__(self, env: VecEnv, how: MeanStdFilter, gamma: float, training: bool) -> None:
        clip, rewards = how.clip_by_value, how.rewards and training
        super().__init__(env, training, True, rewards, clip_obs=clip, clip_reward=clip, gamma=gamma)


def filter_around(env: Any) -> FilteredEnv | None:
    """Returns the filter of environments, if they have one."""
    found = None if env is None else unwrap_vec_normalize(env)
    return found if isinstance(found, FilteredEnv) else None
