"""Games that begin after moves of chance: what those are, and that all that is learned from the games stays right."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from polyak.algorithms.search.mcts import MCTS
from polyak.algorithms.search.rollouts import Playouts
from polyak.algorithms.search.self_play import SelfPlay, openings
from polyak.envs.games.connect4 import Connect4
from polyak.envs.games.game import NOT_OVER, Game
from polyak.envs.games.tictactoe import TicTacToe
from polyak.hyperparameters.declaration import HyperparameterError


class Alone(Game):
    """One player adds 1 or 2 up to 5 or more; 5 is worth 1, more is worth nothing. A position is [B, 1] sums."""

    n_moves, observation_shape, longest, discount = 2, (1,), 5, 0.5

    def start(self, n: int) -> np.ndarray:
        return np.broadcast_to(np.zeros(1, np.int64), (n, 1))

    def legal(self, positions: np.ndarray) -> np.ndarray:
        return np.repeat(positions < 5, 2, axis=1)

    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        self.refuse_illegal(moves, self.legal(positions))
        return positions + 1 + moves[:, None]

    def outcome(self, positions: np.ndarray) -> np.ndarray:
        over = np.where(positions == 5, np.float32(1), np.float32(0))
        return np.where(positions < 5, NOT_OVER, over)[:, 0]

    def observe(self, positions: np.ndarray) -> np.ndarray:
        return positions.astype(np.float32) / 6


class Objects(Alone):
    """The same game, whose positions are Python's numbers."""

    def start(self, n: int) -> np.ndarray:
        return np.zeros(n, object)

    def legal(self, positions: np.ndarray) -> np.ndarray:
        return super().legal(_sums(positions))

    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        return super().play(_sums(positions), moves)[:, 0].astype(object)

    def outcome(self, positions: np.ndarray) -> np.ndarray:
        return super().outcome(_sums(positions))

    def observe(self, positions: np.ndarray) -> np.ndarray:
        return super().observe(_sums(positions))


def _sums(positions: np.ndarray) -> np.ndarray:
    return positions.astype(np.int64)[:, None]


def discs(game: Game, positions: np.ndarray) -> np.ndarray:
    return game.observe(positions).reshape(len(positions), -1).sum(1).astype(int)


@pytest.mark.parametrize("random", [np.random.RandomState(0), np.random.default_rng(0)], ids=["numpy", "generator"])
@pytest.mark.parametrize("game", [TicTacToe(), Connect4()], ids=repr)
def test_openings_have_as_many_moves_as_they_should_and_continue(game: Game, random: Any) -> None:
    wanted = np.arange(600) % 6  # after 6 moves of tic-tac-toe, every further one may end it
    positions = openings(game, 600, wanted, random)
    np.testing.assert_array_equal(discs(game, positions), wanted)
    assert np.isnan(game.outcome(positions)).all()
    assert game.legal(positions).any(1).all()
    assert len(np.unique(positions, axis=0)) > 150
    fours = discs(game, openings(game, 5, 4, random))
    assert fours.tolist() == [4] * 5
    assert len(openings(game, 0, 4, random)) == 0


def test_moves_are_drawn_uniformly_from_those_that_do_not_end_the_game() -> None:
    game, random = TicTacToe(), np.random.default_rng(0)
    first = openings(game, 9000, 1, random)[:, 1]
    assert set(first.tolist()) == {1 << i for i in range(9)}
    assert min(Counter(first.tolist()).values()) > 850
    alone = Counter(openings(Alone(), 4000, 3, random)[:, 0].tolist())  # 5 would end the game
    assert alone.keys() == {3, 4}
    assert alone[3] == pytest.approx(500, abs=80), "only 1, 1, 1"


@pytest.mark.parametrize("game", [Alone(), Objects()], ids=repr)
def test_where_every_move_ends_the_game_it_begins(game: Game) -> None:
    positions = openings(game, 50, 1_000_000, np.random.default_rng(0))
    assert {int(position) for position in positions.reshape(-1)} == {4}
    full = openings(TicTacToe(), 50, 20, np.random.default_rng(0))
    assert np.isnan(TicTacToe().outcome(full)).all()
    assert discs(TicTacToe(), full).max() == 8


def test_the_number_of_moves_is_drawn_for_each_game() -> None:
    game = Connect4()
    play = SelfPlay(MCTS(game, Playouts(game), 2, seed=0), 700, warm_moves=0, opening_moves=6)
    counts = np.bincount(discs(game, play.positions), minlength=7)
    assert len(counts) == 7
    assert counts.min() > 60


@pytest.mark.parametrize(("selection", "keeps_trees"), [("uct", True), ("puct", False), ("gumbel", True)])
def test_games_after_openings_are_learned_from_as_they_ended(selection: Any, keeps_trees: bool) -> None:
    game = TicTacToe()
    search = MCTS(game, Playouts(game), 8, selection=selection, seed=0)
    play = SelfPlay(search, 8, warm_moves=9, keeps_trees=keeps_trees, opening_moves=5)
    begun: set[int] = set()
    for _ in range(40):
        ended = play.move()
        if play.trees is not None:
            np.testing.assert_array_equal(play.trees.positions[play.trees.roots], play.positions)
            assert not play.trees.over[play.trees.roots].any()
            assert (play.trees.parents[play.trees.roots] == -1).all()
        lengths = ended.lengths.tolist()
        assert len(ended.values) == sum(lengths)
        for i, (length, result) in enumerate(zip(lengths, ended.results, strict=True)):
            rows = slice(sum(lengths[:i]), sum(lengths[: i + 1]))
            positions = game.read(ended.observations[rows])
            first = int(discs(game, positions)[0])
            begun.add(first)
            np.testing.assert_array_equal(discs(game, positions), first + np.arange(length))
            np.testing.assert_array_equal(ended.values[rows], result * (-1.0) ** np.arange(length))
            np.testing.assert_array_equal(ended.legal[rows], game.legal(positions))
            last = positions[-1:]
            ends = game.play(last.repeat(game.legal(last).sum(), 0), np.flatnonzero(game.legal(last)[0]))
            assert result * (-1.0) ** length in game.outcome(ends), "one of the moves ended it so"
    assert begun == set(range(6))


@pytest.mark.parametrize("game", [Alone(), Objects()], ids=repr)
def test_one_players_game_is_worth_less_the_later_it_is_won(game: Game) -> None:
    play = SelfPlay(MCTS(game, Playouts(game, random=np.random.default_rng(1)), 8, seed=0), 8, 2, opening_moves=3)
    seen = 0
    for _ in range(30):
        ended = play.move()
        for i, (length, result) in enumerate(zip(ended.lengths, ended.results, strict=True)):
            rows = slice(int(ended.lengths[:i].sum()), int(ended.lengths[: i + 1].sum()))
            left = length - np.arange(length)
            assert result in (0, 0.5**length)
            np.testing.assert_array_equal(ended.values[rows], (result > 0) * 0.5**left)
            seen += ended.observations[rows][0, 0] > 0
    assert seen > 5


def test_warm_moves_are_counted_from_where_a_game_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    game = Connect4()
    play = SelfPlay(MCTS(game, Playouts(game), 4, seed=0), 50, warm_moves=1, opening_moves=20)
    found = play.search.search(play.positions)
    unlike = found._replace(moves=np.full(50, -1))
    assert (play._moves(unlike) >= 0).all(), "all are drawn, whatever has been played by chance"
    play.plies += 1
    assert (play._moves(unlike) == -1).all()


def test_no_moves_of_chance_draw_nothing() -> None:
    game, random = TicTacToe(), np.random.default_rng(3)
    search = MCTS(game, Playouts(game), 2)
    search.random = random
    play = SelfPlay(search, 4, warm_moves=2)
    assert random.bit_generator.state == np.random.default_rng(3).bit_generator.state
    assert (play.positions == 0).all()


@pytest.mark.parametrize("value", [-1, 1.5, "2", None])
def test_other_numbers_of_opening_moves_are_refused(value: Any) -> None:
    game = TicTacToe()
    with pytest.raises(HyperparameterError, match=r"opening_moves=.*integer of at least 0"):
        SelfPlay(MCTS(game, Playouts(game), 2), 4, warm_moves=2, opening_moves=value)
