"""The number of processor threads that torch uses during training."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

AT_IMPORT = torch.get_num_threads()
"""Number of threads at torch's start."""
_SET_BY = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_chosen: ContextVar[bool] = ContextVar("threads chosen", default=False)

SMALL_STEP = 1e8
"""Floating-point operations of a gradient step below which a second thread costs more than it saves."""


def chosen_by_user() -> bool:
    """Whether the number of threads was set by environment variable, by ``torch.set_num_threads`` or by
    :func:`chosen_threads`."""
    return _chosen.get() or any(name in os.environ for name in _SET_BY) or torch.get_num_threads() != AT_IMPORT


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch use ``number`` threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def chosen_threads(number: int) -> Iterator[None]:
    """Let torch use a user's number of threads inside the block; below 1: no change."""
    if number < 1:
        yield
        return
    token = _chosen.set(True)
    try:
        with threads(number):
            yield
    finally:
        _chosen.reset(token)


@contextmanager
def threads_for(flops: float) -> Iterator[int]:
    """Let torch use one thread inside the block if steps are small and the user has set no number; yields the number.

    Args:
        flops: floating-point operations of one gradient step.
    """
    if flops >= SMALL_STEP or chosen_by_user():
        yield torch.get_num_threads()
        return
    with threads(1):
        yield 1
