"""Measurements of this machine's speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import torch

from polyak.learning.engine.machine_speed import fastest
from polyak.learning.engine.matrix_products import onednn
from polyak.learning.engine.threads import threads

SIZES = (64, 256)
"""Widths of the square matrices that are multiplied; 64 and 256 are the usual hidden layers."""


class Measurement(NamedTuple):
    """A speed of this machine."""

    what: str
    value: float
    unit: str


def matrix_speeds() -> Iterator[Measurement]:
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


def memory_speed() -> Measurement:
    """Measure the speed of copying a large array."""
    source = torch.zeros(16_000_000)
    target = torch.empty_like(source)
    return Measurement("copying memory", 2 * 4 * len(source) / fastest(lambda: target.copy_(source), 0.2) / 1e9, "GB/s")


def call_cost() -> Measurement:
    """The cost of one small torch operation, which uncompiled code pays a few hundred times per gradient step."""
    one = torch.zeros(1)
    with torch.no_grad():
        return Measurement("one small torch operation", fastest(lambda: one + one) * 1e6, "us")
