"""AlphaGo's pipeline on Connect-4: the parts of the example, each by itself, and the whole program shortly."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from polyak.envs.games.connect4 import Connect4

PROGRAM = Path(__file__).parents[2] / "examples" / "games" / "alphago.py"


@pytest.fixture(scope="module")
def alphago() -> ModuleType:
    spec = importlib.util.spec_from_file_location("alphago", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def _seeds() -> None:
    np.random.seed(0)
    torch.manual_seed(0)


def prefers(*columns: int) -> Callable[[np.ndarray], np.ndarray]:
    """The player who takes the first of the columns that is free."""
    order = np.argsort(columns)
    return lambda positions: np.where(Connect4().legal(positions), order, len(columns)).argmin(1)


LEFT, RIGHT = prefers(0, 1, 2, 3, 4, 5, 6), prefers(6, 5, 4, 3, 2, 1, 0)


def test_a_policy_imitates_what_is_recorded(alphago: ModuleType) -> None:
    centre = prefers(3, 2, 4, 1, 5, 0, 6)
    records = alphago.play(centre, centre, alphago.openings(50, 10))
    policy = alphago.imitate(alphago.network(7), records, 25)
    assert alphago.probabilities(policy, alphago.GAME.start(1))[0, 3] > 0.5


def test_a_value_network_learns_from_one_position_of_each_game(alphago: ModuleType) -> None:
    policy = alphago.network(7)
    positions, results = alphago.outcomes(policy, policy, 100)
    assert 30 < len(positions) == len(results) <= 100
    assert np.isnan(alphago.GAME.outcome(positions)).all()
    assert set(np.unique(results)) <= {-1, 0, 1}
    model = alphago.regress(alphago.network(1), positions, results, 40)
    with torch.no_grad():
        error = np.mean((alphago.values(model, positions).numpy() - results) ** 2)
    assert error < 0.7 * results.var()


def test_policy_gradients_raise_the_chances_of_what_won(alphago: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner has won by column 3 and lost by column 2; its past self, which it must not imitate, won by 0."""
    owns_first = cycle([True, False])

    def play(one: object, other: object, starts: np.ndarray) -> object:
        own = np.array([True, True, False, False])
        first = own if next(owns_first) else ~own
        results = np.array([1, -1, 1, 1], np.float32)
        return alphago.Played(alphago.GAME.start(4), np.array([3, 2, 0, 0]), first, results, results[:2])

    monkeypatch.setattr(alphago, "play", play)
    policy = alphago.network(7)
    before = alphago.probabilities(policy, alphago.GAME.start(1))[0]
    change = alphago.probabilities(alphago.improve(policy, 10, games=4), alphago.GAME.start(1))[0] / before
    assert change.argmax() == 3
    assert change.argmin() == 2
    assert change[3] > 1 > change[2]


@pytest.mark.slow
def test_self_play_beats_random_moves(alphago: ModuleType) -> None:
    policy = alphago.improve(alphago.network(7), 60)
    points = alphago.match(alphago.drawing(policy), alphago.at_random, 400)
    assert int(points.split()[0]) >= 63  # a half and five standard errors


def test_a_search_finds_what_wins_at_once(alphago: ModuleType) -> None:
    position = alphago.GAME.start(1)
    for move in (0, 6, 0, 6, 0, 6):
        position = alphago.GAME.play(position, np.array([move]))
    networks = alphago.network(7), alphago.network(1), alphago.linear(7)
    for lambda_ in (0.0, 0.5, 1.0):
        assert alphago.searching(*networks, lambda_, 30)(position)[0] == 0


@pytest.mark.slow
def test_the_whole_program_runs(alphago: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = "--games 4 --updates 3 --selfplay 1 --values 40 --simulations 2 --matches 2"
    alphago.main(sizes.split())
    lines = capsys.readouterr().out.splitlines()
    assert [line[:2] for line in lines] == ["1.", "  ", "2.", "3.", "4.", "  ", "4.", "  ", "4.", "  "]
    assert "squared error of values" in lines[3]
