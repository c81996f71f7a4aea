"""What `replay.py` times, in a worker's process: the same buffers, filled alike, of polyak or Stable-Baselines3."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

BATCH, FRAMES, GAMMA, MANY = 256, 32, 0.99, 64
OBSERVATIONS, ACTIONS = spaces.Box(-np.inf, np.inf, (17,), np.float64), spaces.Box(-1, 1, (6,), np.float32)
PICTURES, BUTTONS = spaces.Box(0, 255, (4, 84, 84), np.uint8), spaces.Discrete(4)


def microseconds(call: Callable[[], Any], budget_s: float) -> float:
    """The shortest time of one call, over bursts of about two milliseconds for ``budget_s`` seconds."""
    start = time.perf_counter()
    call()
    call()
    burst = max(1, int(2e-3 / (time.perf_counter() - start) * 2))
    best, deadline = float("inf"), time.perf_counter() + budget_s
    while time.perf_counter() < deadline:
        start = time.perf_counter()
        for _ in range(burst):
            call()
        best = min(best, (time.perf_counter() - start) / burst)
    return 1e6 * best


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """All figures that the job's library has, in microseconds."""
    ours = job["library"] == "polyak"
    buffers = import_module("polyak.experience" if ours else "stable_baselines3.common.buffers")
    np.random.seed(0)
    calls = {"add": add, "sample": sample, "frames": frames}
    if ours:
        calls["prioritized"] = prioritized
    found: dict[str, float] = {}
    for call in calls.values():
        found |= call(buffers, job, ours)
    return {"microseconds": found}


def filled(buffer: Any) -> Any:
    """The buffer with its memory written to, as full."""
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        getattr(buffer, name)[...] = 0
    buffer.full = True
    return buffer


def add(buffers: Any, job: dict[str, Any], ours: bool) -> dict[str, float]:
    """One vectorised step."""
    found = {}
    for n in (1, 8):
        buffer = filled(buffers.ReplayBuffer(job["rows"], OBSERVATIONS, ACTIONS, "cpu", n))
        step = np.zeros((n, 17)), np.zeros((n, 17)), np.zeros((n, 6), np.float32), np.zeros(n), np.zeros(n, bool)
        infos = [{"TimeLimit.truncated": False} for _ in range(n)]
        found[f"add_{n}"] = microseconds(lambda: buffer.add(*step, infos), job["budget_s"])  # noqa: B023
    return found


def sample(buffers: Any, job: dict[str, Any], ours: bool) -> dict[str, float]:
    """Rows of vectors. SB3's learner takes samples as they are, and makes its targets of them."""
    buffer = filled(buffers.ReplayBuffer(job["rows"], OBSERVATIONS, ACTIONS, "cpu"))
    found = {"sample": microseconds(lambda: buffer.sample(BATCH), job["budget_s"])}
    if ours:
        one, many = (lambda k=k: list(buffer.transitions(BATCH, GAMMA, batches=k)) for k in (1, MANY))
        found["learn"] = microseconds(one, job["budget_s"])
        found["learn_64"] = microseconds(many, job["budget_s"]) / MANY
        late = lambda: list(buffer.transitions(BATCH, GAMMA, late=True))  # noqa: E731
        found["learn_late"] = microseconds(late, job["budget_s"])
    else:
        found |= {"learn": found["sample"], "learn_64": found["sample"], "learn_late": found["sample"]}
    return found


def frames(buffers: Any, job: dict[str, Any], ours: bool) -> dict[str, float]:
    """Stacked pictures; each row continues the one before."""
    found = {}
    for key, once in (("frames", False), ("frames_once", True)):
        size = job["pictures"] if once else job["pictures"] // 3
        # SB3 refuses to store once unless time limits are left alone
        options = {"optimize_memory_usage": once, "handle_timeout_termination": not once}
        buffer = buffers.ReplayBuffer(size, PICTURES, BUTTONS, "cpu", **options)
        film = np.random.default_rng(0).integers(1, 255, (64, 84, 84), np.uint8)
        obs = np.zeros((1, 4, 84, 84), np.uint8)
        for t in range(size):
            then = np.concatenate([obs[:, 1:], film[None, None, t % 64]], axis=1)
            buffer.add(obs, then, np.array([[1]]), np.zeros(1), np.array([t % 500 == 499]), [{}])
            obs = then if t % 500 != 499 else np.zeros_like(then)
        found[key] = microseconds(lambda: buffer.sample(FRAMES), job["budget_s"])  # noqa: B023
        if once:
            take = (lambda: next(buffer.transitions(FRAMES, GAMMA))) if ours else (lambda: buffer.sample(FRAMES))  # noqa: B023
            found["frames_learn"] = microseconds(take, job["budget_s"])
    return found


def prioritized(buffers: Any, job: dict[str, Any], ours: bool) -> dict[str, float]:
    """A prioritised minibatch, and the priorities that come of it."""
    buffer = buffers.PrioritizedReplayBuffer(job["rows"], OBSERVATIONS, ACTIONS, "cpu")
    filled(buffer)
    everything = np.arange(job["rows"])
    buffer.sampler.include(everything)
    buffer.update_priorities(everything, np.random.default_rng(0).random(job["rows"]))
    errors = torch.rand(BATCH)

    def sample_and_update() -> None:
        for _, cells in buffer.transitions(BATCH, GAMMA):
            buffer.update_priorities(cells, errors)

    return {"prioritized": microseconds(sample_and_update, job["budget_s"])}
