"""The statistics of ``VecNormalize`` that runners share: each counts its own samples, and one process merges all.

Means and variances are merged by the formula of :class:`~polyak.envs.wrappers.running.RunningMeanStd` (Chan et al.,
1979): up to rounding in float64 they equal one pass over the samples of all runners.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from polyak.envs import VecNormalize
from polyak.envs.wrappers.normalizer_state import SETTINGS
from polyak.envs.wrappers.running import RunningMeanStd

Moments = dict[str, dict[str, Any]]
"""Name of the statistics -> their mean, variance and count."""


class Report(NamedTuple):
    """A runner's report of its statistics."""

    known: Moments
    """The statistics by which it normalises."""
    fresh: Moments
    """The statistics of its samples since the last report alone."""


def moments_in(normalizer: VecNormalize) -> Moments:
    """Returns all current statistics."""
    return {name: known.state_dict() for name, known in normalizer._statistics()}


def count_fresh(normalizer: VecNormalize, so_far: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Also count the samples from now on separately.

    Args:
        normalizer: the normaliser of one runner.
        so_far: statistics of earlier samples that have not been reported; ``None``: none.
    """
    for name, known in normalizer._statistics():
        known.fresh = RunningMeanStd(0.0, known.mean.shape)
        if so_far is not None:
            known.fresh.load_state_dict(dict(so_far[name]))


def fresh_in(normalizer: VecNormalize) -> Moments:
    """Returns the statistics of the samples that were counted separately."""
    return {name: known.fresh.state_dict() for name, known in normalizer._statistics() if known.fresh is not None}


def report_of(normalizer: VecNormalize) -> Report:
    """Returns a runner's report, and restarts the separate count."""
    report = Report(moments_in(normalizer), fresh_in(normalizer))
    count_fresh(normalizer)
    return report


def take_moments(normalizer: VecNormalize, moments: Mapping[str, Mapping[str, Any]]) -> None:
    """Set the statistics to those of another normaliser, merged with the unreported samples here."""
    for name, known in normalizer._statistics():
        fresh, known.fresh = known.fresh, None
        known.load_state_dict(dict(moments[name]))
        if fresh is not None:
            known.combine(fresh)
        known.fresh = fresh


def settings_of(normalizer: VecNormalize) -> dict[str, Any]:
    """Returns the settings of a normaliser, without its statistics."""
    return {name: getattr(normalizer, name) for name in SETTINGS}


class SharedStatistics:
    """Merges the statistics of all runners, each sample counted once.

    Args:
        own: the model's normaliser, which holds the result.
        merges: merge the new samples of each runner; ``False`` takes all statistics of the first one, which is exact to
            the bit with one runner that gets all earlier statistics.
        sends: send the result to runners; ``False`` leaves each its own.
    """

    def __init__(self, own: VecNormalize, merges: bool = True, sends: bool = True) -> None:
        self._own, self._merges, self._sends = own, merges, sends

    def request(self) -> Moments | None:
        """Returns the statistics that a runner continues from; ``None``: its own."""
        return moments_in(self._own) if self._sends else None

    def take(self, reports: Sequence[Report]) -> None:
        """Merge the runners' reports, in this order."""
        if not self._merges:
            take_moments(self._own, reports[0].known)
            return
        for one in reports:
            for name, known in self._own._statistics():
                known.combine(RunningMeanStd.from_state_dict(one.fresh[name]))
