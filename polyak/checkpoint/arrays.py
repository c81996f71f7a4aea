"""Reading of safetensors arrays from untrusted files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors
from safetensors import SafetensorError

from polyak.warning import printable, warn_user

MOST_NAMED = 4 * 2**20
"""Largest size in bytes of names, types and shapes: enough for 40,000 arrays. Each takes ten times as much memory."""
_TYPES = {
    "BOOL": np.dtype(np.bool_),
    **{f"F{bits}": np.dtype(f"<f{bits // 8}") for bits in (16, 32, 64)},
    **{f"I{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    **{f"U{bits}": np.dtype(f"<u{bits // 8}") for bits in (8, 16, 32, 64)},
}


def read_arrays(data: bytes, what: str) -> dict[str, np.ndarray]:
    """Reads data in safetensors' format: name -> array. bfloat16 is converted to float32, since numpy lacks it.

    Args:
        data: the whole file.
        what: its name in messages.

    Raises:
        ValueError: the data are damaged, their names exceed :data:`MOST_NAMED` bytes, or an array has an unsupported
            type.
    """
    if (length := int.from_bytes(data[:8], "little")) > MOST_NAMED:
        raise ValueError(
            f"{what} is damaged: it begins with {length:,} bytes of names. At most {MOST_NAMED:,} are read."
        )
    try:
        found = safetensors.deserialize(data)
    except SafetensorError as error:
        raise ValueError(f"{what} is damaged ({error}).") from error
    return {name: _array(part, f"{what}: {name}") for name, part in found}


def _array(part: dict[str, Any], what: str) -> np.ndarray:
    kind, shape = part["dtype"], part["shape"]
    if kind == "BF16":  # the upper half of a float32
        return (np.frombuffer(part["data"], "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if kind not in _TYPES:
        raise ValueError(f"{what} is an array of {kind}, which is not read: only {', '.join(_TYPES)} and BF16 are.")
    return np.frombuffer(part["data"], _TYPES[kind]).reshape(shape)


def warn_not_finite(arrays: Mapping[str, np.ndarray], what: str) -> None:
    """Warn about non-finite weights: such a model can be inspected, but not used.

    Args:
        arrays: of a file, by name.
        what: the file's name in messages.
    """
    lost = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    if lost:
        more = f" and {len(lost) - 1} further arrays" if len(lost) > 1 else ""
        warn_user(
            printable(f"{what} holds NaN or infinity in {lost[0]}{more}.")
            + " A model of such weights can be looked at, but neither acts nor learns: load an earlier file to go on."
        )
