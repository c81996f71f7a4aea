"""AWAC: weights in closed form, what carries gradients, and densities at the bounds."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from polyak import AWAC
from polyak.algorithms import awac
from tests.algorithms import rows
from tests.algorithms.rows import seeded, some_data  # noqa: F401

some_batch = partial(rows.some_batch, width=2)


def model(**options: Any) -> Any:
    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 8]}, "batch_size": 16}
    return AWAC("MlpPolicy", some_data(), device="cpu", seed=0, **{**small, **options})


# -- weights -----------------------------------------------------------------------------------------------------------


def test_weights_in_closed_form() -> None:
    advantages, largest = torch.tensor([0.0, 1.0, -2.0, 20.0]), torch.tensor(100.0)
    plain = awac.exponential_weights(advantages, torch.tensor(2.0), largest)
    torch.testing.assert_close(plain, torch.tensor([1.0, float(np.exp(0.5)), float(np.exp(-1.0)), 100.0]))
    few = advantages[:3]
    normal = awac.normalised_weights(few, torch.tensor(2.0), largest)
    torch.testing.assert_close(normal, 3 * plain[:3] / plain[:3].sum())
    assert normal.mean().item() == pytest.approx(1.0)
    torch.testing.assert_close(normal, awac.normalised_weights(few + 1000, torch.tensor(2.0), largest))
    assert awac.normalised_weights(advantages, torch.tensor(0.1), torch.tensor(2.5)).max() == 2.5


@pytest.mark.parametrize("normalises", [True, False])
def test_it_weighs_as_its_options_say(normalises: bool) -> None:
    ours = model(normalize_weights=normalises, temperature=3.0, max_weight=2.0)
    advantages = torch.randn(6) * 5
    expected = (advantages / 3).exp()
    expected = 6 * expected / expected.sum() if normalises else expected
    torch.testing.assert_close(ours.learner.weigh(advantages), expected.clamp(max=2.0))


def test_the_loss_is_that_of_loops() -> None:
    ours, weights = model(), torch.rand(6)
    batch, log_prob, count = some_batch(6, weights=weights), torch.randn(6), torch.rand(6)
    loss = ours.learner.actor_objective(batch, log_prob, count).loss.item()
    assert loss == pytest.approx(-sum((weights[b] * count[b] * log_prob[b]).item() for b in range(6)) / 6, rel=1e-5)


# -- advantages --------------------------------------------------------------------------------------------------------


def test_advantages_are_relative_to_the_policys_own_actions() -> None:
    ours, batch = model(n_action_samples=5), some_batch()
    with torch.no_grad():
        policy = ours.actor.get_distribution(batch.observations)
        torch.manual_seed(2)
        found = ours.learner.advantages(batch, policy)
        torch.manual_seed(2)
        own = policy.sample_many(5).clamp(-1, 1)
        value = torch.stack([ours.critic.q_values(batch.observations, own[:, j]).amin(0) for j in range(5)]).mean(0)
        expected = ours.critic.q_values(batch.observations, batch.actions).amin(0) - value
    torch.testing.assert_close(found, expected)
    assert (own.abs() == 1).any(), "some samples must lie beyond the bounds"


def test_advantages_carry_no_gradient_and_the_actor_asks_no_critic() -> None:
    """The actor's step is that of a weighted likelihood alone."""
    ours, batch = model(temperature=1e9), some_batch()
    policy = ours.actor.get_distribution(batch.observations)
    assert not ours.learner.advantages(batch, policy).requires_grad
    before = [p.detach().clone() for p in ours.actor.parameters()]
    expected = torch.autograd.grad(-policy.log_prob(batch.actions).mean(), list(ours.actor.parameters()))
    ours.learner.improve_actor(batch)
    for p, old, gradient in zip(ours.actor.parameters(), before, expected, strict=True):
        moved = gradient.abs() > 1e-6
        assert ((p - old).sign() == -gradient.sign())[moved].all(), "all weights are one: it clones"


def test_the_target_is_the_smaller_value_of_an_action_of_the_policy() -> None:
    ours, batch = model(), some_batch()
    torch.manual_seed(2)
    target = ours.learner.td_target(batch)
    torch.manual_seed(2)
    with torch.no_grad():
        q = ours.critic_target.q_values(batch.next_observations, ours.actor(batch.next_observations)).amin(0)
    torch.testing.assert_close(target, batch.rewards + 0.9 * q)
    assert not target.requires_grad


# -- densities ---------------------------------------------------------------------------------------------------------


def test_at_the_bounds_densities_are_finite_and_their_gradients_small() -> None:
    """What a Gaussian squashed by tanh is not: there a recorded 1 lies as far out as rounding lets it."""
    ours = model()
    actions = torch.tensor([[1.0, -1.0]]).expand(4, -1)
    policy = ours.actor.get_distribution(torch.randn(4, 3))
    log_prob = policy.log_prob(actions)
    gradients = torch.autograd.grad(-log_prob.mean(), list(ours.actor.parameters()))
    assert log_prob.min() > -20
    assert max(g.abs().max().item() for g in gradients) < 100
