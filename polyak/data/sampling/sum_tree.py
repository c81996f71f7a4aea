"""Sampling in proportion to weights that change all the time."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from polyak.data.sampling.tree_kernels import compiled

ZERO = torch.zeros((), dtype=torch.float64)


class SumTree:
    """Non-negative float64 leaves under three levels of partial sums.

    A flat tree with wide nodes: few passes over many elements are what array libraries do fastest (and torch's running
    sums are several times faster than numpy's). Node sums are always recomputed from their children, first to last,
    never adjusted by differences, so rounding errors can not pile up. With numba installed (``polyak[fast]``) compiled
    loops do the same additions in the same order: the results are the same bits.

    Args:
        size: number of leaves.
    """

    def __init__(self, size: int):
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}.")
        # a draw costs size / width**2 for the top level plus batch * width for each one below
        self.size, self.width = size, int(2 ** np.clip(np.round(np.log2(size ** (1 / 3) / 6)), 2, 6))
        nodes = -(-size // self.width**2)
        self._leaves, self._sums = np.zeros(nodes * self.width**2), np.zeros(nodes * self.width)
        self._tops = np.zeros(nodes)
        self._running = torch.zeros(nodes + 1, dtype=torch.float64)  # sum of the tops before each; made when needed
        self._stale = False

    @property
    def leaves(self) -> np.ndarray:
        """[size] the weights; a view, not to be written."""
        return self._leaves[: self.size]

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return float(self._running_sums()[-1])

    def _running_sums(self) -> Tensor:
        if self._stale:
            torch.cumsum(torch.from_numpy(self._tops), 0, out=self._running[1:])
            self._stale = False
        return self._running

    def set(self, indices: np.ndarray, weights: np.ndarray | float) -> None:
        """Give leaves [B] new weights [B] (of an index that is repeated, the last one counts)."""
        self._stale = True
        kernels = compiled()
        if kernels is not None:
            weights = np.ascontiguousarray(np.broadcast_to(weights, indices.shape), np.float64)
            kernels.update(self._leaves, self._sums, self._tops, indices, weights, self.width)
            return
        self._leaves[indices] = weights
        nodes = indices
        for children, parents in ((self._leaves, self._sums), (self._sums, self._tops)):
            nodes = nodes // self.width
            parents[nodes] = self._running_inside(children, torch.from_numpy(nodes)).numpy()[:, -1]

    def _running_inside(self, level: np.ndarray, nodes: Tensor) -> Tensor:
        """Running sums [B, width] of the children that some nodes [B] have in a level."""
        return torch.from_numpy(level).view(-1, self.width).index_select(0, nodes).cumsum(1)

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
            return kernels.find(self._leaves, self._sums, self._tops, running.numpy(), mass, self.width)
        rest = torch.from_numpy(mass).minimum(_below(running[-1]))
        node = torch.searchsorted(running, rest, right=True) - 1
        rest = rest - running.index_select(0, node)
        inside, child, rest = self._descend(self._sums, node, rest)
        before = inside.gather(1, (child - 1).clamp_min_(0)).masked_fill_(child == 0, 0.0)
        node = node * self.width + child[:, 0]
        child = self._descend(self._leaves, node, rest - before[:, 0])[1]
        return (node * self.width + child[:, 0]).numpy()

    def _descend(self, level: np.ndarray, node: Tensor, rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Running sums [B, width] inside some nodes [B]; which child [B, 1] they exceed the rest at; that rest [B]."""
        inside = self._running_inside(level, node)
        rest = rest.minimum(_below(inside[:, -1]))  # the levels round differently: stay inside the node
        return inside, torch.searchsorted(inside, rest[:, None], right=True), rest


def _below(values: Tensor) -> Tensor:
    """The next smaller numbers."""
    return torch.nextafter(values, ZERO)
