"""``polyak status``: how a training stands, from what it has written so far."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polyak.zoo.errors import ZooError
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.report.groups import in_force
from polyak.zoo.report.runs import find_runs, number, numbers_in, read_frame, runner_row, runners_in
from polyak.zoo.run_folder import RunFolder
from polyak.zoo.run_notes import PROGRESS


@dataclass
class StatusOptions(CommandOptions):
    """Print how a training stands: steps, speed, where its time goes, and its runners elsewhere."""

    folder: str = option("logs", help="A single run, or a folder of runs: the newest is taken.")
    json: bool = option(False, "--json/", help="Print JSON.")


def status(options: StatusOptions) -> None:
    """Print the status that `options` select; ZooError if there is no run, or it has no log."""
    paths = find_runs(Path(options.folder), [])
    logs = [path / PROGRESS for path in paths if (path / PROGRESS).is_file()]
    if not logs:
        raise ZooError(f"No run under {options.folder!r} has a {PROGRESS}. Give the --log-folder that you train with.")
    found = read_status(max(logs, key=lambda log: log.stat().st_mtime).parent)
    if options.json:
        print(json.dumps(found))
        return
    if len(logs) > 1:
        print(f"{len(logs)} runs; the newest:")
    print("\n".join(lines_of(found)))


def read_status(path: Path) -> dict[str, Any]:
    """Return the status of the run in the folder `path`: text, numbers, and a list of its runners.

    Raises ZooError if its log cannot be read.
    """
    folder = RunFolder.at(path)
    config, args = (folder.read_yaml(f"{name}.yml") for name in ("config", "args"))
    try:
        frame = read_frame(path / PROGRESS)
        runners = runners_in(frame)
    except (OSError, ValueError) as error:
        raise ZooError(f"{path / PROGRESS} cannot be read: {error}.") from error
    columns = {name: column[np.isfinite(column)] for name, column in numbers_in(frame).items()}
    newest = {name: float(column[-1]) for name, column in columns.items() if len(column)}

    def group(name: str) -> dict[str, float]:
        return {key.removeprefix(name): value for key, value in newest.items() if key.startswith(name)}

    clock = group("time/")
    wanted = in_force(config, args).get("n_timesteps")
    parts = ("env", "inference", "copy", "sample", "update", "other")
    return {
        "run": str(path),
        "algo": str(args.get("algo") or path.parent.name),
        "env": str(args.get("env") or folder.env_id),
        "state": folder.state.name,
        "description": folder.state.description,
        "steps": int(clock.get("total_timesteps", 0)),
        "of_steps": int(wanted) if isinstance(wanted, int | float) and wanted > 0 else None,
        "steps_per_second": clock.get("fps"),
        "return": newest.get("rollout/ep_rew_mean"),
        "updates": newest.get("train/n_updates"),
        "time": {part: clock[part] for part in parts if part in clock},
        "cluster": group("cluster/"),
        "runners": runners,
    }


def lines_of(found: dict[str, Any]) -> list[str]:
    """Write a status as lines of text."""
    of, cluster = found["of_steps"], found["cluster"]
    share = f" of {of:,} ({found['steps'] / of:.0%})" if of else ""
    lines = [
        f"{found['run']}: {found['algo'].upper()} on {found['env']} {found['description']}",
        f"  steps     {found['steps']:,}{share}, {number(found['steps_per_second'])} a second",
        f"  return    {number(found['return'])}, the mean of the last episodes",
        f"  updates   {number(found['updates'])}",
    ]
    if found["time"]:
        lines.append("  time      " + ", ".join(f"{part} {share:.0f} %" for part, share in found["time"].items()))
    for name, value in cluster.items():
        lines.append(f"  {name.replace('_', ' '):<25}{number(value)}")
    if found["runners"]:
        rows = [runner_row(runner) for runner in found["runners"]]
        table = [list(rows[0]), *(list(row.values()) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines += ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    return lines
