"""Sampling in proportion to weights that change all the time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class SumTree:
    """Non-negative float64 leaves under two levels of partial sums.

    A flat tree with wide nodes: few passes over many elements are what array libraries do fastest (and torch's running
    sums are several times faster than numpy's). Node sums are always recomputed from their leaves, never adjusted by
    differences, so rounding errors can not pile up.

    Args:
        size: number of leaves.
    """

    def __init__(self, size: int):
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}.")
        # a draw costs size / width for the top level plus batch * width for the bottom one
        self.size, self.width = size, int(2 ** np.clip(np.round(np.log2(size**0.5 / 16)), 4, 8))
        nodes = -(-size // self.width)
        self._leaves, self._sums = np.zeros((nodes, self.width)), np.zeros(nodes)
        self._running = torch.zeros(nodes + 1, dtype=torch.float64)  # sum of the nodes before each; made when needed
        self._stale = False

    @property
    def leaves(self) -> np.ndarray:
        """[size] the weights; a view, not to be written."""
        return self._leaves.reshape(-1)[: self.size]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._running_sums()[-1])

    def _running_sums(self) -> Tensor:
        if self._stale:
            torch.cumsum(torch.from_numpy(self._sums), 0, out=self._running[1:])
            self._stale = False
        return self._running

    def set(self, indices: np.ndarray, weights: np.ndarray | float) -> None:
        """Give leaves [B] new weights [B] (of an index that is repeated, the last one counts)."""
        self._leaves.reshape(-1)[indices] = weights
        nodes = indices // self.width
        self._sums[nodes] = self._leaves[nodes].sum(1)
        self._stale = True

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
        wanted = torch.from_numpy(mass).minimum(_below(running[-1]))
        node = torch.searchsorted(running[1:], wanted, right=True)
        within = torch.from_numpy(self._leaves).index_select(0, node).cumsum(1)
        # the two levels round differently: keep the rest inside the node
        rest = (wanted - running.index_select(0, node)).minimum(_below(within[:, -1]))
        leaf = torch.searchsorted(within, rest[:, None], right=True)[:, 0]
        return (node * self.width + leaf).numpy()


def _below(values: Tensor) -> Tensor:
    """The next smaller numbers."""
    return torch.nextafter(values, torch.zeros_like(values))
