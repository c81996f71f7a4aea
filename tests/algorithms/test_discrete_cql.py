"""Discrete CQL: the penalty in closed form, its fixed point on an enumerated problem, and a target that follows."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from polyak import BCQ, DQN, DiscreteCQL
from polyak.algorithms import discrete_cql
from tests.algorithms import rows
from tests.algorithms.rows import seeded  # noqa: F401

some_data, some_batch = partial(rows.some_data, choices=4), partial(rows.some_batch, choices=4)


def model(cls: Any = DiscreteCQL, **options: Any) -> Any:
    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [8]}, "batch_size": 16}
    return cls("MlpPolicy", some_data(), device="cpu", seed=0, **{**small, **options})


# -- the penalty -------------------------------------------------------------------------------------------------------


def test_the_gap_and_its_gradient_in_closed_form() -> None:
    """The gradient of log sum exp is the softmax; that of what is taken away, the recorded action alone."""
    q, actions = torch.randn(5, 4, dtype=torch.float64, requires_grad=True), torch.tensor([0, 3, 1, 1, 2])
    gap = discrete_cql.conservative_gap(q, actions)
    each = [torch.log(sum(q[b].exp())) - q[b, actions[b]] for b in range(5)]
    torch.testing.assert_close(gap, torch.stack(each))
    (grad,) = torch.autograd.grad(gap.sum(), q)
    torch.testing.assert_close(grad, q.detach().softmax(1) - torch.eye(4, dtype=torch.float64)[actions])
    equal = discrete_cql.conservative_gap(torch.full((2, 4), 3.0), torch.tensor([0, 1]))
    torch.testing.assert_close(equal, torch.full((2,), np.log(4), dtype=torch.float32))


def test_it_adds_the_weighted_mean_of_the_gap() -> None:
    weights = torch.rand(16)
    ours, plain, batch = model(conservative_weight=3.0), model(DQN), some_batch(weights=weights)
    q, target = torch.randn(16, 4), torch.randn(16)
    actions = batch.actions.flatten()
    added = ours.learner.objective(batch, q, target).loss - plain.learner.objective(batch, q, target).loss
    torch.testing.assert_close(added, 3 * (weights * discrete_cql.conservative_gap(q, actions)).mean())


def test_quantiles_are_compared_by_their_means() -> None:
    ours, batch = model(n_quantiles=7), some_batch()
    assert ours.learner.predicted(batch).shape == (16, 7, 4)
    q, target = torch.randn(16, 7, 4), torch.randn(16, 7)
    found = ours.learner.objective(batch, q, target)
    gap = discrete_cql.conservative_gap(q.mean(1), batch.actions.flatten()).mean()
    torch.testing.assert_close(found.metrics["conservative_gap"], gap)
    ours.learn(5)
    assert ours.predict(np.zeros((2, 3), np.float32), deterministic=True)[0].shape == (2,)


def test_forbidden_actions_do_not_count() -> None:
    masks = torch.rand(16, 4) < 0.5
    masks[:, 0] = True
    ours, batch = model(conservative_weight=1.0), some_batch(masks=masks)
    batch = batch._replace(actions=torch.zeros(16, 1, dtype=torch.long))
    q, target = torch.randn(16, 4), torch.randn(16)
    gap = ours.learner.objective(batch, q, target).metrics["conservative_gap"]
    each = [torch.log(sum(q[b, a].exp() for a in range(4) if masks[b, a])) - q[b, 0] for b in range(16)]
    torch.testing.assert_close(gap, torch.stack(each).mean())


def test_the_fixed_point_of_an_enumerated_problem() -> None:
    """Two states and three actions, each recorded as often as a behaviour policy takes it: at the minimum of the loss
    Q - y = alpha (1 - softmax(Q) / behaviour), the weighted form of eq. 2 of the paper's CQL(H)."""
    behaviour = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]], dtype=torch.float64)
    target = torch.tensor([[1.0, 0.5, -0.2], [0.3, 0.0, 0.1]], dtype=torch.float64)
    alpha = 0.1
    rows = torch.tensor([(s, a) for s in range(2) for a in range(3) for _ in range(round(behaviour[s, a].item() * 10))])
    q = torch.zeros(2, 3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([q], max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-14)
    states, actions = rows.T

    def loss() -> Tensor:
        optimizer.zero_grad()
        taken = q[states, actions]
        gap = discrete_cql.conservative_gap(q[states], actions)
        value = (0.5 * (taken - target[states, actions]) ** 2 + alpha * gap).mean()
        value.backward()
        return value

    optimizer.step(loss)
    expected = target + alpha * (1 - q.softmax(1) / behaviour)
    torch.testing.assert_close(q.detach(), expected.detach(), rtol=0, atol=1e-6)


# -- learning from data ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [DiscreteCQL, BCQ, DQN])
def test_the_target_follows_on_the_clock_of_gradient_steps(cls: Any) -> None:
    ours = model(cls, tau=1.0, target_update_interval=10, learning_rate=1e-2)
    weight = lambda network: next(network.parameters()).detach().clone()  # noqa: E731
    start = weight(ours.q_net_target)
    ours.learn(9)
    assert torch.equal(weight(ours.q_net_target), start)
    ours.learn(1, reset_num_timesteps=False)
    assert torch.equal(weight(ours.q_net_target), weight(ours.q_net))
    assert not torch.equal(weight(ours.q_net_target), start)


def test_after_learning_from_data_it_hardly_acts_at_random() -> None:
    ours = model().learn(10)
    assert ours.exploration_rate <= 0.05
