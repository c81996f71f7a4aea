"""The program with pieces of its own says what RLlib's sources say of it: each sees every observation, and rewards."""

from __future__ import annotations

from typing import Any

import pytest

from tests.compat.rllib.test_programs import loaded, neighbours  # noqa: F401 - a fixture


@pytest.mark.filterwarnings("ignore:a rollout has n_steps")
def test_pieces_are_called_in_training_and_evaluation(neighbours: None) -> None:  # noqa: F811
    outcome = loaded("own_connectors").outcome()
    said: dict[str, Any] = outcome["equal"]
    assert outcome["called"].keys() == {"preprocess", "Shifted", "Counted"}
    assert said["space"] == ["Box", [5]]
    assert said["single"] == ["place", "sign"]
    assert said["explores"] == [False, True]
    places = [[2.0 * step, *(float(step % 3 == sign) for sign in range(3)), 7.0] for step in range(5)]
    assert [list(row) for row in said["shown"]] == places, "doubled, then flattened, then shifted"
    assert said["as the module saw them"] == [7.0]
    assert said["of the learner"] == ["ndarray", "ndarray", True]
    assert said["modules of the learner"] == ["default_policy"]
    assert said["steps"] == 40
    assert said["own returns"]
    episode = said["episode"]
    assert episode["beyond"][:3] == [[0, 0], [0, 0], [0, 0]]
    assert episode["actions"] == [[0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert episode["rewards"] == [0.0, 0.5, 1.5, -1.0]
    assert episode["augmented"]["prev_n_actions"] == [0, 0, 1, 0, 1, 0]
