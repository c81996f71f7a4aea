"""Observations and rewards brought to one scale by running statistics, which all runners share."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyak.envs import VecEnv, VecNormalize, unwrap_vec_normalize
from polyak.envs.wrappers.running import RunningMeanStd
from polyak.hyperparameters.declaration import require

Moments = dict[str, dict[str, Any]]
"""Which statistics -> their mean, variance and count."""


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


def filtered(env: VecEnv, connector: Any, gamma: float, training: bool) -> VecEnv:
    """Environments under the filter, if there is one.

    Args:
        env: the environments.
        connector: the setting.
        gamma: discount of one step.
        training: whether statistics follow what is seen, and rewards are those to learn from.
    """
    found = filter_of(connector)
    return env if found is None else FilteredEnv(env, found, gamma, training)


class FilteredEnv(VecNormalize):
    """Environments under a filter, which notes what is new by itself, so that it can be sent to others.

    Args:
        env: the environments.
        how: the filter.
        gamma: discount of one step.
        training: whether statistics follow what is seen, and rewards are those to learn from.
    """

    def __init__(self, env: VecEnv, how: MeanStdFilter, gamma: float, training: bool) -> None:
        clip, rewards = how.clip_by_value, how.rewards and training
        super().__init__(env, training, True, rewards, clip_obs=clip, clip_reward=clip, gamma=gamma)
        self._forget_news()

    def _forget_news(self) -> None:
        self._news = {name: RunningMeanStd(0.0, known.mean.shape) for name, known in self._statistics()}

    def _update_obs(self, obs: Any) -> None:
        before = [known.count for _, known in self._statistics()]
        super()._update_obs(obs)
        for (name, known), count in zip(self._statistics(), before, strict=True):
            if known.count != count:
                self._news[name].update(obs[name.partition("/")[2]] if isinstance(obs, dict) else obs)

    def _update_reward(self, reward: np.ndarray) -> None:
        before = self.ret_rms.count
        super()._update_reward(reward)
        if self.ret_rms.count != before:
            self._news["ret_rms"].update(self.returns)

    def moments(self) -> Moments:
        """All statistics as they are."""
        return moments_in(self)

    def load_moments(self, moments: Mapping[str, Mapping[str, Any]]) -> None:
        """Take the statistics of another."""
        for name, known in self._statistics():
            known.load_state_dict(dict(moments[name]))

    def news(self) -> Moments:
        """Statistics of what was seen since this was asked last."""
        found = {name: new.state_dict() for name, new in self._news.items()}
        self._forget_news()
        return found

    def add(self, news: Sequence[Mapping[str, Mapping[str, Any]]]) -> None:
        """Take in what others have seen, as if it had been seen here."""
        for one in news:
            for name, known in self._statistics():
                known.update_from_moments(one[name]["mean"], one[name]["var"], one[name]["count"])


def moments_in(normalizer: VecNormalize) -> Moments:
    """Of a filter that a file has brought."""
    return {name: known.state_dict() for name, known in normalizer._statistics()}


def filter_around(env: Any) -> FilteredEnv | None:
    """The filter of environments, if they have one."""
    found = None if env is None else unwrap_vec_normalize(env)
    return found if isinstance(found, FilteredEnv) else None
