"""Processes that tests have begun: whether they run, and that they end."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

PATIENCE = 300.0
"""Seconds after which what has not happened is taken never to happen, on a machine that has much else to do."""


def runs(process: int) -> bool:
    """Whether there is such a process, which has not ended; it may end while it is looked at."""
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def assert_gone(processes: Iterable[int]) -> None:
    """Soon."""
    until, left = time.monotonic() + PATIENCE, list(processes)
    while left and time.monotonic() < until:
        left = [process for process in left if runs(process)]
        time.sleep(0.05 if left else 0)
    assert not left, f"still running: {left}"


@contextmanager
def nodes(*processors: int) -> Iterator[str]:
    """A cluster of Ray, simulated on this machine, with so many processors of each node. -> its address"""
    ray = pytest.importorskip("ray")
    utils = pytest.importorskip("ray.cluster_utils")
    made = None
    try:
        try:
            made = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": processors[0]})
            for number in processors[1:]:
                made.add_node(num_cpus=number)
        except Exception as error:  # it wants sockets, shared memory and more
            pytest.skip(f"Ray does not start here: {error}")
        yield made.address
    finally:
        ray.shutdown()
        if made is not None:
            made.shutdown()


class Killing:
    """A callback that kills one process, ``of(model)``, after so many steps.

    Attributes:
        killed: which it was; 0 before.
    """

    def __init__(self, of: Callable[[Any], int], after: int) -> None:
        self.of, self.after, self.killed = of, after, 0

    def __call__(self, names: dict[str, Any], _: Any) -> bool:
        model = names["self"]
        if not self.killed and model.num_timesteps >= self.after:
            self.killed = self.of(model)
            os.kill(self.killed, signal.SIGKILL)
        return True
