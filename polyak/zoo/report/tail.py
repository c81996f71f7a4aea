"""A CSV file of numbers that grows while it is read: each row is read once."""

from __future__ import annotations

import csv
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from polyak.envs.reading import tables
from polyak.envs.reading.limits import check_regular

#: Bytes before the place read last that must still be the same; otherwise the file was replaced.
_SEEN = 64
_TRUTH = {"True": 1.0, "False": 0.0, "true": 1.0, "false": 0.0}


class Tail:
    """The rows of a CSV file so far.

    Lines before the column names may begin with ``#``; they are kept in ``comments``. The last line counts once its
    newline is written.

    Args:
        path: the file.

    Attributes:
        comments: the ``#`` lines, without the ``#``.
        is_cut: whether the file ends in the middle of a row.
        n_refused: rows that are no numbers; a cell may be empty, but not in `required` columns.
    """

    def __init__(self, path: Path, required: tuple[str, ...] = ()) -> None:
        self.path = path
        self.required = required
        self._forget()

    def _forget(self) -> None:
        self.comments: list[str] = []
        self.names: list[str] = []
        self.is_cut = False
        self.n_refused = 0
        self._head = b""
        self._place = 0
        self._seen = b""
        self._chunks: list[np.ndarray] = []

    def columns(self) -> dict[str, np.ndarray]:
        """Read what is new; return every column, [rows] float64 each, NaN where a cell is empty or no number.

        Raises OSError, and ValueError if the file has no line of column names or lacks a required one.
        """
        check_regular(self.path, "it")
        with self.path.open("rb") as file:
            head = file.read(len(self._head))
            file.seek(max(self._place - _SEEN, 0))
            if head != self._head or file.read(len(self._seen)) != self._seen:
                self._forget()
            file.seek(self._place)
            new = file.read()
        whole, newline, rest = new.rpartition(b"\n")
        self.is_cut = bool(rest)
        rows = whole + newline
        if not self.names:
            rows = self._read_head(rows)
        if rows:
            self._chunks.append(self._parse(rows))
        self._place += len(whole + newline)
        self._seen = (self._seen + whole + newline)[-_SEEN:]
        if len(self._chunks) != 1:
            self._chunks = [np.concatenate([np.empty((len(self.names), 0)), *self._chunks], axis=1)]
        return dict(zip(self.names, self._chunks[0], strict=True))

    def _read_head(self, text: bytes) -> bytes:
        """Read comments and column names at the beginning of the file."""
        rest = text
        comments: list[str] = []
        while rest.startswith(b"#"):
            line, _, rest = rest.partition(b"\n")
            comments.append(line[1:].decode("utf-8", "replace"))
        line, newline, rest = rest.partition(b"\n")
        if len(line) > tables.LONGEST_HEADER:
            raise ValueError(f"its line of column names is longer than {tables.LONGEST_HEADER:,} bytes")
        if not newline:
            raise ValueError("it has no line of column names (yet)")
        names = next(csv.reader([line.decode("utf-8", "replace").strip()]), [])
        if not names:
            raise ValueError("its first line, of column names, is empty")
        tables.check_names(names, "it")
        if missing := [name for name in self.required if name not in names]:
            raise ValueError(f"it has no column {missing[0]!r}; its columns are {', '.join(names)[:200]}")
        if len(set(names)) != len(names):
            raise ValueError("two of its columns have the same name")
        self.comments, self.names = comments, names
        self._head = text[: len(text) - len(rest)]
        return rest

    def _parse(self, rows: bytes) -> np.ndarray:
        """Return the new rows as [columns, rows] float64, without those that lack a required value."""
        import pandas as pd

        how: dict[str, Any] = {
            "header": None,
            "names": self.names,
            "index_col": False,
            "encoding_errors": "replace",
            "low_memory": False,
        }
        n_lines = rows.count(b"\n") - rows.count(b"\n\n")
        tables.check_cells(len(self.names), rows.count(b"\n") + rows.count(b"\r"), len(rows), "it")
        try:
            table = pd.read_csv(BytesIO(rows), **how)
        except pd.errors.EmptyDataError:
            return np.empty((len(self.names), 0))
        except (pd.errors.ParserError, ValueError):
            table = pd.read_csv(BytesIO(rows), **how, on_bad_lines="skip")
        values = np.stack([_numbers(table[name]) for name in self.names])
        required = [self.names.index(name) for name in self.required]
        kept = values[:, np.isfinite(values[required]).all(axis=0)] if required else values
        self.n_refused += max(n_lines - kept.shape[1], 0)
        return kept


def _numbers(column: Any) -> np.ndarray:
    import pandas as pd

    if column.dtype == object:
        column = pd.to_numeric(column.map(lambda cell: _TRUTH.get(cell, cell)), errors="coerce")
    return np.asarray(column.to_numpy(dtype=np.float64))
