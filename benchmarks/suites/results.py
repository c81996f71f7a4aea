"""The result of a run of the benchmark: ``benchmark.json`` in its run folder, written last and at once."""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.suites.suites import Row
from polyak.envs.reading import plain_json
from polyak.writing import replacing
from polyak.zoo.errors import ZooError
from polyak.zoo.links import check_file

FILE = "benchmark.json"
_LARGEST = 1e300
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("algo", "env", "finished", "device", "machine"), str),
    **dict.fromkeys(("n_timesteps", "seed", "threads"), int),
    **dict.fromkeys(("train_seconds", "cpu_seconds"), int | float),
    **dict.fromkeys(("returns", "lengths"), list),
    **dict.fromkeys(("settings", "versions"), dict),
    "deterministic": bool,
}
PACKAGES = ("polyak", "torch", "gymnasium", "numpy")


@dataclass(frozen=True)
class Result:
    """One run: trained, then evaluated in new episodes.

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
        check_file(path, logs)
        try:
            found.append(_result(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise ZooError(f"{path} is no result of a benchmark: {error}. Delete its folder.") from error
    return sorted(found, key=lambda result: result.finished)


def _result(text: bytes) -> Result:
    """ValueError or TypeError, which name the entry, if it is not laid out as `Result` is."""
    values = plain_json.parse_object(text, "it")
    result = Result(**values)
    for name, kinds in _KINDS.items():
        if not isinstance(values[name], kinds) or (isinstance(values[name], bool) and kinds is not bool):
            raise ValueError(f"its {name} is {values[name]!r:.80}")
    numbers = [*result.returns, *result.lengths, result.train_seconds, result.cpu_seconds]
    if not all(isinstance(number, int | float) and abs(number) < _LARGEST for number in numbers) or not result.returns:
        raise ValueError("its returns, lengths and seconds are not all finite numbers")
    return result


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
