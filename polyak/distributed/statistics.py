"""The statistics of ``VecNormalize`` that runners share: each counts what it sees, and all is merged in one place.

Means and variances are merged by the formula of :class:`~polyak.envs.wrappers.running.RunningMeanStd` (Chan et al.,
1979): to rounding in float64 they are those of one pass over everything that any runner has seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from polyak.envs import VecNormalize
from polyak.envs.wrappers.normalizer_state import SETTINGS
from polyak.envs.wrappers.running import RunningMeanStd

Moments = dict[str, dict[str, Any]]
"""Which statistics -> their mean, variance and count."""


class Report(NamedTuple):
    """What a runner says of its statistics."""

    known: Moments
    """Those by which it normalises."""
    fresh: Moments
    """Those of what it has seen since it was asked last, and of nothing else."""


def moments_in(normalizer: VecNormalize) -> Moments:
    """All statistics as they are."""
    return {name: known.state_dict() for name, known in normalizer._statistics()}


def count_fresh(normalizer: VecNormalize, so_far: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Count what is seen from now on apart, too.

    Args:
        normalizer: of one runner.
        so_far: what was seen before and has not been asked for; ``None``: nothing.
    """
    for name, known in normalizer._statistics():
        known.fresh = RunningMeanStd(0.0, known.mean.shape)
        if so_far is not None:
            known.fresh.load_state_dict(dict(so_far[name]))


def fresh_in(normalizer: VecNormalize) -> Moments:
    """Statistics of what was counted apart."""
    return {name: known.fresh.state_dict() for name, known in normalizer._statistics() if known.fresh is not None}


def report_of(normalizer: VecNormalize) -> Report:
    """What a runner says; it counts from zero after that."""
    report = Report(moments_in(normalizer), fresh_in(normalizer))
    count_fresh(normalizer)
    return report


def take_moments(normalizer: VecNormalize, moments: Mapping[str, Mapping[str, Any]]) -> None:
    """Continue from the statistics of another, and what was seen here that has not been asked for."""
    for name, known in normalizer._statistics():
        fresh, known.fresh = known.fresh, None
        known.load_state_dict(dict(moments[name]))
        if fresh is not None:
            known.combine(fresh)
        known.fresh = fresh


def settings_of(normalizer: VecNormalize) -> dict[str, Any]:
    """How it normalises, whatever the statistics."""
    return {name: getattr(normalizer, name) for name in SETTINGS}


class SharedStatistics:
    """What all runners have seen, each thing counted once.

    Args:
        own: the normaliser of the model, which holds it.
        merges: take what is new from each runner; ``False`` takes all that the first one knows, which with one runner
            that has been sent everything before is exact to the bit.
        sends: send runners what is known here; ``False`` leaves each its own.
    """

    def __init__(self, own: VecNormalize, merges: bool = True, sends: bool = True) -> None:
        self._own, self._merges, self._sends = own, merges, sends

    def request(self) -> Moments | None:
        """What a runner continues from; ``None``: from its own."""
        return moments_in(self._own) if self._sends else None

    def take(self, reports: Sequence[Report]) -> None:
        """Take in what runners have said, in this order."""
        if not self._merges:
            take_moments(self._own, reports[0].known)
            return
        for one in reports:
            for name, known in self._own._statistics():
                known.combine(RunningMeanStd.from_state_dict(one.fresh[name]))
