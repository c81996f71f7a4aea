"""Rules against what is known of the games, and the checker against games that break them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polyak import AlphaZero
from polyak.algorithms.search.mcts import MCTS
from polyak.envs.games.checker import GameError, check_game
from polyak.envs.games.connect4 import Connect4, four_in_a_row
from polyak.envs.games.game import Game, IllegalMoveError
from polyak.envs.games.known import find_game
from polyak.envs.games.self_play import SelfPlayVecEnv
from polyak.envs.games.tictactoe import TicTacToe
from tests.envs.games.connect4_positions import ILLEGAL, drawn, error_rate, load

GAMES = [TicTacToe(), Connect4()]


def after(game: Game, moves: str) -> np.ndarray:
    position = game.start(1)
    for move in moves:
        position = game.play(position, np.array([int(move)]))
    return position


def count(game: Game, depth: int) -> list[int]:
    """Positions after 0, 1, ... moves, by every way to them."""
    position, counts = game.start(1), [1]
    for _ in range(depth):
        rows, moves = np.nonzero(game.legal(position))
        position = game.play(position[rows], moves)
        counts.append(len(position))
    return counts


@pytest.mark.parametrize("game", GAMES, ids=repr)
def test_games_pass_their_own_check(game: Game) -> None:
    check_game(game, n_games=4)


def test_there_are_as_many_ways_to_play_as_is_known() -> None:
    """Tic-tac-toe: OEIS A061221 counts its games by length; Connect-4: 7 columns that six discs cannot fill."""
    assert count(TicTacToe(), 9) == [1, 9, 72, 504, 3024, 15120, 54720, 148176, 200448, 127872]
    assert count(Connect4(), 6) == [7**n for n in range(7)]
    assert count(Connect4(), 7)[-1] == 7**7 - 7  # the seventh disc finds a column full


def test_random_fours_are_found_as_by_looking_at_every_line() -> None:
    rng = np.random.default_rng(0)
    boards = rng.random((500, 6, 7)) < 0.5
    bits = (np.uint64(1) << (np.arange(7) * 7 + np.arange(6)[:, None]).astype(np.uint64)) * boards
    expected = np.zeros(500, bool)
    for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
        for r in range(6):
            for c in range(7):
                line = [(r + i * dr, c + i * dc) for i in range(4)]
                if all(0 <= a < 6 and 0 <= b < 7 for a, b in line):
                    expected |= np.all([boards[:, a, b] for a, b in line], axis=0)
    np.testing.assert_array_equal(four_in_a_row(bits.sum((1, 2), dtype=np.uint64)), expected)
    assert 0 < expected.mean() < 1


def test_planes_of_connect4_are_as_they_are_said_to_be() -> None:
    planes = Connect4().observe(after(Connect4(), "334"))[0]  # the other has 3 and 4 at the bottom, the mover sits on 3
    assert planes.shape == (2, 6, 7)
    assert np.argwhere(planes[0]).tolist() == [[1, 3]]
    assert np.argwhere(planes[1]).tolist() == [[0, 3], [0, 4]]


@pytest.mark.parametrize(("game", "moves", "value"), [(GAMES[0], "03142", -1), (GAMES[1], "0101010", -1)], ids=str)
def test_the_player_to_move_after_a_line_has_lost(game: Game, moves: str, value: int) -> None:
    assert np.isnan(game.outcome(after(game, moves[:-1])))
    end = after(game, moves)
    assert game.outcome(end) == [value]
    assert not game.legal(end).any()
    with pytest.raises(IllegalMoveError, match="the game is over"):
        game.play(end, np.array([5]))


def test_what_cannot_be_is_not_read() -> None:
    floating = np.zeros((2, 6, 7), np.float32)
    floating[1, 2, 3] = 1
    with pytest.raises(ValueError, match="this position is impossible"):
        Connect4().read(floating)
    with pytest.raises(ValueError, match="this position is impossible"):
        TicTacToe().read(np.ones((2, 3, 3)))


def test_games_are_found_by_name() -> None:
    assert isinstance(find_game("connect4"), Connect4)
    assert find_game(GAMES[0]) is GAMES[0]
    with pytest.raises(ValueError, match="'conect4' is unknown.*connect4"):
        find_game("conect4")
    with pytest.raises(TypeError, match="is no game"):
        find_game(3)


def test_images() -> None:
    lines = Connect4().text(after(Connect4(), "33")[0]).splitlines()
    assert lines[-3:] == [". . . O . . .", ". . . X . . .", "0 1 2 3 4 5 6"]
    assert TicTacToe().text(after(TicTacToe(), "4")[0]) == "0 1 2\n3 O 5\n6 7 8"


# -- wrong games -------------------------------------------------------------------------------------------------------


class Lenient(TicTacToe):
    def refuse_illegal(self, moves: np.ndarray, legal: np.ndarray) -> None:
        pass


class Stuck(TicTacToe):
    def legal(self, positions: np.ndarray) -> np.ndarray:
        legal = super().legal(positions)
        return legal & (legal.sum(1) > 5)[:, None]


class Shared(TicTacToe):
    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        positions[:] = super().play(positions, moves)
        return positions


class Endless(TicTacToe):
    longest = 4


class Proud(TicTacToe):
    def outcome(self, positions: np.ndarray) -> np.ndarray:
        return -super().outcome(positions)


class Continues(TicTacToe):
    def legal(self, positions: np.ndarray) -> np.ndarray:
        return ((positions[:, 0] | positions[:, 1])[:, None] & (1 << np.arange(9))) == 0


class Twisted(TicTacToe):
    def symmetries(self) -> Any:
        return [side._replace(moves=side.moves[::-1]) for side in super().symmetries()]


class Crowded(TicTacToe):
    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        return super().play(np.repeat(positions[:1], len(moves), 0), moves[:1].repeat(len(moves)))


class Huge(TicTacToe):
    def outcome(self, positions: np.ndarray) -> np.ndarray:
        return 3 * super().outcome(positions)


@pytest.mark.parametrize(
    ("game", "message"),
    [
        (Lenient(), r"illegal, but play\(\) accepts it\. Moves: (\d), \1\."),
        (Stuck(), r"no legal move, but outcome\(\) says that the game continues.*Moves: \d, \d, \d, \d\."),
        (Shared(), r"changed the position that it was played from.*Moves: \d\."),
        (Endless(), "lasts beyond longest=4 moves"),
        (Proud(), r"player to move has won \(1\) by the other's move"),
        (Continues(), r"the game is over with -1, but move \d is legal"),
        (Twisted(), "symmetry . is none"),
        (Crowded(), "is another when they are played in a batch"),
        (Huge(), r"outcome -3.0, outside \[-1, 1\]"),
    ],
    ids=repr,
)
def test_a_wrong_game_is_refused_with_the_moves_that_show_it(game: Game, message: str) -> None:
    with pytest.raises(GameError, match=message):
        check_game(game)


@pytest.mark.parametrize("game", [Lenient(), Stuck(), Shared(), Endless(), Proud(), Continues(), Huge()], ids=repr)
@pytest.mark.parametrize(
    "use", [lambda game: AlphaZero("MlpPolicy", game), MCTS, SelfPlayVecEnv], ids=["az", "mcts", "env"]
)
def test_a_wrong_game_is_refused_before_it_is_played(game: Game, use: Callable[[Game], Any]) -> None:
    with pytest.raises(GameError, match="is not a game to search"):
        use(game)


def test_solved_positions_are_what_they_are_said_to_be() -> None:
    """The last of them, which are solved at once, solved again; and all of them are such that one can err."""
    solved, game = load(), Connect4()
    legal = game.legal(solved.positions)
    np.testing.assert_array_equal(legal, solved.worths != ILLEGAL)
    assert (np.where(legal, solved.worths, 2).min(1) < solved.worths.max(1)).all()
    again = drawn(plies=[27], each=5)
    np.testing.assert_array_equal(again.positions, solved.positions[solved.plies == 27][:5])
    np.testing.assert_array_equal(again.worths, solved.worths[solved.plies == 27][:5])
    assert error_rate(solved, lambda positions: solved.worths.argmax(1)) == 0
    assert error_rate(solved, lambda positions: np.where(legal, solved.worths, 2).argmin(1)) == 1
