"""Processes that only act take in nothing that is for learning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from polyak.collecting.actor import copy_of
from polyak.compat.rllib_face import DQNConfig, IMPALAConfig, PPOConfig
from polyak.compat.rllib_face.environments import portable
from polyak.compat.rllib_face.evaluation import EvaluationOrder
from polyak.distributed import ray_workers
from polyak.distributed.runner_process import Order
from polyak.distributed.weights import flat_weights
from tests.compat.rllib_face.fake_ray import FakeRay

HEAVY = ["torch._dynamo", "sympy", "ray"]
"""The compiler takes a second and 70 MB."""
PROGRAM = """
import pickle
import sys
from polyak.compat.rllib_face.environments import portable
from polyak.compat.rllib_face.processes.evaluator_worker import EvaluatorWorker
from polyak.compat.rllib_face.processes.runner_worker import RunnerOfConfig

for name in sys.argv[1:]:
    with open(name, "rb") as file:
        config, actor, policy, weights, order, episodes = pickle.load(file)
    runner = RunnerOfConfig(config, 1)
    runner.take_actor(actor, False)
    runner.reset(None)
    assert len(runner.collect(weights, order).infos) == 4
    assert EvaluatorWorker(config, 1).play(policy, None, None, episodes).lengths
print(sorted(set({heavy}) & set(sys.modules)))
"""


def sent_to_processes(cls: Any) -> tuple[Any, ...]:
    """A config, an actor, a policy, its weights, and what to do with them."""
    config = cls().environment("CartPole-v1").debugging(seed=0).env_runners(num_env_runners=1)
    with config.learners(num_learners=0).build_algo() as algo:
        policy, group = algo.model.policy, algo.model.runner
        sent = portable(algo.config), group._sent.value, cloudpickle.dumps(copy_of(policy)), flat_weights(policy)
    episodes = EvaluationOrder(1, in_steps=False, explores=False, seed=1)
    return (*sent, Order(4, 0, [0.0], 1, True, None), episodes)


def test_who_acts_takes_in_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = FakeRay()
    monkeypatch.setattr(ray_workers, "ray", lambda: made)
    files = []
    for cls in (PPOConfig, IMPALAConfig, DQNConfig):
        files.append(tmp_path / cls.__name__)
        files[-1].write_bytes(cloudpickle.dumps(sent_to_processes(cls)))
    words = [sys.executable, "-c", PROGRAM.format(heavy=HEAVY), *map(str, files)]
    out = subprocess.run(words, capture_output=True, text=True, check=False)
    assert out.stdout.strip() == "[]", out.stderr
