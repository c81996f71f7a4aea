"""How many processor threads PyTorch may use while a command runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def torch_threads(number: int) -> Iterator[None]:
    """Give PyTorch `number` threads inside the block; below 1 leaves PyTorch's choice."""
    if number < 1:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
