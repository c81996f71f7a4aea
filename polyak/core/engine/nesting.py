"""Batches of any structure as flat lists of tensors, which is what graphs take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor


def flatten(batch: Any) -> list[Tensor]:
    """The tensors of a batch: a tensor, or a tuple or dict of batches; None counts as none."""
    if isinstance(batch, Tensor):
        return [batch]
    if batch is None:
        return []
    parts = batch.values() if isinstance(batch, Mapping) else batch
    leaves: list[Tensor] = []
    for part in parts:
        if isinstance(part, Tensor):
            leaves.append(part)
        else:
            leaves += flatten(part)
    return leaves


def unflatten(like: Any, leaves: Iterator[Tensor]) -> Any:
    """The inverse of :func:`flatten`: a batch built like ``like``."""
    if isinstance(like, Tensor):
        return next(leaves)
    if like is None:
        return None
    if isinstance(like, Mapping):
        return {key: unflatten(part, leaves) for key, part in like.items()}
    parts = [unflatten(part, leaves) for part in like]
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


def layout(leaves: Sequence[Tensor]) -> tuple[Any, ...]:
    """What must not change between two calls of a program."""
    return tuple([(t.shape, t.stride(), t.dtype, t.device) for t in leaves])
