"""The sum of tensors over learners: by sockets between processes, or by turns of threads within one."""

from __future__ import annotations

import socket
from datetime import timedelta
from threading import Condition
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from polyak.seeding import rng_state, set_rng_state


class SocketGroup:
    """One learner's membership in a group of learners in separate processes.

    Args:
        rank: rank of this learner.
        address: address of the machine with the store.
        port: port of the store.
        size: number of learners.
        timeout: seconds to wait for the others.
        device: device of the tensors: GPUs use NCCL, all others gloo.
        store: the store itself; ``None`` connects to it.
    """

    def __init__(
        self,
        rank: int,
        address: str,
        port: int,
        size: int,
        timeout: float,
        device: str = "cpu",
        store: dist.Store | None = None,
    ) -> None:
        self.size, patience = size, timedelta(seconds=timeout)
        store = store or dist.TCPStore(address, port, size, False, patience)
        self._group: Any
        store = dist.PrefixStore("learners", store)
        if device.startswith("cuda"):
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = patience
            self._group = dist.ProcessGroupNCCL(store, rank, size, options)
        else:
            self._group = dist.ProcessGroupGloo(store, rank, size, patience)

    def sum(self, tensor: Tensor) -> Tensor:
        """See :meth:`polyak.learning.data_parallel.Group.sum`.

        Raises:
            RuntimeError: another learner has exited.
        """
        self._group.allreduce([tensor]).wait()
        return tensor


def listening(size: int, timeout: float) -> dist.TCPStore:
    """Opens the store at which learners meet, at a free port."""
    return dist.TCPStore("0.0.0.0", 0, size, True, timedelta(seconds=timeout), wait_for_workers=False)


def own_address() -> str:
    """Returns the address by which other machines reach this one; the loopback address without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("10.255.255.255", 1))  # nothing is sent
            return str(found.getsockname()[0])
        except OSError:
            return "127.0.0.1"


class Turns:
    """Runs learners in threads of one process, one at a time, each with its own random streams: equal seeds give equal
    results.

    Args:
        size: number of learners; rank 0 runs in the calling thread.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._changed, self._turn = Condition(), 0
        self._streams: list[Any] = [None] * size
        self._parts: list[Tensor] = [torch.empty(0)] * size
        self._total = torch.empty(0)
        self._active: set[int] = set()
        self._failed = self._over = False

    def place(self, rank: int) -> _Turn:
        """Returns the group membership of one learner."""
        return _Turn(self, rank)

    def begin(self) -> None:
        """Start a request of all learners; rank 0 runs first."""
        self._turn, self._active, self._failed = 0, set(range(self.size)), False

    def enter(self, rank: int) -> None:
        """Wait for the turn of one."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._turn == rank)
        if self._over:
            raise RuntimeError("learning was broken off.")
        if self._streams[rank] is not None:
            set_rng_state(*self._streams[rank])

    def leave(self, rank: int, done: bool = False, failed: bool = False) -> None:
        """Let the next one run that has something to do; rank 0 waits for all others."""
        self._streams[rank] = rng_state()
        with self._changed:
            self._failed |= failed
            if done:
                self._active.discard(rank)
            later = [(other - rank) % self.size or self.size for other in self._active | {0}]
            self._turn = (rank + min(later)) % self.size
            self._changed.notify_all()

    def finish(self) -> None:
        """Let the other learners do their part, after rank 0 has done its own."""
        while self._active - {0}:
            self.leave(0)
            self.enter(0)

    def end(self) -> None:
        """Let no one wait any more: rank 0 does not come again."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def sum(self, rank: int, tensor: Tensor) -> Tensor:
        """Adds in the order of ranks: see :meth:`polyak.learning.data_parallel.Group.sum`.

        Raises:
            RuntimeError: another learner has failed.
        """
        self._parts[rank] = tensor
        if rank + 1 == self.size:
            self._total = torch.stack(self._parts).sum(0)
        self.leave(rank)
        self.enter(rank)
        if self._failed:
            raise RuntimeError("another learner has failed in this step.")
        return self._total.clone()


class _Turn:
    """A place among :class:`Turns`."""

    def __init__(self, turns: Turns, rank: int) -> None:
        self._turns, self._rank, self.size = turns, rank, turns.size

    def sum(self, tensor: Tensor) -> Tensor:
        return self._turns.sum(self._rank, tensor)
