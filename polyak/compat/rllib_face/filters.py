"""Observations and rewards brought to one scale by running statistics, which all runners share."""

from __future__ import annotations

import inspect
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


def filter_of(connector: Any) -> MeanStdFilter | None:
    """What ``env_to_module_connector`` stands for.

    Raises:
        HyperparameterError: something else than a :class:`MeanStdFilter`.
    """
    found: Any = MeanStdFilter() if connector is MeanStdFilter else connector
    if found is not None and not isinstance(found, MeanStdFilter) and callable(found):
        wanted = len(inspect.signature(found).parameters) or 1
        found = found(*[None] * wanted)  # env, spaces, device: a filter calls none of them
    if isinstance(found, list | tuple) and len(found) == 1:
        found = found[0]
    fix = "there is MeanStdFilter: give one, or a function that returns one. All else is a wrapper of the environment."
    require(found is None or isinstance(found, MeanStdFilter), "env_to_module_connector", connector, fix)
    if found is not None:
        require(found.clip_by_value > 0, "clip_by_value", found.clip_by_value, "it must be positive.")
    return found


class FilteredEnv(VecNormalize):
    """Environments under a filter.

    Args:
        env: the environments.
        how: the filter.
        gamma: discount of one step.
        training: whether statistics follow what is seen, and rewards are those to learn from.
    """

    def __init__(self, env: VecEnv, how: MeanStdFilter, gamma: float, training: bool) -> None:
        clip, rewards = how.clip_by_value, how.rewards and training
        super().__init__(env, training, True, rewards, clip_obs=clip, clip_reward=clip, gamma=gamma)


def filter_around(env: Any) -> FilteredEnv | None:
    """The filter of environments, if they have one."""
    found = None if env is None else unwrap_vec_normalize(env)
    return found if isinstance(found, FilteredEnv) else None
