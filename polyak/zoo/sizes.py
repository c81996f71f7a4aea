"""Sizes that are refused before memory is taken or a process starts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from polyak.envs.sizes import MOST_ENVS as MOST_ENVS
from polyak.envs.sizes import MOST_FRAMES as MOST_FRAMES
from polyak.envs.sizes import MOST_PROCESSES as MOST_PROCESSES
from polyak.zoo.errors import ZooError

MOST_SEEDS = 10_000
"""Most trainings that one command starts."""
MOST_STEPS = 10**15
"""Most environment steps of a training."""
MOST_WEIGHTS = 50_000_000
"""Most weights of the networks that a file of others describes: 200 MB."""
MOST_TENSORS = 10_000
"""Most tensors that they are in."""


def whole_number(name: str, value: Any, at_most: int) -> int:
    """Return `value`, a number from 1 to `at_most` without a fraction, as int; ZooError naming `name` otherwise."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)) or value != int(value) or value < 1:
        raise ZooError(f"{name} must be a whole number of at least 1, got {value!r:.200}.")
    if value > at_most:
        raise ZooError(f"{name} must be at most {at_most:,}, got {value!r:.200}.")
    return int(value)


@contextmanager
def small_networks(source: str) -> Iterator[None]:
    """Refuse, within the block, to make networks of more than `MOST_WEIGHTS` weights or `MOST_TENSORS` tensors.

    A tensor is counted when its module gets it: before it is filled, so that its memory is not yet taken.

    Raises:
        ZooError: naming `source`, a file whose settings describe such networks, or anything else that is too large.
    """
    from torch.nn.modules.module import register_module_parameter_registration_hook

    counted = {"weights": 0, "tensors": 0}

    def count(module: Any, name: str, tensor: Any) -> None:
        counted["tensors"] += 1
        counted["weights"] += 0 if tensor is None else tensor.numel()
        if counted["weights"] > MOST_WEIGHTS or counted["tensors"] > MOST_TENSORS:
            raise ZooError(
                f"{source} describes networks of more than {MOST_WEIGHTS:,} weights, or of more than {MOST_TENSORS:,} "
                "tensors. Check policy_kwargs; or add --trust if they are meant."
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, MemoryError) or "allocate memory" in str(error):  # the latter is PyTorch's
            raise ZooError(f"{source} describes more than the memory holds: {error}") from error
        raise
    finally:
        handle.remove()
