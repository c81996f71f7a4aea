"""Sampling in proportion to weights that change all the time."""

from __future__ import annotations

import numpy as np


class SumTree:
    """Non-negative float64 leaves under two levels of partial sums.

    A flat tree with wide nodes: numpy is fastest with few passes over many elements. Node sums are always recomputed
    from their leaves, never adjusted by differences, so rounding errors can not pile up.

    Args:
        size: number of leaves.
    """

    def __init__(self, size: int):
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}.")
        # a draw costs size / width for the top level plus batch * width for the bottom one
        self.size, self.width = size, int(2 ** np.clip(np.round(np.log2(size**0.5 / 16)), 4, 8))
        nodes = -(-size // self.width)
        self._leaves = np.zeros((nodes, self.width))
        self._sums = np.zeros(nodes)
        self._cumulative: np.ndarray | None = None

    @property
    def leaves(self) -> np.ndarray:
        """[size] the weights; a view, not to be written."""
        return self._leaves.reshape(-1)[: self.size]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._prefix()[-1])

    def _prefix(self) -> np.ndarray:
        if self._cumulative is None:
            self._cumulative = np.cumsum(self._sums)
        return self._cumulative

    def set(self, indices: np.ndarray, weights: np.ndarray | float) -> None:
        """Give leaves [B] new weights [B] (of an index that is repeated, the last one counts)."""
        self._leaves.reshape(-1)[indices] = weights
        nodes = indices // self.width
        self._sums[nodes] = self._leaves[nodes].sum(1)
        self._cumulative = None

    def find(self, mass: np.ndarray) -> np.ndarray:
        """Leaves at which the running sum first exceeds ``mass``.

        Args:
            mass: [B] in [0, total).
        Returns:
            indices [B]; never a leaf of weight 0.
        """
        prefix = self._prefix()
        if not prefix[-1] > 0:
            raise ValueError("Nothing can be drawn: every weight is 0.")
        mass = np.minimum(mass, np.nextafter(prefix[-1], 0))
        node = np.searchsorted(prefix, mass, side="right")
        within = np.cumsum(self._leaves[node], axis=1)
        rest = np.where(node > 0, mass - prefix[node - 1], mass)
        # the two levels round differently: keep the rest inside the node
        rest = np.minimum(rest, np.nextafter(within[:, -1], 0))
        return node * self.width + (within <= rest[:, None]).sum(1)
