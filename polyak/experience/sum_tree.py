"""Sampling in proportion to weights that change often."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

WIDTH = 32
"""Children of a node. Array libraries are fastest with a few passes over many elements."""
MANY = 1000
"""Changes after which sums are computed again without a query."""


class SumTree:
    """Non-negative float64 leaves under three levels of partial sums.

    Node sums are recomputed from their children, never adjusted by differences, so that rounding errors do not
    accumulate. With numba installed (``polyak[fast]``) compiled loops find the same leaves, up to rounding.

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
        self._changed: list[np.ndarray] = []  # leaves whose sums are recomputed at the next query

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
        nodes = running.searchsorted(np.minimum(mass, math.nextafter(running[-1], 0.0)), "right") - 1
        rest = mass - running.take(nodes)  # the remaining mass within each node
        before = np.zeros((len(mass), WIDTH + 1))  # sum of a node's children before each, and of all
        places = np.arange(0, before.size, WIDTH + 1)
        for level in (self._sums, self._leaves):
            np.add.accumulate(_families(level).take(nodes, 0), 1, out=before[:, 1:])
            rest = np.minimum(rest, np.nextafter(before[:, -1], 0.0))  # stays in the node
            chosen = (before[:, 1:] > rest[:, None]).argmax(1)
            nodes = nodes * WIDTH + chosen
            rest -= before.take(places + chosen)
        return nodes


def _families(level: np.ndarray) -> np.ndarray:
    """[N, WIDTH] the children of each node."""
    return level.reshape(-1, WIDTH)


# -- the same row by row, for numba to compile: uncompiled it is slow --------------------------------------------------


def refresh(
    leaves: np.ndarray, sums: np.ndarray, tops: np.ndarray, running: np.ndarray, changed: np.ndarray, width: int
) -> None:
    """Compute again the sums above the ``changed`` leaves [B], and the tops' running sum, from 0 on."""
    for leaf in changed:
        node = leaf // width
        total = 0.0
        for child in range(node * width, (node + 1) * width):
            total += leaves[child]
        sums[node] = total
    for leaf in changed:
        node = leaf // (width * width)
        total = 0.0
        for child in range(node * width, (node + 1) * width):
            total += sums[child]
        tops[node] = total
    for node in range(len(tops)):
        running[node + 1] = running[node] + tops[node]


def find(
    leaves: np.ndarray, sums: np.ndarray, tops: np.ndarray, running: np.ndarray, mass: np.ndarray, width: int
) -> np.ndarray:
    """Leaves [B] at which the running sum first exceeds ``mass`` [B]; ``running``: the tops' running sum, from 0 on."""
    found, rest = np.empty(len(mass), np.int64), np.empty(len(mass))
    largest = np.nextafter(running[-1], 0.0)
    for i in range(len(mass)):
        wanted = min(mass[i], largest)
        node, remaining = 0, len(running)
        while remaining > 1:
            half = remaining // 2
            node = node + half if running[node + half] <= wanted else node
            remaining -= half
        found[i], rest[i] = node, wanted - running[node]
    family = np.empty((len(mass), width))
    for level in range(2):
        parents, children = (tops, sums) if level == 0 else (sums, leaves)
        for i in range(len(mass)):  # copied first: these reads wait for memory together, those between branches can not
            first = found[i] * width
            for child in range(width):
                family[i, child] = children[first + child]
        for i in range(len(mass)):
            wanted = min(rest[i], np.nextafter(parents[found[i]], 0.0))
            chosen, before, after = 0, 0.0, 0.0
            for child in range(width):
                after += family[i, child]
                passed = after <= wanted
                chosen += passed
                before = after if passed else before
            found[i], rest[i] = found[i] * width + chosen, wanted - before
    return found


class Kernels(NamedTuple):
    """The compiled loops."""

    refresh: Callable[..., None]
    find: Callable[..., np.ndarray]


@cache
def compiled() -> Kernels | None:
    """The loops as machine code, kept on disk from the first use on; None without numba (``polyak[fast]``)."""
    try:
        from numba import njit
    except ImportError:
        return None
    compile_lazily: Any = njit(cache=True)
    return Kernels(compile_lazily(refresh), compile_lazily(find))
