"""Games against a pool of opponents: order of moves, rewards and ratings."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from polyak import DQN, PPO
from polyak.callbacks.past_selves import Frozen, PastSelves
from polyak.envs import SelfPlayVecEnv, VecNormalize
from polyak.envs.games.self_play import RandomMoves, points
from polyak.envs.games.tables import AgentTables, ArrayTables, Tables
from polyak.envs.games.tictactoe import TicTacToe
from polyak.envs.testing.identity import IdentityEnv

SMALL: dict[str, Any] = {"device": "cpu", "seed": 0, "policy_kwargs": {"net_arch": [32]}, "gamma": 0.99}


class Race:
    """An AEC environment of three agents: in turn each adds 1 or 2 to a sum, and who reaches 10 wins.

    A player that makes it 7 leaves at once with nothing, and the other two continue.
    """

    metadata = {"name": "race"}

    def __init__(self) -> None:
        self.possible_agents = ["a", "b", "c"]

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(0, 12, (2,), np.float32)

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2, start=1)

    def agent_iter(self) -> None:
        """Only its presence counts."""

    def reset(self, seed: int | None = None) -> None:
        self.agents, self.sum = list(self.possible_agents), 0
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = (dict.fromkeys(self.agents, False) for _ in range(2))
        self.infos: dict[str, Any] = {agent: {} for agent in self.agents}
        self.agent_selection = "a"

    def observe(self, agent: str) -> np.ndarray:
        return np.array([self.sum, self.possible_agents.index(agent)], np.float32)

    def step(self, action: int | None) -> None:
        agent = self.agent_selection
        after = self.agents[(self.agents.index(agent) + 1) % len(self.agents)]
        if action is None:
            assert self.terminations[agent]
            self.agents.remove(agent)
            for each in (self.rewards, self.terminations, self.truncations):
                del each[agent]
        else:
            assert not self.terminations[agent]
            self.sum += action
            self.rewards = dict.fromkeys(self.agents, 0.0)
            self.terminations[agent] = self.sum == 7
            if self.sum >= 10:
                left = [other for other in self.agents if not self.terminations[other]]
                self.rewards |= {other: 1.0 if other == agent else -0.5 for other in left}
                self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = after

    def close(self) -> None:
        pass


def first_legal(observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
    assert masks is not None
    return masks.argmax(1)


class Watched:
    """Plays at random, and records its calls."""

    def __init__(self) -> None:
        self.random, self.batches = RandomMoves(9, np.random.default_rng(0)), list[int]()

    def __call__(self, observations: np.ndarray, masks: np.ndarray | None) -> np.ndarray:
        assert masks is not None
        own, other = observations[:, 0].sum((1, 2)), observations[:, 1].sum((1, 2))
        assert ((own == other) | (own == other - 1)).all()  # seen from the player to move
        np.testing.assert_array_equal(masks, observations.sum(1).reshape(len(masks), -1) == 0)
        self.batches.append(len(observations))
        return self.random(observations, masks)


def test_all_games_of_an_opponent_are_asked_about_together_and_rewards_are_the_learners() -> None:
    env, opponent = SelfPlayVecEnv("tictactoe", 50, latest=1.0), Watched()
    env.add_opponent(opponent)
    env.seed(3)
    seen, rng, ended = env.reset(), np.random.default_rng(1), 0
    assert isinstance(seen, np.ndarray)
    assert 0 < (seen.sum((1, 2, 3)) == 1).sum() < 50  # in some games the opponent has begun
    for move in range(40):
        masks = env.action_masks()
        chosen = RandomMoves(9, rng)(seen, masks)
        before, seats = seen, env.seats.copy()
        seen, rewards, dones, infos = env.step(chosen)
        assert len(opponent.batches) <= 2 * (move + 1) + 1  # an answer, and beginnings
        for i in np.flatnonzero(dones):
            ended += 1
            last = infos[i]["terminal_observation"]
            assert infos[i]["episode"]["r"] == rewards[i]
            own, theirs = (last[0], last[1]) if last.sum() % 2 == seats[i] else (last[1], last[0])
            assert own.sum() >= before[i][0].sum() + 1
            lines = [(board.sum(0) == 3).any() or (board.sum(1) == 3).any() for board in (own, theirs)]
            diagonals = [np.trace(b) == 3 or np.trace(b[::-1]) == 3 for b in (own, theirs)]
            won = [line or diagonal for line, diagonal in zip(lines, diagonals, strict=True)]
            assert rewards[i] == float(won[0]) - float(won[1])
        assert (rewards[~dones] == 0).all()
    assert ended > 200


def test_agents_leave_and_earn_in_turn() -> None:
    tables: Tables = AgentTables([Race(), Race()])
    rows = np.arange(2)
    tables.begin(rows, [None, None])
    assert not tables.masked
    for added, movers in zip(([2, 1], [2, 1], [2, 1], [1, 1]), ([1, 1], [2, 2], [0, 0], [1, 1]), strict=True):
        tables.play(rows, np.array(added) - 1)
        assert tables.movers.tolist() == movers
    assert tables.ended.tolist() == [[True, False, False], [False, False, False]]  # the first made it 7
    tables.play(rows, np.array([2, 2]) - 1)
    tables.play(rows[:1], np.array([0]))
    assert tables.ended[0].all()
    assert [float(tables.earned(rows[:1], np.array([seat]))[0]) for seat in range(3)] == [0, -0.5, 1]
    assert [float(tables.earned(rows[:1], np.array([seat]))[0]) for seat in range(3)] == [0, 0, 0]


def test_a_learner_meets_agents_of_pettingzoos_kind() -> None:
    env = SelfPlayVecEnv(Race, 8)
    assert not env.has_attr("action_masks")
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, **SMALL)
    selves = PastSelves(512, rated_games=6)
    model.learn(1100, callback=selves)
    assert [steps for steps, _ in selves.ratings] == [512, 1024]
    assert len(env.opponents) == 3
    assert {episode["r"] for episode in model.ep_info_buffer} <= {-0.5, 0.0, 1.0}


def test_seeds_repeat_games() -> None:
    def play(seed: int) -> list[float]:
        env = SelfPlayVecEnv("tictactoe", 6)
        env.seed(seed)
        env.reset()
        rng = np.random.default_rng(0)
        return [float(r) for _ in range(12) for r in env.step(RandomMoves(9, rng)(np.zeros(6), env.action_masks()))[1]]

    assert play(1) == play(1) != play(2)


def test_the_oldest_of_a_pool_leave_and_games_keep_their_opponents() -> None:
    env = SelfPlayVecEnv("tictactoe", 30, past_selves=2)
    selves = [Watched() for _ in range(4)]
    for one in selves[:2]:
        env.add_opponent(one)
    env.reset()
    playing = [env.opponents[i] for i in env.against]
    env.add_opponent(selves[2])
    assert env.opponents[1:] == selves[1:3]
    for before, now in zip(playing, env.against, strict=True):
        assert env.opponents[now] is before or before is selves[0]  # whose place the next one takes


def test_points_count_seats_alike() -> None:
    rng = np.random.default_rng(0)
    random = RandomMoves(9, rng)
    first = points(TicTacToe(), first_legal, random, 300, rng)
    assert points(TicTacToe(), random, first_legal, 300, rng) == pytest.approx(300 - first, abs=5 * 300**0.5)
    assert points(TicTacToe(), random, random, 300, rng) == pytest.approx(150, abs=5 * (300**0.5) / 2)
    made = points(
        Race, lambda seen, masks: np.ones(len(seen), int), lambda seen, masks: np.zeros(len(seen), int), 30, rng
    )
    assert 0 < made < 30


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"n_envs": 0}, "n_envs=0 must be at least 1"),
        ({"past_selves": 0}, "past_selves=0"),
        ({"latest": 2}, "latest=2 must be a probability"),
        ({"game": "chess"}, "game='chess' is unknown"),
        ({"game": IdentityEnv}, "not an environment of PettingZoo"),
    ],
)
def test_what_cannot_be_is_refused(kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        SelfPlayVecEnv(**{"game": "tictactoe", **kwargs})


def test_without_pettingzoo_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(ImportError, match=r"pip install 'polyak\[games\]'"):
        SelfPlayVecEnv("pettingzoo:tictactoe_v3")


def test_models_that_cannot_play_themselves_are_refused() -> None:
    with pytest.raises(ValueError, match="freq=0"):
        PastSelves(0)
    with pytest.raises(ValueError, match="not in DummyVecEnv"):
        PPO("MlpPolicy", "CartPole-v1", **SMALL).learn(10, callback=PastSelves())
    with pytest.raises(ValueError, match="norm_obs=False"):
        PPO("MlpPolicy", VecNormalize(SelfPlayVecEnv("tictactoe", 2)), **SMALL).learn(10, callback=PastSelves())
    memory = {**SMALL, "policy_kwargs": {"memory": "lstm", "memory_size": 8}}
    with pytest.raises(ValueError, match="a recurrent policy"):
        PPO("MlpPolicy", SelfPlayVecEnv("tictactoe", 2), **memory).learn(10, callback=PastSelves())


def test_a_frozen_self_stays_as_it_was_and_other_algorithms_play_too() -> None:
    env = SelfPlayVecEnv("tictactoe", 4)
    model = DQN("MlpPolicy", env, learning_starts=32, gradient_steps=4, **SMALL)
    frozen = Frozen(model)
    before = [p.clone() for p in frozen.policy.parameters()]
    selves = PastSelves(100, rated_games=4)
    model.learn(250, callback=selves)
    assert len(selves.ratings) == 2
    assert all((a == b).all() for a, b in zip(before, frozen.policy.parameters(), strict=True))
    assert any((a != b).any() for a, b in zip(before, model.policy.parameters(), strict=True))
    game = TicTacToe()
    positions = game.play(game.start(3), np.array([0, 4, 8]))
    moves = frozen(game.observe(positions), game.legal(positions))
    game.play(positions, moves)  # which refuses what is illegal


def test_classics_of_pettingzoo() -> None:
    classic = pytest.importorskip("pettingzoo.classic")
    for make, array in ((classic.tictactoe_v3.env, TicTacToe()), (classic.connect_four_v3.env, None)):
        env = SelfPlayVecEnv(make, 3)
        model = PPO("MlpPolicy", env, n_steps=16, batch_size=24, **SMALL).learn(200, callback=PastSelves(96, 4))
        assert env.tables.masked
        assert all(abs(episode["r"]) <= 1 for episode in model.ep_info_buffer)
        if array is not None:  # chance against chance fares alike in both makings of the game
            rng = np.random.default_rng(0)
            counts = [points(game, RandomMoves(9, rng), RandomMoves(9, rng), 100, rng) for game in (make, array)]
            assert abs(counts[0] - counts[1]) < 5 * 2**0.5 * 100**0.5 / 2


def test_tables_as_arrays_are_those_of_the_game() -> None:
    tables = ArrayTables(TicTacToe(), 2)
    rows = np.arange(2)
    tables.begin(rows, [None, None])
    for moves in ([0, 0], [3, 8], [1, 1], [4, 5], [2, 7]):
        tables.play(rows, np.array(moves))
    assert tables.ended.tolist() == [[True, True], [False, False]]
    assert tables.earned(rows, np.array([0, 0])).tolist() == [1, 0]
    assert tables.earned(rows, np.array([1, 1])).tolist() == [-1, 0]


@pytest.mark.learn
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ppo_learns_tictactoe_from_its_past_selves(seed: int) -> None:
    """It makes three quarters of the points of 500 games against chance, begun by chance; its rating rises."""
    env, selves = SelfPlayVecEnv("tictactoe", 32), PastSelves(20_000, rated_games=100)
    options = {"n_steps": 64, "batch_size": 256, "n_epochs": 4, "learning_rate": 1e-3, "ent_coef": 0.02}
    model = PPO("MlpPolicy", env, device="cpu", seed=seed, policy_kwargs={"net_arch": [64, 64]}, **options)
    model.learn(100_000, callback=selves)
    rng = np.random.default_rng(seed)
    assert points(TicTacToe(), Frozen(model, deterministic=True), RandomMoves(9, rng), 500, rng) >= 375
    elo = [rating for _, rating in selves.ratings]
    assert np.mean(elo[-2:]) > elo[0] + 50
