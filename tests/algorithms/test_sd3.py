"""SD3: its targets by loops over samples, and which network learns from what."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from polyak import SD3
from polyak.algorithms import sd3
from polyak.experience import Transition
from tests.tolerance import bound, sampling

ROWS = 6


def model(**options: Any) -> Any:
    settings = {"policy_kwargs": {"net_arch": [8]}, "buffer_size": 50, "device": "cpu", "seed": 0, "compile": False}
    made = SD3("MlpPolicy", "Pendulum-v1", **{**settings, **options})
    with torch.no_grad():
        for parameter in made.policy.pairs_target.parameters():
            parameter.add_(torch.randn_like(parameter))  # so that targets differ from what they follow
    return made


def transitions(rows: int = ROWS, weights: Tensor | None = None) -> Transition:
    torch.manual_seed(1)
    return Transition(
        torch.randn(rows, 3),
        torch.rand(rows, 1) * 2 - 1,
        torch.randn(rows),
        torch.randn(rows, 3),
        0.9 * (torch.arange(rows) % 3 > 0),
        torch.ones(rows) if weights is None else weights,
    )


# -- pure functions ----------------------------------------------------------------------------------------------------


def test_noise_is_clipped_and_actions_stay_in_range() -> None:
    actions, draws = torch.tensor([[0.0, 0.9]]), torch.tensor([[[1.0, 1.0], [9.0, -9.0], [-1.0, 0.0]]])
    got = sd3.noisy_actions(actions, draws, torch.tensor(0.2), torch.tensor(0.5))
    torch.testing.assert_close(got, torch.tensor([[[0.2, 1.0], [0.5, 0.4], [-0.2, 0.9]]]))


def test_the_density_is_that_of_the_noise_before_clipping() -> None:
    sigma, draws = 0.3, torch.randn(4, 5, 2, dtype=torch.float64)
    densities = torch.distributions.Normal(0.0, sigma).log_prob(sigma * draws).sum(2)
    constant = 2 * math.log(sigma * math.sqrt(2 * math.pi))
    torch.testing.assert_close(sd3.log_inverse_density(draws), -densities - constant)


def test_weighted_by_densities_the_sampled_softmax_is_the_integral() -> None:
    """Q(a) = -a^2: the weights exp(beta Q) are a Gaussian of variance 1 / (2 beta), under which Q has the mean
    -1 / (2 beta), wherever the samples come from."""
    torch.manual_seed(0)
    n, beta = 200_000, 2.0
    draws = torch.randn(1, n, 1, dtype=torch.float64)
    q = -draws.squeeze(2).square().unsqueeze(0)
    got = sd3.softmax_value(q, torch.tensor(beta), sd3.log_inverse_density(draws))
    weights = (sd3.log_inverse_density(draws) + beta * q[0]).softmax(1)
    error = n * (weights * (q[0] - got)).std().item()  # of a self-normalised mean, by the delta method
    assert got.item() == pytest.approx(-1 / (2 * beta), abs=sampling(n, error))
    plain = sd3.softmax_value(q, torch.tensor(beta))  # of samples from N(0, 1): the product is N(0, 1 / (1 + 2 beta))
    assert plain.item() == pytest.approx(-1 / (1 + 2 * beta), abs=sampling(n, 1.0))


def test_the_softmax_is_of_the_smaller_critics_value() -> None:
    q = torch.tensor([[[1.0, 5.0, 2.0]], [[3.0, 0.0, 2.0]]])
    least = torch.tensor([1.0, 0.0, 2.0])
    assert sd3.softmax_value(q, torch.tensor(0.0)).item() == pytest.approx(1.0)
    assert sd3.softmax_value(q, torch.tensor(1e6)).item() == 2.0
    weights = torch.exp(0.5 * least)
    assert sd3.softmax_value(q, torch.tensor(0.5)).item() == pytest.approx(
        ((weights * least).sum() / weights.sum()).item()
    )


# -- targets -----------------------------------------------------------------------------------------------------------


def by_loops(made: Any, batch: Transition, i: int) -> np.ndarray:
    """The i-th target, sample by sample, from the random numbers that come next."""
    k = made.n_noise_samples
    draws = torch.randn(len(batch.rewards), k, 1).double().numpy()
    targets = []
    for b in range(len(batch.rewards)):
        state = batch.next_observations[b : b + 1]
        centre = made.policy.pairs_target[i].actor(state).item()
        values, logits = [], []
        for z in draws[b, :, 0]:
            noise = min(max(made.target_policy_noise * z, -made.target_noise_clip), made.target_noise_clip)
            action = torch.tensor([[min(max(centre + noise, -1.0), 1.0)]], dtype=torch.float32)
            q = min(pair.critic(state, action)[0].item() for pair in made.policy.pairs_target)
            density = math.exp(-z * z / 2) if made.importance_sampling else 1.0
            values.append(q)
            logits.append(made.beta * q - math.log(density))
        weights = np.exp(np.array(logits) - max(logits))
        value = (weights * np.array(values)).sum() / weights.sum()
        targets.append(batch.rewards[b].item() + batch.discounts[b].item() * value)
    return np.array(targets)


@pytest.mark.parametrize("i", [0, 1])
@pytest.mark.parametrize("importance_sampling", [False, True])
@pytest.mark.parametrize("beta", [0.0, 0.3, 20.0])
def test_targets_are_those_of_loops_over_rows_and_samples(beta: float, importance_sampling: bool, i: int) -> None:
    made = model(beta=beta, importance_sampling=importance_sampling, n_noise_samples=7, target_policy_noise=0.4)
    batch = transitions()
    torch.manual_seed(5)
    got = made.learner.td_target(batch, i)
    torch.manual_seed(5)
    expected = by_loops(made, batch, i)
    # values are sums over 8 units of numbers of up to 10; an error of theirs moves the weights by beta times as much
    error = bound(8 + 4 + 7, 10.0)
    np.testing.assert_allclose(got, expected, rtol=0, atol=error * (1 + 2 * beta * 10.0))


def test_a_small_beta_is_the_mean_and_a_large_one_the_maximum() -> None:
    batch, found = transitions(), {}
    for beta in (0.0, 1e-6, 1.0, 1e8):
        made = model(beta=beta)
        torch.manual_seed(5)
        found[beta] = made.learner.td_target(batch, 0)
    torch.testing.assert_close(found[0.0], found[1e-6])
    assert torch.all(found[0.0] <= found[1.0])
    assert torch.all(found[1.0] <= found[1e8])
    assert torch.isfinite(found[1e8]).all()


def test_nothing_counts_after_the_end() -> None:
    made, batch = model(), transitions()
    over = batch.discounts == 0
    assert over.any()
    torch.testing.assert_close(made.learner.td_target(batch, 1)[over], batch.rewards[over])


# -- who learns from what ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("i", [0, 1])
def test_each_actor_follows_its_own_critic_only(i: int) -> None:
    batch = transitions()
    made = model(learning_rate=0.0)  # the critic's step before the actor's changes nothing
    pair, other = made.policy.pairs[i], made.policy.pairs[1 - i]
    q = pair.critic.qf0(torch.cat([batch.observations, pair.actor(batch.observations)], 1))
    expected = torch.autograd.grad(-q.mean(), list(pair.actor.parameters()))
    made.learner.pair_step(batch, i)
    for parameter, grad in zip(pair.actor.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, grad)
    assert all(p.grad is None for p in other.parameters())


def test_each_pair_learns_from_rows_of_its_own() -> None:
    weights = torch.cat([torch.ones(ROWS), torch.zeros(ROWS)])
    made, batch = model(), transitions(2 * ROWS, weights)
    before = [[p.detach().clone() for p in pair.critic.parameters()] for pair in made.policy.pairs]
    update = made.learner.update(batch)
    first, second = (
        [not torch.equal(old, new) for old, new in zip(olds, pair.critic.parameters(), strict=True)]
        for olds, pair in zip(before, made.policy.pairs, strict=True)
    )
    assert all(first)
    assert not any(second)  # none of its rows counts
    assert update.td_error.shape == (2 * ROWS,)
    assert all(p.grad.abs().sum() > 0 for p in made.policy.pairs[1].actor.parameters())


def test_a_gradient_step_draws_a_batch_for_each_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    for pairs in (1, 2):
        made = model(policy_kwargs={"net_arch": [8], "n_pairs": pairs}, batch_size=5, learning_starts=10)
        seen: list[int] = []
        update = made.learner.update
        monkeypatch.setattr(
            made.learner, "update", lambda b, u=update, seen=seen: (seen.append(len(b.rewards)), u(b))[1]
        )
        made.learn(15)
        assert set(seen) == {5 * pairs}


def test_every_target_follows_its_own_pair() -> None:
    made = model(tau=1.0)
    made.learner.update(transitions())
    for pair, target in zip(made.policy.pairs, made.policy.pairs_target, strict=True):
        for one, other in zip(pair.parameters(), target.parameters(), strict=True):
            torch.testing.assert_close(one, other)
    assert not torch.equal(made.pairs[0].actor.mu[0].weight, made.pairs[1].actor.mu[0].weight)


def test_it_acts_by_the_proposal_that_its_own_critic_values_most() -> None:
    made = model()
    with torch.no_grad():
        for parameter in made.policy.pairs.parameters():
            parameter.add_(torch.randn_like(parameter))
    obs = torch.randn(40, 3)
    chosen = set()
    for row in obs.split(1):
        proposals = [pair.actor(row) for pair in made.policy.pairs]
        values = [pair.critic(row, action)[0].item() for pair, action in zip(made.policy.pairs, proposals, strict=True)]
        best = int(np.argmax(values))
        chosen.add(best)
        torch.testing.assert_close(made.policy.act(row), proposals[best])
    assert chosen == {0, 1}
    torch.testing.assert_close(made.policy.act(obs), torch.cat([made.policy.act(row) for row in obs.split(1)]))


def test_many_values_at_once_are_those_one_by_one() -> None:
    made, obs, actions = model(), torch.randn(4, 3), torch.rand(4, 5, 1)
    many = made.policy.pairs.q_values_of_many(obs, actions)
    each = torch.stack([made.policy.pairs.q_values(obs, actions[:, m]) for m in range(5)], 2)
    assert many.shape == (2, 4, 5)
    torch.testing.assert_close(many, each)


def test_fewer_than_one_pair_is_refused() -> None:
    with pytest.raises(ValueError, match="n_pairs must be at least 1"):
        model(policy_kwargs={"n_pairs": 0})
