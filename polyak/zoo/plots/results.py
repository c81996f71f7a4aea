"""Evaluations of many methods on many environments, and the pickles in which they go from one command to another."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyak.suggestions import did_you_mean
from polyak.writing import replacing
from polyak.zoo.errors import ZooError
from polyak.zoo.output import note
from polyak.zoo.plots.curves import Curve

TABLE = "results_table"
"""The title of the table, and the name under which the pickles hold it."""
MISSING = "-"


@dataclass(frozen=True)
class Table:
    """Text in rows; the first row may hold a second line of headings, as the Zoo's does."""

    headers: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        """Return Markdown, laid out as the Zoo prints it: columns of even width, headings in the middle."""
        widths = [max(3, *(len(cell) for cell in column)) for column in zip(self.headers, *self.rows, strict=True)]
        heads = [f"{head:^{width}}" for head, width in zip(self.headers, widths, strict=True)]
        rules = ["-" * width for width in widths]
        rows = [[f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)] for row in self.rows]
        return "\n".join(f"|{'|'.join(cells)}|" for cells in (heads, rules, *rows))

    def latex(self) -> str:
        r"""Return a LaTeX tabular with booktabs' rules, for ``\usepackage{booktabs,multirow}``.

        The first column names the rows; equal neighbours in the first of two lines of headings become one cell.
        """
        import pandas as pd

        has_labels = not self.rows[0][0]
        rows, heads = self.rows[1:] if has_labels else self.rows, self.headers[1:]
        columns: Any = pd.MultiIndex.from_arrays([heads, self.rows[0][1:]]) if has_labels else heads
        frame = pd.DataFrame([row[1:] for row in rows], index=[row[0] for row in rows], columns=columns)
        return frame.to_latex(escape=True, multicolumn_format="c").replace("+/-", r"$\pm$")


def estimate(curve: Curve, digits: int) -> str:
    """Return the last mean over runs and its standard error; a single run has no error."""
    last = f"{curve.y[-1]:.{digits}f}"
    return f"{last} (1 run)" if curve.error is None else f"{last} +/- {curve.error[-1]:.{digits}f}"


Results = dict[str, dict[str, Curve]]
"""Environment -> method, such as ``"TQC-logs/"`` -> the evaluations of its runs, by step."""


def methods_of(results: Results) -> list[str]:
    """Return the methods that were evaluated anywhere, in the order of their first mention."""
    return list(dict.fromkeys(method for methods in results.values() for method in methods))


def results_table(results: Results, methods: Mapping[str, tuple[str, str]], median: bool = False) -> Table:
    """Return the Zoo's table of last evaluations: mean and standard error over runs, or their median.

    Args:
        results: environments are the rows; missing methods get a dash.
        methods: the columns: method -> first and second line of its heading.
        median: show the median of the runs instead.
    """
    rows = [
        [env, *(_cell(found[method], median) if method in found else MISSING for method in methods)]
        for env, found in results.items()
    ]
    first, second = [first for first, _ in methods.values()], [second for _, second in methods.values()]
    return Table(["Environments", *first], [["", *second], *rows] if any(second) else rows)


def _cell(found: Curve, median: bool) -> str:
    digits = 2 if np.abs(found.last).max() <= 1 else 0  # a success rate of 0.67 is not 1
    if median:
        return f"{np.median(found.last):.{digits}f}"
    return estimate(found, digits)


def names_for_readers(methods: Sequence[str]) -> dict[str, str]:
    """Return the names of a pickle's methods in legends: ``PPO`` for ``PPO-logs/``, if all have the same folder.

    Those of several folders keep them, without the slash: ``PPO old``. Names of other kinds stay.
    """
    split = {method: method.partition("-") for method in methods}
    if not all(dash and name.isupper() for name, dash, _ in split.values()):
        return {method: method for method in methods}
    is_one = len({folder for _, _, folder in split.values()}) == 1
    short = {key: name if is_one else f"{name} {folder.rstrip('/')}" for key, (name, _, folder) in split.items()}
    return short if len(set(short.values())) == len(short) else {method: method for method in methods}


def write_results(path: Path, results: Results, table: Table) -> None:
    """Write a pickle that the Zoo's ``plot_from_file`` reads as well; it holds numpy arrays, text, dicts and lists."""
    content: dict[str, Any] = {
        env: {method: _record(found) for method, found in methods.items()}
        for env, methods in results.items()
        if methods
    }
    with replacing(path) as file:
        pickle.dump(content | {TABLE: {"headers": table.headers, "value_matrix": table.rows}}, file, protocol=4)


def _record(found: Curve) -> dict[str, Any]:
    """Return a method's evaluations in the form of the Zoo's pickles."""
    return {
        "timesteps": found.x,
        "mean": found.y,
        "std_error": found.std_error,
        "last_evals": found.last,
        "std_error_last_eval": found.std_error[-1],
        "mean_per_eval": found.values,
    }


def read_results(flag: str, path: Path) -> Results:
    """Read a pickle of ``all-plots``, ours or the Zoo's, without running it.

    Raises ZooError naming `flag` if there is no such file, it is damaged, holds anything but numbers, text and
    containers, or is no such pickle.
    """
    from polyak.checkpoint.serialise import UntrustedError
    from polyak.compat.sb3_face.files.unpickle import loads

    if path.exists() and not path.is_file():
        raise ZooError(f"{flag} {str(path)!r} is a folder, a pipe or a device, not a file.")
    try:
        content = loads(path.read_bytes())
    except OSError as error:
        raise ZooError(f"{flag} {str(path)!r} cannot be read: {error.strerror or error}.") from error
    except UntrustedError as error:
        reason = str(error).partition(" Pass trust=True")[0]
        raise ZooError(f"{flag} {str(path)!r} is refused: {reason} A file of all-plots holds numbers only.") from error
    except ValueError as error:
        raise ZooError(f"{flag} {str(path)!r} is damaged, or no file of all-plots: {error}") from error
    try:
        return _parse(content)
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ZooError(
            f"{flag} {str(path)!r} is not laid out as files of all-plots are ({type(error).__name__}: {error}). "
            "Write one with: polyak all-plots ... -o NAME"
        ) from error


def _parse(content: Any) -> Results:
    results: Results = {}
    for env, methods in content.items():
        if env == TABLE or not methods:
            continue
        results[str(env)] = {str(method): _evaluations(record) for method, record in methods.items()}
    if not results:
        raise ValueError("it holds no evaluations")
    return results


def _evaluations(record: Mapping[str, Any]) -> Curve:
    timesteps = np.asarray(record["timesteps"])
    values = np.asarray(record["mean_per_eval"], dtype=float)
    if timesteps.ndim != 1 or not len(timesteps) or values.ndim != 2 or len(values) != len(timesteps):
        raise ValueError(f"timesteps have the shape {timesteps.shape}, mean_per_eval {values.shape}")
    if timesteps.dtype.kind not in "iuf" or not np.isfinite(timesteps).all() or not values.shape[1]:
        raise ValueError(f"timesteps are {timesteps.dtype}, not numbers, or there are no runs")
    return Curve(timesteps, values)


def merge(first: Results, second: Results, source: str) -> Results:
    """Return both; a method in both is kept under two names, the second with its `source` in brackets."""
    merged = {env: dict(methods) for env, methods in first.items()}
    for env, methods in second.items():
        mine = merged.setdefault(env, {})
        for method, found in methods.items():
            name = method if method not in mine else f"{method} ({source})"
            if name != method:
                note(f"{method} on {env} is in both files; the one of {source} is called {name!r}.")
            mine[name] = found
    return merged


def select(
    results: Results,
    keep_envs: Sequence[str] = (),
    skip_envs: Sequence[str] = (),
    keep_keys: Sequence[str] = (),
    skip_keys: Sequence[str] = (),
) -> Results:
    """Return the environments and methods (keys) to keep, without those to skip; ZooError if one of them is unknown."""
    envs = _chosen("--keep-envs", keep_envs, "--skip-envs", skip_envs, list(results))
    keys = _chosen("--keep-keys", keep_keys, "--skip-keys", skip_keys, methods_of(results))
    chosen = {env: {key: results[env][key] for key in keys if key in results[env]} for env in envs}
    chosen = {env: methods for env, methods in chosen.items() if methods}
    if not chosen:
        raise ZooError(f"Nothing is left of {', '.join(results)} and {', '.join(methods_of(results))}. Skip less.")
    return chosen


def _chosen(keep_flag: str, keep: Sequence[str], skip_flag: str, skip: Sequence[str], known: list[str]) -> list[str]:
    for flag, names in ((keep_flag, keep), (skip_flag, skip)):
        for name in names:
            if name not in known:
                raise ZooError(f"{flag} {name!r} is not in the file.{did_you_mean(name, known)} It has {_list(known)}.")
    return [name for name in known if (not keep or name in keep) and name not in skip]


def rename(results: Results, labels: Sequence[str]) -> Results:
    """Return `results` with methods called by `labels`, in their order; ZooError unless there is one for each."""
    methods = methods_of(results)
    if len(labels) != len(methods) or len(set(labels)) != len(labels):
        raise ZooError(f"--labels takes a different name for each of {_list(methods)}; got {_list(labels)}.")
    names = dict(zip(methods, labels, strict=True))
    return {env: {names[method]: found for method, found in known.items()} for env, known in results.items()}


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
