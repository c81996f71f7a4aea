"""Hindsight experience replay: rows relabelled with goals that were reached later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from polyak import arrays
from polyak.arrays import Array
from polyak.experience.episodes import Episodes
from polyak.experience.ring import Ring
from polyak.experience.windows import RowWindow

Strategy = Literal["future", "final", "episode"]


class GoalRelabel:
    """Hindsight experience replay, Andrychowicz et al. 2017 (arXiv:1707.01495) algorithm 1, as a step on windows.

    The first ``int(share * B)`` windows of a batch get another goal, one for the whole window. Observations are dicts
    with ``achieved_goal`` and ``desired_goal``. Only rows of episodes that have ended are to be drawn: see
    :meth:`eligible`.

    Args:
        ring: the ring whose episodes are tracked; call :meth:`appended` after each of its rows.
        reward: (achieved [M, ...], desired [M, ...]) -> [M], arrays of the ring's library.
        random: draws goals.
        share: of a batch, that is relabelled.
        strategy: where goals come from: from the row on, the episode's end, or anywhere in the episode.

    Raises:
        ValueError: the share or the strategy is unknown.
    """

    def __init__(
        self,
        ring: Ring,
        reward: Callable[[Array, Array], Array],
        random: np.random.RandomState,
        share: float = 0.8,
        strategy: Strategy = "future",
    ) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"share must be between 0 and 1, got {share}: it is the part of a batch with other goals.")
        if strategy not in ("future", "final", "episode"):
            raise ValueError(f"strategy must be 'future', 'final' or 'episode', got {strategy!r}.")
        self.reward, self.random, self.share, self.strategy = reward, random, share, strategy
        self.episodes, self._ring = Episodes(ring.length, ring.n_envs), ring

    def appended(self, ended: Array) -> np.ndarray:
        """A row was written, where these episodes [n_envs] ended; returns the cells that may be drawn from now on."""
        return self.episodes.add(arrays.place(ended, None))

    def follow(self, ring: Ring) -> None:
        """Take the episodes from a ring that was written elsewhere, such as one from a file."""
        ended = arrays.place(ring.columns["terminated"] | ring.columns["truncated"], None)
        self.episodes.rebuild(ended, ring.written % ring.length, ring.written >= ring.length)

    def eligible(self, cells: np.ndarray) -> np.ndarray:
        """[B] cells -> [B] whether their episode has ended, and they can still be read."""
        return self.episodes.finished(cells) & ~np.isin(cells, self._ring.unreadable)

    def pool(self) -> np.ndarray:
        """Cells, in order, that may be drawn, and up to half as many that were overwritten since."""
        return self.episodes.finished_cells()

    def __call__(self, ring: Ring, window: RowWindow, drawn: np.ndarray) -> RowWindow:
        """Other goals and rewards for a window of the cells ``drawn`` [B]."""
        count = int(self.share * len(drawn))
        if count == 0:
            return window
        cells = window.cells[:count]
        goals = ring.successors(ring.index(self.goal_cells(drawn[:count])))["achieved_goal"]
        meant = goals[ring.index(np.arange(count).repeat(cells.shape[1]))]
        found = arrays.place(self.reward(ring.successors(cells.reshape(-1))["achieved_goal"], meant), ring.device)
        rewards = arrays.joined([arrays.single(found).reshape(cells.shape), window.rewards[count:]], 0)
        return window._replace(rewards=rewards, goals=goals)

    def goal_cells(self, cells: np.ndarray) -> np.ndarray:
        """:func:`goal_cells` of this strategy."""
        return goal_cells(self.episodes, cells, self.strategy, self.random)


def goal_cells(episodes: Episodes, cells: np.ndarray, strategy: Strategy, random: np.random.RandomState) -> np.ndarray:
    """Draw the rows [B] whose achieved goals become the goals of the rows in ``cells`` [B]."""
    step, first, last = episodes.bounds(cells)
    if strategy == "final":
        chosen = last
    else:
        chosen = random.randint(step if strategy == "future" else first, last + 1)
    return episodes.cell(chosen, cells % episodes.envs)
