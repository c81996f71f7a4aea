"""The choice of runs for a mean, in plots, tables and reports.

A mean is over the runs that finished, or over all runs if none has. Of these, runs that ended before the furthest one
are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from polyak.zoo.run_folder import State

_AS_FAR = 0.9
"""Share of the furthest run's steps from which a run counts as having ended with it."""


class Reach(NamedTuple):
    """How far a run got.

    Fields: ``state`` of the run; ``last`` step that is recorded; ``until``, the step up to which it may have continued
    without a further record: an episode that has not ended is in no file.
    """

    state: State
    last: float
    until: float

    @classmethod
    def of_evaluations(cls, state: State, steps: Sequence[float]) -> Reach:
        """The reach of a run that was evaluated at `steps`, at least once: until its next evaluation was due."""
        before, last = [0, *steps][-2:]
        return cls(state, last, 2 * last - before - 1)


def whole_runs(runs: Mapping[str, Reach]) -> tuple[list[str], dict[str, str]]:
    """Split `runs`, by name, into those that a mean is over, and the others with the reason of each."""
    finished = [name for name, reach in runs.items() if reach.state.name == "finished"]
    able = finished or list(runs)
    end = max((runs[name].last for name in able), default=0)
    kept = [name for name in able if runs[name].last >= _AS_FAR * end or runs[name].until >= end]
    why = {name: "ended before the others" if name in able else reach.state.description for name, reach in runs.items()}
    return kept, {name: reason for name, reason in why.items() if name not in kept}


def without(left_out: Mapping[str, str]) -> str:
    """Return the sentence about runs that were left out, and why; empty if there are none."""
    listed = ", ".join(f"{name} ({reason})" for name, reason in left_out.items())
    return f"left out {listed}." if listed else ""
