"""PPO's penalty on divergence (section 4 of its paper), and learning rates of SAC's parts."""

from __future__ import annotations

import pytest
import torch

from polyak import PPO, SAC
from polyak.algorithms.ppo import approximate_kl, next_kl_coef


def test_the_penalty_and_its_gradient_are_those_of_the_divergence() -> None:
    """Weighed by the old policy's probabilities, the estimate is the divergence itself, and so is its gradient."""
    old = torch.tensor([0.1, -0.4, 0.9], dtype=torch.float64).log_softmax(0)
    logits = torch.tensor([0.7, 0.2, -0.5], dtype=torch.float64, requires_grad=True)
    log_ratio = logits.log_softmax(0) - old
    estimate = sum(p * approximate_kl(r[None]) for p, r in zip(old.exp(), log_ratio, strict=True))
    exact = (old.exp() * (old - logits.log_softmax(0))).sum()
    torch.testing.assert_close(estimate, exact)
    ours, theirs = (torch.autograd.grad(value, logits, retain_graph=True)[0] for value in (estimate, exact))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("kl", "factor"), [(0.0, 0.5), (0.0066, 0.5), (0.0067, 1), (0.0149, 1), (0.0151, 2)])
def test_the_coefficient_follows_the_papers_rule(kl: float, factor: float) -> None:
    assert next_kl_coef(0.3, kl, 0.01) == pytest.approx(0.3 * factor)


def test_a_strong_penalty_holds_the_policy_where_it_is() -> None:
    moved = []
    for coef in (0.0, 100.0):
        model = PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, seed=1, kl_coef=coef, learning_rate=3e-3)
        model.learn(256)
        moved.append(model.learner)
        observations = torch.from_numpy(model.rollout_buffer.observations).reshape(-1, 4)
        actions = torch.from_numpy(model.rollout_buffer.actions).reshape(-1)
        old = torch.from_numpy(model.rollout_buffer.log_probs).reshape(-1)
        with torch.no_grad():
            moved[-1] = approximate_kl(model.policy.evaluate_actions(observations, actions)[1] - old).item()
    assert moved[1] < moved[0] / 5


def test_without_a_coefficient_nothing_changes_and_a_target_is_refused() -> None:
    with pytest.raises(ValueError, match="kl_target"):
        PPO("MlpPolicy", "CartPole-v1", kl_target=0.01)
    with pytest.raises(ValueError, match="kl_coef"):
        PPO("MlpPolicy", "CartPole-v1", kl_coef=-1)


def test_the_coefficient_goes_on_from_a_file(tmp_path) -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=1, kl_coef=0.4, kl_target=100.0).learn(128)
    assert model.kl_coef == pytest.approx(0.1)
    model.save(tmp_path / "model")
    assert PPO.load(tmp_path / "model").kl_coef == pytest.approx(0.1)


def test_entropy_may_follow_a_schedule() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=1, ent_coef=lambda progress: 0.1 * progress).learn(128)
    assert float(model.learner.ent_coef) == pytest.approx(0.0, abs=1e-8)


def test_parts_of_sac_have_learning_rates_of_their_own() -> None:
    rates = {"actor": 1e-5, "critic": lambda progress: 1e-3 * progress}
    model = SAC("MlpPolicy", "Pendulum-v1", learning_starts=10, seed=1, learning_rates=rates).learn(20)
    found = {name: float(o.param_groups[0]["lr"]) for name, o in model.learner.optimizers.items()}
    assert found == pytest.approx({"actor": 1e-5, "critic": 0.0, "ent_coef": 3e-4}, abs=1e-9)
    for wrong in ({"actr": 1e-3}, {"actor": -1}):
        with pytest.raises(ValueError, match="learning_rates"):
            SAC("MlpPolicy", "Pendulum-v1", learning_rates=wrong)
