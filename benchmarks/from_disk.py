"""Speed of learning from a set that is larger than the memory, beside the same set in memory.

    python benchmarks/from_disk.py                                          # some minutes, 2 GB of disk for a while
    python benchmarks/from_disk.py --rows 1000000 --updates 50 --repeats 1  # does it run?

TD3+BC, minibatches of 256, two hidden layers of 256 units. The process that reads from the disk may hold but a fifth of
the set beyond what it held before (its data segment is limited, as by ``ulimit -d``; Linux only); that it cannot read
the set at once is checked. The operating system may keep what it read of the file as long as it likes. Every run is a
fresh process, in turn; figures are medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from command_line import add_out, add_repeats, at_least
from processes import run_worker, stop_workers_with_me
from reports import machine, versions_line, write

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

SMALLER = 5
WAYS = ("memory", "disk")


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    where = report["machine"]
    speed = {
        way: statistics.median(run["updates_per_s"] for run in report["runs"] if run["way"] == way) for way in WAYS
    }
    yield "# Learning from a set larger than the memory"
    yield ""
    yield (
        f"TD3+BC, minibatches of 256, one thread, a set of {report['mib']:,.0f} MiB ({report['rows']:,} rows of "
        f"{report['width']} numbers), from the disk with a fifth of that as memory, {where['cpus']} CPU cores "
        f"({where['processor']}), medians of {report['repeats']} fresh processes."
    )
    yield ""
    yield "| updates a second in memory | from the disk | ratio |"
    yield "|---:|---:|---:|"
    yield f"| {speed['memory']:,.0f} | {speed['disk']:,.0f} | {speed['disk'] / speed['memory']:.2f} |"
    yield ""
    yield versions_line({"polyak": report["runs"][0]["versions"]})


def main() -> int:
    from tests.experience.large_sets import large_set

    parser = argparse.ArgumentParser(description="Speed of learning from a set that is larger than the memory.")
    add = parser.add_argument
    add("--rows", type=at_least(1000), default=2_000_000, help="transitions")
    add("--width", type=at_least(1), default=128, help="numbers in an observation")
    add("--updates", type=at_least(1), default=3000, help="gradient steps of each run")
    add_repeats(parser, 3, "runs of each way")
    add_out(parser, "from_disk")
    args = parser.parse_args()
    stop_workers_with_me()
    asked = {name: getattr(args, name) for name in ("rows", "width", "updates", "repeats")}
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        small, large = (
            large_set(Path(folder, name), rows, args.width) for name, rows in (("small", 4000), ("large", args.rows))
        )
        size = large.stat().st_size
        job = {"measure": "from_disk", "small": str(small), "large": str(large), "updates": args.updates}
        for _ in range(args.repeats):
            for way in WAYS:
                limit = size // SMALLER if way == "disk" else None
                runs.append({"way": way, **run_worker("polyak", {**job, "limit": limit}, 1)})
                print(f"{way}: {runs[-1]['updates_per_s']:.0f} updates/s", flush=True)
    report = {"machine": machine(), **asked, "mib": size / 2**20, "runs": runs}
    print(write(report, markdown(report), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
