"""What one driver does for each environment step that runners make: CPU time, and bytes that pass through it.

    python benchmarks/driver.py                              # everything, about 20 minutes on two cores
    python benchmarks/driver.py --runners 8 --algos impala   # some of it
    python benchmarks/driver.py --again                      # forget what was measured before

Runners answer at once, with steps that were made before, so that this process has as many requests, answers and rows
as a cluster would bring, and no environment takes its time. Learners "here" make no gradient step, and those
"elsewhere" answer at once; what is left is what the driver does with the data. What stands for Ray packs and unpacks
what Ray would, arrays without a copy, and takes no time besides: Ray's own, which is for each request and not for each
step, comes on top. What was measured is kept in ``benchmarks/results/driver.jsonl``, and not measured again.
"""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from time import process_time
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple
from unittest.mock import patch

import cloudpickle
import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

import polyak
from polyak.distributed import learners as group_module
from polyak.distributed import ray_workers
from polyak.distributed.learner_process import LearnerProcess, Said
from polyak.distributed.placement import Reservation
from polyak.distributed.ray_workers import Workers
from polyak.distributed.runner_process import RunnerProcess
from polyak.distributed.runners import RemoteEnvs
from polyak.envs import make_vec_env
from polyak.envs.vec.sending import packed
from polyak.learning.learner import Update

RESULTS = Path(__file__).parent / "results"
RUNNERS = (8, 32, 128)
METRICS = "loss", "approx_kl"
GIGABIT = 125e6
"""Bytes a second."""


class Rows(NamedTuple):
    """What runners bring."""

    env: Callable[[], Any]
    envs: int
    """Of each runner."""
    steps: int
    """Of each environment in a rollout."""
    policy: str
    compression: Any = None


class Frames(gym.Env[Any, Any]):
    """A stack of the four latest images, which nothing compresses to nothing: a moving square before random dots."""

    def __init__(self) -> None:
        self.observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.action_space = spaces.Discrete(4)
        self.background = np.random.default_rng(0).integers(0, 2, (84, 84)).astype(np.uint8) * 87
        self.at = 0

    def _seen(self) -> np.ndarray:
        frame = self.background.copy()
        frame[self.at % 76 : self.at % 76 + 8, 30:38] = 236
        self.frames = np.concatenate([self.frames[1:], frame[None]])
        return self.frames.copy()

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.frames = np.zeros((4, 84, 84), np.uint8)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        return self._seen(), 1.0, False, self.at % 250 == 0, {}


def atari() -> gym.Env[Any, Any]:
    """Breakout, as agents see it: four frames of 84 x 84 bytes."""
    import ale_py

    gym.register_envs(ale_py)
    made = gym.make("ALE/Breakout-v5", frameskip=1)
    return gym.wrappers.FrameStackObservation(gym.wrappers.AtariPreprocessing(made), 4)


ROWS = {
    "CartPole": Rows(lambda: gym.make("CartPole-v1"), 8, 128, "MlpPolicy"),
    "images": Rows(Frames, 4, 64, "CnnPolicy"),
    "Atari": Rows(atari, 4, 128, "CnnPolicy"),
    "Atari-lz4": Rows(atari, 4, 128, "CnnPolicy", "lz4"),
}


class Packed:
    """Something in the store, or on its way there."""

    def __init__(self, value: Any) -> None:
        self.buffers: list[Any] = []
        self.content = cloudpickle.dumps(value, protocol=5, buffer_callback=self.buffers.append)
        self.size = len(self.content) + sum(buffer.raw().nbytes for buffer in self.buffers)

    @property
    def value(self) -> Any:
        """Arrays as they are in the store."""
        return pickle.loads(self.content, buffers=self.buffers)


class Process:
    """What another process would do, at once; the time that it takes is not the driver's."""

    def __init__(self, store: Store, made: Any) -> None:
        self._store, self._made = store, made

    def __getattr__(self, method: str) -> Any:
        asked = partial(self._asked, method)
        return SimpleNamespace(
            remote=asked, options=lambda num_returns: SimpleNamespace(remote=partial(asked, apart=True))
        )

    def _asked(self, method: str, *arguments: Any, apart: bool = False) -> Any:
        store, name = self._store, type(self._made).__name__
        given = [each.packed if isinstance(each, Answer) else each for each in arguments]
        sent = [each if isinstance(each, Packed) else Packed(each) for each in given]
        store.passed[f"{name} out"] += sum(new.size for new, each in zip(sent, given, strict=True) if new is not each)
        began = process_time()
        found = getattr(self._made, method)(*(each.value for each in sent))
        if id(found) in store.packed:
            made = store.packed[id(found)][1]
        else:
            made = [Packed(one) for one in (found if apart else [found])]
            if method == "collect":
                store.packed[id(found)] = found, made
        kept = [Answer(one, f"{name} in") for one in made]  # each request has answers of its own
        store.others += process_time() - began
        return kept if apart else kept[0]


@dataclass(eq=False)
class Answer:
    """That of a process, until it is fetched."""

    packed: Packed
    way: str


class Store:
    """What stands for Ray."""

    exceptions = SimpleNamespace(RayActorError=OSError, ObjectLostError=OSError)

    def __init__(self) -> None:
        self.others = 0.0
        """CPU seconds of other processes."""
        self.passed: Counter[str] = Counter()
        """Bytes by their way."""
        self.packed: dict[int, tuple[Any, Any]] = {}

    def is_initialized(self) -> bool:
        return True

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 1e6}

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": self.available_resources()}]

    def remote(self, **_: Any) -> Any:
        return lambda cls: SimpleNamespace(remote=lambda *arguments: Process(self, cls(*arguments)))

    def put(self, value: Any) -> Packed:
        found = Packed(value)
        self.passed["put"] += found.size
        return found

    def wait(self, references: list[Any], num_returns: int, timeout: float | None) -> Any:
        return references[:num_returns], references[num_returns:]

    def get(self, answer: Answer) -> Any:
        self.passed[answer.way] += answer.packed.size
        return answer.packed.value

    def kill(self, *_: Any, **__: Any) -> None:
        """Nothing."""


class Prepared(RunnerProcess):
    """Makes steps once, for all."""

    prepared: ClassVar[dict[str, Any]] = {}

    def collect(self, *arguments: Any) -> Any:
        if not self.prepared:
            self.prepared["steps"] = super().collect(*arguments)
        return self.prepared["steps"]


class Idle(LearnerProcess):
    """Answers at once."""

    def update(self, asked: Any, *_: Any) -> Any:
        number = len(asked.batches)
        return Said([[*METRICS]] * number, np.zeros(number * len(METRICS), np.float32), [None] * number, None), None


def measured(algo: str, rows: str, runners: int, learners: str, rounds: int) -> dict[str, float]:
    """Microseconds and bytes of a step."""
    kind = ROWS[rows]
    store = Store()
    Prepared.prepared.clear()
    with patch.object(ray_workers, "ray", lambda: store), patch.object(group_module, "LearnerProcess", Idle):
        recipe = packed(lambda: make_vec_env(kind.env, n_envs=kind.envs), "env")
        stubs = Workers(Prepared, [(recipe, index, 0, False) for index in range(runners)], 600.0)
        env = RemoteEnvs(None, runners, workers=stubs, compression=kind.compression)
        of_all = kind.envs * kind.steps * runners
        options: dict[str, Any] = {"n_steps": kind.steps, "seed": 0, "device": "cpu", "compile": False}
        if algo == "ppo":
            model: Any = polyak.PPO(kind.policy, env, n_epochs=4, batch_size=of_all // 4, **options)
        else:
            model = polyak.IMPALA(kind.policy, env, asynchronous=True, queue_size=runners, **options)
        if learners == "elsewhere":
            group = group_module.LearnersElsewhere(1, 0, False, "cpu", 1, Reservation(0.0))
            group.begin(model.learner)
        else:
            model.learner.update = lambda batch: Update(dict.fromkeys(METRICS, torch.zeros(())))
        model.learn(of_all)
        steps, used, others, store.passed = model.num_timesteps, process_time(), store.others, Counter()
        model.learn(rounds * of_all, reset_num_timesteps=False)
        made = model.num_timesteps - steps
        found = {"us_per_step": 1e6 * (process_time() - used - store.others + others) / made}
        env.close()
    into = store.passed["Prepared in"] + store.passed["Idle in"]
    out = store.passed["Prepared out"] + store.passed["Idle out"] + store.passed["put"]
    return {**found, "bytes_in": into / made, "bytes_out": out / made}


def case_of(one: Sequence[Any]) -> str:
    return " ".join(map(str, one))


def known(path: Path) -> dict[str, dict[str, float]]:
    """What was measured so far."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {found.pop("case"): found for found in map(json.loads, lines)}


def table(found: dict[str, dict[str, float]], label: str) -> str:
    """All of it, in Markdown."""
    lines = [
        f"{label}: microseconds of the driver's CPU time and bytes through it for each environment step, and so how",
        "many steps a second it bears, by its processor and by its network.",
        "",
        "| algorithm | rows | learners | runners | us | bytes in | bytes out | by CPU | at 1 Gbit/s | at 10 Gbit/s |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    cases = [(*case.split(), one) for case, one in found.items()]
    for algo, rows, _, learners, one in sorted(cases, key=lambda case: (case[0], case[1], case[3], int(case[2]))):
        through = max(one["bytes_in"], one["bytes_out"])
        lines.append(
            f"| {algo} | {rows} | {learners} | {one['runners']:.0f} | {one['us_per_step']:.2f} "
            f"| {one['bytes_in']:,.0f} | {one['bytes_out']:,.0f} | {1e6 / one['us_per_step']:,.0f} "
            f"| {GIGABIT / through:,.0f} | {10 * GIGABIT / through:,.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--algos", nargs="+", default=["ppo", "impala"], choices=["ppo", "impala"])
    parser.add_argument("--rows", nargs="+", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--learners", nargs="+", default=["here", "elsewhere"], choices=["here", "elsewhere"])
    parser.add_argument("--runners", nargs="+", type=int, default=list(RUNNERS))
    parser.add_argument("--rounds", type=int, default=4, help="Rollouts of all runners that are timed.")
    parser.add_argument("--again", action="store_true", help="Measure all again.")
    parser.add_argument("--label", default="driver", help="Name of the results' files.")
    args = parser.parse_args()
    torch.set_num_threads(1)
    path = RESULTS / f"{args.label}.jsonl"
    if args.again:
        path.unlink(missing_ok=True)
    for one in product(args.algos, args.rows, args.runners, args.learners):
        if case_of(one) in known(path):
            continue
        result = {"case": case_of(one), "runners": one[2], **measured(*one, args.rounds)}
        print(f"{case_of(one)}: {result['us_per_step']:.2f} us, {result['bytes_in']:,.0f} bytes in", flush=True)
        with path.open("a") as file:
            file.write(json.dumps(result) + "\n")
        path.with_suffix(".md").write_text(table(known(path), args.label))
    return 0


if __name__ == "__main__":
    sys.exit(main())
