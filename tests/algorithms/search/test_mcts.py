"""Search against brute force."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak import MCTS
from polyak.algorithms.search.trees import NONE, Trees
from polyak.envs import ActionMasker
from polyak.envs.games.connect4 import Connect4
from polyak.envs.games.copied import CopiedEnv
from polyak.envs.games.tictactoe import TicTacToe
from tests.envs.games.test_games import after
from tests.worlds import World

GAME = TicTacToe()
SUM = 300 * 2.0**-23
"""Relative error of sums of 300 numbers in float32."""


@cache
def minimax(own: int, other: int) -> int:
    """What a position of tic-tac-toe is worth to the player to move."""
    position = np.array([[own, other]], np.int16)
    if not np.isnan(value := GAME.outcome(position)[0]):
        return int(value)
    return max(-worth for worth in successors(position).values())


def successors(position: np.ndarray) -> dict[int, int]:
    """Move -> what the position after it is worth to the opponent."""
    moves = np.flatnonzero(GAME.legal(position)[0])
    behind = GAME.play(np.repeat(position, len(moves), 0), moves)
    return {int(move): minimax(*map(int, then)) for move, then in zip(moves, behind, strict=True)}


def positions(n: int, seed: int) -> np.ndarray:
    """Different positions of games in progress in which moves differ in worth."""
    rng, found = np.random.default_rng(seed), {}
    while len(found) < n:
        position = GAME.start(1)
        for _ in range(rng.integers(3, 7)):
            position = GAME.play(position, np.array([rng.choice(np.flatnonzero(GAME.legal(position)[0]))]))
            if not np.isnan(GAME.outcome(position)[0]):
                break
        else:
            if len(set(successors(position).values())) > 1:
                found[tuple(position[0])] = position[0]
    return np.stack(list(found.values()))


def uniform(seen: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return legal / legal.sum(1, keepdims=True), np.zeros(len(seen))


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.slow, id="uct"),
        pytest.param({"evaluator": uniform}, id="puct"),
        pytest.param({"evaluator": uniform, "selection": "gumbel"}, id="gumbel"),
    ],
)
def test_it_finds_best_moves_of_tictactoe(options: dict[str, Any]) -> None:
    many = positions(100, seed=0)
    found = MCTS(GAME, simulations=1000, seed=0, **options).search(many)
    worths = [successors(many[i : i + 1]) for i in range(len(many))]
    best = [min(worth.values()) for worth in worths]
    mistakes = [i for i, move in enumerate(found.moves) if worths[i][int(move)] != best[i]]
    most = 3 if not options else 0  # rollouts alone now and then mislead
    assert len(mistakes) <= most, [GAME.text(many[i]) for i in mistakes]
    certain = np.array([-b for b in best])
    assert np.abs(found.values - certain).mean() < 0.2
    np.testing.assert_allclose(found.visits.sum(1), 1000)
    np.testing.assert_allclose(found.policy.sum(1), 1, rtol=1e-5)
    assert not found.visits[~GAME.legal(many)].any()


def test_a_search_of_everything_is_exact() -> None:
    """Once every line has been played to its end, only ends speak: a won position is worth nearly 1."""
    won = after(GAME, "0314")  # 2 wins at once
    found = MCTS(GAME, uniform, 2000, seed=0).search(won)
    assert found.moves.tolist() == [2]
    assert found.q[0, 2] == 1
    assert found.values[0] > 0.9


def test_what_is_proven_is_so() -> None:
    """Nodes that are certain have the worth of minimax, and many are that no game has ended at."""
    many = positions(40, seed=4)
    trees = MCTS(GAME, uniform, 400).search(many).trees
    behind = 0
    for node in np.flatnonzero(trees.over):
        position = trees.positions[node]
        assert trees.values[node] == minimax(*map(int, position))
        behind += bool(np.isnan(GAME.outcome(position[None])[0]))
    assert behind > 100
    found, plain = (MCTS(GAME, uniform, 400, solves=solves).search(many) for solves in (True, False))
    certain = np.array([-min(successors(many[i : i + 1]).values()) for i in range(len(many))])
    assert np.abs(found.values - certain).mean() < np.abs(plain.values - certain).mean()


def test_a_certain_loss_is_not_chosen_for_its_visits() -> None:
    trees = MCTS(GAME, uniform, 30).search(after(GAME, "0314")).trees
    search = MCTS(GAME, uniform, 1)
    win = trees.children[0, 2]
    assert trees.over[win]
    trees.visits[0] = 100
    trees.visits[0, 2] = 1
    assert search._found(trees, None).moves[0] == 2


def test_batches_are_searched_as_single_positions_are() -> None:
    many = positions(20, seed=1)
    together = MCTS(GAME, uniform, 60).search(many)
    for i in range(len(many)):
        alone = MCTS(GAME, uniform, 60).search(many[i : i + 1])
        np.testing.assert_array_equal(alone.visits[0], together.visits[i])
        np.testing.assert_array_equal(alone.q[0], together.q[i])


def test_statistics_agree_with_the_tree() -> None:
    """Every node was visited once more than its moves were looked at; totals flip their sign at every ply."""
    trees = MCTS(GAME, uniform, 300, solves=False).search(positions(5, seed=2)).trees
    for node in range(len(trees.values)):
        for move in np.flatnonzero(trees.children[node] != NONE):
            child = trees.children[node, move]
            visits = trees.visits[node, move]
            if trees.over[child]:
                assert trees.totals[node, move] == -visits * trees.values[child]
            else:
                assert visits == 1 + trees.visits[child].sum()
                total = -(trees.values[child] + trees.totals[child].sum())
                assert trees.totals[node, move] == pytest.approx(total, abs=float(visits) * SUM)


def test_what_is_kept_is_the_subtree() -> None:
    search = MCTS(GAME, uniform, 200)
    many = np.concatenate([after(GAME, moves) for moves in ("", "0", "4")])
    found = search.search(many)
    roots = found.trees.children[found.trees.roots, found.moves]
    before = [_unfolded(found.trees, int(root)) for root in roots]
    kept = search.after(found.trees, found.moves)
    assert kept is not None
    assert [_unfolded(kept, int(root)) for root in kept.roots] == before
    again = search.search(None, trees=kept)
    np.testing.assert_array_equal(again.visits.sum(1), [b[1] + 200 for b in before])


def _unfolded(trees: Trees, node: int) -> tuple[Any, ...]:
    """A tree as nested tuples: position, visits, and what is below each move."""
    below = tuple(
        (int(m), float(trees.totals[node, m]), _unfolded(trees, int(trees.children[node, m])))
        for m in np.flatnonzero(trees.children[node] != NONE)
    )
    return tuple(trees.positions[node].tolist()), float(trees.visits[node].sum()), below


def test_games_that_began_again_get_new_trees() -> None:
    search = MCTS(GAME, uniform, 50)
    many = np.concatenate([after(GAME, "0314"), after(GAME, "04")])
    moves = search.search(many).moves
    found = search.search(many)
    assert moves[0] == 2  # which ends the first game
    position = GAME.play(many, moves)
    position[0] = GAME.start(1)[0]
    kept = search.renewed(found.trees, moves, position)
    assert kept is not None
    np.testing.assert_array_equal(kept.positions[kept.roots], position)
    found = search.search(None, trees=kept)
    assert found.visits[0].sum() == 50
    assert found.visits[1].sum() > 50
    np.testing.assert_array_equal(found.visits[0], search.search(position[:1]).visits[0])


def test_noise_is_at_the_root_only() -> None:
    search = MCTS(GAME, uniform, 100, seed=0, dirichlet_alpha=0.3)
    found = search.search(GAME.start(4), noise=True)
    roots = found.trees.priors[found.trees.roots]
    assert len({tuple(row) for row in roots.tolist()}) == 4
    below = found.trees.children[found.trees.roots, found.moves]
    np.testing.assert_allclose(found.trees.priors[below].max(1), 1 / 8)


def test_gumbels_root_gives_half_its_moves_up_at_a_time() -> None:
    found = MCTS(GAME, uniform, 64, selection="gumbel", max_considered=4, seed=0).search(GAME.start(8), noise=True)
    for visits in found.visits:
        assert sorted(visits)[-4:] == [5, 5, 27, 27] or sorted(visits)[-4:-2] == [8, 8]
        assert (visits > 0).sum() == 4


def test_nothing_is_found_out_about_no_positions() -> None:
    assert len(MCTS(GAME, uniform, 5).search(GAME.start(0)).moves) == 0


def test_a_game_that_is_over_is_not_searched() -> None:
    with pytest.raises(ValueError, match=r"positions\[1\]: the game is over"):
        MCTS(GAME).search(np.concatenate([GAME.start(1), after(GAME, "03142")]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"simulations": 0}, "simulations=0"),
        ({"selection": "best"}, "selection='best'"),
        ({"dirichlet_fraction": 2.0}, "dirichlet_fraction=2.0"),
        ({"evaluator": 3}, "evaluator=3"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MCTS("tictactoe", **options)


def test_predict_takes_planes() -> None:
    search = MCTS("connect4", simulations=300, seed=0)
    planes = Connect4().observe(after(Connect4(), "010101"))
    column, state = search.predict(planes[0])
    assert (int(column), state) == (0, None)  # four above each other
    assert search.predict(planes)[0].tolist() == [0]
    planes = Connect4().observe(after(Connect4(), "01010"))
    assert int(search.predict(planes[0])[0]) == 0  # the only way to stop it
    with pytest.raises(ValueError, match="has the shape"):
        search.predict(np.zeros((3, 3)))


class Corridor(gym.Env[int, int]):
    """Left pays 0.1 at once and ends; three steps to the right pay 1."""

    observation_space, action_space = gym.spaces.Discrete(4), gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.at = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if action == 0:
            return self.at, 0.1, True, False, {}
        self.at += 1
        return self.at, float(self.at == 3), self.at == 3, False, {}


class Pickled(gym.Wrapper[Any, Any, Any, Any], gym.utils.EzPickle):
    """Says how to pickle it: by making it again."""

    def __init__(self) -> None:
        gym.utils.EzPickle.__init__(self)
        super().__init__(Corridor())


def test_environments_are_copied_in_the_middle_of_an_episode() -> None:
    env = gym.wrappers.TimeLimit(Pickled(), 10)
    env.reset()
    env.step(1)
    (moment,) = CopiedEnv(env).position(env)
    assert moment.env.step(1)[0] == 2
    assert moment.env.unwrapped is not env.unwrapped
    assert env.step(1)[0] == 2
    lock: Any = Pickled()
    lock.unwrapped.lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot be copied"):
        CopiedEnv(lock).position(lock)
    with pytest.raises(TypeError, match="Discrete actions"):
        MCTS(gym.make("Pendulum-v1"))
    with pytest.raises(TypeError, match="pass the environment itself"):
        MCTS(Corridor()).predict(np.zeros(3))


@pytest.mark.parametrize("selection", ["uct", "puct", "gumbel"])
def test_one_player_goes_for_the_later_larger_reward(selection: Any) -> None:
    env = Corridor()
    env.reset()
    search = MCTS(env, simulations=100, gamma=0.9, selection=selection, rollouts=8, seed=0)
    total, over = 0.0, False
    while not over:
        found = search.search(search.game.position(env))
        assert found.q[0, 0] == pytest.approx(0.1, rel=SUM)
        assert env.at == int(found.trees.positions[0].env.at)  # the search steps copies
        _, reward, over, _, _ = env.step(int(search.predict(env)[0]))
        total += reward
    assert total == 1.0
    assert found.q[0, 1] == pytest.approx(1.0, rel=SUM)


class NumberedFrom(World):
    """Four steps, of which each is worth 1 by the second action, which begin somewhere."""

    observation_space, length = gym.spaces.Discrete(5), 4

    def look(self) -> int:
        return self.t

    def act(self, action: Any) -> float:
        assert self.action_space.contains(action)
        return float(action == self.action_space.start + 1)


@pytest.mark.parametrize(
    ("selection", "first", "dtype"), [("uct", 1, np.int64), ("puct", 7, np.int32), ("gumbel", -2, np.int8)]
)
def test_actions_are_the_environments_own_wherever_they_begin(selection: Any, first: int, dtype: Any) -> None:
    env = NumberedFrom(action_space=gym.spaces.Discrete(3, start=first, dtype=dtype))
    env.reset()
    search = MCTS(env, simulations=100, gamma=0.9, selection=selection, rollouts=8, seed=0)
    total, over = 0.0, False
    while not over:
        _, reward, over, _, _ = env.step(search.predict(env)[0])
        total += reward
    assert total == 4.0
    assert search.choose(search.game.start(1)).tolist() == [1]  # a move, which counts from 0


class OneWay(Corridor):
    """Says in its observations that there is no way to the right; at the end nothing is allowed."""

    observation_space = gym.spaces.Dict({"at": gym.spaces.Discrete(4), "action_mask": gym.spaces.MultiBinary(2)})

    def seen(self, at: int, allowed: list[int]) -> Any:
        return {"at": at, "action_mask": np.array(allowed, np.int8)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        at, info = super().reset()
        return self.seen(at, [1, 0]), info

    def step(self, action: int) -> Any:
        at, reward, over, cut, info = super().step(action)
        return self.seen(at, [0, 0] if over else [1, 0]), reward, over, cut, info


def one_way_masks(env: Any) -> list[bool]:
    return [True, False]


@pytest.mark.parametrize("where", ["wrapper", "observation"])
def test_masks_are_applied_wherever_they_are(where: str) -> None:
    env = ActionMasker(Corridor(), one_way_masks) if where == "wrapper" else OneWay()
    observation, _ = env.reset()
    game = CopiedEnv(env)
    for positions in (game.position(env, observation), game.start(1)):
        assert game.legal(positions).tolist() == [[True, False]]
        after = game.play(positions, np.array([0]))
        assert game.legal(after).tolist() == [[False, False]]
    if where == "observation":
        with pytest.raises(TypeError, match="action_masks"):
            game.position(env)
