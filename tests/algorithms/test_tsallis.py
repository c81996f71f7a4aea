"""Tsallis entropy and sparse policies, as options of policy-gradient algorithms."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from polyak import A2C, PPO
from polyak.envs.testing import IdentityEnv, IdentityEnvMultiDiscrete
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.nn import ActorCriticPolicy, PolicyError
from polyak.ops.tsallis import tsallis_entropy
from tests.laws.test_conformance import check_programs

SPARSE = {"entropy_index": 2.0, "ent_coef": 0.05, "policy_kwargs": {"net_arch": [16], "sparse": True}}
QUICK = {PPO: {"n_steps": 64, "batch_size": 32, "learning_rate": 3e-3}, A2C: {"n_steps": 16, "learning_rate": 3e-3}}


@pytest.mark.slow
@pytest.mark.parametrize("cls", [PPO, A2C])
def test_what_is_bad_gets_probability_zero_exactly(cls: Any, tmp_path: Path) -> None:
    model = cls("MlpPolicy", IdentityEnv(4), **SPARSE, **QUICK[cls], device="cpu", seed=0).learn(8_000)
    probs = model.policy.get_distribution(torch.arange(4)).probs
    assert (probs == 0).sum() >= 8, probs
    torch.testing.assert_close(probs.sum(1), torch.ones(4))
    assert probs.argmax(1).tolist() == [0, 1, 2, 3]
    assert all(torch.isfinite(p).all() for p in model.policy.parameters())
    model.save(tmp_path / "model")
    again = cls.load(tmp_path / "model").policy.get_distribution(torch.arange(4)).probs
    assert torch.equal(again, probs)


@pytest.mark.slow  # tests/nn/test_distributions.py has several sparse choices; test_composed_spaces.py trains them
def test_several_choices_can_be_sparse() -> None:
    model = PPO("MlpPolicy", IdentityEnvMultiDiscrete(3), **SPARSE, **QUICK[PPO], device="cpu", seed=0).learn(1_000)
    dist = model.policy.get_distribution(torch.tensor([[0, 2]]))
    assert any((choice.probs == 0).any() for choice in dist.choices)


@pytest.mark.parametrize("cls", [PPO, A2C])
@pytest.mark.parametrize("q", [1.0, 2.0])
def test_the_bonus_measures_the_entropy_of_that_index(cls: Any, q: float) -> None:
    model = cls("MlpPolicy", "CartPole-v1", entropy_index=q, **QUICK[cls], device="cpu", seed=0).learn(64)
    batch = next(iter(model.rollout_buffer.get()))
    probs = model.policy.get_distribution(batch.observations).logits.exp()
    expected = -tsallis_entropy(probs, q).mean()
    torch.testing.assert_close(model.learner.update(batch).metrics["entropy_loss"], expected.detach())


def test_programs_know_the_index_and_sparse_choices() -> None:
    check_programs("ppo", {"env": "CartPole-v1", **SPARSE}, "replay", enough=4)
    check_programs("a2c", {"env": "Pendulum-v1", "entropy_index": 0.5, "ent_coef": 0.01}, "replay", enough=4)


def test_what_has_no_such_entropy_is_refused_at_once() -> None:
    squashed = {"use_sde": True, "policy_kwargs": {"squash_output": True}}
    PPO("MlpPolicy", "Pendulum-v1", **squashed)
    with pytest.raises(HyperparameterError, match=r"entropy_index=2.0 cannot be used: actions that are squashed"):
        PPO("MlpPolicy", "Pendulum-v1", entropy_index=2.0, **squashed)
    with pytest.raises(HyperparameterError, match="entropy_index=0 cannot be used"):
        PPO("MlpPolicy", "Pendulum-v1", entropy_index=0)

    class Own(ActorCriticPolicy):
        def evaluate_actions(self, obs: Any, actions: Tensor) -> Any:  # type: ignore[override]
            return super().evaluate_actions(obs, actions)

    A2C(Own, "CartPole-v1").learn(10)
    with pytest.raises(HyperparameterError, match=r"evaluate_actions\(\) of Own has no argument entropy_index"):
        A2C(Own, "CartPole-v1", entropy_index=2.0)
    with pytest.raises(PolicyError, match="sparse=True"):
        PPO("MlpPolicy", "Pendulum-v1", policy_kwargs={"sparse": True})


def test_a_gaussian_of_index_two_widens() -> None:
    """Where rewards say nothing, the bonus alone moves the deviations: upwards."""
    model = A2C("MlpPolicy", "Pendulum-v1", entropy_index=2.0, ent_coef=1e4, n_steps=16, device="cpu", seed=0)
    before = model.policy.log_std.item()
    model.learn(160)
    assert model.policy.log_std.item() > before
    assert np.isfinite(model.policy.log_std.item())
    assert isinstance(model.action_space, spaces.Box)
