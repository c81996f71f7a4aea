"""Flat graphs of functions: :mod:`polyak.nn.backends.tracing`; and training without torch's compiler."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from polyak.nn.backends.tracing import UntraceableError, trace

ELSEWHERE = torch.ones(3)
WITHOUT_COMPILER = """
import sys
from polyak import A2C, DQN
DQN("MlpPolicy", "CartPole-v1", seed=0, learning_starts=8, train_freq=1, device="cpu").learn(120)
model = A2C("MlpPolicy", "CartPole-v1", seed=0, n_steps=1, device="cpu").learn(110)
assert model.engine.status == "replayed", model.engine.status
assert "torch._dynamo" not in sys.modules
optimizer, = model.learner.optimizers.values()
import torch._dynamo
optimizer.zero_grad()
assert optimizer.zero_grad.__wrapped__.__dynamo_disable.__module__.startswith("torch._dynamo")
"""


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.sum().item(),
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.as_tensor(x.numpy() * 2),
        lambda x: x + ELSEWHERE,
        lambda x: x.mul_(2),
        lambda x: x * torch.tensor(1.0).add_(x[0]).item(),
    ],
)
def test_what_depends_on_numbers_or_reaches_further_becomes_no_graph(function: Callable[..., Any]) -> None:
    with pytest.raises((UntraceableError, RuntimeError), match=r"depend on numbers|numpy|neither|writes into"):
        trace(lambda x: [function(x)], [], [torch.randn(3)], {})


def test_training_does_not_import_the_compiler_and_tells_it_once_it_is_there() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_COMPILER], check=True)
