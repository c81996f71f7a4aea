"""Processes that only act take in nothing that is for learning."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ["torch._dynamo", "sympy", "ray"]
"""The compiler takes a second and 70 MB."""
PROGRAM = f"""
import sys
from polyak.compat.ray import DQNConfig, IMPALAConfig, PPOConfig
from polyak.compat.ray.environments import portable
from polyak.compat.ray.processes.evaluator_worker import EvaluatorWorker
from polyak.compat.ray.processes.runner_worker import RunnerWorker
from polyak.distributed.weights import flat_weights

for kind in (PPOConfig, IMPALAConfig, DQNConfig):
    config = kind().environment("CartPole-v1").debugging(seed=0)
    runner = RunnerWorker(portable(config), 1)
    assert runner.sample(flat_weights(runner.model.policy), 0).made > 0
    evaluator = EvaluatorWorker(portable(config), 1)
    print(kind.__name__, sorted(set({HEAVY}) & set(sys.modules)))
"""


def test_who_acts_takes_in_no_compiler() -> None:
    out = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert out.stdout.split("\n") == ["PPOConfig []", "IMPALAConfig []", "DQNConfig []", ""], out.stderr
