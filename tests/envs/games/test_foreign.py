"""Games of other libraries, by themselves where those are installed, by stand-ins with their interfaces elsewhere."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from polyak import MCTS, AlphaZero
from polyak.envs.games.checker import GameError, check_game
from polyak.envs.games.foreign import OpenSpielGame, PettingZooGame
from polyak.envs.games.tictactoe import TicTacToe
from tests.trials import trial

RULES = TicTacToe()


class State:
    """As ``pyspiel.State`` of tic-tac-toe."""

    def __init__(self) -> None:
        self.position, self.player = RULES.start(1), 0

    def current_player(self) -> int:
        return -4 if self.is_terminal() else self.player

    def is_terminal(self) -> bool:
        return not np.isnan(RULES.outcome(self.position)[0])

    def legal_actions(self) -> list[int]:
        return np.flatnonzero(RULES.legal(self.position)[0]).tolist()

    def apply_action(self, move: int) -> None:
        self.position, self.player = RULES.play(self.position, np.array([move])), 1 - self.player

    def clone(self) -> State:
        copy = type(self)()
        copy.position, copy.player = self.position, self.player
        return copy

    def returns(self) -> list[float]:
        worth = float(RULES.outcome(self.position)[0])
        return [worth, -worth] if self.player == 0 else [-worth, worth]

    def observation_tensor(self, player: int) -> list[float]:
        planes = RULES.observe(self.position)[0]
        own = planes if self.player == 0 else planes[::-1]
        return np.concatenate([1 - planes.sum(0, keepdims=True), own]).reshape(-1).tolist()


class Spiel:
    """As ``pyspiel.Game``."""

    def __init__(self, dynamics: str = "SEQUENTIAL", players: int = 2) -> None:
        self.kind = SimpleNamespace(
            short_name="tic_tac_toe",
            dynamics=f"Dynamics.{dynamics}",
            chance_mode="ChanceMode.DETERMINISTIC",
            information="Information.PERFECT_INFORMATION",
        )
        self.players = players

    def get_type(self) -> Any:
        return self.kind

    def num_players(self) -> int:
        return self.players

    def num_distinct_actions(self) -> int:
        return 9

    def max_game_length(self) -> int:
        return 9

    def observation_tensor_shape(self) -> list[int]:
        return [3, 3, 3]

    def max_utility(self) -> float:
        return 1.0

    def min_utility(self) -> float:
        return -1.0

    def new_initial_state(self) -> State:
        return State()

    def __str__(self) -> str:
        return "tic_tac_toe()"


class Petting:
    """As PettingZoo's AEC environment of tic-tac-toe."""

    possible_agents = ("player_1", "player_2")

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        seen = spaces.Box(0, 1, (3, 3, 2), np.int8)
        return spaces.Dict({"observation": seen, "action_mask": spaces.Box(0, 1, (9,), np.int8)})

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(9)

    def reset(self, seed: int | None = None) -> None:
        self.position, self.agent_selection = RULES.start(1), "player_1"
        self.rewards = dict.fromkeys(self.possible_agents, 0)
        self.terminations = dict.fromkeys(self.possible_agents, False)
        self.truncations = dict.fromkeys(self.possible_agents, False)

    def observe(self, agent: str) -> dict[str, np.ndarray]:
        own = agent == self.agent_selection
        planes = RULES.observe(self.position)[0] if own else RULES.observe(self.position)[0][::-1]
        mask = RULES.legal(self.position)[0] if own else np.zeros(9)
        return {"observation": np.moveaxis(planes, 0, -1).astype(np.int8), "action_mask": np.int8(mask)}

    def step(self, move: int) -> None:
        self.position = RULES.play(self.position, np.array([move]))
        (self.agent_selection,) = (a for a in self.possible_agents if a != self.agent_selection)
        if not np.isnan(worth := RULES.outcome(self.position)[0]):
            self.terminations = dict.fromkeys(self.possible_agents, True)
            self.rewards = {a: int(worth if a == self.agent_selection else -worth) for a in self.possible_agents}


def made(kind: str) -> Any:
    return OpenSpielGame(Spiel()) if kind == "spiel" else PettingZooGame(Petting(), longest=9)


@pytest.mark.parametrize("kind", ["spiel", "petting"])
def test_they_are_games(kind: str) -> None:
    check_game(made(kind), n_games=3)


@pytest.mark.parametrize("kind", ["spiel", "petting"])
def test_they_are_searched_as_our_own(kind: str) -> None:
    def uniform(seen: np.ndarray, legal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return legal / legal.sum(1, keepdims=True), np.zeros(len(seen))

    game, position, ours = made(kind), made(kind).start(1), RULES.start(1)
    for move in (0, 3, 1):
        theirs, own = (MCTS(g, uniform, 40).search(p) for g, p in ((game, position), (RULES, ours)))
        np.testing.assert_array_equal(theirs.visits, own.visits)
        np.testing.assert_array_equal(theirs.q, own.q)
        position, ours = (g.play(p, np.array([move])) for g, p in ((game, position), (RULES, ours)))


@pytest.mark.parametrize("kind", ["spiel", "petting"])
def test_alphazero_learns_them(kind: str) -> None:
    model = AlphaZero(**{**trial(AlphaZero), "env": made(kind)}).learn(120)
    assert model._n_updates > 0
    with pytest.raises(NotImplementedError, match="cannot convert observations to positions"):
        model.predict(model.observation_space.sample())
    assert model.look_ahead(model.env.start(1), 10).moves.shape == (1,)


def test_games_of_another_kind_are_refused() -> None:
    with pytest.raises(ValueError, match="its dynamics are Dynamics.SIMULTANEOUS, not SEQUENTIAL"):
        OpenSpielGame(Spiel("SIMULTANEOUS"))
    with pytest.raises(ValueError, match="has 3 players"):
        OpenSpielGame(Spiel(players=3))
    alone = Petting()
    alone.possible_agents = ("player_1",)  # type: ignore[assignment]
    with pytest.raises(ValueError, match="two that act in turn"):
        PettingZooGame(alone, 9)


def test_without_open_spiel_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    with pytest.raises(ImportError, match=r"pip install 'polyak\[games\]'"):
        OpenSpielGame("tic_tac_toe")


def test_two_moves_in_a_row_are_refused() -> None:
    class Greedy(State):
        def apply_action(self, move: int) -> None:
            super().apply_action(move)
            self.player = 1 - self.player

    game = OpenSpielGame(Spiel())
    game.inner.new_initial_state = Greedy
    with pytest.raises((ValueError, GameError), match="the same player moves again"):
        check_game(game)


def test_the_real_libraries_games() -> None:
    pytest.importorskip("pyspiel")
    check_game(OpenSpielGame("tic_tac_toe"), n_games=3)


def test_the_real_classics() -> None:
    classic = pytest.importorskip("pettingzoo.classic.tictactoe_v3")
    check_game(PettingZooGame(classic.env(), longest=9), n_games=3)
