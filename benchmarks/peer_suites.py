"""The peers' own test suites, run with polyak in the peers' place.

    python benchmarks/peer_suites.py                       # both; goes on where it was stopped
    python benchmarks/peer_suites.py --suites contrib --timeout 300

The tests of each release come from its source distribution, unchanged; ``polyak run -m pytest`` answers the imports. A
file of tests is a process of its own. What fails is named in the report, so that nobody has to guess.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from command_line import add_choice, add_out, at_least
from processes import PEERS, VENVS
from reports import kept, write

SUITES = {"sb3": "stable-baselines3", "contrib": "sb3-contrib"}
"""Suite -> distribution; which version is pinned in :mod:`processes`."""
OUTCOMES = ("passed", "failed", "skipped")


def pinned(suite: str) -> str:
    """A requirement, such as ``sb3-contrib==2.9.2``."""
    return next(pin for pin in PEERS[suite] if pin.startswith(f"{SUITES[suite]}=="))


def tests_of(suite: str) -> Path:
    """The folder of a suite's tests, fetched at first."""
    folder = VENVS / "suites" / pinned(suite)
    if not folder.exists():
        fetched = folder.with_suffix(".partial")
        fetched.mkdir(parents=True, exist_ok=True)
        fetch = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:", "-d", str(fetched)]
        subprocess.run([*fetch, pinned(suite)], check=True)
        [archive] = fetched.glob("*.tar.gz")
        with tarfile.open(archive) as source:
            source.extractall(fetched, filter="data")
        fetched.rename(folder)
    [tests] = folder.glob("*/tests")
    return tests


def run(file: Path, timeout: int) -> dict[str, str]:
    """Test -> outcome of one file; of one that does not end in time, or does not begin, only its own."""
    report = file.with_suffix(".xml")
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "polyak", "run", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    try:
        subprocess.run(
            [*command, f"--junit-xml={report}", f"tests/{file.name}"],
            cwd=file.parents[1],
            timeout=timeout,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return {file.stem: f"failed: no end after {timeout} s"}
    if not report.exists():
        return {file.stem: "failed: did not begin"}
    return {case.get("name", "?"): outcome(case) for case in ElementTree.parse(report).iter("testcase")}


def outcome(case: ElementTree.Element) -> str:
    """``passed``, ``skipped``, or ``failed`` with the first line of the reason."""
    for bad in ("failure", "error"):
        if (found := case.find(bad)) is not None:
            return "failed: " + (found.get("message") or bad).partition("\n")[0][:200]
    return "skipped" if case.find("skipped") is not None else "passed"


def counted(files: dict[str, dict[str, str]]) -> dict[str, int]:
    """How many tests have each outcome."""
    found = [outcome.partition(":")[0] for tests in files.values() for outcome in tests.values()]
    return {name: found.count(name) for name in OUTCOMES}


def markdown(results: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    yield "# The peers' own tests"
    yield ""
    yield "Unchanged, from the source distributions, with polyak in the peers' place: `benchmarks/peer_suites.py`."
    yield ""
    yield f"| suite | {' | '.join(OUTCOMES)} |"
    yield "|---|" + "---:|" * len(OUTCOMES)
    for suite, files in results.items():
        yield f"| {suite} | {' | '.join(str(count) for count in counted(files).values())} |"
    for suite, files in results.items():
        failed = [
            f"- `{file}::{test}`: {how.partition(': ')[2]}"
            for file, tests in files.items()
            for test, how in tests.items()
            if how.startswith("failed")
        ]
        if failed:
            yield from ("", f"## What fails of {suite}", "", *failed)


def main() -> int:
    parser = argparse.ArgumentParser(description="The peers' own test suites over polyak.")
    add_choice(parser, "--suites", list(SUITES))
    parser.add_argument("--timeout", type=at_least(1), default=1800, help="seconds of one file (default 1800)")
    add_out(parser, "peer_suites")
    args = parser.parse_args()
    results = kept(args.out)
    for suite in args.suites:
        files = results.setdefault(pinned(suite), {})
        for file in sorted(tests_of(suite).glob("test_*.py")):
            if file.name not in files:
                files[file.name] = run(file, args.timeout)
                print(f"{suite} {file.name}: {counted({file.name: files[file.name]})}", flush=True)
                write(results, markdown(results), args.out)
    print("\n".join(markdown(results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
