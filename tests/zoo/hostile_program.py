"""Runs many command lines one after the other, and says of each what it did: see `test_hostile_settings`.

Reads ``[[word, ...], ...]`` as JSON from the file that it is given, and writes to the second one what each command did:
its exit status, what it wrote to stderr, the seconds of processor time that it took, and the bytes by which the peak of
memory rose. The third argument is the canary's file.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from polyak.zoo.cli import main


def run(words: list[str]) -> dict[str, Any]:
    """Run one command in this process."""
    out, err = io.StringIO(), io.StringIO()
    status: Any = "returned"
    before, began = peak(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as stopped:
            status = stopped.code
        except BaseException:
            err.write(traceback.format_exc())
            status = "raised"
    return {"status": status, "err": err.getvalue(), "seconds": time.process_time() - began, "grown": peak() - before}


def peak() -> int:
    """Largest memory of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def watch_programs(canary: Path) -> None:
    """Write to the canary's file at once when a program is started that would touch it: it may take its time."""
    start = subprocess.Popen.__init__

    def watched(self: Any, *args: Any, **kwargs: Any) -> None:
        if str(canary) in f"{args} {kwargs}":
            canary.write_text(f"{args} {kwargs}")
        start(self, *args, **kwargs)

    subprocess.Popen.__init__ = watched  # type: ignore[method-assign]


if __name__ == "__main__":
    tasks, results, canary = map(Path, sys.argv[1:])
    commands = json.loads(tasks.read_text())
    run(commands[0])  # what is imported once is no fault of the first case
    watch_programs(canary)
    results.write_text(json.dumps([run(words) for words in commands]))
