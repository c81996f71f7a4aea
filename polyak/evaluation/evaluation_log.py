"""``evaluations.npz`` of a resumed training: earlier results are kept and continued."""

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polyak.archive import DAMAGED, check_members

BEST = "best"
"""Entry of the file: the best mean return, if it belongs to no evaluation in the file."""


class Evaluations(NamedTuple):
    """n evaluations, the earliest first."""

    timesteps: list[int]
    results: list[list[float]]
    """Returns of the episodes, [n, episodes]."""
    lengths: list[list[int]]
    """Lengths of the episodes, [n, episodes]."""
    successes: list[list[bool]]
    """Success of the episodes, [n, episodes]; empty if it is unknown for some."""
    best: float
    """Best mean return, including omitted evaluations; -inf without any."""

    def until(self, timesteps: int) -> "Evaluations":
        """Returns the evaluations up to an environment step: training that resumes there repeats the later ones."""
        kept = [i for i, step in enumerate(self.timesteps) if step <= timesteps]
        return Evaluations(
            [self.timesteps[i] for i in kept],
            [self.results[i] for i in kept],
            [self.lengths[i] for i in kept],
            [self.successes[i] for i in kept] if self.successes else [],
            self.best,
        )

    def arrays(self) -> dict[str, Any]:
        """Returns the arrays of the file, by name."""
        arrays: dict[str, Any] = {"timesteps": self.timesteps, "results": self.results, "ep_lengths": self.lengths}
        if self.successes and len(self.successes) == len(self.timesteps):
            arrays["successes"] = self.successes
        if self.best > max(map(np.mean, self.results), default=-np.inf):
            arrays[BEST] = self.best
        return arrays


def read_evaluations(path: Path) -> Evaluations:
    """Reads the file at ``path``, without unpickling.

    Raises:
        ValueError: the file is damaged, or not of this kind.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_members(archive, str(path))
        with np.load(path, allow_pickle=False) as data:
            return _evaluations({name: data[name] for name in data.files})
    except (*DAMAGED, KeyError, TypeError, ValueError, MemoryError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(
            f"{str(path)!r} cannot be continued ({reason}). Move it away, or give another log_path."
        ) from error


def _evaluations(arrays: dict[str, np.ndarray]) -> Evaluations:
    steps = np.asarray(arrays["timesteps"]).astype(np.int64)
    results, lengths = arrays["results"].astype(np.float64), arrays["ep_lengths"].astype(np.int64)
    successes = arrays.get("successes", np.zeros((0, 0))).astype(bool)
    if steps.ndim != 1 or results.ndim != 2 or results.shape != lengths.shape or len(results) != len(steps):
        raise ValueError(f"timesteps {steps.shape}, results {results.shape} and ep_lengths {lengths.shape} do not fit")
    known = successes.tolist() if successes.shape == results.shape else []
    best = float(np.max([*results.mean(1), float(arrays.get(BEST, -np.inf))])) if results.size else -np.inf
    return Evaluations(steps.tolist(), results.tolist(), lengths.tolist(), known, best)
