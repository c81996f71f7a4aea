"""Speed of one action: an exported policy in onnxruntime beside ``predict`` of the model that it came from.

    python benchmarks/exported.py                   # half a minute
    python benchmarks/exported.py --calls 20 --repeats 1   # does it run?

One observation at a time, on one thread. The contenders act by turns in one process; a figure is the median over
repeats of the mean over calls. Networks are untrained, since their numbers do not matter here.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime
import torch
from command_line import add_out, add_repeats, at_least
from gymnasium import spaces
from reports import machine, versions_line, write

from polyak import DQN, PPO, SAC, RecurrentPPO


class Still(gym.Env[Any, Any]):
    """An environment that is only looked at."""

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Space) -> None:
        self.observation_space, self.action_space = observation_space, action_space


IMAGES = spaces.Box(0, 255, (4, 84, 84), np.uint8)
CHEETAH = Still(spaces.Box(-np.inf, np.inf, (17,), np.float64), spaces.Box(-1.0, 1.0, (6,), np.float32))
MODELS: dict[str, Callable[[], Any]] = {
    "PPO, 64 x 64, CartPole": lambda: PPO("MlpPolicy", "CartPole-v1", device="cpu"),
    "SAC, 256 x 256, HalfCheetah's spaces": lambda: SAC("MlpPolicy", CHEETAH, buffer_size=1, device="cpu"),
    "RecurrentPPO, LSTM of 256, CartPole": lambda: RecurrentPPO("MlpPolicy", "CartPole-v1", device="cpu"),
    "DQN, Nature CNN, Atari's spaces": lambda: DQN(
        "CnnPolicy", Still(IMAGES, spaces.Discrete(6)), buffer_size=1, device="cpu"
    ),
}


def microseconds(act: Callable[[], Any], calls: int) -> float:
    """Mean time of a call."""
    started = time.perf_counter()
    for _ in range(calls):
        act()
    return (time.perf_counter() - started) / calls * 1e6


def measure(title: str, calls: int, repeats: int, folder: Path) -> dict[str, Any]:
    """One row: both contenders, and the size of the file."""
    model = MODELS[title]()
    path = folder / "policy.onnx"
    described = model.export(path, masks=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feed = {port["name"]: np.zeros((1, *port["shape"][1:]), port["dtype"]) for port in described["inputs"]}
    seen = feed["observation"][0]
    contenders = {
        "predict": lambda: model.predict(seen, deterministic=True),
        "onnxruntime": lambda: session.run(None, feed),
    }
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for act in contenders.values():
        microseconds(act, max(1, calls // 10))
    for _ in range(repeats):
        for name, act in contenders.items():
            times[name].append(microseconds(act, calls))
    return {"row": title, "bytes": path.stat().st_size, **{k: statistics.median(v) for k, v in times.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=at_least(1), default=1000, help="actions of a repeat (default 1000)")
    add_repeats(parser, 7, "turns of each contender")
    add_out(parser, "exported")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(title, options.calls, options.repeats, Path(folder)) for title in MODELS]
    lines = ["| one observation, microseconds | predict | onnxruntime | file, kB |", "|---|---|---|---|"]
    for row in rows:
        figures = f"{row['predict']:.1f} | {row['onnxruntime']:.1f} | {row['bytes'] / 1000:.0f}"
        lines.append(f"| {row['row']} | {figures} |")
    packages = {module.__name__: module.__version__ for module in (torch, onnx, onnxruntime)}
    lines += ["", versions_line({"polyak": packages})]
    print(write({"machine": machine(), "rows": rows, "versions": packages}, lines, options.out))


if __name__ == "__main__":
    main()
