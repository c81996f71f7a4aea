"""Batches and results of any structure as flat lists of tensors, which is what graphs take and return."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor


def tensors_of(batch: Any) -> list[Tensor]:
    """The tensors of a batch: a tensor, or a tuple or dict of batches; None counts as none."""
    if isinstance(batch, Tensor):
        return [batch]
    if batch is None:
        return []
    parts = batch.values() if isinstance(batch, Mapping) else batch
    found: list[Tensor] = []
    for part in parts:
        if isinstance(part, Tensor):
            found.append(part)
        else:
            found += tensors_of(part)
    return found


def rebuilt(like: Any, tensors: Iterator[Tensor]) -> Any:
    """The inverse of :func:`tensors_of`: a batch built like ``like``."""
    if isinstance(like, Tensor):
        return next(tensors)
    if like is None:
        return None
    if isinstance(like, Mapping):
        return {key: rebuilt(part, tensors) for key, part in like.items()}
    parts = [rebuilt(part, tensors) for part in like]
    return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)


def layout(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    """What must not change between two calls of a program."""
    return tuple([(t.shape, t.stride(), t.dtype, t.device) for t in tensors])
