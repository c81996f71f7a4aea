"""Tables of text (CSV), checked before they are parsed.

A row may leave cells out, and each missing cell still becomes a number: a header of many columns over many short lines
would exhaust the memory. So columns times lines must not exceed the number of cells that the bytes of the file can
hold.
"""

from __future__ import annotations

from typing import IO

MOST_COLUMNS = 20_000
LONGEST_NAME = 1_000
LONGEST_HEADER = 16 * 2**20
"""Bytes of the line of column names."""
ALWAYS_CELLS = 2**20
_PIECE = 2**20


def check_names(names: list[str], what: str) -> None:
    """Refuse too many columns, or names that are too long.

    Raises:
        ValueError: there are.
    """
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"{what} has {len(names):,} columns: at most {MOST_COLUMNS:,} are read.")
    if longest := next((name for name in names if len(name) > LONGEST_NAME), ""):
        raise ValueError(f"{what} has a column whose name has {len(longest):,} letters: {longest[:40]!r} ...")


def check_cells(columns: int, lines: int, size: int, what: str) -> None:
    """Refuse rows that have more cells than fit into ``size`` bytes, each with its separator.

    Raises:
        ValueError: they do.
    """
    if columns * lines > max(ALWAYS_CELLS, 2 * size):  # a line may end in two bytes, which count as two lines
        raise ValueError(
            f"{what} has {columns:,} columns and some {lines:,} lines, but only {size:,} bytes: most cells are missing."
        )


def check_table(file: IO[bytes], separator: str, what: str) -> None:
    """Check the rest of an open file, which begins with the line of column names; the file is left at its end.

    Raises:
        ValueError: it has too many columns, names that are too long, or far more cells than bytes.
    """
    header = file.readline(LONGEST_HEADER)
    if len(header) == LONGEST_HEADER:
        raise ValueError(f"{what} has a first line of more than {LONGEST_HEADER:,} bytes.")
    if b"\r" in header.rstrip(b"\r\n"):  # lines that end as they did on the first Macintosh
        header = header.partition(b"\r")[0]
    names = header.decode("utf-8", "replace").split(separator)
    check_names(names, what)
    lines, size = 1, len(header)
    while piece := file.read(_PIECE):
        lines += piece.count(b"\n") + piece.count(b"\r")
        size += len(piece)
    check_cells(len(names), lines, size, what)
