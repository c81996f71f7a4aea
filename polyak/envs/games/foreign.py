"""Games of other libraries: OpenSpiel and PettingZoo. Positions are [B] objects, which are copied at every move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces

from polyak.envs.extras import needed
from polyak.envs.games.copying import as_objects, copied
from polyak.envs.games.game import NOT_OVER, Game


class Board(NamedTuple):
    """A position as another library represents it."""

    state: Any
    mover: Any
    """The player to move, also where the game is over."""


class _ForeignGame(Game):
    """The common part of both kinds."""

    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        self.refuse_illegal(moves, self.legal(positions))
        return as_objects([self._after(board, int(move)) for board, move in zip(positions, moves, strict=True)])

    def _after(self, board: Board, move: int) -> Board:
        raise NotImplementedError


class OpenSpielGame(_ForeignGame):
    """A game of OpenSpiel with two players who move in turn, perfect information and no chance.

    Observations are the library's, extended by the player to move: one more plane, or one more number.

    Args:
        game: a name such as ``"othello"``, with parameters if need be (``"hex(board_size=5)"``), or a loaded game.

    Raises:
        ImportError: OpenSpiel is not installed.
        ValueError: the game is of another kind.
    """

    name: ClassVar[str] = "openspiel"

    def __init__(self, game: Any) -> None:
        if isinstance(game, str):
            game = needed("pyspiel", "OpenSpiel's games need open_spiel", "games").load_game(game)
        kind = game.get_type()
        for what, found, asked in (
            ("dynamics", kind.dynamics, "SEQUENTIAL"),
            ("chance_mode", kind.chance_mode, "DETERMINISTIC"),
            ("information", kind.information, "PERFECT_INFORMATION"),
        ):
            if not str(found).endswith(asked):
                raise ValueError(f"game={kind.short_name!r} cannot be searched: its {what} are {found}, not {asked}.")
        if game.num_players() != 2:
            raise ValueError(f"game={kind.short_name!r} has {game.num_players()} players, not two.")
        self.inner, self.n_moves, self.longest = game, game.num_distinct_actions(), game.max_game_length()
        shape = tuple(game.observation_tensor_shape())
        self._shape = shape
        self.observation_shape = (shape[0] + 1, *shape[1:]) if len(shape) == 3 else (int(np.prod(shape)) + 1,)
        self._most = max(abs(game.max_utility()), abs(game.min_utility()))

    def __repr__(self) -> str:
        return f"OpenSpielGame({str(self.inner)!r})"

    def start(self, n: int) -> np.ndarray:
        states = [self.inner.new_initial_state() for _ in range(n)]
        return as_objects([Board(state, state.current_player()) for state in states])

    def legal(self, positions: np.ndarray) -> np.ndarray:
        legal = np.zeros((len(positions), self.n_moves), bool)
        for i, board in enumerate(positions):
            if not board.state.is_terminal():
                legal[i, board.state.legal_actions()] = True
        return legal

    def _after(self, board: Board, move: int) -> Board:
        state, mover = board.state.clone(), 1 - board.mover
        state.apply_action(move)
        if not state.is_terminal() and state.current_player() != mover:
            raise ValueError(f"{self!r} cannot be searched: after move {move} the same player moves again.")
        return Board(state, mover)

    def outcome(self, positions: np.ndarray) -> np.ndarray:
        ends = [board.state.returns()[board.mover] if board.state.is_terminal() else None for board in positions]
        return np.array([NOT_OVER if end is None else end / self._most for end in ends], np.float32)

    def observe(self, positions: np.ndarray) -> np.ndarray:
        seen = np.zeros((len(positions), *self.observation_shape), np.float32)
        for i, board in enumerate(positions):
            tensor = np.asarray(board.state.observation_tensor(board.mover), np.float32)
            planes = len(self._shape) == 3
            seen[i, :-1] = tensor.reshape(self._shape) if planes else tensor
            seen[i, -1] = board.mover
        return seen


class PettingZooGame(_ForeignGame):
    """A game of PettingZoo for two agents that act in turn, such as its classics, with masks in their observations.

    Agents observe the board from their own side already: "own" before "the other's".

    Args:
        env: an AEC environment, such as ``connect_four_v3.env()``. It is copied, and must be deterministic.
        longest: moves after which any game of it is over.

    Raises:
        ValueError: there are not two agents, or their observations have no mask.
    """

    name: ClassVar[str] = "pettingzoo"

    def __init__(self, env: Any, longest: int) -> None:
        agents: Sequence[Any] = env.possible_agents
        if len(agents) != 2:
            raise ValueError(f"env={env} has the agents {list(agents)}; a search needs two that act in turn.")
        space, acts = env.observation_space(agents[0]), env.action_space(agents[0])
        known = isinstance(space, spaces.Dict) and {"observation", "action_mask"} <= set(space.spaces)
        if not known or not isinstance(acts, spaces.Discrete):
            raise ValueError(
                f"env={env} has the observations {space} and the actions {acts}; a search needs Dict observations with "
                "an 'observation' and an 'action_mask', and Discrete actions."
            )
        self.env, self.longest, self.n_moves = env, longest, int(acts.n)
        inner: Any = space["observation"]
        self.observation_shape = tuple(inner.shape)
        low, high = float(np.min(inner.low)), float(np.max(inner.high))
        self.observation_space = spaces.Box(low, high, self.observation_shape, np.float32)

    def __repr__(self) -> str:
        return f"PettingZooGame({self.env})"

    def start(self, n: int) -> np.ndarray:
        self.env.reset()
        return as_objects([Board(copied(self.env), self.env.agent_selection) for _ in range(n)])

    def legal(self, positions: np.ndarray) -> np.ndarray:
        legal = np.zeros((len(positions), self.n_moves), bool)
        for i, (env, mover) in enumerate(positions):
            if not _over(env):
                legal[i] = np.asarray(env.observe(mover)["action_mask"], bool)
        return legal

    def _after(self, board: Board, move: int) -> Board:
        env = copied(board.state)
        env.step(move)
        mover = next(agent for agent in env.possible_agents if agent != board.mover)
        if not _over(env) and env.agent_selection != mover:
            raise ValueError(f"{self!r} cannot be searched: after move {move} the same agent acts again.")
        return Board(env, mover)

    def outcome(self, positions: np.ndarray) -> np.ndarray:
        ends = [env.rewards[mover] if _over(env) else NOT_OVER for env, mover in positions]
        return np.array(ends, np.float32)

    def observe(self, positions: np.ndarray) -> np.ndarray:
        return np.stack([np.asarray(env.observe(mover)["observation"], np.float32) for env, mover in positions])


def _over(env: Any) -> bool:
    return any(env.terminations.values()) or any(env.truncations.values())
