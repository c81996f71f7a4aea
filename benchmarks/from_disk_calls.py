"""What ``from_disk.py`` measures, in a fresh process; and its sets."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

EPISODE = 1000


def make_set(folder: Path, rows: int, width: int) -> Path:
    """A set whose arrays are files while it is made."""
    import gymnasium as gym
    import numpy as np

    from polyak.data import Dataset

    folder.mkdir()
    rng = np.random.default_rng(0)
    last = np.arange(1, rows + 1) % EPISODE == 0
    last[-1] = True
    shape = (rows + int(last.sum()), width)
    observations = np.lib.format.open_memmap(folder / "observations.npy", "w+", np.float32, shape)
    for start in range(0, len(observations), 10_000):
        part = observations[start : start + 10_000]
        part[:] = rng.random(part.shape, np.float32)
    dataset = Dataset(
        observations,
        rng.uniform(-1, 1, (rows, 2)).astype(np.float32),
        rng.random(rows, np.float32),
        np.zeros(rows, bool),
        last,
        action_space=gym.spaces.Box(-1, 1, (2,), np.float32),
    )
    saved = dataset.save(folder / "set.npz")
    (folder / "observations.npy").unlink()
    return saved


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Updates a second on the large set, once all else is loaded and compiled."""
    import gc
    import resource

    from polyak import TD3BC
    from polyak.data import Dataset

    def learner(path: str, **options: Any) -> Any:
        networks = {"net_arch": [256, 256]}
        data = Dataset.load(path, **options)
        return TD3BC("MlpPolicy", data, policy_kwargs=networks, device="cpu", compile=True, seed=0)

    learner(job["small"]).learn(20)
    gc.collect()
    if job["limit"] is not None:
        status = Path("/proc/self/status").read_text()
        used = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))
        resource.setrlimit(resource.RLIMIT_DATA, (used + job["limit"], used + job["limit"]))
        try:
            Dataset.load(job["large"], in_memory=True)
        except MemoryError:
            pass
        else:
            raise RuntimeError("the limit does not limit")
    options = {"in_memory": True} if job["limit"] is None else {}
    model = learner(job["large"], **options)
    assert model.data_buffer._on_disk == (job["limit"] is not None)
    model.learn(20)
    began = time.perf_counter()
    model.learn(job["updates"])
    return {"updates_per_s": job["updates"] / (time.perf_counter() - began)}
