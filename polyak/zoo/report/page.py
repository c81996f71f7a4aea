"""``polyak report``: every run under a folder as one page that needs neither network nor other files."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from polyak.zoo.errors import ZooError
from polyak.zoo.options import option
from polyak.zoo.output import writable_file
from polyak.zoo.report.films import data_uri, within_limit
from polyak.zoo.report.logbook import Json, Logbook

MEGABYTE = 2**20
#: The page's own program, in the order in which its parts are read.
_PROGRAM = ("maths.js", "elements.js", "charts.js", "tables.js", "page.js")
#: Most names of each kind in the title; more are counted instead.
_IN_TITLE = {"algo": "algorithm", "env": "environment"}
_NAMED, _LONGEST_NAME = 3, 40
#: Groups of more runs have the quantile of so many, which is hardly larger.
_MOST_QUANTILES = 200


@dataclass
class ReportOptions:
    """Write one page about all runs under a log folder: curves, settings, videos, time, machine, warnings."""

    logs: str = option("logs", help="Log folder, a folder of one algorithm in it, or a single run.")
    output: str = option("report.html", "--output", "-o", help="Page to write (.html).")
    video_limit: float = option(25.0, "--video-limit", help="Megabytes of videos to put into the page in all.")


def report(options: ReportOptions) -> Path:
    """Write the page that `options` ask for and return its path.

    Raises ZooError when the folder is wrong or holds no run, or the page cannot be written there.
    """
    from datetime import datetime

    from polyak.writing import replacing

    if options.video_limit < 0:
        raise ZooError(f"--video-limit must be at least 0 megabytes, got {options.video_limit}.")
    if Path(options.output).suffix.lower() not in (".html", ".htm"):
        raise ZooError(f"--output {options.output!r} must end in .html.")
    logbook = Logbook(Path(options.logs))
    data = logbook.read()
    if not data["runs"]:
        raise ZooError(
            f"No runs under {options.logs!r}: it holds no monitor.csv, evaluations.npz, progress.csv or config.yml. "
            "Give the --log-folder that you trained with."
        )
    output = writable_file("--output", options.output)
    embed_films(data, logbook, int(options.video_limit * MEGABYTE))
    data["made"] = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    text = render(data, live=False)
    try:
        with replacing(output) as file:
            file.write(text.encode())
    except OSError as error:
        raise ZooError(f"--output {options.output!r} cannot be written: {error.strerror or error}.") from error
    left_out = sum("src" not in film for film in data["films"])
    counts = {"run": len(data["runs"]), "video": len(data["films"]) - left_out}
    print(", ".join(f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items() if n))
    if left_out:
        print(f"Left out by --video-limit {options.video_limit:g}: {left_out} of the videos (the page names them)")
    if data["problems"]:
        print(f"Could not read: {', '.join(problem['file'] for problem in data['problems'])} (the page says why)")
    print(f"Wrote {output} ({output.stat().st_size / MEGABYTE:.1f} MB)")
    return output


def embed_films(data: Json, logbook: Logbook, limit: int) -> None:
    """Put films into `data`, the newest first, until `limit` bytes are reached; the page names the others."""
    data["video_limit"] = limit
    chosen = within_limit(((film["id"], film["bytes"]) for film in data["films"]), limit)
    for film in data["films"]:
        path = logbook.film(film["id"])
        if film["id"] not in chosen or path is None:
            continue
        try:
            film["src"] = data_uri(path)
        except OSError as error:
            data["problems"].append({"file": film["name"], "reason": error.strerror or str(error)})


def render(data: Json, live: bool) -> str:
    """Return the page for `data`; a `live` one asks its server for new data every few seconds.

    The page may run the two programs that it is made with, known by their hashes, and nothing else: text that comes
    from a log folder cannot become a program.
    """
    environment, program, plotly = _parts()
    connect = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; script-src {_hash(plotly)} {_hash(program)}; style-src 'unsafe-inline'; "
        f"img-src data: blob: {connect if live else ''}; media-src data: {connect if live else ''}; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    template = environment.get_template("page.html")
    text: str = template.render(
        title=title_of(data["runs"]) or Path(data["logs"]).resolve().name,
        policy=policy,
        style=_asset("page.css"),
        plotly=plotly,
        program=program,
        data=json_in_html({**data, "live": live, "polyak": metadata.version("polyak")}),
    )
    return text


def title_of(runs: Sequence[Json]) -> str:
    """Return what was trained and where: ``PPO and SAC on CartPole-v1``; numbers where there are many. "" for no runs.

    The folder is named below it; most are called logs.
    """
    if not runs:
        return ""
    algos, envs = (_enumerated(sorted({run[key] for run in runs}), what) for key, what in _IN_TITLE.items())
    return f"{algos} on {envs}"


def _enumerated(names: Sequence[str], what: str) -> str:
    if len(names) > _NAMED or max(map(len, names)) > _LONGEST_NAME:
        return f"{len(names)} {what}{'' if len(names) == 1 else 's'}"
    return ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]


def json_in_html(data: Any) -> str:
    """Write `data` as JSON that can stand in a ``<script>``: none of its characters means anything to HTML."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _parts() -> tuple[Any, str, str]:
    """Return jinja's environment, the page's program, and plotly's."""
    try:
        import jinja2
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("Reports need plotly and jinja2: pip install 'polyak[zoo]'.") from error
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    parts = "\n".join([_constants(), *map(_asset, _PROGRAM)])
    program = f'(() => {{\n"use strict";\n{parts}\n}})();\n'
    return environment, program, get_plotlyjs().replace("\r\n", "\n")


def _constants() -> str:
    """Return what the program takes from `polyak.evaluation.intervals`, by number of runs where it depends on it."""
    from polyak.evaluation.intervals import ENOUGH_FOR_SKEWNESS, student_quantile

    quantiles = student_quantile(0.975, np.arange(-1, _MOST_QUANTILES)).tolist()
    return f"const ENOUGH_FOR_SKEWNESS = {ENOUGH_FOR_SKEWNESS}, STUDENT = {json.dumps(quantiles)};"


def _asset(name: str) -> str:
    return files("polyak.zoo.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(program: str) -> str:
    return f"'sha256-{b64encode(sha256(program.encode()).digest()).decode('ascii')}'"
