"""Learners that learn as one, each on rows of its own: what they add up is the same on all of them.

Give a learner its place in a group by :meth:`~polyak.learning.learner.Learner.join`. From then on gradients, moments of
advantages and the decision to stop early are means over the learners, whose networks therefore stay equal. That holds
as long as all of them

- begin with equal networks and optimizers, and have equal hyper-parameters and learning rates,
- make the same updates in the same order, each on a minibatch of as many rows as the others have: a mean over learners
  of means over rows is a mean over all rows only then.

Statistics of batch normalisation, and metrics, are each learner's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Barrier
from typing import Any, Protocol

import torch
import torch.distributed
from torch import Tensor


def each(batch: Any, function: Callable[[Any], Any], kind: type = Tensor) -> Any:
    """A function applied to every tensor, or what else is of this kind, of named tuples and dicts; the rest stays."""
    if isinstance(batch, kind):
        return function(batch)
    if isinstance(batch, dict):
        return {name: each(part, function, kind) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(each(part, function, kind) for part in batch))
    return batch


def share_of(rows: int, rank: int, size: int, length: int = 1) -> Tensor:
    """Which of some rows one of several learners gets: as many as each of the others, so that a few are learned from
    twice where the rows cannot be shared out evenly. ``length`` rows after one another stay together."""
    sequences = rows // length
    width = -(-sequences // size)
    own = torch.arange(rank * width, (rank + 1) * width) % sequences
    return (own[:, None] * length + torch.arange(length)).flatten()


class Fellows(Protocol):
    """Learners elsewhere that make the steps which one makes here."""

    def update(self, batches: Iterable[Any]) -> list[Any]:
        """A gradient step of all on each minibatch, each on its share of the rows, until one is skipped."""
        ...

    def call(self, method: str) -> None:
        """Let all call a method without arguments."""
        ...


class Group(Protocol):
    """One learner's place in a group."""

    size: int
    """How many learners there are."""

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of the learners' tensors, the same bits on all of them.

        Args:
            tensor: of the same shape and type everywhere; it may be overwritten. Every learner must call.
        """
        ...


class ProcessGroup:
    """A :class:`Group` of one learner in each process of ``torch.distributed``.

    Args:
        group: None takes the one that ``init_process_group`` made.
    """

    def __init__(self, group: torch.distributed.ProcessGroup | None = None) -> None:
        self._group = group
        self.size = torch.distributed.get_world_size(group)

    def sum(self, tensor: Tensor) -> Tensor:
        torch.distributed.all_reduce(tensor, group=self._group)
        return tensor


class ThreadGroup:
    """Learners in threads of one process.

    Args:
        size: how many.
        timeout: seconds to wait for the others, one of which may have failed.
    """

    def __init__(self, size: int, timeout: float = 600.0) -> None:
        self.size = size
        self._tensors: list[Tensor] = [torch.empty(0)] * size
        self._total = torch.empty(0)
        self._barrier = Barrier(size, self._add, timeout)

    def place(self, rank: int) -> Group:
        """The :class:`Group` of the learner in one of the threads.

        Args:
            rank: in [0, size), another in each thread.
        """
        return _ThreadPlace(self, rank)

    def _add(self) -> None:
        """Called in one thread while the others wait; in the order of ranks, so that runs repeat."""
        self._total = torch.stack(self._tensors).sum(0)

    def sum(self, rank: int, tensor: Tensor) -> Tensor:
        """As :meth:`Group.sum`.

        Raises:
            threading.BrokenBarrierError: another learner did not come in time.
        """
        self._tensors[rank] = tensor
        self._barrier.wait()
        return self._total.clone()  # the next sum is made only once all have this one


class _ThreadPlace:
    """A place in a :class:`ThreadGroup`."""

    def __init__(self, group: ThreadGroup, rank: int) -> None:
        self._group, self._rank, self.size = group, rank, group.size

    def sum(self, tensor: Tensor) -> Tensor:
        return self._group.sum(self._rank, tensor)
