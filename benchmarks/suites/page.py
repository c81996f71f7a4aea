"""The page of results, docs/results.md: how it was made, and a table for each suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.suites.results import Result
from benchmarks.suites.table import Line, lines

HEADER = (
    "| algorithm | environment | steps | seeds | mean return | 95 % interval | published | its steps | | seconds "
    "| CPU |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|---|---:|---:|"
)


def write_page(results: Sequence[Result]) -> str:
    """Return the page of these results as Markdown, which begins with its title."""
    from jinja2 import Environment, StrictUndefined

    from polyak.evaluation.intervals import ENOUGH_FOR_SKEWNESS

    tables = lines(results)
    template = Path(__file__).with_name("page.md.j2").read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(template).render(
        tables={suite: table(found) for suite, found in tables.items()},
        remarks={suite: _remarks(found) for suite, found in tables.items()},
        verdicts=Counter(line.verdict for found in tables.values() for line in found),
        episodes=_range(len(result.returns) for result in results),
        enough=ENOUGH_FOR_SKEWNESS,
        machines=sorted({f"{result.machine}; {_versions(result)}" for result in results}),
        threads=_range(result.threads for result in results),
        hours=sum(result.train_seconds for result in results) / 3600,
        n_runs=len(results),
        days=sorted({result.finished[:10] for result in results}),
    )


def table(found: Sequence[Line]) -> str:
    """Return the lines as a Markdown table."""
    return "\n".join([HEADER, *map(_cells, found)])


def _cells(line: Line) -> str:
    there = line.published
    cells = [
        line.row.algo,
        line.row.env,
        f"{line.row.n_timesteps:,}",
        str(len(line.means)),
        f"{line.mean:.1f}",
        f"{line.interval:.1f}",
        f"{there.mean:.1f} ± {there.std:.1f}{_version(line)}" if there else "-",
        f"{there.n_timesteps:,}" if there else "-",
        _verdict(line),
        f"{line.seconds:,.0f}",
        f"{line.cpu_seconds:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _version(line: Line) -> str:
    """Name the version of the environment that the published score is of, if it is another one."""
    there = line.published
    return "" if there is None or there.env == line.row.env else f" ({there.env.rpartition('-')[2]})"


def _verdict(line: Line) -> str:
    if line.verdict != "below":
        return line.verdict
    return "**below**" + (f", {100 * line.share_of_steps:.2g} % of the steps" if line.share_of_steps < 1 else "")


def _remarks(found: Sequence[Line]) -> list[str]:
    """Return the remarks on these lines from remarks.yml."""
    import yaml

    text = Path(__file__).with_name("remarks.yml").read_text(encoding="utf-8")
    remarks = yaml.safe_load(text) or {}
    keys = dict.fromkeys(f"{line.row.algo} {line.row.env}" for line in found)
    return [f"{key}: {remarks[key]}" for key in keys if key in remarks]


def _versions(result: Result) -> str:
    return ", ".join(f"{package} {version}" for package, version in result.versions.items())


def _range(numbers: Iterable[int]) -> str:
    values = sorted(set(numbers))
    return str(values[0]) if len(values) == 1 else f"{values[0]} to {values[-1]}"
