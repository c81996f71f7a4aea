"""The evaluations.npz files of runs, and several of them joined by step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from polyak.zoo.errors import ZooError
from polyak.zoo.evaluation_file import EVALUATIONS_NPZ, read_evaluation_file
from polyak.zoo.links import check_inside
from polyak.zoo.output import note
from polyak.zoo.run_folder import State
from polyak.zoo.whole_runs import Reach, whole_runs, without

if TYPE_CHECKING:
    import pandas as pd


def read_evaluations(run: Path, key: str = "results") -> pd.DataFrame | None:
    """Return what one run's evaluations hold under `key`, a row for each step and a column for each episode.

    None if the run has no such values; a file that cannot be read is named on stderr.
    """
    import pandas as pd

    path = run / EVALUATIONS_NPZ
    if not path.is_file():
        return None
    try:
        check_inside(path, run)
        steps, tables, _ = read_evaluation_file(path, [key])
    except ZooError as error:
        note(f"left out: {error}")
        return None
    except (OSError, ValueError) as error:
        note(f"left out: {path} cannot be read ({error}). Is it half-written?")
        return None
    values = tables.get(key)
    return None if values is None or not values.size else pd.DataFrame(values, index=steps)


def evaluation_keys(run: Path) -> frozenset[str]:
    """Return the keys that `read_evaluations` knows in this run; none if there is no file, or a damaged one."""
    try:
        check_inside(run / EVALUATIONS_NPZ, run)
        return read_evaluation_file(run / EVALUATIONS_NPZ, ()).keys
    except (OSError, ValueError, ZooError):
        return frozenset()


class Joined(NamedTuple):
    """Runs side by side: ``means`` over episodes, [steps, runs]; ``remark`` what a reader must know of the joining."""

    means: pd.DataFrame
    remark: str


def join_runs(tables: Mapping[str, pd.DataFrame]) -> Joined:
    """Join the evaluations of runs, by name, by their steps.

    Where one was evaluated and another was not, the latter's value is interpolated between its neighbours; the result
    covers the steps that every run reached. Raises ZooError when there are none.
    """
    import pandas as pd

    means = pd.concat({name: table.mean(axis=1) for name, table in tables.items()}, axis=1).sort_index()
    joined = means.interpolate("index", limit_area="inside").dropna()
    if joined.empty:
        raise ZooError(f"The evaluations of these runs have no steps in common: {_ranges(tables)}. Plot them apart.")
    if not means.isna().any(axis=None):
        return Joined(joined, "")
    return Joined(
        joined,
        f"the runs were evaluated at different steps ({_ranges(tables)}); values between two evaluations are "
        f"interpolated, and the curve goes from {joined.index[0]:,} to {joined.index[-1]:,}.",
    )


def join_whole_runs(tables: Mapping[str, pd.DataFrame], states: Mapping[str, State]) -> Joined:
    """Join, as `join_runs` does, the runs that `whole_runs` keeps; the remark names the others.

    A run may have continued until it would have been evaluated once more, at its own interval.
    """
    reaches = {name: Reach.of_evaluations(states[name], list(table.index)) for name, table in tables.items()}
    kept, left_out = whole_runs(reaches)
    joined, remark = join_runs({name: tables[name] for name in kept})
    return Joined(joined, f"{without(left_out)} {remark}".strip())


def until(table: pd.DataFrame, last: int) -> pd.DataFrame:
    """Return what was evaluated up to the step `last`; all of it if that is not positive."""
    return table[table.index <= last] if last > 0 else table


def standard_error(values: np.ndarray) -> np.ndarray:
    """Return the standard error of the mean over runs, [n], of `values` [n, runs]: 0 for a single run.

    The standard deviation is that of the population, as in the Zoo's tables.
    """
    return values.std(axis=1) / np.sqrt(values.shape[1])


def _ranges(tables: Mapping[str, pd.DataFrame]) -> str:
    return "; ".join(
        f"{name}: {len(table)} from {table.index[0]:,} to {table.index[-1]:,}" for name, table in tables.items()
    )
