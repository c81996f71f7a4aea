"""Extra columns of a replay buffer reach a learner's loss, whoever gathers them."""

from typing import Any

import numpy as np
import pytest
import torch

from polyak import SAC
from polyak.algorithms.sac import SACLearner
from polyak.experience import Column, ReplayBuffer, Transition
from polyak.learning.engine.program import Program


class Bonus(SACLearner):
    """A user's, whose rewards have a column of the buffer added."""

    def gradient_step(self, batch: Transition, *args: Any) -> Any:
        return super().gradient_step(batch._replace(rewards=batch.rewards + batch.extras["bonus"]), *args)


def trained(bonus: float, late: bool, compile: bool) -> tuple[dict[str, torch.Tensor], list[tuple[int, ...]]]:
    """Weights after some gradient steps, and the shapes of what the programs took."""
    model = SAC("MlpPolicy", "Pendulum-v1", policy_kwargs={"net_arch": [8]}, device="cpu", seed=0, compile=compile)
    buffer = ReplayBuffer(
        200, model.observation_space, model.action_space, device="cpu", seed=0, columns=[Column("bonus", np.float32)]
    )
    rng = np.random.default_rng(0)
    for _ in range(200):
        obs, then = rng.normal(size=(2, 1, 3)).astype(np.float32)
        action, reward = rng.uniform(-1, 1, (1, 1)).astype(np.float32), rng.normal(size=1)
        buffer.add(obs, then, action, reward, np.zeros(1), [{}], extras={"bonus": bonus * rng.normal(size=1)})
    torch.manual_seed(0)
    for batch, _ in buffer.transitions(16, 0.99, batches=5, late=late):
        model.learner.update(batch)
    programs = model.engine.programs.get("gradient_step", ())
    shapes = [shape for key in programs for shape, *_ in key[0]]
    return {name: tensor.clone() for name, tensor in model.learner.state_dict().items()}, shapes


def test_extra_columns_reach_the_loss_gathered_by_a_program_or_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SAC, "learner_class", Bonus)
    monkeypatch.setattr(Program, "compile", lambda self: None)  # programs run operation by operation
    plain, _ = trained(1.0, late=False, compile=False)
    without, _ = trained(0.0, late=False, compile=False)
    assert any(not torch.equal(plain[name], without[name]) for name in plain)
    for late in (False, True):
        ours, shapes = trained(1.0, late, compile=True)
        assert shapes
        assert any(shape == (200,) for shape in shapes) == late
        for name, tensor in ours.items():  # as close as programs come: see test_program.py
            torch.testing.assert_close(tensor, plain[name], rtol=0, atol=2e-5)
