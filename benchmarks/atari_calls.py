"""What is measured of Rainbow on an Atari game: frames a second, and what its memory of pictures takes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

FRAMES_PER_STEP = 4
NOTED_EVERY = 100
"""Steps between two looks at the memory."""


def resident(large: int) -> tuple[int, int]:
    """Bytes of main memory that this process holds now: in blocks of at least ``large`` bytes, and in all others
    (Linux only)."""
    held, size = [0, 0], 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            begin, end = (int(address, 16) for address in name.split("-"))
            size = end - begin
        elif name == "Rss:":
            held[size < large] += int(rest.split()[0]) * 1024
    return held[0], held[1]


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Learn for ``steps`` steps, in two parts of which the second, three fifths, is measured.

    The memory of pictures is one large block, whose pages come into being as it is filled: the slope of a line through
    all steps says what a transition takes. What the process holds besides goes up and down by a hundred megabytes; its
    largest size counts, of either half of the measured part, so that one sees whether it grows.
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
    held: list[tuple[int, int, int]] = []
    large = model.replay_buffer.storage.nbytes // 2

    def note(at: dict[str, Any], _: dict[str, Any]) -> bool:
        if len(held) * NOTED_EVERY <= at["self"].num_timesteps - steps:
            held.append((at["self"].num_timesteps, *resident(large)))
        return True

    model.learn(job["steps"] - steps, note, reset_num_timesteps=False)
    seconds, steps = time.perf_counter() - began, model.num_timesteps - steps
    at, pictures, besides = np.array(held, float).T
    slope = np.polyfit(at, pictures, 1)[0]
    halves = [half.max() for half in np.array_split(besides, 2)]
    return {
        "frames": model.num_timesteps * FRAMES_PER_STEP,
        "frames_per_s": steps * FRAMES_PER_STEP / seconds,
        "updates_per_s": (model._n_updates - updates) / seconds,
        "bytes_per_row": slope,
        "besides_bytes": halves,
        "full_bytes": max(halves) + max(slope * job["rows"], model.replay_buffer.storage.nbytes),
        "arithmetic_bytes": model.replay_buffer.storage.nbytes,
        "rows": job["rows"],
        "returns": [float(episode["r"]) for episode in model.ep_info_buffer],
    }
