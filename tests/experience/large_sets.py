"""Sets that are larger than the memory, and processes whose memory is small. Benchmarks use them, too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gymnasium import spaces

from polyak.experience import Dataset

EPISODE = 1000


def large_set(folder: Path, rows: int, width: int) -> Path:
    """A set whose observations are a file while it is made, saved into a new folder. Rewards number the rows."""
    folder.mkdir()
    numbers = np.arange(1, rows + 1)
    ends = (numbers % EPISODE == 0) | (numbers == rows)
    terminations = ends & (numbers % (2 * EPISODE) == 0)
    shape = (rows + int(ends.sum()), width)
    observations = np.lib.format.open_memmap(folder / "observations.npy", "w+", np.float32, shape)
    rng = np.random.default_rng(0)
    for start in range(0, len(observations), 10_000):
        part = observations[start : start + 10_000]
        part[:] = rng.random(part.shape, np.float32)
    dataset = Dataset(
        observations,
        rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        np.arange(rows, dtype=np.float32),
        terminations,
        ends & ~terminations,
        action_space=spaces.Box(-1, 1, (2,), np.float32),
    )
    saved = dataset.save(folder / "large.npz")
    (folder / "observations.npy").unlink()
    return saved


def confine(headroom: int, path: str) -> None:
    """Let this process hold so many bytes more than it does now, on Linux. A set does not fit in there."""
    import resource

    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))
    resource.setrlimit(resource.RLIMIT_DATA, (used + headroom, used + headroom))
    try:
        Dataset.load(path, in_memory=True)
    except MemoryError:
        return
    raise RuntimeError("the limit does not limit")
