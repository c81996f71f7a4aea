"""``polyak report``: every run under a folder as one page that needs neither network nor other files."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

from polyak.writing import replacing
from polyak.zoo.errors import ZooError
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.output import writable_file
from polyak.zoo.report.figures import Json, read_page

MEGABYTE = 2**20


@dataclass
class ReportOptions(CommandOptions):
    """Write one page about all runs under a log folder: curves, settings, videos, time, machine, warnings."""

    logs: str = option("logs", help="Log folder, a folder of one algorithm in it, or a single run.")
    output: str = option("report.html", "--output", "-o", help="Page to write (.html).")
    video_limit: float = option(25.0, "--video-limit", help="Megabytes of videos in the page in all.", at_least=0)


def report(options: ReportOptions) -> Path:
    """Write the page that `options` describe and return its path.

    Raises ZooError when the folder is wrong or holds no run, or the page cannot be written there.
    """
    if Path(options.output).suffix.lower() not in (".html", ".htm"):
        raise ZooError(f"--output {options.output!r} must end in .html.")
    data = read_page(Path(options.logs))
    if not data["runs"]:
        raise ZooError(
            f"No runs under {options.logs!r}: it holds no monitor.csv, evaluations.npz, progress.csv or config.yml. "
            "Give the --log-folder that you trained with."
        )
    output = writable_file("--output", options.output)
    embed_films(data, int(options.video_limit * MEGABYTE))
    text = render(data, live=False)
    try:
        with replacing(output) as file:
            file.write(text.encode())
    except OSError as error:
        raise ZooError(f"--output {options.output!r} cannot be written: {error.strerror or error}.") from error
    left_out = sum("src" not in film for film in data["films"])
    counts = {"run": data["runs"], "video": len(data["films"]) - left_out}
    print(", ".join(f"{n} {what}{'' if n == 1 else 's'}" for what, n in counts.items() if n))
    if left_out:
        print(f"Left out by --video-limit {options.video_limit:g}: {left_out} of the videos (the page names them)")
    if data["problems"]:
        print(f"Could not read: {', '.join(problem['file'] for problem in data['problems'])} (the page says why)")
    print(f"Wrote {output} ({output.stat().st_size / MEGABYTE:.1f} MB)")
    return output


def embed_films(data: Json, limit: int) -> None:
    """Put films into `data`, the newest first, each that still fits into `limit` bytes; the page names the others."""
    for film in data["films"]:
        if film["bytes"] > limit:
            continue
        try:
            content = b64encode(film["path"].read_bytes()).decode("ascii")
        except OSError as error:
            data["problems"].append({"file": film["name"], "reason": error.strerror or str(error)})
        else:
            film["src"] = f"data:{film['kind']};base64,{content}"
            limit -= film["bytes"]


def render(data: Json, live: bool) -> str:
    """Return the page for `data`; a `live` one requests new data from its server every few seconds.

    The page's policy permits the two programs that it is made with, by their hashes, and no others: text from a log
    folder cannot become a program.
    """
    environment, program, plotly = _programs()
    connect = "'self'" if live else "'none'"
    media = "'self' data:" if live else "data:"
    policy = (
        f"default-src 'none'; script-src {_hash(plotly)} {_hash(program)}; style-src 'unsafe-inline'; "
        f"img-src {media} blob:; media-src {media}; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    text: str = environment.get_template("page.html").render(
        title=data["title"],
        about=f"{data['logs']}, {'live' if live else now}. polyak {metadata.version('polyak')}.",
        policy=policy,
        style=_asset("page.css"),
        plotly=plotly,
        program=program,
        body=body(data),
        data=json_in_html({"live": live, "figures": data["figures"]}),
    )
    return text


def body(data: Json) -> str:
    """Return the page's tables and videos as HTML."""
    text: str = _programs()[0].get_template("body.html").render(data)
    return text


def json_in_html(data: Any) -> str:
    """Write `data` as JSON that can stand in a ``<script>``: none of its characters means anything to HTML."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _programs() -> tuple[Any, str, str]:
    """Return jinja's environment, the page's program, and plotly's."""
    try:
        import jinja2
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError("Reports need plotly and jinja2: pip install 'polyak[zoo]'.") from error
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    return environment, _asset("page.js"), get_plotlyjs().replace("\r\n", "\n")


def _asset(name: str) -> str:
    return files("polyak.zoo.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(program: str) -> str:
    return f"'sha256-{b64encode(sha256(program.encode()).digest()).decode('ascii')}'"
