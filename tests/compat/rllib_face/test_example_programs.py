"""RLlib's single-agent example programs, written again in other words. Each does under ``polyak run``
what it did under RLlib, as ``record_examples.py`` wrote it down.
"""

from __future__ import annotations

import json
import math
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from tests.compat.rllib_face.test_result_keys import ABSENT
from tests.pairs import one_of_each
from tests.warm import run_program

FOLDER = Path(__file__).parent
RECORDED: dict[str, Any] = json.loads((FOLDER / "recorded_examples.json").read_text())
ARGUMENTS = ["--no-tune", "--num-env-runners=0", "--stop-iters=2"]
OF_ENVIRONMENTS = ("reset", "step", "observation")


def between(calls: list[str]) -> list[str]:
    """Calls other than those of environments, which are looked over here before a runner has them."""
    classes = {name.partition(".")[0] for name in calls if name.endswith(OF_ENVIRONMENTS)}
    return [name for name in calls if name.partition(".")[0] not in classes]


def test_each_program_is_recorded() -> None:
    assert {path.stem for path in (FOLDER / "examples").glob("*.py")} - {"shared", "watch"} == RECORDED.keys()


QUICK = (
    *("curriculum", "mean_std_filtering", "metrics_of_callbacks", "own_evaluation", "prev_actions_prev_rewards"),
    "vectorize_async",
)
"""One for each thing that a program can change; further connectors, networks and losses are slow tests."""


@pytest.mark.parametrize("name", one_of_each(RECORDED, *QUICK))
def test_an_example_program_does_what_it_does_under_the_peer(name: str, tmp_path: Path) -> None:
    theirs, programs = RECORDED[name], FOLDER / "examples"
    words = [str(programs / "watch.py"), str(programs / f"{name}.py"), *ARGUMENTS]
    ended = run_program(words, tmp_path)
    assert ended.returncode == 0, ended.stderr[-2000:]
    ours = json.loads(ended.stdout.splitlines()[-1])
    assert ours["said"] == theirs["said"]
    assert between(ours["calls"]) == between(theirs["calls"])
    assert set(ours["calls"]) == set(theirs["calls"])
    missing = set(theirs["keys"]) - set(ours["keys"])
    assert not [key for key in missing if not any(fnmatch(key, known) for known in ABSENT)]
    for key, value in theirs["numbers"].items():
        if math.isnan(value):  # which the peer does not report again
            continue
        if key.endswith("entropy"):
            assert ours["numbers"][key] == pytest.approx(value, abs=0.25), key
        elif key.endswith(("len_mean", "num_env_steps_sampled")):
            assert value / 2 <= ours["numbers"][key] <= value * 2, key
