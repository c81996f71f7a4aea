"""Construction of networks that a file describes, limited to the size of the file's weights.

A short description can request huge networks, although a file holds every weight. So allocations during construction
must be in proportion to the weights, and are checked before they are made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor
from torch.overrides import TorchFunctionMode

GROWTH = 8
"""Numbers allocated per number in the file: weights, their initial values, target networks, temporaries."""
ALWAYS_ALLOWED = 4 * 2**20
"""Numbers that are always allowed: 16 MB."""
CALLS = 16
"""Allocations per array in the file."""
ALWAYS_CALLED = 2_000
MOST_OPTIONS = 10_000
"""Largest number of values in the options, such as widths of layers."""

_MADE = ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "normal", "eye", "arange", "linspace", "repeat")
_MADE_ALIKE = ("new_empty", "new_zeros", "new_ones", "new_full", "empty_strided", "new_empty_strided")
_MAKES = frozenset(_MADE + _MADE_ALIKE)
"""Functions of torch that allocate memory of a given size."""


@contextmanager
def no_larger_than(held: Iterable[np.ndarray | Tensor], options: Any, trust: bool = False) -> Iterator[None]:
    """Refuse, within the block and in this thread, to allocate far more tensors than a file holds.

    Args:
        held: the file's weights.
        options: the file's description of the networks, whose length is limited, too.
        trust: allow everything.

    Raises:
        ValueError: the networks are larger than the file's weights; nothing was allocated for them.
    """
    if trust:
        yield
        return
    _check_options(options)
    sizes = [array.size if isinstance(array, np.ndarray) else array.numel() for array in held]
    with _Allocations(sum(sizes), len(sizes)):
        yield


def _check_options(options: Any) -> None:
    level, count = [options], 0
    while level:
        count += len(level)
        if count > MOST_OPTIONS:
            raise ValueError(f"the file describes networks by more than {MOST_OPTIONS:,} values: it is damaged.")
        parts = (part.values() if isinstance(part, Mapping) else part for part in level if _is_compound(part))
        level = [item for part in parts for item in itertools.islice(part, MOST_OPTIONS + 1)]


def _is_compound(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)


class _Allocations(TorchFunctionMode):
    """Counts torch's allocations.

    Args:
        size: number of numbers in the file.
        arrays: number of its arrays.
    """

    def __init__(self, size: int, arrays: int) -> None:
        super().__init__()
        self.held = size, arrays
        self.numbers, self.calls = GROWTH * size + ALWAYS_ALLOWED, CALLS * arrays + ALWAYS_CALLED

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (name := getattr(func, "__name__", "")) in _MAKES and str(kwargs.get("device")) != "meta":
            self._count(_asked(name, args, kwargs))
        return func(*args, **kwargs)

    def _count(self, numbers: int) -> None:
        self.numbers -= numbers
        self.calls -= 1
        if self.numbers < 0 or self.calls < 0:
            size, arrays = self.held
            raise ValueError(
                f"the file describes larger networks than it holds: its weights are {size:,} numbers in {arrays:,} "
                "arrays. It is damaged, or they are made for other policy_kwargs or spaces. Pass trust=True if you "
                "trust the file."
            )


def _asked(name: str, args: Any, kwargs: Any) -> int:
    """Returns the size of a new tensor, whose lengths are a list or the integers among the arguments."""
    lists = [value for value in (*args, kwargs.get("size")) if isinstance(value, list | tuple)]
    lengths = lists[0] if lists else [value for value in args if isinstance(value, int)]
    if name in ("arange", "linspace"):
        return max(lengths, default=0)
    if name == "repeat":
        lengths = [args[0].numel(), *lengths]
    if name == "eye" and len(lengths) == 1:
        lengths = 2 * lengths
    return math.prod(int(length) for length in lengths)
