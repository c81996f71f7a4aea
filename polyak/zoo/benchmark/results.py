"""What a run of the benchmark leaves: ``benchmark.json`` in its run folder, written last and at once."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from polyak.core.files.archive import replacing
from polyak.zoo.benchmark.suites import Row
from polyak.zoo.errors import ZooError

FILE = "benchmark.json"
PACKAGES = ("polyak", "torch", "gymnasium", "numpy")


@dataclass(frozen=True)
class Result:
    """One run: trained, then measured in episodes that it has not seen.

    Fields: ``settings`` as `as_stored` gives them; ``returns`` and ``lengths`` of the episodes, ``deterministic`` how
    they were played; ``train_seconds`` and ``cpu_seconds`` of the training alone, on the clock and of the processor;
    ``finished`` an ISO date.
    """

    algo: str
    env: str
    n_timesteps: int
    seed: int
    settings: dict[str, Any]
    returns: list[float]
    lengths: list[int]
    deterministic: bool
    train_seconds: float
    cpu_seconds: float
    finished: str
    device: str
    threads: int
    machine: str
    versions: dict[str, str]

    @property
    def row(self) -> Row:
        """The line of the table that it counts for."""
        return Row(self.algo, self.env, self.n_timesteps)

    def write(self, folder: Path) -> None:
        """Write it into the run's folder; the file appears only when it is complete."""
        with replacing(folder / FILE) as file:
            file.write(json.dumps(asdict(self), indent=1).encode())


def find_results(logs: Path) -> list[Result]:
    """Return the results of all runs under `logs`, oldest first; ZooError naming a file that is none."""
    found = []
    for path in logs.glob(f"*/*/{FILE}"):
        try:
            found.append(Result(**json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, TypeError) as error:
            raise ZooError(f"{path} is no result of polyak benchmark: {error}. Delete its folder.") from error
    return sorted(found, key=lambda result: result.finished)


def machine() -> str:
    """Say what computes here: processor, cores, system."""
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that matter."""
    return {"Python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
