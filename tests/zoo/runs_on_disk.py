"""Run folders, made by hand; what a page made of them holds; and a board that serves them."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak.zoo.report import board as board_module
from polyak.zoo.report.board import BoardOptions, open_server
from polyak.zoo.report.runs import Run, find_runs, read_run

#: Text that would run in a page that took it for HTML.
NASTY = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


def write_monitor(path: Path, rows: list[tuple[float, int, float]], start: float = 0.0) -> Path:
    """Write a monitor file of (return, length, seconds)."""
    lines = [f"#{json.dumps({'t_start': start, 'env_id': 'X-v0'})}", "r,l,t"]
    path.write_text("\n".join([*lines, *(f"{r},{length},{t}" for r, length, t in rows)]) + "\n")
    return path


def write_run(
    folder: Path, returns: list[float], config: dict[str, Any] | None = None, seed: int = 0, algo: str = "ppo"
) -> Path:
    """Make a finished run of 10-step episodes that end 2 s apart, evaluated twice."""
    settings = folder / "X-v0"
    settings.mkdir(parents=True)
    write_monitor(folder / "0.monitor.csv", [(value, 10, 2.0 * (i + 1)) for i, value in enumerate(returns)])
    (settings / "config.yml").write_text(json.dumps(config or {}))  # JSON is YAML
    (settings / "args.yml").write_text(json.dumps({"algo": algo, "env": "X-v0", "seed": seed}))
    results = np.array([[1.0, 3.0], [5.0, 7.0]]) + seed
    np.savez(folder / "evaluations.npz", timesteps=[10, 20], results=results, ep_lengths=np.full((2, 2), 10))
    (folder / "X-v0.zip").write_bytes(b"")
    return folder


def only_run(logs: Path) -> Run:
    """Read the only run under `logs`."""
    (path,) = find_runs(logs, [])
    return read_run(path, "/".join(path.parts[-2:]))


def table_of(data: dict[str, Any], title: str) -> list[dict[str, str]]:
    """Return the rows of a table of the page, by its headings."""
    (table,) = (table for table in data["tables"] if table["title"].startswith(title))
    return [dict(zip(table["headers"], row, strict=True)) for row in table["rows"]]


def data_of(page: str) -> dict[str, Any]:
    """Return the data in a page, found as a browser finds it."""
    match = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert match is not None
    data: dict[str, Any] = json.loads(match.group(1))
    return data


@contextmanager
def serving(logs: Path, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve `logs` in a thread, looking at the files at every request; yields the port."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(board_module, "PATIENCE", 0.0)
        with open_server(BoardOptions(str(logs), 0, host)) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield server.server_address[1]
            finally:
                server.shutdown()
                thread.join()
