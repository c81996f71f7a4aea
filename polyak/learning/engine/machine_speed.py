"""Speeds of this machine's processor and GPU: measured once, then stored in a file."""

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
    """The speed of a processor and of its GPU."""

    cpu_flops: float
    """Floating-point operations per second of the processor's float32 matrix products."""
    cuda_flops: float
    """Floating-point operations per second of the GPU's float32 matrix products."""
    cpu_call: float
    """Seconds of a small operation on the processor."""
    cuda_call: float
    """Seconds to launch a small operation on the GPU."""
    cuda_wait: float
    """Seconds to copy a number from main memory to the GPU and back."""


def fastest(run: Callable[[], object], seconds: float = 0.05) -> float:
    """Returns the seconds of the fastest call among those that fit into ``seconds``."""
    run()
    best, end = float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        run()
        best = min(best, time.perf_counter() - start)
    return best


def speeds() -> Speeds:
    """Returns the speeds of this machine, stored or measured. Requires a GPU."""
    return stored_speeds(_machine(), measure)


def stored_speeds(machine: str, measured: Callable[[], Speeds]) -> Speeds:
    """Returns the stored speeds of ``machine``, or measures and stores them."""
    return Speeds(**Measurements(STORED_AS).of(machine, lambda: asdict(measured()), _sound))


def _sound(fact: Any) -> bool:
    """Whether stored data are valid :class:`Speeds`: positive numbers under the names of its fields."""
    return (
        isinstance(fact, dict)
        and fact.keys() == {field.name for field in fields(Speeds)}
        and all(isinstance(value, float) and 0 < value < float("inf") for value in fact.values())
    )


def _machine() -> str:
    """Returns a key of everything that the speeds depend on."""
    gpu, threads = torch.cuda.get_device_name(), torch.get_num_threads()
    return f"{platform.node()}: {', '.join(machine())}, {threads} thread(s), {gpu}"


def measure() -> Speeds:
    """Measure this machine; takes about a quarter of a second after CUDA has started. Requires a GPU."""
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
