"""What ``from_disk.py`` measures, in a fresh process."""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Updates a second on the large set, once all else is loaded and compiled."""
    from polyak import TD3BC
    from polyak.experience import Dataset
    from tests.experience.large_sets import confine

    def learner(path: str, **options: Any) -> Any:
        networks = {"net_arch": [256, 256]}
        data = Dataset.load(path, **options)
        return TD3BC("MlpPolicy", data, policy_kwargs=networks, device="cpu", compile=True, seed=0)

    learner(job["small"]).learn(20)
    gc.collect()
    if job["limit"] is not None:
        confine(job["limit"], job["large"])
    options = {"in_memory": True} if job["limit"] is None else {}
    model = learner(job["large"], **options)
    assert model.data_buffer._on_disk == (job["limit"] is not None)
    model.learn(20)
    began = time.perf_counter()
    model.learn(job["updates"])
    return {"updates_per_s": job["updates"] / (time.perf_counter() - began)}
