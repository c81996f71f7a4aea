"""Go: its rules one by one and against OpenSpiel's, and what plays it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak import MCTS, PPO, AlphaZero
from polyak.algorithms.search.self_play import SelfPlay, match
from polyak.envs import SelfPlayVecEnv
from polyak.envs.games.checker import check_game
from polyak.envs.games.game import IllegalMoveError
from polyak.envs.games.go import KO, MADE, Go
from polyak.envs.games.known import find_game, name_of
from tests.envs.games.go_games import REPEATED, Record, load, played
from tests.trials import trial

SMALL = Go(5, komi=0.5)


def point(game: Go, name: str) -> int:
    """The move that players call so."""
    return {game.move_text(move): move for move in range(game.n_moves)}[name]


def after(moves: str, game: Go = SMALL) -> np.ndarray:
    """The position [1, ...] after moves of both players in turn, black first."""
    position = game.start(1)
    for name in moves.split():
        position = game.play(position, np.array([point(game, name)]))
    return position


def can(position: np.ndarray, name: str) -> bool:
    return bool(SMALL.legal(position)[0, point(SMALL, name)])


def stones(position: np.ndarray) -> tuple[set[str], set[str]]:
    """The names of the points of black and of white."""
    own, other = (
        {SMALL.move_text(int(i)) for i in np.flatnonzero(sign * position[0, : SMALL.n_points] > 0)} for sign in (1, -1)
    )
    return (own, other) if position[0, MADE] % 2 == 0 else (other, own)


# -- rules -------------------------------------------------------------------------------------------------------------


def test_a_chain_is_captured_with_its_last_liberty() -> None:
    assert stones(after("b1 a1 pass b3 a2")) == ({"b1", "a2"}, {"b3"})  # one stone in the corner
    two = after("b1 a1 b2 a2 a3")
    assert stones(two) == ({"b1", "b2", "a3"}, set())
    assert can(two, "a1")
    both = after("a2 a1 c2 c1 d1 pass b1")  # two chains by one stone
    assert stones(both) == ({"a2", "c2", "d1", "b1"}, set())


def test_suicide_is_forbidden_unless_it_captures() -> None:
    assert can(after("a2 e5 b1 e4"), "a1")  # black's own eye
    eye = after("a2 e5 b1")
    assert not can(eye, "a1")
    with pytest.raises(IllegalMoveError, match="move a1 is not legal"):
        SMALL.play(eye, np.array([point(SMALL, "a1")]))
    chains = "a3 a2 b2 b1 c1"
    assert not can(after(chains), "a1")  # would join a2 and b1, and leave them without a liberty
    assert can(after(f"{chains} pass"), "a1")
    assert stones(after(f"{chains} pass a1")) == ({"a3", "b2", "c1", "a1"}, set())


def test_a_ko_may_not_be_retaken_at_once() -> None:
    ko = after("b1 c1 a2 d2 b3 c3 c2 b2")  # white's b2 has taken c2
    assert stones(ko) == ({"b1", "a2", "b3"}, {"c1", "d2", "c3", "b2"})
    assert SMALL.move_text(int(ko[0, KO])) == "c2"
    assert not can(ko, "c2")
    later = after("b1 c1 a2 d2 b3 c3 c2 b2 e5 e1")
    assert later[0, KO] == -1
    assert can(later, "c2")
    assert stones(SMALL.play(later, np.array([point(SMALL, "c2")])))[1] == {"c1", "d2", "c3", "e1"}


def test_a_snapback_is_no_ko() -> None:
    """White takes one stone with a stone that has a neighbour, and black takes all three with the next move."""
    taken = after("c1 b1 c2 b2 b3 a3 a2 a1")
    assert "a2" not in stones(taken)[0]
    assert taken[0, KO] == -1
    back = after("c1 b1 c2 b2 b3 a3 a2 a1 a2")
    assert stones(back) == ({"c1", "c2", "b3", "a2"}, {"a3"})
    assert back[0, KO] == -1


def test_two_passes_end_a_game_and_the_smaller_area_has_lost() -> None:
    end = after("c3 pass pass")
    assert SMALL.outcome(end) == [-1]  # white, to move, has only komi
    assert not SMALL.legal(end).any()
    assert np.isnan(SMALL.outcome(after("c3 pass d3 pass"))[0])
    assert SMALL.outcome(after("pass pass")) == [-1]  # black lacks komi
    assert Go(5, komi=0).outcome(after("pass pass", Go(5, komi=0))) == [0]


def test_a_game_that_does_not_end_is_scored_after_its_longest() -> None:
    position = after("c3 pass")
    position[0, MADE] = SMALL.longest - 1
    assert np.isnan(SMALL.outcome(position)[0])
    end = SMALL.play(position, np.array([0]))
    assert not np.isnan(SMALL.outcome(end)[0])
    assert not SMALL.legal(end).any()


def test_area_is_stones_and_the_fields_that_reach_one_player_alone() -> None:
    """Black has column b and what lies left of it, white column d and what lies right of it; c is neutral."""
    walls = after("b1 d1 b2 d2 b3 d3 b4 d4 b5 d5")
    assert SMALL.score(walls) == [10 - 10 - 0.5]
    assert SMALL.score(after("b1 d1 b2 d2 b3 d3 b4 d4 b5 d5 c1")) == [-(11 - 10 - 0.5)]  # to white, to move
    assert SMALL.score(after("c3")) == [-(25 - 0.5)]
    assert Go(9).score(Go(9).start(2)).tolist() == [-7.5, -7.5]


def test_planes_are_as_they_are_said_to_be() -> None:
    planes = SMALL.observe(after("b1 c1 a2 d2 b3 c3 c2 b2 pass"))[0]  # white is to move
    assert {SMALL.move_text(int(i)) for i in np.flatnonzero(planes[0])} == {"c1", "d2", "c3", "b2"}
    assert {SMALL.move_text(int(i)) for i in np.flatnonzero(planes[1])} == {"b1", "a2", "b3"}
    assert planes[2].sum() == 0  # the ko ends with a pass
    assert (planes[3] == 0.5).all()
    assert (planes[4] == 1).all()
    np.testing.assert_allclose(planes[5], 9 / 50)
    ko = SMALL.observe(after("b1 c1 a2 d2 b3 c3 c2 b2"))[0, 2]
    assert ko[1, 2] == ko.sum() == 1


def test_what_cannot_be_is_not_read() -> None:
    good = SMALL.observe(after("c3 d3 pass"))
    np.testing.assert_array_equal(SMALL.observe(SMALL.read(good)), good)
    for plane, value in ((0, 1.0), (4, 0.0)):
        wrong = good.copy()
        wrong[0, plane] = value  # all points own; or black to move after three moves
        with pytest.raises(ValueError, match="this position is impossible"):
            SMALL.read(wrong)
    choked = SMALL.observe(SMALL.start(1))
    choked[0, 0, 0, 0] = choked[0, 1, 0, 1] = choked[0, 1, 1, 0] = 1
    with pytest.raises(ValueError, match="every stone has a liberty"):
        SMALL.read(choked)


@pytest.mark.parametrize(
    "arguments", [{"size": 4}, {"size": 20}, {"size": 9.0}, {"size": True}, {"komi": np.nan}], ids=str
)
def test_wrong_arguments_are_named(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(arguments))}=.* must be"):
        Go(**arguments)


def test_it_passes_the_check() -> None:
    check_game(SMALL, n_games=1, tried=25)


@pytest.mark.slow
def test_on_the_usual_board_it_passes_the_check() -> None:
    check_game(Go(), n_games=1, tried=1)


def test_text() -> None:
    lines = SMALL.text(after("b1 c3")[0]).splitlines()
    assert lines[2] == " 3 . . O . ."
    assert lines[4:] == [" 1 . X . . .", "   a b c d e"]


# -- against OpenSpiel -------------------------------------------------------------------------------------------------


def replay(record: Record) -> bool:
    """Compare one game move by move; returns whether OpenSpiel ended it because a board had been before."""
    game = Go(record.size, record.komi)
    positions = [game.start(1)]
    for move in record.moves:
        positions.append(game.play(positions[-1], np.array([move])))
    before, end = np.concatenate(positions[:-1]), positions[-1]
    assert np.isnan(game.outcome(before)).all()
    np.testing.assert_array_equal(game.legal(before), record.legal)
    np.testing.assert_array_equal(game.legal(game.read(game.observe(before))), record.legal)
    if record.result == REPEATED:
        points = np.concatenate([before, end])[:, : game.n_points]
        colours = np.sign(points) * (1 - 2 * (np.arange(len(points)) % 2))[:, None]
        assert (colours[:-1] == colours[-1]).all(1).any()
        assert np.isnan(game.outcome(end)[0])
        return True
    to_black = 1 - 2 * (len(record.moves) % 2)
    assert game.outcome(end)[0] * to_black == record.result
    return False


def test_games_go_as_openspiel_recorded_them() -> None:
    repeated = [replay(record) for record in load()]
    assert 0 < sum(repeated) < len(repeated) / 10


@pytest.mark.slow
@pytest.mark.parametrize("kind", [(5, 7.5, 500), (6, -1.0, 100), (9, 7.0, 100), (13, 0.0, 10), (19, 7.5, 5)], ids=str)
def test_games_go_as_openspiel_plays_them(kind: tuple[int, float, int]) -> None:
    pytest.importorskip("pyspiel")
    repeated = [replay(record) for record in played([kind], seed=1)]
    assert sum(repeated) < len(repeated) / 10


# -- players -----------------------------------------------------------------------------------------------------------


def test_names_are_of_the_usual_board() -> None:
    assert repr(find_game("go")) == "Go(size=9, komi=7.5)"
    assert name_of(Go()) == "go"
    assert Go(19).n_moves == 19 * 19 + 1  # passing
    assert name_of(Go(komi=6.5)) is name_of(SMALL) is None


def test_a_search_passes_when_that_wins() -> None:
    found = MCTS(SMALL, simulations=60, seed=0).search(after("c3 e5 b3 pass"))
    assert SMALL.move_text(int(found.moves[0])) == "pass"
    assert found.values == [1]


def test_a_search_does_not_lose_by_a_pass() -> None:
    """White has two stones and komi, black three: after black's pass, white's would end the game."""
    found = MCTS(SMALL, simulations=60, seed=0).search(after("c3 e5 b3 pass c2 e4 pass"))
    assert SMALL.move_text(int(found.moves[0])) != "pass"


def test_alphazero_learns_it_and_its_files_know_the_board(tmp_path: Path) -> None:
    model = AlphaZero(**{**trial(AlphaZero), "env": SMALL}).learn(8 * 60)
    assert isinstance(model.self_play, SelfPlay)
    assert model._n_updates > 0
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"Pass the game: load\(path, env="):
        AlphaZero.load(tmp_path / "model").predict(SMALL.observe(SMALL.start(1))[0])
    loaded = AlphaZero.load(tmp_path / "model", env=Go(5, komi=0.5))
    for ours, theirs in zip(model.policy.parameters(), loaded.policy.parameters(), strict=True):
        np.testing.assert_array_equal(ours.numpy(force=True), theirs.numpy(force=True))
    assert loaded.predict(SMALL.observe(SMALL.start(1))[0])[0] in range(26)


@pytest.mark.learn
@pytest.mark.parametrize("seed", [0, 1])
def test_alphazero_beats_a_search_with_random_games(seed: int) -> None:
    """37 of 40 points after 10,000 positions with seed 0; 30 are three standard errors above a half."""
    network = {"net_arch": [128, 128]}
    model = AlphaZero(
        "MlpPolicy", Go(5), simulations=24, n_games=64, learning_starts=1_000, policy_kwargs=network, seed=seed
    ).learn(10_000)
    assert match(model.search, MCTS(Go(5), simulations=24, seed=1), 40) >= 30


def test_policy_gradients_play_it() -> None:
    env = SelfPlayVecEnv(SMALL, n_envs=4)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=1, seed=0).learn(256)
    assert model.num_timesteps == 256
    assert model.ep_info_buffer
