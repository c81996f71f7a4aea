"""The training of several runs as one curve: their mean, and its standard error."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from polyak.zoo.errors import ZooError
from polyak.zoo.plots.curves import Curve
from polyak.zoo.plots.evaluations import standard_error
from polyak.zoo.whole_runs import whole_runs, without

#: Points of a mean curve at most: more than a printed line shows.
_MOST_POINTS = 1000
#: A mean that ends so far, of the longest run, is not worth a word.
_NEARLY = 0.9


def mean_of_runs(runs: Mapping[str, Curve], label: str) -> Curve:
    """Return the mean over `runs`, by name, with its standard error over them; a single run has none.

    The mean is over the runs that :func:`~polyak.zoo.whole_runs.whole_runs` keeps. The curve covers the stretch that
    these have in common; between two episodes of a run its value is interpolated. ``remark`` says what was left out.

    Raises ZooError when there is no such stretch.
    """
    kept, left_out = whole_runs({name: curve.reach for name, curve in runs.items()})
    whole = {name: runs[name] for name in kept}
    start, end = max(curve.x[0] for curve in whole.values()), min(curve.x[-1] for curve in whole.values())
    if start > end:
        raise ZooError(
            f"{label}: the first episode of one run ended after the last one of another, so they have no mean. "
            "Draw each run: polyak plot-train."
        )
    x = _grid([curve.x for curve in whole.values()], start, end)
    values = np.stack([np.interp(x, curve.x, curve.y) for curve in whole.values()], axis=1)
    remarks = [without({f"run {name}": reason for name, reason in left_out.items()})] if left_out else []
    if end < _NEARLY * (longest := max(curve.x[-1] for curve in whole.values())):
        remarks.append(f"the mean ends where the first run does, at {end:,.0f} of {longest:,.0f}.")
    error = standard_error(values) if len(whole) > 1 else None
    return Curve(x, values.mean(axis=1), label, error, len(whole), " ".join(remarks), runs=tuple(runs.values()))


def _grid(xs: list[np.ndarray], start: float, end: float) -> np.ndarray:
    """Return where the runs' episodes ended between `start` and `end`, or as many places as an image can show."""
    places = np.unique(np.concatenate(xs))
    places = places[(places >= start) & (places <= end)]
    return places if len(places) <= _MOST_POINTS else np.linspace(start, end, _MOST_POINTS)
