"""The sum tree's two loops, row by row, for numba to compile.

:mod:`polyak.experience.sum_tree` describes what they compute. Uncompiled they give the same results, slowly.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np


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
