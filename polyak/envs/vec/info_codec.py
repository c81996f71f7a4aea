"""Info dicts as bytes, between the processes of a SubprocVecEnv.

Most infos hold a few numbers under the same keys at each step (MuJoCo's velocities, Atari's lives). Pickling NumPy
numbers costs more than a light environment's step, so such infos are sent as a table of raw numbers: keys and types
once per message, in bytes that both sides have from the step before. Everything else is pickled.
"""

from __future__ import annotations

import functools
import pickle
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import cloudpickle
import numpy as np

StepInfo: TypeAlias = tuple[int, dict[str, Any], "dict[str, Any] | None"]
"""Index of the environment, info of its step, info of the reset that followed (None without one)."""

_FORMATS: dict[type, str] = {
    bool: "?",
    int: "q",
    float: "d",
    np.bool_: "?",
    np.int8: "b",
    np.int16: "h",
    np.int32: "i",
    np.int64: "q",
    np.uint8: "B",
    np.uint16: "H",
    np.uint32: "I",
    np.uint64: "Q",
    np.float32: "f",
    np.float64: "d",
}
"""The numbers that fit into a table, and how ``struct`` writes them."""
_KNOWN = 64  # kinds of info cached


def pickled(content: Any) -> bytes:
    """Pickle; with cloudpickle where pickle refuses (lambdas, classes of ``__main__``)."""
    try:
        return pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        return cloudpickle.dumps(content)


def encode_step_infos(infos: Sequence[StepInfo]) -> bytes:
    """The bytes from which :func:`decode_step_infos` makes equal infos, down to the types of the numbers."""
    indices, rows, others = [], [], []
    chosen, signature, pack = None, b"", None
    for entry in infos:
        index, info, reset_info = entry
        if reset_info is None:
            kind = tuple(info), tuple(map(type, info.values()))
            if chosen is None and _is_table(kind):
                chosen, signature = kind, _signature(kind)
                pack = _table(signature).row.pack
            if pack is not None and kind == chosen:
                try:
                    rows.append(pack(*info.values()))
                    indices.append(index)
                    continue
                except struct.error:  # an integer of more than 64 bits
                    pass
        others.append(entry)
    return pickled((signature, indices, b"".join(rows), others))


def decode_step_infos(content: bytes) -> Iterator[StepInfo]:
    """The infos of :func:`encode_step_infos`, as new objects, in no particular order."""
    signature, indices, rows, others = pickle.loads(content)
    if indices:
        table = _table(signature)
        for index, values in zip(indices, table.row.iter_unpack(rows), strict=True):
            yield index, table.info(values), None
    yield from others


@dataclass(frozen=True)
class _InfoTable:
    keys: tuple[str, ...]
    types: tuple[type | None, ...]
    """The type of each unpacked number; None if unpacking already returns it."""
    row: struct.Struct

    def info(self, values: tuple[Any, ...]) -> dict[str, Any]:
        return {
            key: value if kind is None else kind(value)
            for key, kind, value in zip(self.keys, self.types, values, strict=True)
        }


@functools.lru_cache(_KNOWN)
def _is_table(kind: tuple[tuple[str, ...], tuple[type, ...]]) -> bool:
    keys, types = kind
    return bool(keys) and all(type(key) is str for key in keys) and all(one in _FORMATS for one in types)


@functools.lru_cache(_KNOWN)
def _signature(kind: tuple[tuple[str, ...], tuple[type, ...]]) -> bytes:
    return pickle.dumps(kind)


@functools.lru_cache(_KNOWN)
def _table(signature: bytes) -> _InfoTable:
    keys, types = pickle.loads(signature)
    row_types = tuple(None if kind in (bool, int, float) else kind for kind in types)
    return _InfoTable(keys, row_types, struct.Struct("=" + "".join(_FORMATS[kind] for kind in types)))
