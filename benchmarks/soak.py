"""Does a training on a cluster last? Kills runners, learners, shards and a node at random moments, for minutes.

    python benchmarks/soak.py                              # PPO, IMPALA and DQN, 10 minutes together
    python benchmarks/soak.py --minutes 3 --cases DQN

Each trains CartPole-v1 on three nodes of two processors that are simulated on this machine (``ray.cluster_utils``),
until its share of the time is over. A thread kills processes (kill -9), the next one of a kind when the one before has
been replaced, and has learned something if it is a learner; half-way it takes a node away, and another one comes. A
case has passed if environment steps and gradient steps are those that were asked for (but for those that a warning says
were left out, since all shards had died), if each process that was killed was soon replaced with a warning that names
it, and if no process is left at the end. Cases that are finished are kept in ``results/soak.json``: the program goes on
where it was stopped. The exit status says whether all have passed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil
from command_line import add_choice, add_out, positive
from processes import Beside
from reports import kept, machine, write

import polyak
from polyak.envs import make_vec_env

RUNNERS, ENVS, NODES, CPUS = 3, 2, 3, 2
STEPS, EPOCHS, FREQUENCY = 64, 2, 4
"""Of a rollout of each environment; passes of PPO over one; steps of all environments between two updates of DQN."""
PATIENCE = 120.0
"""Seconds in which what was killed must be back, and processes must have ended."""
AWAY = 5.0
"""Seconds for which there is a node less."""
NAMES = {"runner": "runner", "learner": "learner", "shard": "replay shard"}
"""Kind -> how warnings call it."""


@dataclass(frozen=True)
class Case:
    """An algorithm, its settings, what can be killed of it, and the gradient steps that so many steps call for."""

    settings: dict[str, Any]
    kinds: tuple[str, ...]
    updates_due: Callable[[int], int]
    slice: int
    """Environment steps of one ``learn``."""


ALL = RUNNERS * ENVS
CASES = {
    "PPO": Case(
        {"n_steps": STEPS, "batch_size": ALL * STEPS // 4, "n_epochs": EPOCHS, "n_learners": 2},
        ("runner", "learner"),
        lambda steps: steps // (ALL * STEPS) * EPOCHS * 4,
        4 * ALL * STEPS,
    ),
    "IMPALA": Case({"n_steps": STEPS}, ("runner",), lambda steps: steps // (ENVS * STEPS), 64 * ENVS * STEPS),
    "DQN": Case(
        {"train_freq": FREQUENCY, "gradient_steps": ALL, "learning_starts": 0, "buffer_size": 20_000, "batch_size": 32}
        | {"n_replay_shards": 2, "n_learners": 2},
        ("runner", "learner", "shard"),
        lambda steps: steps // (ALL * FREQUENCY) * ALL,
        64 * ALL * FREQUENCY,
    ),
}
COMMON: dict[str, Any] = {
    "n_runners": RUNNERS,
    "policy_kwargs": {"net_arch": [32]},
    "compile": False,
    "device": "cpu",
    "restarts_per_hour": 10_000,
}


def carts(runner: int) -> Any:
    """The environments of one runner."""
    return make_vec_env("CartPole-v1", n_envs=ENVS)


def processes_of(model: Any, kind: str) -> list[int]:
    """Those of a kind, as they are now."""
    if kind == "learner":
        return list(model._learners.processes) if model._learners is not None else []
    return list(model.env.processes if kind == "runner" else model.replay_buffer.processes)


class Killer(Beside):
    """Kills processes of a model in a thread, until it is stopped.

    Args:
        model: whose.
        kinds: of its processes.
        cluster: of which a node is taken away.
        minutes: after half of which that happens.
        every: seconds between two kills, on average.
        chance: draws moments and processes.
    """

    def __init__(
        self, model: Any, kinds: tuple[str, ...], cluster: Any, minutes: float, every: float, chance: random.Random
    ) -> None:
        super().__init__()
        self.model, self.kinds, self.cluster, self.every, self.chance = model, kinds, cluster, every, chance
        self.half = time.monotonic() + 30 * minutes
        self.killed: Counter[str] = Counter()
        self.seen: set[int] = set()
        """All processes that there have been."""
        self.errors: list[str] = []
        self.longest = 0.0
        """Seconds until a process was replaced."""
        self._under_way: dict[str, tuple[int, float]] = {}
        """Kind -> the process of it that was killed last, and when, if it is not replaced yet."""
        self._learned = 0
        """Gradient steps before which no learner has done anything since one was killed."""
        self._away_since: float | None = None

    @property
    def is_settled(self) -> bool:
        """Whether all that was killed is replaced."""
        self._look()
        return not self._under_way

    def _look(self) -> None:
        for kind in self.kinds:
            there = processes_of(self.model, kind)
            self.seen |= set(there)
            process, since = self._under_way.get(kind, (0, 0.0))
            if process in there:
                self._learned = self.model.learner.steps
            elif process and (kind != "learner" or self.model.learner.steps > self._learned):
                self.longest = max(self.longest, time.monotonic() - since)
                del self._under_way[kind]

    def _run(self) -> None:
        try:
            while not self.over.wait(self.every * self.chance.uniform(0.5, 1.5)):
                self._look()
                if not self.killed["node"] and time.monotonic() > self.half:
                    self._take_a_node()
                free = [kind for kind in self.kinds if kind not in self._under_way and processes_of(self.model, kind)]
                if free:
                    self._kill(min(free, key=lambda kind: (self.killed[kind], self.chance.random())))
        except Exception as error:
            self.errors.append(f"the killer: {error!r}")

    def _kill(self, kind: str) -> None:
        process = self.chance.choice(processes_of(self.model, kind))
        self._under_way[kind] = process, time.monotonic()
        with suppress(ProcessLookupError):  # with its node
            os.kill(process, signal.SIGKILL)
            self.killed[kind] += 1

    def _take_a_node(self) -> None:
        self.killed["node"] += 1
        self.cluster.remove_node(self.cluster.own.pop())
        self._away_since = time.monotonic()

    def bring_node(self) -> None:
        """Add a node when one is away for some time; only the main thread can."""
        if self._away_since is not None and time.monotonic() - self._away_since > AWAY:
            self._away_since = None
            self.cluster.own.append(new_node(self.cluster))


def new_node(cluster: Any) -> Any:
    """One that has begun within the half minute that Ray gives it, which on a busy machine not every one does."""
    for _ in range(5):
        with suppress(Exception):
            return cluster.add_node(num_cpus=CPUS)
    return cluster.add_node(num_cpus=CPUS)


@contextmanager
def cluster_of_nodes() -> Iterator[Any]:
    """A simulated cluster, to which this process is connected."""
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        made.own = [new_node(made) for _ in range(NODES)]
        ray.init(made.address, log_to_driver=False, logging_level="error")
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def soak(name: str, minutes: float, every: float, seed: int) -> dict[str, Any]:
    """One training."""
    case, faults = CASES[name], list[str]()
    with cluster_of_nodes() as cluster, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model: Any = getattr(polyak, name)("MlpPolicy", carts, seed=seed, **COMMON, **case.settings)
        until, asked = time.monotonic() + 60 * minutes, 0
        with Killer(model, case.kinds, cluster, minutes, every, random.Random(seed)) as killer:
            while time.monotonic() < until:
                model.learn(case.slice, reset_num_timesteps=asked == 0, log_interval=None)
                asked += case.slice
                killer.bring_node()
        settled = time.monotonic() + PATIENCE
        while not killer.is_settled and time.monotonic() < settled:  # learners are replaced when they are needed
            model.learn(case.slice, reset_num_timesteps=False, log_interval=None)
            asked += case.slice
        if not killer.is_settled:
            faults.append(f"not replaced within {PATIENCE:g} s: {killer._under_way}")
        due, steps, updates = case.updates_due(model.num_timesteps), model.num_timesteps, model.learner.steps
        restarts = {"runner": model.env.workers.restarts}
        if "shard" in case.kinds:
            restarts["shard"] = model.replay_buffer.workers.restarts
            model.replay_buffer.close()
        if "learner" in case.kinds:
            restarts["learner"] = model._learners.restarts
            model._learners.close()
        model.env.close()
    texts = [str(one.message) for one in said]
    warned = {kind: sum(f"{NAMES[kind]} " in text and "gone" in text for text in texts) for kind in restarts}
    faults += killer.errors
    faults += [f"{kind}: {n} warnings of {restarts[kind]} losses" for kind, n in warned.items() if n < restarts[kind]]
    faults += [
        f"{kind}: replaced {restarts[kind]} times, and killed {killer.killed[kind]} times"
        for kind in case.kinds
        if restarts[kind] < killer.killed[kind]
    ]
    if killer.longest > PATIENCE:
        faults.append(f"{killer.longest:.0f} s until a process was replaced")
    if steps != asked:
        faults.append(f"{steps:,} environment steps of {asked:,}")
    left_out = sum(int(found[1]) for text in texts if (found := re.search(r"empty: (\d+) minibatches", text)))
    if updates + left_out != due:
        faults.append(f"{updates:,} gradient steps of {due:,}, and {left_out} are said to be left out")
    if left := still_there(killer.seen):
        faults.append(f"left behind: {left}")
    return {
        "minutes": minutes,
        "steps": steps,
        "updates": updates,
        "left_out": left_out,
        "killed": dict(killer.killed),
        "restarts": restarts,
        "longest": round(killer.longest, 1),
        "faults": faults,
    }


def still_there(processes: set[int]) -> list[str]:
    """Those that do not end soon, and all others that this program has begun."""
    until = time.monotonic() + PATIENCE
    while True:
        left = [one for one in psutil.Process().children(recursive=True) if one.is_running()]
        left += [psutil.Process(one) for one in processes if psutil.pid_exists(one)]
        names = []
        for one in left:
            with suppress(psutil.NoSuchProcess):
                names += [f"{one.pid} {one.name()}"] if one.status() != psutil.STATUS_ZOMBIE else []
        if not names or time.monotonic() > until:
            return names
        time.sleep(0.5)


def lines(runs: dict[str, Any], on: dict[str, Any]) -> list[str]:
    """The report, as Markdown."""
    head = [
        "# Trainings on a cluster in which processes are killed",
        "",
        f"`python benchmarks/soak.py`; {on['cpus']} x {on['processor']}.",
        "",
        "| | minutes | environment steps | gradient steps | killed | replaced | longest until replaced, s | |",
        "|---|---:|---:|---:|---|---|---:|---|",
    ]

    def counted(numbers: dict[str, int]) -> str:
        return ", ".join(f"{kind} {number}" for kind, number in numbers.items())

    return head + [
        f"| {name} | {run['minutes']:g} | {run['steps']:,} | {run['updates']:,} | {counted(run['killed'])} | "
        f"{counted(run['restarts'])} | {run['longest']} | {'; '.join(run['faults']) or 'all as due'} |"
        for name, run in runs.items()
    ]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=positive, default=10.0, help="of all cases together")
    parser.add_argument("--every", type=positive, default=5.0, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=0, help="of the moments, and of the trainings")
    parser.add_argument("--again", action="store_true", help="also cases that are finished")
    add_choice(parser, "--cases", list(CASES))
    add_out(parser, "soak")
    args = parser.parse_args()
    each = round(args.minutes / len(args.cases), 3)
    runs: dict[str, Any] = kept(args.out).get("runs", {})
    for name in args.cases:
        if not args.again and runs.get(name, {}).get("minutes") == each:
            continue
        runs[name] = soak(name, each, args.every, args.seed)
        print(name, runs[name], flush=True)
        write({"machine": machine(), "runs": runs}, lines(runs, machine()), args.out)
    sys.exit(any(runs[name]["faults"] for name in args.cases))


if __name__ == "__main__":
    main()
