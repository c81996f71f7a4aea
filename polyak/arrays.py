"""Arrays of two libraries under one set of names: numpy on the host, torch on any device.

The only module of experience that distinguishes the two. A device of ``None`` means numpy. A column is an array, or a
dict of columns: the entries of a Dict observation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = Any
"""``np.ndarray`` or ``torch.Tensor``."""
Column = Any
"""An array, or a dict of columns."""
Device = torch.device | None
Flags = np.ndarray | None
"""bool of any shape, or ``None`` for unknown."""
Memory = tuple[np.ndarray, ...] | None
"""The state of a recurrent policy between two calls of ``predict``; ``None``: the initial state, or no recurrence."""
Predicted = tuple[np.ndarray, Memory]
"""The result of ``predict``: actions, and the state to pass to the next call."""
_ALIGNED = 64
"""Alignment of torch's own tensors in bytes. Matrix products round differently at other alignments."""


def mapped(function: Callable[..., Any], column: Column, *others: Column) -> Column:
    """Applies a function of arrays to columns with the same keys."""
    if isinstance(column, dict):
        return {key: mapped(function, part, *[other[key] for other in others]) for key, part in column.items()}
    return function(column, *others)


def leaves(column: Column) -> Iterator[Array]:
    """Yields all arrays of a column."""
    if isinstance(column, dict):
        for part in column.values():
            yield from leaves(part)
    else:
        yield column


def paths(columns: Mapping[str, Column], prefix: str = "") -> Iterator[tuple[str, Array]]:
    """Yields all arrays of nested columns, with their keys joined by slashes."""
    for name, column in columns.items():
        if isinstance(column, dict):
            yield from paths(column, f"{prefix}{name}/")
        else:
            yield prefix + name, column


def first(column: Column) -> Array:
    """Returns any array of a column."""
    return next(leaves(column))


def assign(column: Column, index: Any, value: Column) -> None:
    """Assigns ``column[index] = value`` in every array of a column; values of either library."""
    if isinstance(column, dict):
        for key, part in column.items():
            assign(part, index, value[key])
    elif isinstance(column, Tensor):
        column[index] = torch.as_tensor(value, dtype=column.dtype, device=column.device)
    else:
        column[index] = value.numpy(force=True) if isinstance(value, Tensor) else value


def device_of(array: Array) -> Device:
    """Returns the device of an array; ``None`` for numpy."""
    return array.device if isinstance(array, Tensor) else None


def place(array: Array, device: Device) -> Array:
    """Returns the array in numpy (``None``) or on a torch device; without a copy if it is there already."""
    if device is None:
        return array.numpy(force=True) if isinstance(array, Tensor) else np.asarray(array)
    return array.to(device) if isinstance(array, Tensor) else to_device(torch.as_tensor(array), device)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns the tensor on a device, contiguous if it is copied to a GPU; without a copy if it is there already.

    A copy to a GPU goes through page-locked memory, so that it is asynchronous: the host does not wait for the GPU's
    pending work. Torch keeps that memory until the copy is done: ``tensor`` may be overwritten at once.

    Args:
        tensor: of any shape.
        device: the destination.
    """
    return tensor if tensor.device == device else _moved(tensor, device)


def _moved(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns the tensor on another device."""
    pins = device.type == "cuda" and tensor.device.type == "cpu"
    # torch would copy a non-contiguous tensor through pageable memory, and synchronise
    return (tensor.contiguous().pin_memory() if pins else tensor).to(device, non_blocking=pins)


def copied(tree: Any, device: Device) -> Any:
    """Returns nested dicts and lists with copies of their arrays in numpy (``None``) or on a torch device; other values
    are not copied."""
    if isinstance(tree, dict):
        return {key: copied(part, device) for key, part in tree.items()}
    if isinstance(tree, list):
        return [copied(part, device) for part in tree]
    if isinstance(tree, Tensor):
        return place(tree.clone(), device)
    return place(tree.copy(), device) if isinstance(tree, np.ndarray) else tree


def full(shape: tuple[int, ...], value: float, dtype: np.dtype | type, device: Device) -> Array:
    """Returns an array of one value, in the library of a device."""
    array = np.full(shape, value, dtype)
    return array if device is None else torch.from_numpy(array).to(device)


def zeros(shape: tuple[int, ...], layout: Any, device: Device) -> Array:
    """Returns zeros of a numpy type, which may have a shape of its own, in the library of a device; numpy allocates the
    memory lazily."""
    if device is None:
        return np.zeros(shape, layout)
    kind = np.dtype(layout)
    return torch.zeros(*shape, *kind.shape, dtype=torch_dtype(kind), device=device)


def where(condition: Array, a: Array, b: Array) -> Array:
    """Returns ``a`` where the condition [B] holds and ``b`` elsewhere, [B, ...] both."""
    condition = condition.reshape(*condition.shape, *(1,) * (a.ndim - condition.ndim))
    return torch.where(condition, a, b) if isinstance(a, Tensor) else np.where(condition, a, b)


def joined(arrays: Sequence[Array], axis: int) -> Array:
    """Returns the concatenation of arrays of one library."""
    return torch.cat(list(arrays), axis) if isinstance(arrays[0], Tensor) else np.concatenate(arrays, axis)


def along(array: Array, columns: Array) -> Array:
    """Returns the values of rows [B, n] at column indices [B, m]: [B, m]."""
    return array.gather(1, columns) if isinstance(array, Tensor) else np.take_along_axis(array, columns, 1)


def backwards(array: Array) -> Array:
    """Returns [B, n] with reversed columns."""
    return array.flip(1) if isinstance(array, Tensor) else array[:, ::-1]


def all_so_far(flags: Array) -> Array:
    """Returns, for flags [B, n], whether all up to each column are True: [B, n]."""
    return flags.cumprod(1) > 0 if isinstance(flags, Tensor) else np.logical_and.accumulate(flags, 1)


def torch_dtype(dtype: np.dtype) -> torch.dtype:
    """Returns torch's type for the elements of a numpy type."""
    return torch.from_numpy(np.empty(0, dtype.base)).dtype


@cache
def numpy_dtype(dtype: torch.dtype) -> np.dtype:
    """Returns numpy's type for the elements of a tensor."""
    found: np.dtype = torch.empty(0, dtype=dtype).numpy().dtype
    return found


def bytes_of(array: Array) -> Array:
    """Returns contiguous rows [B, ...] as bytes [B, n]."""
    rows = array.reshape(len(array), -1)
    return rows.view(torch.uint8) if isinstance(rows, Tensor) else rows.view(np.uint8)


def single(array: Array) -> Array:
    """Converts to float32."""
    return array.to(torch.float32) if isinstance(array, Tensor) else array.astype(np.float32)


def double(array: Array) -> Array:
    """Converts to float64."""
    return array.to(torch.float64) if isinstance(array, Tensor) else array.astype(np.float64)


def shared(array: np.ndarray) -> Tensor:
    """Returns a tensor that shares an array's memory; read-only if the array is, such as those from other processes.
    Read-only arrays are copied if their alignment differs from that of tensors, as small ones' may."""
    return torch.from_numpy(array) if array.flags.writeable else _shared_to_read(array)


def _shared_to_read(array: np.ndarray) -> Tensor:
    if array.ctypes.data % _ALIGNED == 0:
        try:
            return torch.from_dlpack(array)
        except (BufferError, TypeError, RuntimeError):  # older libraries, or an unsupported type
            pass
    own = aligned(array.shape, array.dtype)
    own[...] = array
    return torch.from_numpy(own)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns zeros with the alignment of a tensor."""
    size = dtype.itemsize * math.prod(shape)
    if dtype.hasobject or size == 0:
        return np.zeros(shape, dtype)
    return torch.zeros(size, dtype=torch.uint8).numpy().view(dtype).reshape(shape)


def flat(name: str, value: Column | None) -> dict[str, Array]:
    """Returns an array, or the arrays of a dict, under names that begin with ``name``; empty for ``None``."""
    if isinstance(value, dict):
        return {f"{name}/{key}": part for key, part in value.items()}
    return {} if value is None else {name: value}


def unflat(name: str, arrays: dict[str, Array]) -> Any:
    """Inverts :func:`flat`."""
    return under(name, arrays) or arrays.get(name)


def under(prefix: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Returns the arrays whose names begin with a prefix and a slash, under their remaining names."""
    return {key[len(prefix) + 1 :]: value for key, value in arrays.items() if key.startswith(prefix + "/")}
