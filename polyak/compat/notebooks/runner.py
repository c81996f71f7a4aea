"""Runs the code cells of a Jupyter notebook in their order, as one program: ``python runner.py notebook.ipynb``.

What only a notebook server understands is left out, and a line on stderr says so: magics such as ``%matplotlib
inline``, commands of the shell (``!pip install ...``), and cells in other languages (``%%bash``). As in a notebook, the
value of a cell's last expression is shown, ``display`` is there, and variables are those of ``__main__``.

It is run as a script by a Python that need not find polyak, and so imports nothing of it.
"""

from __future__ import annotations

import ast
import io
import json
import linecache
import os
import re
import sys
import tokenize
import traceback
from types import ModuleType, TracebackType
from typing import NamedTuple

RUN_ALL_THE_SAME = ("time", "timeit", "capture", "prun")
"""Cell magics that only measure how the cell runs."""

_MAGIC = re.compile(
    r"""\s*(?:
        [%!]                                # %matplotlib inline, !ls
        | [A-Za-z_][\w., ]*=\s*[%!]         # files = !ls
        | \?{1,2}[\w.]+\s*$                 # ?print
        | [\w.]+\?{1,2}\s*$                 # print?
        | (?:pip|conda|mamba)\s+install\b
    )""",
    re.VERBOSE,
)
_TIMED = re.compile(r"(\s*)%time\s+(.+)", re.DOTALL)


class Cell(NamedTuple):
    """A code cell: its place among the code cells, from 1, and its text."""

    number: int
    source: str


def read_cells(path: str) -> list[Cell]:
    """Return the code cells of a notebook.

    Raises:
        ValueError: the file is no notebook of format 4, or one of another language than Python.
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except ValueError as error:
        raise ValueError(f"SCRIPT {path!r} is not a notebook: it is not JSON ({error}).") from error
    cells = content.get("cells") if isinstance(content, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise ValueError(
            f"SCRIPT {path!r} is not a notebook of format 4: it has no list of cells. Jupyter converts older ones: "
            "jupyter nbconvert --to notebook."
        )
    language = _language(content.get("metadata"))
    if language != "python":
        raise ValueError(f"SCRIPT {path!r} is a notebook in {language}. Only Python is run.")
    texts = [cell.get("source", "") for cell in cells if cell.get("cell_type") == "code"]
    joined = ["".join(map(str, text)) if isinstance(text, list) else str(text) for text in texts]
    return [Cell(number, text) for number, text in enumerate(joined, start=1)]


def _language(metadata: object) -> str:
    kernel = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    return str(kernel.get("language", "python")).lower() if isinstance(kernel, dict) else "python"


def without_magics(source: str) -> tuple[str, list[str]]:
    """Return Python code with as many lines as `source`, and the parts that were left out."""
    lines = source.splitlines()
    first = next((number for number, line in enumerate(lines) if line.strip()), 0)
    left_out = []
    if lines and lines[first].startswith("%%"):
        magic = lines[first].strip()
        if magic[2:].split(" ")[0] not in RUN_ALL_THE_SAME:
            return "", [f"the cell, {magic}"]
        lines[first] = ""
        left_out.append(magic)
    if _is_python("\n".join(lines)):
        return "\n".join(lines), left_out
    for number, line in enumerate(lines):
        if _MAGIC.match(line) and not _is_within_statement("\n".join(lines[:number])):
            if timed := _TIMED.fullmatch(line):
                lines[number] = timed.group(1) + timed.group(2)
            else:
                lines[number] = line[: len(line) - len(line.lstrip())] + "pass"
            left_out.append("%time" if timed else line.strip())
    return "\n".join(lines), left_out


def _is_python(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _is_within_statement(before: str) -> bool:
    """Whether the text ends inside brackets, a long string, or a line that a backslash continues."""
    if before.endswith("\\"):
        return True
    try:
        list(tokenize.generate_tokens(io.StringIO(before + "\n").readline))
    except tokenize.TokenError as error:
        return "multi-line" in str(error) or "triple-quoted" in str(error)
    except SyntaxError:
        return False
    return False


def run_cell(cell: Cell, notebook: str, namespace: dict[str, object]) -> None:
    """Run a cell in `namespace`; tracebacks name the cell and show its lines."""
    source, left_out = without_magics(cell.source)
    for what in left_out:
        print(f"polyak run: cell {cell.number}: left out {what}", file=sys.stderr)
    file = f"{notebook}, cell {cell.number}"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    body = ast.parse(source, file).body
    shown = [body.pop()] if body and isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";") else []
    exec(compile(ast.Module(body, []), file, "exec", dont_inherit=True), namespace)
    if shown:
        exec(compile(ast.Interactive(shown), file, "single", dont_inherit=True), namespace)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback from the cell at fault on, with its lines: they are in no file that Python could open."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def main() -> None:
    """Run the notebook that the command line names; what follows it is its ``sys.argv[1:]``."""
    notebook = sys.argv[1]
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(notebook))
    sys.excepthook = _show
    program = sys.modules["__main__"] = ModuleType("__main__")
    vars(program)["display"] = print
    for cell in read_cells(notebook):
        run_cell(cell, os.path.basename(notebook), vars(program))


if __name__ == "__main__":
    main()
