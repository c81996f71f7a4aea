"""What this machine does in a second, and what follows from it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch

from polyak.core.engine.cache import cache_folder
from polyak.core.engine.device import TYPICAL, choose
from polyak.core.engine.matrix_products import onednn
from polyak.core.engine.speeds import fastest, speeds
from polyak.core.engine.threads import AT_IMPORT, chosen_by_user, threads

SIZES = (64, 256)
"""Widths of the square matrices that are multiplied; 64 and 256 are the usual hidden layers."""


class Measurement(NamedTuple):
    """Something that this machine does, and how fast."""

    what: str
    value: float
    unit: str


def matrix_rates() -> Iterator[Measurement]:
    """Float32 matrix products by torch's own library and by oneDNN, for each number of threads."""
    for number in sorted({1, torch.get_num_threads()}):
        with threads(number):
            for size in SIZES:
                for library, product in _products(size).items():
                    rate = 2 * size**3 / fastest(product) / 1e9
                    yield Measurement(f"{library}, {size} x {size} matrices, {number} thread(s)", rate, "GFLOP/s")


def _products(size: int) -> dict[str, Callable[[], object]]:
    a, b, bias = torch.zeros(size, size), torch.zeros(size, size), torch.zeros(size)
    products: dict[str, Callable[[], object]] = {"torch": partial(torch.addmm, bias, a, b.t())}
    if torch.backends.mkldnn.is_available():
        products["oneDNN"] = partial(onednn, a, b.t(), bias)
    return products


def memory_rate() -> Measurement:
    """How fast a large array is copied."""
    source = torch.zeros(16_000_000)
    target = torch.empty_like(source)
    return Measurement("copying memory", 2 * 4 * len(source) / fastest(lambda: target.copy_(source), 0.2) / 1e9, "GB/s")


def call_rate() -> Measurement:
    """The cost of one small torch operation, which uncompiled code pays a few hundred times per gradient step."""
    one = torch.zeros(1)
    with torch.no_grad():
        return Measurement("one small torch operation", fastest(lambda: one + one) * 1e6, "us")


def choices(measure: bool = True) -> Iterator[str]:
    """What ``"auto"`` settings come to here, in words.

    Args:
        measure: a choice of devices is a matter of their speed; without it, it is left open.
    """
    if not torch.cuda.is_available():
        yield "device: cpu, since torch sees no usable GPU"
    elif not measure:
        yield "device: cuda or cpu, by their measured speed"
    else:
        for name, work in TYPICAL.items():
            yield f"{name}: {choose(work, speeds())}"
    if chosen_by_user():
        yield f"threads: {torch.get_num_threads()}, as set by you"
    else:
        yield f"threads: 1 for small networks, {AT_IMPORT} for others"
    compiler = next((c for c in ("g++", "clang++", "c++") if shutil.which(c)), None)
    if compiler is None:
        yield "gradient steps: uncompiled, since there is no C++ compiler (install g++)"
    else:
        yield f"gradient steps: compiled in long runs, with {compiler} on the CPU"
    folder = cache_folder()
    yield f"compiled programs: {len(list(folder.glob('*/program.so')))} in {folder}"
