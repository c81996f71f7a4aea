"""Does training survive? Kills runners, learners, replay shards and whole nodes of a cluster, again and again.

    python benchmarks/faults.py --kills 20
    python benchmarks/faults.py --kills 20 --kinds node

DQN on CartPole-v1, on Ray (``polyak[scale]``). Of every kind that is asked for, one process is killed (kill -9) as soon
as the one before has been replaced. The soak has passed if the environment steps are those that the iterations call
for, if the gradient steps are, and if the return, the mean of evaluations after the last few iterations, is not below
what one more training that nobody disturbs would bring: the prediction interval of some that are as long. The exit
status says whether it has.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np

from polyak.evaluation.intervals import student_quantile
from polyak.rllib import DQNConfig

KINDS = ("runner", "learner", "shard", "node")
RUNNERS, SHARDS, STEPS = 2, 2, 1008
LEARNING_STARTS, FRAGMENT, ENVS = 1000, 2, 2
TARGET_EVERY = 500
"""Environment steps; a quarter as many gradient steps. With 12 to 25 gradient steps in between, as every 200 steps with
longer fragments, Q runs away to twice what is possible, disturbed or not, and returns say nothing about faults."""
EVALUATED = 5
"""Of the last iterations."""


def config() -> Any:
    """Two runners, one learner and two shards, who wait for nobody."""
    made = DQNConfig().environment("CartPole-v1").learners(num_learners=1)
    made.env_runners(num_env_runners=RUNNERS, num_envs_per_env_runner=ENVS, rollout_fragment_length=FRAGMENT)
    made.training(lr=1e-3, num_steps_sampled_before_learning_starts=LEARNING_STARTS, epsilon=[[0, 1.0], [5000, 0.05]])
    made.training(train_batch_size_per_learner=64, target_network_update_freq=TARGET_EVERY)
    made.training(replay_buffer_config={"capacity": 20_000, "num_replay_buffer_shards": SHARDS})
    made.rl_module(model_config={"fcnet_hiddens": [64], "head_fcnet_hiddens": [64]})
    made.reporting(min_sample_timesteps_per_iteration=STEPS).framework(torch_compile_learner=False)
    made.fault_tolerance(delay_between_env_runner_restarts_s=0)
    made.evaluation(evaluation_duration=50, evaluation_config={"explore": False})
    return made.debugging(seed=None, log_sys_usage=False)


def process_of(algo: Any, kind: str) -> int:
    """One of that kind, as it is now."""
    if kind == "runner":
        return int(algo.env_runner_group.processes[0])
    if kind == "learner":
        return int(algo.learner_group.processes[0])
    return int(algo.model.replay_buffer.processes[0])


class Killer:
    """Kills one process of each kind, once all that it has killed have been replaced.

    Args:
        kinds: of processes.
        most: how many of each.
    """

    def __init__(self, kinds: list[str], most: int) -> None:
        self.most, self.killed = most, dict.fromkeys(kinds, 0)
        self.last: dict[str, int] = {}

    def __call__(self, algo: Any) -> bool:
        """False: all is done, and everybody is there."""
        for kind, count in self.killed.items():
            process = process_of(algo, kind)
            if process == self.last.get(kind):
                return True
            if count < self.most:
                os.kill(process, signal.SIGKILL)
                self.last[kind], self.killed[kind] = process, count + 1
        return min(self.killed.values()) < self.most


class NodeKiller:
    """Takes a node from a cluster and adds another, once everybody is back.

    Args:
        cluster: of Ray.
        most: how often.
    """

    def __init__(self, cluster: Any, most: int) -> None:
        self.cluster, self.most, self.killed = cluster, most, {"node": 0}
        self.node = cluster.add_node(num_cpus=2)
        self.restarts = 0

    def __call__(self, algo: Any) -> bool:
        restarts = algo.env_runner_group.num_restarts + algo.learner_group.restarts
        missed = self.killed["node"] > 0 and restarts == self.restarts
        if missed or algo.env_runner_group.num_healthy_env_runners < RUNNERS:
            return True
        if self.killed["node"] == self.most:
            return False
        self.restarts = restarts
        self.cluster.remove_node(self.node)
        self.node = self.cluster.add_node(num_cpus=2)
        self.killed["node"] += 1
        return True


def train(least: int, disturb: Killer | NodeKiller | None = None) -> dict[str, Any]:
    """One training.

    Args:
        least: iterations.
        disturb: called between two iterations; there are more while it returns True.
    """
    began, iterations, going_on = time.perf_counter(), 0, True
    returns: deque[float] = deque(maxlen=EVALUATED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with config().build() as algo:
            while iterations < least or going_on:
                result = algo.train()
                iterations += 1
                if iterations > least - EVALUATED:
                    returns.append(algo.evaluate()["env_runners"]["episode_return_mean"])
                going_on = disturb is not None and disturb(algo)
                if disturb is not None:
                    print(f"\r{disturb.killed}, {result['num_env_steps_sampled_lifetime']:,} steps", end="", flush=True)
            rounds = iterations * (STEPS // (RUNNERS * ENVS * FRAGMENT))
            learned = rounds - (LEARNING_STARTS - 1) // (RUNNERS * ENVS * FRAGMENT)
            return {
                "iterations": iterations,
                "steps": result["num_env_steps_sampled_lifetime"],
                "steps_due": iterations * STEPS,
                "updates": algo.model.learner.steps,
                "updates_due": learned * RUNNERS,
                "return": float(np.mean(returns)),
                "seconds": round(time.perf_counter() - began, 1),
            }


def prediction_interval(values: list[float], confidence: float = 0.95) -> tuple[float, float]:
    """Between what one more value of the same normal distribution lies; everything for less than two values."""
    if len(values) < 2:
        return -np.inf, np.inf
    quantile = float(student_quantile((1 + confidence) / 2, len(values) - 1))
    half = quantile * float(np.std(values, ddof=1)) * np.sqrt(1 + 1 / len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def soak(kinds: list[str], kills: int, least: int, undisturbed: int) -> dict[str, Any]:
    """Kill processes of some kinds, and compare with trainings that nobody disturbs."""
    import ray

    cluster: Any = None
    if "node" in kinds:
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    address, own = ("local", {"num_cpus": 8}) if cluster is None else (cluster.address, {})
    ray.init(address, **own, log_to_driver=False, logging_level="error")
    try:
        killer = Killer(kinds, kills) if cluster is None else NodeKiller(cluster, kills)
        found = train(least, killer)
        found["killed"] = killer.killed
        print(json.dumps(found), flush=True)
        returns = [train(found["iterations"])["return"] for _ in range(undisturbed)]
    finally:
        ray.shutdown()
        if cluster is not None:
            cluster.shutdown()
    low, high = prediction_interval(returns)
    found |= {"undisturbed": returns, "interval": [low, high]}
    counted = found["steps"] == found["steps_due"] and found["updates"] == found["updates_due"]
    found["passed"] = bool(counted and found["return"] >= low)
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20, help="of each kind")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["runner", "learner", "shard"])
    parser.add_argument("--iterations", type=int, default=20, help=f"at least, of {STEPS} steps")
    parser.add_argument("--undisturbed", type=int, default=5, help="trainings to compare with")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "faults.json")
    options = parser.parse_args()
    if "node" in options.kinds and len(options.kinds) > 1:
        parser.error("a node takes everything along: ask for --kinds node alone.")
    found = soak(options.kinds, options.kills, options.iterations, options.undisturbed)
    print(json.dumps(found, indent=1))
    options.output.parent.mkdir(exist_ok=True)
    temporary = options.output.with_suffix(".tmp")
    temporary.write_text(json.dumps(found, indent=1) + "\n")
    temporary.replace(options.output)
    sys.exit(not found["passed"])


if __name__ == "__main__":
    main()
