"""Speed of Q-learning with a table on Taxi: environment steps per second, beside the plain Python loop.

    python benchmarks/tabular.py                     # a minute
    python benchmarks/tabular.py --steps 20000 --repeats 1   # does it run?

Every repeat is a fresh process of each contender in turn. ``polyak`` is ``QLearning(...).learn(steps)``, compiled by
numba (``polyak[fast]``); its first call, which compiles or loads what an earlier process has compiled, is timed apart.
All contenders learn with step size 0.5, epsilon 0.1 and random choices among equally good actions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from command_line import add_out, add_repeats, at_least
from reports import machine, versions_line, write

ENV, ALPHA, EPSILON, GAMMA = "Taxi-v4", 0.5, 0.1, 0.99
TITLES = {
    "plain": "plain Python loop, Gymnasium's environment",
    "interpreted": "polyak without numba",
    "watched": "polyak, compiled, a callback at every step",
    "polyak": "polyak, compiled",
}
SLOWER = {"plain": 10, "interpreted": 10, "watched": 10}
"""Contenders that make fewer steps by this factor; steps per second do not depend on how many there are."""


# -- the peer ----------------------------------------------------------------------------------------------------------


def plain_q_learning(steps: int) -> float:
    """Q-learning as one writes it down; mean return of the last 100 episodes."""
    import gymnasium as gym
    import numpy as np

    env = gym.make(ENV)
    rng = np.random.default_rng(0)
    q = np.zeros((env.observation_space.n, env.action_space.n))  # type: ignore[attr-defined]
    state, _ = env.reset(seed=0)
    returns, total = [], 0.0
    for _ in range(steps):
        if rng.random() < EPSILON:
            action = int(rng.integers(q.shape[1]))
        else:
            best = np.flatnonzero(q[state] == q[state].max())
            action = int(best[rng.integers(len(best))])
        successor, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        ahead = 0.0 if terminated else q[successor].max()
        q[state, action] += ALPHA * (float(reward) + GAMMA * ahead - q[state, action])
        state = successor
        if terminated or truncated:
            returns.append(total)
            total = 0.0
            state, _ = env.reset()
    return statistics.mean(returns[-100:])


# -- one run -----------------------------------------------------------------------------------------------------------


def run_plain(steps: int) -> dict[str, float]:
    """Time the plain loop."""
    started = time.perf_counter()
    last = plain_q_learning(steps)
    return {"seconds": time.perf_counter() - started, "first_s": 0.0, "return": last}


def run_polyak(contender: str, steps: int) -> dict[str, float]:
    """Time ``learn``, once what is to be compiled has been."""
    from polyak import QLearning
    from polyak.callbacks.callback import BaseCallback

    class Watching(BaseCallback):
        """Sees every step and does nothing."""

        def _on_step(self) -> bool:
            return True

    def model() -> Any:
        return QLearning(ENV, ALPHA, epsilon=EPSILON, gamma=GAMMA, seed=0, compile=contender != "interpreted")

    started = time.perf_counter()
    model().learn(100)
    first = time.perf_counter() - started
    learner = model()
    callback = Watching() if contender == "watched" else None
    started = time.perf_counter()
    learner.learn(steps, callback=callback)
    seconds = time.perf_counter() - started
    last = statistics.mean(episode["r"] for episode in learner.ep_info_buffer)
    return {"seconds": seconds, "first_s": first, "return": last}


def run_one(contender: str, steps: int) -> dict[str, Any]:
    """One contender in this process."""
    from importlib import metadata

    steps //= SLOWER.get(contender, 1)
    run: Callable[[], dict[str, float]]
    run = (lambda: run_plain(steps)) if contender == "plain" else (lambda: run_polyak(contender, steps))
    result = run()
    packages = ("gymnasium", "numpy", "numba", "polyak")
    versions = {name: metadata.version(name) for name in packages if _installed(name)}
    return {**result, "steps_per_s": steps / result["seconds"], "versions": versions, "load": os.getloadavg()[0]}


def _installed(package: str) -> bool:
    from importlib import metadata

    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


# -- all of them -------------------------------------------------------------------------------------------------------


def run_all(contenders: list[str], steps: int, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Contender -> one result per repeat, the contenders in turn."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in contenders}
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for repeat in range(repeats):
        for name in contenders:
            command = [sys.executable, str(Path(__file__)), "--one", name, "--steps", str(steps)]
            ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if ended.returncode:
                raise SystemExit(f"{name} failed:\n{ended.stderr}")
            result = json.loads(ended.stdout.splitlines()[-1])
            runs[name].append(result)
            speed = f"{result['steps_per_s']:,.0f} steps/s"
            print(f"{name:12} {repeat + 1}/{repeats}: {speed} | load {result['load']:.2f}", flush=True)
    return runs


def markdown(report: dict[str, Any]) -> Iterator[str]:
    """The report's lines."""
    where, runs = report["machine"], report["runs"]
    medians = {name: statistics.median(run["steps_per_s"] for run in results) for name, results in runs.items()}
    loads = [run["load"] for results in runs.values() for run in results]
    yield "# Q-learning with a table on Taxi"
    yield ""
    yield (
        f"Environment steps per second, learning included; one core of {where['processor']}, medians of "
        f"{report['repeats']} fresh processes, up to {report['steps']:,} steps. Load average {min(loads):.1f} to "
        f"{max(loads):.1f}."
    )
    yield ""
    yield "| | steps/s | beside the plain loop | first call | return of the last 100 episodes |"
    yield "|---|---:|---:|---:|---:|"
    for name, title in TITLES.items():
        if name not in runs:
            continue
        ratio = f"{medians[name] / medians['plain']:.1f}x" if "plain" in medians else "-"
        first = statistics.median(run["first_s"] for run in runs[name])
        last = statistics.mean(run["return"] for run in runs[name])
        yield f"| {title} | {medians[name]:,.0f} | {ratio} | {first:.1f} s | {last:.1f} |"
    yield ""
    yield versions_line({"all": next(iter(runs.values()))[0]["versions"]})


def main() -> int:
    parser = argparse.ArgumentParser(description="Speed of tabular Q-learning beside a plain Python loop.")
    parser.add_argument("--steps", type=at_least(1000), default=1_000_000, help="environment steps of the fastest")
    add_repeats(parser, 3, "processes per contender")
    parser.add_argument("--one", choices=list(TITLES), help=argparse.SUPPRESS)
    add_out(parser, "tabular")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run_one(args.one, args.steps)))
        return 0
    contenders = [name for name in TITLES if _installed("numba") or name in ("plain", "interpreted")]
    if len(contenders) < len(TITLES):
        print("numba is not installed (pip install 'polyak[fast]'): the compiled loop is left out.")
    runs = run_all(contenders, args.steps, args.repeats)
    report = {"machine": machine(), "steps": args.steps, "repeats": args.repeats, "runs": runs}
    print(write(report, markdown(report), args.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
