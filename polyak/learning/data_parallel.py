"""Data-parallel learners: each takes its own rows, and sums over the learners keep their networks equal.

Give a learner its place in a group by :meth:`~polyak.learning.learner.Learner.join`. From then on gradients, moments of
advantages and early-stopping decisions are means over the learners, so that their networks stay equal. This requires
that all of them

- begin with equal networks and optimizers, and have equal hyper-parameters and learning rates,
- make the same updates in the same order, each on a minibatch of the same number of rows: only then is the mean over
learners of means over rows the mean over all rows.

Statistics of batch normalisation and metrics are not shared between learners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Barrier
from typing import Any, Protocol

import torch
import torch.distributed
from torch import Tensor


def each(batch: Any, function: Callable[[Any], Any], kind: type = Tensor) -> Any:
    """Returns a nested batch of named tuples and dicts with a function applied to every instance of ``kind``."""
    if isinstance(batch, kind):
        return function(batch)
    if isinstance(batch, dict):
        return {name: each(part, function, kind) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(each(part, function, kind) for part in batch))
    return batch


def share_of(rows: int, rank: int, size: int, length: int = 1) -> Tensor:
    """Returns the row indices of one learner's share: every share has equal size, so that some rows occur twice if the
    number of rows is not divisible. ``length`` consecutive rows stay together."""
    sequences = rows // length
    width = -(-sequences // size)
    own = torch.arange(rank * width, (rank + 1) * width) % sequences
    return (own[:, None] * length + torch.arange(length)).flatten()


class Fellows(Protocol):
    """Remote learners that make the same steps as the local one."""

    def update(self, batches: Iterable[Any]) -> list[Any]:
        """Make a gradient step of all learners on each minibatch, each on its share of the rows, until one is skipped."""
        ...

    def call(self, method: str) -> None:
        """Call a method without arguments on all of them."""
        ...


class Group(Protocol):
    """One learner's place in a group."""

    size: int
    """The number of learners."""

    def sum(self, tensor: Tensor) -> Tensor:
        """Returns the sum of the learners' tensors, bitwise equal on all of them.

        Args:
            tensor: of equal shape and type everywhere; may be overwritten. Every learner must call.
        """
        ...


class ProcessGroup:
    """A :class:`Group` of one learner in each process of ``torch.distributed``.

    Args:
        group: None takes the default group of ``init_process_group``.
    """

    def __init__(self, group: torch.distributed.ProcessGroup | None = None) -> None:
        self._group = group
        self.size = torch.distributed.get_world_size(group)

    def sum(self, tensor: Tensor) -> Tensor:
        torch.distributed.all_reduce(tensor, group=self._group)
        return tensor


class ThreadGroup:
    """A group of learners in threads of one process.

    Args:
        size: number of learners.
        timeout: seconds to wait for the others, one of which may have failed.
    """

    def __init__(self, size: int, timeout: float = 600.0) -> None:
        self.size = size
        self._tensors: list[Tensor] = [torch.empty(0)] * size
        self._total = torch.empty(0)
        self._barrier = Barrier(size, self._add, timeout)

    def place(self, rank: int) -> Group:
        """Returns the :class:`Group` of the learner in one of the threads.

        Args:
            rank: in [0, size), unique to each thread.
        """
        return _ThreadPlace(self, rank)

    def _add(self) -> None:
        """Sum the tensors, in one thread while the others wait; in the order of ranks, so that runs are reproducible."""
        self._total = torch.stack(self._tensors).sum(0)

    def sum(self, rank: int, tensor: Tensor) -> Tensor:
        """Returns the sum, like :meth:`Group.sum`.

        Raises:
            threading.BrokenBarrierError: another learner did not call in time.
        """
        self._tensors[rank] = tensor
        self._barrier.wait()
        return self._total.clone()  # the next sum is not made before all have this one


class _ThreadPlace:
    """A place in a :class:`ThreadGroup`."""

    def __init__(self, group: ThreadGroup, rank: int) -> None:
        self._group, self._rank, self.size = group, rank, group.size

    def sum(self, tensor: Tensor) -> Tensor:
        return self._group.sum(self._rank, tensor)
