"""Programs written for RLlib, unchanged: what they say here is what they said there, as ``record.py`` wrote it down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.pairs import one_of_each
from tests.warm import run_program

FOLDER = Path(__file__).parent
PROGRAMS = sorted(path.stem for path in (FOLDER / "recorded").glob("*.json"))
LONG = {
    *("curiosity", "further_exploration_of_dqn", "learner_of_impala", "masked_values", "order_book", "own_algorithm"),
    *("own_memory", "own_q_module", "recorded_data", "settings_of_collecting"),
}
"""Programs that take seconds, which are slow tests: own_losses, own_exploration_of_dqn, learner_of_sac, masked_actions,
own_module, own_training_step, own_forward_with_memory, columns_of_dqn, and the tests of recorded data and collecting
touch the same parts."""


@pytest.mark.parametrize("name", one_of_each(PROGRAMS, *[name for name in PROGRAMS if name not in LONG]))
def test_a_program_says_what_it_says_under_the_peer(name: str, tmp_path: Path) -> None:
    recorded = json.loads((FOLDER / "recorded" / f"{name}.json").read_text())
    made = run_program([str(FOLDER / "programs" / "say.py"), name], tmp_path)
    assert made.returncode == 0, made.stderr
    said = json.loads(made.stdout.splitlines()[-1])
    assert said["equal"] == recorded["equal"]
    assert {key for key, count in said["called"].items() if count} == set(recorded["called"])
