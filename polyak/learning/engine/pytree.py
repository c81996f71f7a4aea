"""Conversion between nested batches or results and flat lists of tensors, for graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor


def tensors_of(batch: Any) -> list[Tensor]:
    """Returns the tensors of a batch: a tensor, or a tuple or dict of batches; None contributes none."""
    if isinstance(batch, tuple):  # first, since checks for Mapping are slow
        parts: Iterable[Any] = batch
    elif isinstance(batch, Tensor):
        return [batch]
    elif batch is None:
        return []
    else:
        parts = batch.values() if isinstance(batch, Mapping) else batch
    found: list[Tensor] = []
    for part in parts:
        if isinstance(part, Tensor):
            found.append(part)
        else:
            found += tensors_of(part)
    return found


def rebuilt(like: Any, tensors: Iterator[Tensor]) -> Any:
    """Returns a batch of the structure of ``like``; the inverse of :func:`tensors_of`."""
    return builder(like)(tensors)


def builder(like: Any) -> Callable[[Iterator[Tensor]], Any]:
    """Returns a fast :func:`rebuilt` of ``like`` for many calls."""
    if isinstance(like, Tensor):
        return next
    if like is None:
        return lambda tensors: None
    if isinstance(like, Mapping):
        names, parts = list(like), [builder(part) for part in like.values()]
        if not isinstance(like, dict):  # a subclass such as Experience, built from a dict
            kind: Callable[[dict[str, Any]], Any] = type(like)
            return lambda tensors: kind({name: part(tensors) for name, part in zip(names, parts, strict=True)})
        if all(part is next for part in parts):
            return lambda tensors: dict(zip(names, tensors, strict=False))
        return lambda tensors: {name: part(tensors) for name, part in zip(names, parts, strict=True)}
    cls, parts = type(like), [builder(part) for part in like]
    if hasattr(like, "_fields"):
        return lambda tensors: cls(*[part(tensors) for part in parts])
    return lambda tensors: cls([part(tensors) for part in parts])


Facts = tuple[Any, ...]


class Layouts:
    """Returns :func:`layout` of successive batches. Tensors that occurred in the previous batch, such as the columns of
    a rollout, are not inspected again."""

    def __init__(self) -> None:
        self._tensors: Sequence[Tensor] = ()
        self._facts: Sequence[Facts] = ()

    def __call__(self, tensors: Sequence[Tensor]) -> Facts:
        if len(tensors) == len(self._tensors):
            seen = zip(tensors, self._tensors, self._facts, strict=True)
            self._facts = tuple([facts if tensor is last else _facts(tensor) for tensor, last, facts in seen])
        else:
            self._facts = layout(tensors)
        self._tensors = tensors
        return self._facts

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


def layout(tensors: Sequence[Tensor]) -> Facts:
    """Returns the properties of tensors that must not change between two calls of a program."""
    return tuple([_facts(tensor) for tensor in tensors])


def _facts(tensor: Tensor) -> Facts:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device
