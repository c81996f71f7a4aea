"""IQL's losses, its order of steps, and what its numbers mean."""

from typing import Any

import numpy as np
import pytest
import torch

from polyak import IQL
from polyak.algorithms.iql import IQLLearner, actor_loss, critic_loss, expectile_loss
from polyak.experience import Dataset, Transition, collect
from polyak.schedules import CosineSchedule

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 8]}, "batch_size": 16, "device": "cpu", "seed": 1}


@pytest.fixture(scope="module")
def swings() -> Dataset:
    return collect("Pendulum-v1", None, 300, seed=0)


def batch_of(model: IQL, seed: int = 0) -> Transition:
    model.data_buffer.seed(seed)
    return Transition.from_samples(model.data_buffer.sample(16), 0.9)


@pytest.mark.parametrize("expectile", [0.1, 0.5, 0.7, 0.95])
def test_the_expectile_minimises_its_loss(expectile: float) -> None:
    values = torch.from_numpy(np.random.default_rng(0).normal(size=500))
    tau, ones = torch.tensor(expectile, dtype=torch.float64), torch.ones(500, dtype=torch.float64)
    grid = torch.linspace(-3, 3, 60_001, dtype=torch.float64)
    # E|tau - 1(x < m)| (x - m)^2 has its minimum where tau E(x - m)+ = (1 - tau) E(m - x)+
    above = torch.stack([(values - m).clamp(min=0).mean() for m in grid[::100]])
    below = torch.stack([(m - values).clamp(min=0).mean() for m in grid[::100]])
    expected = grid[::100][(tau * above - (1 - tau) * below).abs().argmin()]
    losses = torch.stack([expectile_loss(values - m, tau, ones) for m in grid[::100]])
    assert grid[::100][losses.argmin()] == pytest.approx(expected.item(), abs=0.0101)
    if expectile == 0.5:
        assert grid[::100][losses.argmin()] == pytest.approx(values.mean().item(), abs=0.0051)


def test_losses_against_their_definitions() -> None:
    rng = np.random.default_rng(0)
    q, target, weights = rng.normal(size=(2, 5)), rng.normal(size=5), rng.uniform(size=5)
    expected = sum(np.mean(weights * (q[k] - target) ** 2) for k in range(2))
    assert critic_loss(*map(torch.from_numpy, (q, target, weights))).item() == pytest.approx(expected)
    log_prob, advantages = rng.normal(size=5), np.array([-1.0, 0.0, 0.5, 2.0, 30.0])
    counts = np.minimum(np.exp(3 * advantages), 100)
    given = [torch.from_numpy(np.asarray(x)) for x in (log_prob, advantages, 3.0, 100.0, weights)]
    assert actor_loss(*given).item() == pytest.approx(-np.mean(weights * counts * log_prob))


def test_no_gradient_flows_through_advantages() -> None:
    log_prob, advantages = torch.zeros(3, requires_grad=True), torch.ones(3, requires_grad=True)
    actor_loss(log_prob, advantages, torch.tensor(3.0), torch.tensor(100.0), torch.ones(3)).backward()
    assert advantages.grad is None
    assert log_prob.grad is not None


def test_the_order_of_steps(swings: Dataset) -> None:
    """Three steps written out: the value function first, by the lagging critics; the actor and the critics by the
    value function as it is then; the lagging critics last."""
    model, other = (IQL("MlpPolicy", swings, learning_rate=1e-2, actor_learning_rate=1e-2, **SMALL) for _ in range(2))
    learner: Any = other.learner
    policy = learner.policy
    for step in range(3):
        batch = batch_of(model, step)
        model.learner.update(batch)

        with torch.no_grad():
            lagging = policy.critic_target.q_values(batch.observations, batch.actions).min(0).values
        error = lagging - policy.value(batch.observations)
        learner.minimise("value", (torch.where(error < 0, 0.3, 0.7) * error**2).mean())
        with torch.no_grad():
            counts = (3.0 * (lagging - policy.value(batch.observations))).exp().clamp(max=100.0)
            target = batch.rewards + batch.discounts * policy.value(batch.next_observations)
        log_prob = policy.actor.get_distribution(batch.observations).log_prob(batch.actions)
        learner.minimise("actor", -(counts * log_prob).mean())
        first, second = policy.critic(batch.observations, batch.actions)
        learner.minimise("critic", ((first[:, 0] - target) ** 2).mean() + ((second[:, 0] - target) ** 2).mean())
        for late, now in zip(policy.critic_target.parameters(), policy.critic.parameters(), strict=True):
            late.data.lerp_(now.data, 0.005)
    for (name, ours), theirs in zip(
        model.policy.named_parameters(), policy.parameters(), strict=True
    ):  # three Adam steps of 1e-2 amplify the rounding of 16 x 8 sums no further than this
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=name)


def test_only_the_actor_slows_down(swings: Dataset) -> None:
    model = IQL("MlpPolicy", swings, learning_rate=1e-3, **SMALL)
    rates: list[tuple[float, float]] = []

    def note(names: Any, _: Any) -> bool:
        optimizers = model.learner.optimizers
        rates.append(tuple(float(optimizers[name].param_groups[0]["lr"]) for name in ("actor", "critic")))
        return True

    model.learn(10, note)
    expected = [CosineSchedule(3e-4)(1 - done / 10) for done in range(10)]
    assert [actor for actor, _ in rates] == pytest.approx(expected)
    assert [critic for _, critic in rates] == pytest.approx([1e-3] * 10)


def test_the_value_is_asked_of_recorded_actions_only(swings: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    model = IQL("MlpPolicy", swings, **SMALL)
    batch, asked = batch_of(model), []
    learner = model.learner
    assert isinstance(learner, IQLLearner)
    for critic in (model.critic, model.critic_target):
        values = critic.q_values
        monkeypatch.setattr(critic, "q_values", lambda o, a, f=values: (asked.append(a), f(o, a))[1])
    learner.update(batch)
    assert len(asked) == 2
    assert all(torch.equal(actions, batch.actions) for actions in asked)
