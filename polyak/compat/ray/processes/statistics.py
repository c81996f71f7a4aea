"""The statistics of runners' filters, brought together here and given to all."""

from __future__ import annotations

from collections.abc import Sequence

from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.filters import FilteredEnv, Moments
from polyak.compat.ray.processes.fragments import Fragment


class SharedStatistics:
    """What all runners have seen, each thing counted once, by the formula for parallel variances.

    Args:
        config: ``merge_env_runner_states=False`` takes those of one runner for all there is to know here, and
            ``broadcast_env_runner_states=False`` leaves each runner its own.
        own: the filter here.
        alone: there is one runner, which is not asked in advance: what it says is exact to the bit.
    """

    def __init__(self, config: AlgorithmConfig, own: FilteredEnv, alone: bool) -> None:
        self._own, self._merges = own, config.merge_env_runner_states is not False and not alone
        self._reports = alone or (config.broadcast_env_runner_states and self._merges)

    def request(self) -> Moments | None:
        """What a runner continues from; ``None``: from its own."""
        return self._own.moments() if self._reports else None

    def take(self, fragments: Sequence[Fragment]) -> None:
        """Take in what came with fragments."""
        if self._merges:
            self._own.add([fragment.statistics[1] for fragment in fragments])
        else:
            self._own.load_moments(fragments[0].statistics[0])
