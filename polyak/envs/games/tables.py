"""Many running games of one kind whose players act in turn: arrays of positions, or environments of PettingZoo.

Shapes: N games, S seats, R some of the games, A moves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.games.game import Game


class Tables(ABC):
    """N games. The rewards of players are summed until :meth:`earned` reads them."""

    n_seats: int
    observation_space: spaces.Space
    """The observation space of the player to move, the same for all seats."""
    action_space: Any
    """Discrete."""
    masked: bool
    """Whether some moves may be forbidden."""

    def __init__(self, n: int, n_seats: int) -> None:
        self.n, self.n_seats = n, n_seats
        self.movers = np.zeros(n, np.int64)
        """[N] the seat to move."""
        self.ended = np.zeros((n, n_seats), bool)
        """[N, S] the seats for which the game is over."""
        self.cut = np.zeros((n, n_seats), bool)
        """[N, S] the seats for which it was truncated."""
        self._earned = np.zeros((n, n_seats), np.float32)

    def begin(self, rows: np.ndarray, seeds: Sequence[int | None]) -> None:
        """Begin games [R] again."""
        self.ended[rows] = self.cut[rows] = False
        self._earned[rows] = 0
        self._begin(rows, seeds)

    def earned(self, rows: np.ndarray, seats: np.ndarray) -> np.ndarray:
        """Rewards of seats [R] in games [R] since the last call, [R]."""
        sums = self._earned[rows, seats]
        self._earned[rows, seats] = 0
        return sums

    @abstractmethod
    def _begin(self, rows: np.ndarray, seeds: Sequence[int | None]) -> None:
        """Sets ``movers``."""

    @abstractmethod
    def seen(self, rows: np.ndarray, seats: np.ndarray) -> np.ndarray:
        """Returns the observations of seats [R] in games [R]: [R, ...]"""

    @abstractmethod
    def legal(self, rows: np.ndarray) -> np.ndarray:
        """Allowed actions of the players to move: [R, A] bool."""

    @abstractmethod
    def play(self, rows: np.ndarray, actions: np.ndarray) -> None:
        """Apply the actions of the players to move in games [R]. Sets ``movers``, ``ended`` and ``cut``."""


class ArrayTables(Tables):
    """Running games of a :class:`~polyak.envs.games.game.Game`: all move together."""

    masked = True

    def __init__(self, game: Game, n: int) -> None:
        super().__init__(n, 2)
        self.game, self.positions = game, game.start(n)
        self.observation_space, self.action_space = game.observation_space, game.action_space

    def _begin(self, rows: np.ndarray, seeds: Sequence[int | None]) -> None:
        self.positions[rows], self.movers[rows] = self.game.start(len(rows)), 0

    def seen(self, rows: np.ndarray, seats: np.ndarray) -> np.ndarray:
        return self.game.observe(self.positions[rows])

    def legal(self, rows: np.ndarray) -> np.ndarray:
        return self.game.legal(self.positions[rows])

    def play(self, rows: np.ndarray, actions: np.ndarray) -> None:
        self.positions[rows] = after = self.game.play(self.positions[rows], actions)
        self.movers[rows] = movers = 1 - self.movers[rows]
        outcome = self.game.outcome(after)
        over = ~np.isnan(outcome)
        self.ended[rows] = over[:, None]
        self._earned[rows[over], movers[over]] += outcome[over]
        self._earned[rows[over], 1 - movers[over]] -= outcome[over]


class AgentTables(Tables):
    """Running environments of PettingZoo whose agents act in turn (AEC), one environment for each game.

    Args:
        envs: one environment for each game.

    Raises:
        ValueError: agents have different spaces, so that one policy cannot play all of them.
    """

    def __init__(self, envs: Sequence[Any]) -> None:
        self.envs, first = envs, envs[0]
        self.agents = list(first.possible_agents)
        super().__init__(len(envs), len(self.agents))
        sees, does = ([of(agent) for agent in self.agents] for of in (first.observation_space, first.action_space))
        for what, found in (("see", sees), ("do", does)):
            if any(space != found[0] for space in found):
                raise ValueError(
                    f"the agents of {first} {what} different things, {found}: one policy cannot play all of them. Pad "
                    "them to the same (supersuit.pad_observations_v0, pad_action_space_v0)."
                )
        inner = sees[0]
        self._keyed = isinstance(inner, spaces.Dict) and {"observation", "action_mask"} <= set(inner.spaces)
        self.observation_space = inner["observation"] if self._keyed else inner
        self.action_space: Any = does[0]
        envs[0].reset()
        self.masked = self._keyed or "action_mask" in first.infos[first.agent_selection]
        if not isinstance(self.action_space, spaces.Discrete):
            raise ValueError(f"the agents of {first} act in {self.action_space}, not in a Discrete space.")

    def _begin(self, rows: np.ndarray, seeds: Sequence[int | None]) -> None:
        for row, seed in zip(rows, seeds, strict=True):
            self.envs[row].reset(seed=seed)
            self._follow(row)

    def seen(self, rows: np.ndarray, seats: np.ndarray) -> np.ndarray:
        found = [self.envs[row].observe(self.agents[seat]) for row, seat in zip(rows, seats, strict=True)]
        return np.stack([one["observation"] if self._keyed else one for one in found])

    def legal(self, rows: np.ndarray) -> np.ndarray:
        if not self.masked:
            return np.ones((len(rows), int(self.action_space.n)), bool)
        return np.stack([self._mask(self.envs[row], self.agents[self.movers[row]]) for row in rows]).astype(bool)

    def _mask(self, env: Any, agent: Any) -> Any:
        return env.observe(agent)["action_mask"] if self._keyed else env.infos[agent]["action_mask"]

    def play(self, rows: np.ndarray, actions: np.ndarray) -> None:
        start = int(self.action_space.start)
        for row, action in zip(rows, actions, strict=True):
            env = self.envs[row]
            env.step(int(action) + start)
            self._earned[row] += [env.rewards.get(agent, 0.0) for agent in self.agents]
            self._follow(row)

    def _follow(self, row: int) -> None:
        """Set the player to move, once agents whose game is over have left."""
        env = self.envs[row]
        while True:
            for seat, agent in enumerate(self.agents):
                terminated, truncated = env.terminations.get(agent, True), env.truncations.get(agent, False)
                self.cut[row, seat] |= truncated and not terminated and not self.ended[row, seat]
                self.ended[row, seat] |= terminated or truncated
            if not env.agents or self.ended[row].all():
                return
            self.movers[row] = self.agents.index(env.agent_selection)
            if not self.ended[row, self.movers[row]]:
                return
            env.step(None)


def tables_for(game: Game | Callable[[], Any], n: int) -> Tables:
    """Makes N running games of a kind, or of the environments that a function makes.

    Raises:
        TypeError: the function makes something else, or the same environment twice.
    """
    if isinstance(game, Game):
        return ArrayTables(game, n)
    envs = [game() for _ in range(n)]
    if not all(hasattr(env, "possible_agents") and hasattr(env, "agent_iter") for env in envs):
        raise TypeError(
            f"game={game!r} makes {envs[0]!r}, not an environment of PettingZoo whose agents act in turn. Pass "
            "`tictactoe_v3.env` (the function, not what it returns), a name, or a Game."
        )
    if len({id(env) for env in envs}) < n:
        raise TypeError(f"game={game!r} returns the same environment again: let it make one at each call.")
    return AgentTables(envs)
