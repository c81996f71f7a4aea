"""Speeds of the processor and the GPU of this machine: measured once, then stored in a file."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from polyak.learning.engine.cache import Measurements, machine

STORED_AS = "speeds"
_CPU_SIZE, _CUDA_SIZE, _CALLS = 256, 2048, 200


@dataclass(frozen=True)
class Speeds:
    """The speed of a processor and of a GPU beside it."""

    cpu_flops: float
    """Floating-point operations a second in the processor's float32 matrix products."""
    cuda_flops: float
    """The same of the GPU."""
    cpu_call: float
    """Seconds that a small operation takes on the processor."""
    cuda_call: float
    """Seconds that it takes to launch one on the GPU."""
    cuda_wait: float
    """Seconds from a number in main memory to the GPU and back."""


def fastest(run: Callable[[], object], seconds: float = 0.05) -> float:
    """Seconds of the quickest call among those that fit into ``seconds``."""
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        run()
        best = min(best, time.perf_counter() - start)
    return best


def speeds() -> Speeds:
    """The speeds of this machine, from the cache folder if they were measured before. Needs a GPU."""
    return stored_speeds(_machine(), measure)


def stored_speeds(machine: str, measured: Callable[[], Speeds]) -> Speeds:
    """The stored speeds of ``machine``; else new measurements, which are then stored."""
    return Speeds(**Measurements(STORED_AS).of(machine, lambda: asdict(measured()), _sound))


def _sound(fact: Any) -> bool:
    """Whether stored data are valid :class:`Speeds`: positive numbers under the names of its fields."""
    return (
        isinstance(fact, dict)
        and fact.keys() == {field.name for field in fields(Speeds)}
        and all(isinstance(value, float) and 0 < value < float("inf") for value in fact.values())
    )


def _machine() -> str:
    """Names everything that the speeds depend on."""
    gpu, threads = torch.cuda.get_device_name(), torch.get_num_threads()
    return f"{platform.node()}: {', '.join(machine())}, {threads} thread(s), {gpu}"


def measure() -> Speeds:
    """Measure this machine, which takes about a quarter of a second once CUDA has started. Needs a GPU."""
    here, small = torch.zeros(_CPU_SIZE, _CPU_SIZE), torch.zeros(1)
    there, one = torch.zeros(_CUDA_SIZE, _CUDA_SIZE, device="cuda"), torch.zeros(1, device="cuda")

    def finished(run: Callable[[], object], times: int) -> Callable[[], None]:
        def repeat() -> None:
            for _ in range(times):
                run()
            torch.cuda.synchronize()

        return repeat

    with torch.no_grad():
        return Speeds(
            cpu_flops=2 * _CPU_SIZE**3 / fastest(lambda: here @ here),
            cuda_flops=2 * _CUDA_SIZE**3 * 10 / fastest(finished(lambda: there @ there, 10)),
            cpu_call=fastest(lambda: small + small),
            cuda_call=fastest(finished(lambda: one + one, _CALLS)) / _CALLS,
            cuda_wait=fastest(lambda: small.to("cuda").cpu()),
        )
