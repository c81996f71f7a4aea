"""How many processor threads torch uses while a model learns."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

AT_IMPORT = torch.get_num_threads()
"""Threads that torch started with."""
_SET_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

SMALL_STEP = 1e8
"""Floating-point operations of a gradient step below which a second thread costs more than it brings."""


def chosen_by_user() -> bool:
    """Whether somebody has set the number of threads, by environment variable or ``torch.set_num_threads``."""
    return any(name in os.environ for name in _SET_BY) or torch.get_num_threads() != AT_IMPORT


@contextmanager
def threads_for(operations: float) -> Iterator[int]:
    """Let torch use one thread inside the block if steps are small, and nobody chose otherwise; yields the number.

    Args:
        operations: floating-point operations of one gradient step.
    """
    before = torch.get_num_threads()
    if operations >= SMALL_STEP or chosen_by_user():
        yield before
        return
    torch.set_num_threads(1)
    try:
        yield 1
    finally:
        torch.set_num_threads(before)
