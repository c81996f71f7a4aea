"""AlphaZero: its losses, its games, its files, and that it learns tic-tac-toe."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyak import AlphaZero
from polyak.algorithms.alphazero import make_player, policy_loss, squared_norm, value_loss
from polyak.algorithms.search.mcts import MCTS
from polyak.algorithms.search.position_buffer import PositionBuffer
from polyak.algorithms.search.rollouts import Playouts
from polyak.algorithms.search.self_play import SelfPlay, match
from polyak.envs.games.connect4 import Connect4
from polyak.envs.games.game import Game
from polyak.envs.games.tictactoe import TicTacToe
from polyak.evaluation.elo import expected, rating
from polyak.learning.engine.program import Program
from tests.tolerance import drift
from tests.trials import trial


def small(**options: Any) -> AlphaZero:
    return AlphaZero(**{**trial(AlphaZero), **options})


def losses(choose: Callable[[np.ndarray], np.ndarray], game: Game) -> int:
    """Ends of all games, in both seats and against every reply, that ``choose`` has lost."""
    lost = 0
    for mine in (True, False):
        positions = game.start(1)
        while len(positions):
            if mine:
                positions = game.play(positions, choose(positions))
            else:
                rows, moves = np.nonzero(game.legal(positions))
                positions = game.play(positions[rows], moves)
            outcome = game.outcome(positions)
            lost += 0 if mine else int((outcome == -1).sum())
            positions = np.unique(positions[np.isnan(outcome)], axis=0)
            mine = not mine
    return lost


# -- losses ------------------------------------------------------------------------------------------------------------


def test_losses_by_hand() -> None:
    logits = torch.tensor([[1.0, 2.0, 50.0], [0.0, 0.0, 0.0]])
    legal = torch.tensor([[True, True, False], [True, True, True]])
    policies = torch.tensor([[0.25, 0.75, 0.0], [1.0, 0.0, 0.0]])
    first = -(0.25 * 1 + 0.75 * 2 - np.log(np.e + np.e**2))
    assert policy_loss(logits, legal, policies).item() == pytest.approx((first + np.log(3)) / 2, rel=1e-6)
    assert value_loss(torch.tensor([0.5, -1.0]), torch.tensor([1.0, 1.0])).item() == pytest.approx((0.25 + 4) / 2)
    assert squared_norm([torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])]).item() == 14


def test_the_policys_loss_leaves_illegal_moves_alone() -> None:
    logits = torch.zeros(1, 3, requires_grad=True)
    policy_loss(logits, torch.tensor([[True, True, False]]), torch.tensor([[1.0, 0.0, 0.0]])).backward()
    np.testing.assert_allclose(logits.grad, [[-0.5, 0.5, 0.0]])


# -- games against itself ----------------------------------------------------------------------------------------------


def test_every_position_learns_how_its_game_ended_for_who_was_to_move() -> None:
    game = TicTacToe()
    play = SelfPlay(MCTS(game, Playouts(game), 10, seed=0), 6, warm_moves=9)
    seen = 0
    for _ in range(30):
        ended = play.move()
        lengths = ended.lengths.tolist()
        assert len(ended.values) == sum(lengths)
        for i, (length, result) in enumerate(zip(lengths, ended.results, strict=True)):
            rows = slice(sum(lengths[:i]), sum(lengths[: i + 1]))
            positions = game.read(ended.observations[rows])
            assert (positions[0] == 0).all()  # from the start
            np.testing.assert_array_equal(ended.values[rows], result * (-1.0) ** np.arange(length))
            np.testing.assert_array_equal(ended.legal[rows], game.legal(positions))
            moves = [int(np.log2(b ^ a)) for (a, _), (_, b) in pairwise(positions)]
            last = positions[-1:]
            ends = game.play(last.repeat(9, 0)[: game.legal(last).sum()], np.flatnonzero(game.legal(last)[0]))
            assert result * (-1.0) ** length in game.outcome(ends)  # one of the moves ended it so
            assert len(set(moves)) == length - 1
            seen += 1
    assert seen > 10


def test_a_match_gives_points_to_who_wins() -> None:
    game = TicTacToe()
    strong, weak = MCTS(game, simulations=60, seed=0), MCTS(game, simulations=1, seed=1)
    points = match(strong, weak, 40)
    assert points > 28
    assert match(weak, strong, 40) < 12


def test_a_match_against_oneself_is_fair() -> None:
    """Without chance both sides of an opening mirror each other: exactly half the points."""
    game = TicTacToe()

    def judge(seen: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return legal / legal.sum(1, keepdims=True), np.zeros(len(seen))

    assert match(MCTS(game, judge, 30), MCTS(game, judge, 30), 20) == 10


def test_elo() -> None:
    assert expected(0) == 0.5
    assert expected(400) == pytest.approx(10 / 11)
    assert rating([100.0], [5.0], [10]) == pytest.approx(100, abs=1e-6)
    assert rating([0.0], [10000 * 10 / 11], [10000]) == pytest.approx(400, abs=1)
    assert 0 < rating([0.0], [10.0], [10]) < 1000  # who won all has a rating, too
    with pytest.raises(ValueError, match="at least one"):
        rating([], [], [])


def test_replayed_positions_are_seen_in_all_ways() -> None:
    game = Connect4()
    buffer = PositionBuffer(10, game.observation_shape, 7, game.symmetries())
    buffer.seed(0)
    position = game.play(game.start(1), np.array([1]))
    policy = np.eye(7, dtype=np.float32)[[2]]
    buffer.add(game.observe(position), policy, game.legal(position), np.array([1.0]))
    batch = buffer.sample(40)
    where = batch.observations[:, 1, 0].argmax(1)
    assert set(where.tolist()) == {1, 5}
    np.testing.assert_array_equal(batch.policies.argmax(1), np.where(where == 1, 2, 4))


# -- the model ---------------------------------------------------------------------------------------------------------


def test_traced_it_equals_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Program, "compile", lambda self: None)
    eager, compiled = (small(compile=choice).learn(40) for choice in (False, True))
    for _ in range(20):
        batch = eager.replay_buffer.sample(16)
        for model in (eager, compiled):
            model.learner.update(batch)
    assert compiled.engine is not None
    assert compiled.engine.status == "compiled"
    for ours, theirs in zip(eager.policy.parameters(), compiled.policy.parameters(), strict=True):
        tolerance = drift(eager.learner.steps, 1e-3, 64 + 18 + 32)
        torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)


@pytest.mark.parametrize("options", [{"policy": "CnnPolicy", "policy_kwargs": {}}, {"selection": "gumbel"}], ids=str)
def test_further_ways_to_build_it_learn_too(options: dict[str, Any]) -> None:
    model = small(**options)
    before = [p.clone() for p in model.policy.parameters()]
    model.learn(120)
    assert all(not torch.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True))


def test_it_learns_from_games_that_begin_after_moves_of_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(opening_moves=3, n_games=16).learn(160)
    seen = TicTacToe().read(model.replay_buffer.state_dict()["observations"][: model.replay_buffer.size()])
    assert (seen == 0).all(1).sum() < len(model.ep_info_buffer), "not every game was learned from from its start"
    model.save(tmp_path / "model")
    assert AlphaZero.load(tmp_path / "model").self_play.opening_moves == 3
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # of a process that is this one here
    player = make_player(model.make_policy(), model.env, model._search_settings(), model._play_settings(), 40)
    marks = model.env.observe(player.games.positions).reshape(40, -1).sum(1)
    assert set(marks.tolist()) == {0, 1, 2, 3}, "as in processes"


def test_ratings_and_past_selves_are_saved(tmp_path: Path) -> None:
    model = small(rate_freq=64, rated_games=4, past_selves=2).learn(300)
    assert len(model.past) == 2
    model.save(tmp_path / "model")
    loaded = AlphaZero.load(tmp_path / "model")
    assert [elo for _, elo in loaded.past] == [elo for _, elo in model.past]
    assert loaded.elo == model.elo
    for (ours, _), (theirs, _) in zip(model.past, loaded.past, strict=True):
        for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
            assert torch.equal(a, b)


def test_predict(tmp_path: Path) -> None:
    model = AlphaZero("MlpPolicy", "connect4", n_games=2, seed=0)
    game = Connect4()
    position = game.start(1)
    for move in (0, 1, 0, 1, 0, 1):
        position = game.play(position, np.array([move]))
    planes = game.observe(position)
    assert int(model.predict(planes[0], simulations=200)[0]) == 0  # wins at once
    assert model.predict(planes, simulations=50)[0].shape == (1,)
    forbidden = np.arange(7) != 0
    assert int(model.predict(planes[0], simulations=200, action_masks=forbidden)[0]) != 0
    assert 0 <= int(model.predict(planes[0], simulations=0)[0]) < 7  # the network alone
    assert {int(model.predict(game.observe(game.start(1))[0], None, None, False)[0]) for _ in range(30)} > {3}
    with pytest.raises(ValueError, match="this position is impossible"):
        model.predict(np.ones((2, 6, 7)))
    with pytest.raises(ValueError, match="has the shape"):
        model.predict(np.ones((2, 3, 3)))
    model.save(tmp_path / "model")
    loaded = AlphaZero.load(tmp_path / "model")
    assert isinstance(loaded.env, Connect4)
    with pytest.raises(ValueError, match="env=TicTacToe"):
        AlphaZero.load(tmp_path / "model", env="tictactoe")


class MyTicTacToe(TicTacToe):
    """A user's own game."""


def test_a_game_of_ones_own_is_brought_again(tmp_path: Path) -> None:
    small(env=MyTicTacToe()).learn(50).save(tmp_path / "model")
    loaded = AlphaZero.load(tmp_path / "model")
    with pytest.raises(ValueError, match=r"Pass the game: load\(path, env="):
        loaded.predict(np.zeros((2, 3, 3)))
    with pytest.raises(ValueError, match="no game to learn"):
        loaded.learn(10)
    assert AlphaZero.load(tmp_path / "model", env=MyTicTacToe()).predict(np.zeros((2, 3, 3)))[0] in range(9)


# -- learning ----------------------------------------------------------------------------------------------------------


@pytest.mark.learn
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_never_loses_tictactoe(seed: int) -> None:
    """Every reply of an opponent, in both seats: no game is lost at three checkpoints in a row, with 25 simulations."""
    model = AlphaZero(
        "MlpPolicy", "tictactoe", policy_kwargs={"net_arch": [64, 64]}, simulations=25, n_games=64, seed=seed
    )
    unbeaten = 0
    for checkpoint in range(12):
        model.learn(5_000, reset_num_timesteps=checkpoint == 0)
        lost = losses(lambda positions: model.look_ahead(positions, 25).moves, TicTacToe())
        unbeaten = unbeaten + 1 if lost == 0 else 0
        if unbeaten == 3:
            return
    pytest.fail(f"seed {seed}: not unbeaten at three checkpoints in a row within 60,000 positions")
