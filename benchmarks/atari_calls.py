"""What is measured of Rainbow on an Atari game: frames a second, and what its memory of pictures takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

FRAMES_PER_STEP = 4


def resident() -> int:
    """Bytes of main memory that this process holds now (Linux only)."""
    import os

    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Learn for ``steps`` steps, in two parts of which the second, three fifths, is measured.

    By then all that a training needs besides its memory of pictures is there, so that the growth of the process is the
    memory's, page by page as it is filled. What the process takes and gives back on the way goes up and down by tens of
    megabytes: the growth is the slope of a line through all steps.
    """
    import ale_py
    import gymnasium
    import numpy as np

    from polyak import Rainbow
    from polyak.envs import VecFrameStack, make_atari_env

    gymnasium.register_envs(ale_py)
    env = make_atari_env(job["env"], n_envs=job["n_envs"], seed=job["seed"], env_kwargs={"frameskip": 1})
    model = Rainbow(
        "CnnPolicy",
        VecFrameStack(env, n_stack=4),
        buffer_size=job["rows"],
        optimize_memory_usage=True,
        learning_starts=job["steps"] // 10,
        train_freq=1,
        gradient_steps=max(job["n_envs"] // 4, 1),  # one update for four steps, as in the paper
        seed=job["seed"],
        device="cpu",
        compile=True,
    )
    model.learn(job["steps"] * 2 // 5)
    steps, updates, began = model.num_timesteps, model._n_updates, time.perf_counter()
    held: list[tuple[int, int]] = []

    def note(at: dict[str, Any], _: dict[str, Any]) -> bool:
        held.append((at["self"].num_timesteps, resident()))
        return True

    model.learn(job["steps"] - steps, note, reset_num_timesteps=False)
    seconds, steps = time.perf_counter() - began, model.num_timesteps - steps
    slope, base = np.polyfit(*np.array(held, float).T, 1)
    return {
        "frames": model.num_timesteps * FRAMES_PER_STEP,
        "frames_per_s": steps * FRAMES_PER_STEP / seconds,
        "updates_per_s": (model._n_updates - updates) / seconds,
        "bytes_per_row": slope,
        "full_bytes": base + slope * job["rows"],
        "arithmetic_bytes": model.replay_buffer.storage.nbytes,
        "rows": job["rows"],
        "returns": [float(episode["r"]) for episode in model.ep_info_buffer],
    }
