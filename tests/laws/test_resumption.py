"""Every algorithm, stopped at any step and resumed in another process, ends as one that was not stopped."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak.algorithms import REGISTRY
from polyak.checkpoint.saved import Saved, read
from tests.laws.resumption import CELLS, cells
from tests.warm import python

ROOT = Path(__file__).parents[2]
QUICK = ("ppo normalised", "sac prioritised", "sarsa vector", "dqn runners", "sac normalised-runners", "dqn memory")
"""The others are slow tests."""
OF_THE_CALL = ("_total_timesteps", "_num_timesteps_at_start")
"""Counters that say when ``learn`` was called."""


def run(step: str, cases: list[str], folder: Path) -> int:
    ended = python(["-m", "tests.laws.resumption", step, folder, *cases], ROOT)
    assert ended.returncode in (0, -9), ended.stderr[-4000:]
    return ended.returncode


def everything(path: Path) -> dict[str, Any]:
    """All that a file holds, but for clock times and for what depends on the calls of ``learn``."""
    saved: Saved = read(path)
    info = timeless(saved.info)
    arrays = {
        f"{name}/{key}": value
        for name in ("networks", "optimizers", "state", "replay")
        for key, value in getattr(saved, name).items()
        if not key.endswith(("/t", "/seconds", "start_time"))
    }
    return {**info, **arrays}


def timeless(info: dict[str, Any]) -> dict[str, Any]:
    """Of a model, and of another that is a part of it."""
    found = {name: value for name, value in info.items() if name not in ("system", "collection")}
    found["counters"] = {name: value for name, value in info["counters"].items() if name not in OF_THE_CALL}
    found["ep_info_buffer"] = [[episode["r"], episode["l"]] for episode in info["ep_info_buffer"]]
    return found | ({"generator": timeless(info["generator"])} if "generator" in info else {})


def last_row(folder: Path) -> dict[str, str]:
    """The last that was logged, but for times."""
    with (folder / "progress.csv").open() as file:
        rows = list(csv.DictReader(file))
    last, measured = rows[-1] if rows else {}, ("time/", "cluster/")
    return {name: value for name, value in last.items() if not name.startswith(measured)}


def check(cases: list[str], folder: Path) -> None:
    assert run("begin", cases, folder) == -9
    assert run("resume", cases, folder) == 0
    wrong: list[str] = []
    for case in cases:
        if (error := folder / case / "error.txt").exists():
            wrong.append(f"{case}: {error.read_text()[:300]}")
            continue
        whole, resumed = (everything(folder / case / f"{name}.zip") for name in ("whole", "resumed"))
        differs = sorted(whole.keys() ^ resumed.keys())
        for name in whole.keys() & resumed.keys():
            try:
                np.testing.assert_equal(resumed[name], whole[name])
            except AssertionError:
                differs.append(name)
        logged, since = (last_row(folder / case / name) for name in ("logs", "resumed logs"))
        differs += [name for name in since if since[name] != logged[name]]  # what was recorded before may be missing
        if differs:
            wrong.append(f"{case}: {sorted(differs)[:6]}")
    assert not wrong, "\n".join(wrong)


def test_some_resume_exactly(tmp_path: Path) -> None:
    check(list(QUICK), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS)
def test_every_algorithm_resumes_exactly(cell: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [f"{name} {cell}" for name in sorted(REGISTRY) if cell in cells(name)]
    assert len(cases) > 3
    check(cases, tmp_path)
