"""SAC for discrete actions: its losses by enumeration, and the optimum of each."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from polyak import DiscreteSAC
from polyak.algorithms import discrete_sac as sac
from polyak.experience import Transition
from tests.tolerance import bound
from tests.worlds import World

K, B, A = 2, 5, 4
ALPHA = torch.tensor(0.3, dtype=torch.float64)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


class Walk(World):
    """Four numbers and three actions, called 5, 6 and 7."""

    observation_space, action_space = spaces.Box(-9, 9, (4,), np.float32), spaces.Discrete(3, start=5)
    length, truncates = 10, True

    def look(self) -> np.ndarray:
        return self.np_random.standard_normal(4).astype(np.float32)

    def act(self, action: Any) -> float:
        self.asked.append(int(action))
        return float(action == 6)


def model(**options: Any) -> Any:
    settings = {"policy_kwargs": {"net_arch": [8]}, "buffer_size": 100, "device": "cpu", "seed": 0, "compile": False}
    made = DiscreteSAC("MlpPolicy", Walk(asked=[]), **{**settings, **options})
    with torch.no_grad():
        for parameter in made.policy.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return made


def transitions(rows: int = 6) -> Transition:
    torch.manual_seed(1)
    return Transition(
        torch.randn(rows, 4),
        torch.randint(3, (rows, 1)),
        torch.randn(rows),
        torch.randn(rows, 4),
        0.9 * (torch.arange(rows) % 3 > 0),
        torch.rand(rows),
    )


# -- pure functions ----------------------------------------------------------------------------------------------------


def test_values_and_the_actors_loss_are_those_of_enumeration() -> None:
    q, log_pi = numbers(K, B, A), numbers(B, A, seed=1).log_softmax(1)
    values = []
    for b in range(B):
        terms = [
            math.exp(log_pi[b, a]) * (min(q[k, b, a].item() for k in range(K)) - 0.3 * log_pi[b, a].item())
            for a in range(A)
        ]
        values.append(sum(terms))
    np.testing.assert_allclose(sac.soft_value(q, log_pi, ALPHA), values, rtol=0, atol=bound(4 * A, 10.0, np.float64))
    assert sac.actor_loss(q, log_pi, ALPHA).item() == pytest.approx(-np.mean(values))


def test_the_actors_optimum_is_the_softmax_of_values_over_temperature() -> None:
    """J(pi) - J(pi*) = alpha KL(pi | pi*) for pi* = softmax(min_k Q_k / alpha), so that nothing else is as good."""
    q, logits = numbers(K, B, A), numbers(B, A, seed=1)
    best = (q.amin(0) / ALPHA).log_softmax(1)
    log_pi = logits.log_softmax(1)
    gap = sac.actor_loss(q, log_pi, ALPHA) - sac.actor_loss(q, best, ALPHA)
    divergence = (log_pi.exp() * (log_pi - best)).sum(1).mean()
    torch.testing.assert_close(gap, ALPHA * divergence)
    optimum = (q.amin(0) / ALPHA + 3.0).requires_grad_()
    sac.actor_loss(q, optimum.log_softmax(1), ALPHA).backward()
    torch.testing.assert_close(optimum.grad, torch.zeros(B, A, dtype=torch.float64), rtol=0, atol=1e-14)


def test_at_the_optimum_the_value_is_a_log_sum_exp() -> None:
    q = numbers(1, B, A)
    best = (q[0] / ALPHA).log_softmax(1)
    torch.testing.assert_close(sac.soft_value(q, best, ALPHA), ALPHA * (q[0] / ALPHA).logsumexp(1))


# -- the learner -------------------------------------------------------------------------------------------------------


def test_targets_are_those_of_loops_over_rows_and_actions() -> None:
    made, batch = model(), transitions()
    got = made.learner.td_target(batch, torch.tensor(0.3))
    for b in range(6):
        state = batch.next_observations[b : b + 1]
        pi = made.actor.logits(state)[0].double().softmax(0)
        q = torch.stack([values[0] for values in made.critic_target(state)]).double()
        value = sum(pi[a] * (q[:, a].min() - 0.3 * pi[a].log()) for a in range(3))
        expected = batch.rewards[b].item() + batch.discounts[b].item() * value.item()
        assert got[b].item() == pytest.approx(expected, abs=bound(8 + 4 + 10, 10.0))


def test_critics_regress_on_the_weighted_rows_of_the_actions_taken() -> None:
    made, batch = model(learning_rate=0.0), transitions()
    target = made.learner.td_target(batch, made.log_ent_coef.detach().exp())
    loss, errors = torch.zeros(()), []
    for values in made.critic(batch.observations):
        error = torch.stack([values[b, batch.actions[b, 0]] for b in range(6)]) - target
        loss = loss + 0.5 * (batch.weights * error**2).mean()
        errors.append(error.detach().abs())
    expected = torch.autograd.grad(loss, list(made.critic.parameters()))
    update = made.learner.gradient_step(batch, True)
    torch.testing.assert_close(update.metrics["critic_loss"], loss.detach())
    torch.testing.assert_close(update.td_error, torch.stack(errors).mean(0))
    for parameter, grad in zip(made.critic.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


def test_the_actor_gets_its_gradient_from_all_actions() -> None:
    made, batch = model(learning_rate=0.0, ent_coef=0.3), transitions()
    pi = made.actor.logits(batch.observations).softmax(1)
    q = torch.stack(made.critic(batch.observations)).amin(0).detach()
    expected = torch.autograd.grad((pi * (0.3 * pi.log() - q)).sum(1).mean(), list(made.actor.parameters()))
    made.learner.gradient_step(batch, True)
    for parameter, grad in zip(made.actor.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


@pytest.mark.parametrize(("fraction", "rises"), [(0.98, True), (0.0, False)])
def test_the_temperature_moves_the_entropy_to_a_fraction_of_the_largest(fraction: float, rises: bool) -> None:
    made, batch = model(target_entropy=fraction), transitions()
    probabilities = made.actor.logits(batch.observations).softmax(1)
    entropy = -(probabilities * probabilities.log()).sum(1).mean().item()
    assert 0.0 < entropy < 0.98 * math.log(3)
    update = made.learner.gradient_step(batch, True)
    assert made.log_ent_coef.grad.item() == pytest.approx(entropy - fraction * math.log(3), abs=bound(30, 2.0))
    assert (made.log_ent_coef.item() > 0) == rises
    assert update.metrics["entropy"].item() == pytest.approx(entropy, abs=bound(30, 2.0))


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [0.2, 0.6])
def test_it_finds_the_policy_of_that_entropy(fraction: float) -> None:
    """A bandit whose values are known: the learned temperature is that at which softmax(r / alpha) has the entropy."""
    rewards = torch.tensor([0.0, 1.0, 0.5])
    made = model(target_entropy=fraction, gamma=0.0, learning_rate=1e-2, policy_kwargs={"net_arch": []})
    actions = torch.arange(3).repeat(20).view(-1, 1)
    rows = len(actions)
    obs, nothing = torch.ones(rows, 4), torch.zeros(rows)
    for _ in range(1_500):
        made.learner.update(Transition(obs, actions, rewards[actions[:, 0]], obs, nothing, nothing + 1))
    entropy = made.actor.get_distribution(obs[:1]).entropy().item()
    assert entropy == pytest.approx(fraction * math.log(3), abs=0.01)
    alpha = made.log_ent_coef.exp()
    torch.testing.assert_close(
        made.actor.get_distribution(obs[:1]).logits.exp()[0], (rewards / alpha).softmax(0), rtol=0, atol=0.02
    )


# -- the algorithm -----------------------------------------------------------------------------------------------------


def test_actions_that_do_not_start_at_zero() -> None:
    made = model(learning_starts=20, batch_size=8).learn(60)
    (env,) = made.env.unwrapped.envs
    assert set(env.unwrapped.asked) == {5, 6, 7}
    assert set(made.replay_buffer.sample(200).actions.flatten().tolist()) == {0, 1, 2}
    assert {int(made.predict(np.zeros((1, 4), np.float32))[0].item()) for _ in range(40)} <= {5, 6, 7}
