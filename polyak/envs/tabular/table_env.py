"""A finite process as an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.tabular.process import FiniteProcess, Outcome


class TableEnv(gym.Env[Any, Any]):
    """An environment defined by a table: its states and actions are numbers, and its outcomes are known.

    It has ``P`` and ``initial_state_distrib``, as Gymnasium's toy texts have. Where states have different actions, its
    infos hold the legal ones under ``action_mask``, and another action is an error.

    Args:
        process: the transitions; or ``P[state][action] = [(probability, next state, reward, ends), ...]``; or arrays
            (transitions [S, A, S], rewards [S, A]), see :meth:`FiniteProcess.from_arrays`.
        starts: [S] probabilities of first states, for the latter two.
        shape: rows and columns, if the states are the fields of a grid, for plots.

    Raises:
        ValueError: it is not a process.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        process: FiniteProcess | Mapping[int, Mapping[int, Any]] | tuple[Any, Any],
        starts: Any = None,
        shape: tuple[int, int] | None = None,
    ) -> None:
        if isinstance(process, Mapping):
            process = FiniteProcess.from_outcomes(process, starts)
        elif isinstance(process, tuple):
            process = FiniteProcess.from_arrays(*process, starts=starts)
        self.process, self.shape = process, shape
        self.observation_space = spaces.Discrete(process.n_states)
        self.action_space = spaces.Discrete(process.n_actions)
        self.s = 0
        self.lastaction: int | None = None
        self._legal = process.legal
        self._masks = not self._legal.all()
        self._totals = running(process)

    @property
    def P(self) -> dict[int, dict[int, list[Outcome]]]:
        """Every outcome: ``P[state][action] = [(probability, next state, reward, ends), ...]``."""
        process = self.process
        columns = (process.chances, process.successors, process.rewards, process.ends)
        outcomes = list(zip(*(column.tolist() for column in columns), strict=True))
        table: dict[int, dict[int, list[Outcome]]] = {state: {} for state in range(process.n_states)}
        for pair in range(process.n_states * process.n_actions):
            if row := outcomes[process.first[pair] : process.first[pair + 1]]:
                table[pair // process.n_actions][pair % process.n_actions] = row
        return table

    @property
    def initial_state_distrib(self) -> np.ndarray:
        """[S] probabilities of first states."""
        return self.process.starts

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._legal[self.s].astype(np.int8)} if self._masks else {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed)
        self.s = int(np.searchsorted(np.cumsum(self.process.starts), self.np_random.random(), "right"))
        self.s = min(self.s, int(np.flatnonzero(self.process.starts)[-1]))
        self.lastaction = None
        return self.s, self._info()

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Draws one outcome of an action.

        Raises:
            ValueError: the state does not have the action.
        """
        process, pair = self.process, self.s * self.process.n_actions + int(action)
        low, high = process.first[pair], process.first[pair + 1]
        if low == high:
            had = np.flatnonzero(self._legal[self.s]).tolist()
            raise ValueError(f"action={action} cannot be taken in state {self.s}, which has the actions {had}.")
        outcome = low + np.searchsorted(self._totals[low : high - 1], self.np_random.random(), "right")
        self.s, self.lastaction = int(process.successors[outcome]), int(action)
        return self.s, float(process.rewards[outcome]), bool(process.ends[outcome]), False, self._info()


def running(process: FiniteProcess) -> np.ndarray:
    """The sum of the probabilities of each outcome and those before it of the same pair, [O]."""
    totals = np.cumsum(process.chances)
    starts = process.first[:-1][np.diff(process.first) > 0]
    before = np.repeat(totals[starts] - process.chances[starts], np.diff(np.append(starts, len(totals))))
    return totals - before
