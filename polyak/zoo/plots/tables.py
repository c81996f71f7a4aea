"""Tables of results as Markdown and as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Table:
    """Text in rows; the first row may hold a second line of headings, as the Zoo's does."""

    headers: list[str]
    rows: list[list[str]]


def estimate(mean: float, error: float | None, digits: int) -> str:
    """Return a mean over runs and its standard error; a single run has no error."""
    return f"{mean:.{digits}f} (1 run)" if error is None else f"{mean:.{digits}f} +/- {error:.{digits}f}"


def markdown(table: Table) -> str:
    """Return `table` as Markdown, laid out as the Zoo prints it: columns of even width, headings in the middle."""
    widths = [max(3, *(len(cell) for cell in column)) for column in zip(table.headers, *table.rows, strict=True)]
    heads = [f"{head:^{width}}" for head, width in zip(table.headers, widths, strict=True)]
    rules = ["-" * width for width in widths]
    rows = [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in table.rows]
    return "\n".join(f"|{'|'.join(cells)}|" for cells in (heads, rules, *rows))


def latex(headers: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> str:
    r"""Return a LaTeX tabular with booktabs' rules, for ``\usepackage{booktabs,multirow}``.

    Args:
        headers: the lines of the heading; equal neighbours in the first become one cell.
        rows: cells, the first of each names the row.
    """
    import pandas as pd

    columns: Any = (
        pd.MultiIndex.from_arrays([list(line[1:]) for line in headers]) if len(headers) > 1 else list(headers[0][1:])
    )
    frame = pd.DataFrame([row[1:] for row in rows], index=[row[0] for row in rows], columns=columns)
    return frame.to_latex(escape=True, multicolumn_format="c").replace("+/-", r"$\pm$")
