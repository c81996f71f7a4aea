"""Sampling in proportion to weights that change all the time."""

from __future__ import annotations

import numpy as np

from polyak.data.sampling.tree_kernels import compiled

WIDTH = 32
"""Children of a node. A few passes over many elements are what array libraries do fastest."""
MANY = 1000
"""Changes after which sums are made anew even if nobody asks."""


class SumTree:
    """Non-negative float64 leaves under three levels of partial sums, of which the highest has no root.

    Node sums are always recomputed from their children, never adjusted by differences, so that rounding errors cannot
    pile up. With numba installed (``polyak[fast]``) compiled loops find the same leaves, but for rounding.

    Args:
        size: number of leaves.
    """

    def __init__(self, size: int):
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}.")
        self.size = size
        tops = -(-size // WIDTH**2)
        self._leaves, self._sums, self._tops = np.zeros(tops * WIDTH**2), np.zeros(tops * WIDTH), np.zeros(tops)
        self._running = np.zeros(tops + 1)  # sum of the tops before each
        self._changed: list[np.ndarray] = []  # leaves whose sums are to be made anew when somebody asks

    @property
    def leaves(self) -> np.ndarray:
        """[size] the weights; a view, not to be written."""
        return self._leaves[: self.size]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._running_sums()[-1])

    def set(self, indices: np.ndarray, weights: np.ndarray | float) -> None:
        """Give leaves [B] new weights [B] (of an index that is repeated, the last one counts)."""
        self._leaves[indices] = weights
        self._changed.append(indices)
        if len(self._changed) >= MANY:
            self._running_sums()

    def _running_sums(self) -> np.ndarray:
        if not self._changed:
            return self._running
        changed = np.concatenate(self._changed)
        self._changed.clear()
        kernels = compiled()
        if kernels is not None:
            kernels.refresh(self._leaves, self._sums, self._tops, self._running, changed, WIDTH)
            return self._running
        nodes = changed
        for children, parents in ((self._leaves, self._sums), (self._sums, self._tops)):
            nodes = nodes // WIDTH
            parents[nodes] = np.add.reduce(_families(children).take(nodes, 0), 1)
        np.add.accumulate(self._tops, out=self._running[1:])
        return self._running

    def find(self, mass: np.ndarray) -> np.ndarray:
        """Leaves at which the running sum first exceeds ``mass``.

        Args:
            mass: [B] in [0, total).
        Returns:
            indices [B]; never a leaf of weight 0.
        """
        running = self._running_sums()
        if not running[-1] > 0:
            raise ValueError("Nothing can be drawn: every weight is 0.")
        kernels = compiled()
        if kernels is not None:
            return kernels.find(self._leaves, self._sums, self._tops, running, mass, WIDTH)
        mass = np.minimum(mass, np.nextafter(running[-1], 0.0))
        nodes = running.searchsorted(mass, "right") - 1
        weights = self._tops[nodes]
        share = (mass - running[nodes]) / weights  # of each node's weight, what is left of the mass: in [0, 1]
        begins = np.arange(0, len(mass) * WIDTH, WIDTH)
        running = np.zeros(len(mass) * WIDTH + 1)  # over the children's shares of all nodes, one node after another
        for level in (self._sums, self._leaves):
            np.add.accumulate((_families(level).take(nodes, 0) / weights[:, None]).ravel(), out=running[1:])
            mass = np.minimum(running[begins] + share, np.nextafter(running[begins + WIDTH], 0.0))  # stays in the node
            found = running[1:].searchsorted(mass, "right")
            before = running[found]
            share = (mass - before) / (running[found + 1] - before)
            nodes = nodes * WIDTH + (found - begins)
            weights = level[nodes]
        return nodes


def _families(level: np.ndarray) -> np.ndarray:
    """[N, WIDTH] the children of each node."""
    return level.reshape(-1, WIDTH)
