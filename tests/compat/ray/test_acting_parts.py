"""Processes that only act take in nothing that is for learning."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ["torch._dynamo", "sympy", "ray"]
"""The compiler takes a second and 70 MB."""
PROGRAM = """
import sys
from polyak.compat.ray import {config}
from polyak.compat.ray.environments import portable
from polyak.compat.ray.processes.evaluator_worker import EvaluatorWorker
from polyak.compat.ray.processes.runner_worker import RunnerWorker
from polyak.distributed.weights import flat_weights

config = {config}().environment("CartPole-v1").debugging(seed=0)
runner = RunnerWorker(portable(config), 1)
assert runner.sample(flat_weights(runner.model.policy), 0).made > 0
evaluator = EvaluatorWorker(portable(config), 1)
print(sorted(set({heavy}) & set(sys.modules)))
"""


@pytest.mark.parametrize("config", ["PPOConfig", "IMPALAConfig", "DQNConfig"])
def test_who_acts_takes_in_no_compiler(config: str) -> None:
    program = PROGRAM.format(config=config, heavy=HEAVY)
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert out.stdout.strip() == "[]", out.stderr
