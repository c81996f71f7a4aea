"""CQL: the penalty against quadrature, finite differences and loops; targets by enumeration; the direction of the
multiplier; and what is drawn, learned and cloned when."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polyak import CQL
from polyak.algorithms import cql
from polyak.experience import Dataset
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.schedules import LinearSchedule
from tests.algorithms import rows
from tests.algorithms.rows import parts, seeded, some_batch  # noqa: F401
from tests.tolerance import bound, sampling, through

some_data = partial(rows.some_data, width=1)

ONE = torch.tensor(1.0)


def model(data: Dataset | None = None, **options: Any) -> Any:
    small: dict[str, Any] = {"policy_kwargs": {"net_arch": [8, 8]}, "batch_size": 16, "n_action_samples": 3}
    return CQL("MlpPolicy", some_data() if data is None else data, device="cpu", seed=0, **{**small, **options})


# -- the penalty -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_the_sum_is_an_integral_over_all_actions(temperature: float) -> None:
    """exp of the gap plus Q, divided by N, is an unbiased estimate of the integral of exp(Q / T), whatever is drawn."""
    ours, draws = model(), 30_000
    with torch.no_grad():
        for network in ours.critic.q_networks:
            network[-1].weight.mul_(5)
        here, there = torch.randn(1, 3), torch.randn(1, 3)
        drawn = [cql.Drawn(*ours.actor.get_distribution(obs).sample_many_with_log_prob(draws)) for obs in (here, there)]
        tried = cql.with_uniform(*drawn)
        assert tried.actions.shape == (1, 3 * draws, 1)
        q = ours.critic.q_values_of_many(here, tried.actions).double()
        gap = cql.conservative_gap(torch.zeros(2, 1), q, tried.log_densities.double(), torch.tensor(temperature))
        grid = torch.linspace(-1, 1, 4001)
        on_grid = (ours.critic.q_values_of_many(here, grid.reshape(1, -1, 1)).double() / temperature).exp()
        exact = torch.trapezoid(on_grid, grid.double())[:, 0]
        terms = (q / temperature - tried.log_densities.double()).exp()[:, 0]
    assert on_grid.std() > 0.05, "the critics must tell actions apart"
    error = sampling(3 * draws, float(terms.std(1).max()))
    torch.testing.assert_close((gap[:, 0] / temperature).exp() / (3 * draws), exact, rtol=0, atol=error)
    assert error < 0.05 * float(exact.min()), "the estimate must say something"


def test_of_critics_that_see_no_actions_it_is_the_volume() -> None:
    """All densities cancel: T log(N 2^A), whatever the constant values are."""
    here = cql.Drawn(torch.rand(5, 4, 2), torch.full((5, 4), -2 * np.log(2)))
    tried = cql.with_uniform(here, here)
    gap = cql.conservative_gap(torch.full((2, 5), 7.0), torch.full((2, 5, 12), 7.0), tried.log_densities, ONE / 2)
    torch.testing.assert_close(gap, torch.full((2, 5), 0.5 * np.log(12 * 2**2)))


def test_gradients_are_those_of_finite_differences() -> None:
    """By every parameter of the critics: through the recorded action and all others, and through nothing else."""
    ours = model(policy_kwargs={"net_arch": [4], "activation_fn": nn.Tanh})
    critic, batch = ours.critic.double(), some_batch(5)
    weights = torch.rand(5).double()
    here, there = (cql.Drawn(torch.rand(5, 3, 1).double() * 2 - 1, torch.randn(5, 3).double()) for _ in range(2))
    tried = cql.with_uniform(here, there)
    actions = torch.cat([batch.actions.double().unsqueeze(1), tried.actions], 1)
    critic._preprocess = lambda obs: obs
    params = list(critic.own_parameters())

    def loss(*_: Tensor) -> Tensor:
        q = critic.q_values_of_many(batch.observations.double(), actions)
        gap = cql.conservative_gap(q[..., 0], q[..., 1:], tried.log_densities, torch.tensor(0.7).double())
        return cql.penalty(cql.excess(gap, weights, torch.tensor(3.0), torch.tensor(0.5)), torch.tensor(2.0))

    assert torch.autograd.gradcheck(loss, params)


def test_the_critics_loss_is_that_of_loops() -> None:
    ours = model(conservative_weight=3.0, softmax_temperature=0.5)
    weights = torch.rand(6)
    batch = some_batch(6, weights=weights)
    tried, log_densities, target = torch.randn(2, 6, 9), torch.randn(6, 9), torch.randn(6)
    q = torch.randn(2, 6)
    gap = cql.conservative_gap(q, tried, log_densities, torch.tensor(0.5))
    term = cql.penalty(cql.excess(gap, weights, torch.tensor(3.0)))
    loss = ours.learner.critic_objective(batch, q, target).plus(term).loss
    expected = 0.0
    for k in range(2):
        for b in range(6):
            total = sum(np.exp((tried[k, b, j] / 0.5 - log_densities[b, j]).item()) for j in range(9))
            one = 0.5 * np.log(total) - q[k, b].item()
            expected += weights[b].item() / 6 * 0.5 * ((q[k, b] - target[b]).item() ** 2 + 3.0 * one)
    assert loss.item() == pytest.approx(expected, rel=1e-5)


def test_a_step_lowers_the_gap_and_touches_no_actor() -> None:
    ours = model(conservative_weight=100.0, learning_rate=1e-2, actor_learning_rate=0.0)
    batch = some_batch(64)._replace(actions=torch.full((64, 1), 0.8))
    before = parts(ours)
    gaps = [ours.learner.update(batch).metrics["conservative_gap"].item() for _ in range(60)]
    assert gaps[-1] < gaps[0] - 1
    assert torch.equal(parts(ours)["actor"], before["actor"])


def test_what_is_tried_carries_no_gradient() -> None:
    ours = model()
    here = cql.Drawn(*ours.actor.get_distribution(torch.randn(4, 3)).sample_many_with_log_prob(5))
    assert here.actions.requires_grad
    with torch.no_grad():
        tried = cql.with_uniform(here, here)
    assert not tried.actions.requires_grad
    assert not tried.log_densities.requires_grad


# -- densities ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("use_sde", [False, True])
def test_densities_over_actions_in_the_datasets_units_integrate_to_one(use_sde: bool) -> None:
    ours = model(use_sde=use_sde)
    low, high = ours.action_space.low[0], ours.action_space.high[0]
    grid = np.linspace(low, high, 200_001)[1:-1, None]
    with torch.no_grad():
        policy = ours.actor.get_distribution(torch.randn(1, 3))
        policy = type(policy)(type(policy.gaussian)(*(getattr(policy.gaussian, name) for name in fields(policy))))
        scaled = torch.as_tensor(ours.policy.from_env(grid)).float()
        log_density = policy.log_prob(scaled) - np.log((high - low) / 2)
    assert np.trapezoid(log_density.double().exp().numpy(), grid[:, 0]) == pytest.approx(1.0, abs=1e-3)
    uniform = cql.with_uniform(*[cql.Drawn(scaled[None], torch.zeros(1, len(scaled)))] * 2).log_densities[0, -1]
    assert np.exp(uniform.item()) * 2 == pytest.approx(1.0)


def fields(policy: Any) -> list[str]:
    return list(type(policy.gaussian).__dataclass_fields__)


@pytest.mark.parametrize("use_sde", [False, True])
def test_many_actions_come_with_their_log_densities(use_sde: bool) -> None:
    ours = model(some_data(width=2), use_sde=use_sde)
    with torch.no_grad():
        policy = ours.actor.get_distribution(torch.randn(4, 3))
        actions, log_densities = policy.sample_many_with_log_prob(6)
        assert actions.shape == (4, 6, 2)
        for j in range(6):
            inverted = policy.log_prob(actions[:, j])
            torch.testing.assert_close(log_densities[:, j], inverted, rtol=1e-3, atol=1e-3)
        many = policy.sample_many_with_log_prob(20_000)[0].atanh()
        error = sampling(20_000, float(policy.gaussian.std.max()))
        torch.testing.assert_close(many.mean(1), policy.gaussian.mean, rtol=0, atol=error)
        torch.testing.assert_close(many.std(1), policy.gaussian.std, rtol=0, atol=error)


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"soft_q_backup": True}, {"max_q_backup": True}])
def test_targets_are_what_the_options_say(options: dict[str, bool]) -> None:
    ours, batch = model(**options), some_batch(4)
    there = cql.Drawn(torch.rand(4, 3, 1), torch.randn(4, 3))
    alpha = torch.tensor([0.3])
    target = ours.learner.backed_up(batch, there, alpha)
    for b in range(4):
        obs = batch.next_observations[b : b + 1]
        values = torch.stack([ours.critic_target.q_values(obs, there.actions[b, j : j + 1])[:, 0] for j in range(3)], 1)
        value = values[:, 0].min() - (0.3 * there.log_densities[b, 0] if options.get("soft_q_backup") else 0)
        if options.get("max_q_backup"):
            value = values.max(1).values.min()
        torch.testing.assert_close(target[b], batch.rewards[b] + 0.9 * value)


def test_many_values_are_those_of_one_action_after_another() -> None:
    ours = model(some_data(width=2), policy_kwargs={"net_arch": [32, 16]})
    obs, actions = torch.randn(7, 3), torch.rand(7, 5, 2) * 2 - 1
    with torch.no_grad():
        many = ours.critic.q_values_of_many(obs, actions)
        assert many.shape == (2, 7, 5)
        features = ours.critic._features(obs)
        for j in range(5):
            inputs = torch.cat([features, actions[:, j]], 1)
            for k, network in enumerate(ours.critic.q_networks):
                values, error = through(network, inputs)
                assert ((many[k, :, j] - values[:, 0]).abs() <= 8 * error[:, 0] + bound(1)).all()
        for network in ours.critic.q_networks:  # one whose first layer is no product
            network.insert(0, nn.Identity())
        torch.testing.assert_close(ours.critic.q_values_of_many(obs, actions), many, rtol=1e-5, atol=1e-5)


# -- the multiplier ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gap", "grows"), [(3.0, True), (1.0, False)])
def test_the_multiplier_grows_while_the_gap_is_too_large(gap: float, grows: bool) -> None:
    log_multiplier = torch.zeros(1, requires_grad=True)
    above = cql.excess(torch.full((2, 5), gap), torch.ones(5), torch.tensor(4.0), torch.tensor(8.0))
    torch.testing.assert_close(above, torch.full((2,), 4 * gap - 8))
    cql.multiplier_loss(above, log_multiplier.exp()).backward()
    torch.testing.assert_close(log_multiplier.grad, torch.tensor([8 - 4 * gap]))
    assert (log_multiplier.grad.item() < 0) == grows


@pytest.mark.parametrize(("threshold", "grows"), [(0.0, True), (1000.0, False)])
def test_the_multiplier_is_learned(threshold: float, grows: bool) -> None:
    ours, batch = model(lagrange_threshold=threshold), some_batch()
    seen = [ours.learner.update(batch).metrics["multiplier"].item() for _ in range(5)]
    assert seen[0] == 1.0
    assert seen == sorted(seen, reverse=not grows)
    assert seen[-1] != 1.0
    ours.learner.log_multiplier.data.fill_(50.0)
    assert ours.learner.multiplier().item() == 1e6


def test_the_multiplier_scales_the_penalty_and_the_threshold_does_not() -> None:
    gap = torch.randn(2, 6, requires_grad=True)
    for multiplier in (1.0, 3.0):
        for threshold in (0.0, 5.0):
            above = cql.excess(gap, torch.ones(6), torch.tensor(2.0), threshold)
            (grad,) = torch.autograd.grad(cql.penalty(above, torch.tensor(multiplier)), gap)
            torch.testing.assert_close(grad, torch.full((2, 6), 0.5 * multiplier * 2 / 6))


# -- who learns what, and how fast -------------------------------------------------------------------------------------


def test_actor_and_temperature_have_a_rate_of_their_own() -> None:
    ours = model(lagrange_threshold=1.0).learn(2)
    rates = {name: float(optimizer.param_groups[0]["lr"]) for name, optimizer in ours.learner.optimizers.items()}
    assert rates == pytest.approx({"actor": 1e-4, "ent_coef": 1e-4, "critic": 3e-4, "multiplier": 3e-4})
    ours = model(learning_rate=LinearSchedule(1e-3, 0.0, 1.0), actor_learning_rate=LinearSchedule(1.0, 0.0, 1.0))
    ours.learn(10)
    rates = {name: float(optimizer.param_groups[0]["lr"]) for name, optimizer in ours.learner.optimizers.items()}
    assert rates == pytest.approx({"actor": 0.1, "ent_coef": 0.1, "critic": 1e-4})


def test_the_actor_clones_at_first_whatever_the_critics_say() -> None:
    results = {}
    for steps in (1, 0):
        for scale in (1.0, 50.0):
            ours, batch = model(bc_steps=steps), some_batch()
            for network in ours.critic.q_networks:
                network[-1].weight.data.mul_(scale)
            torch.manual_seed(1)
            ours.learner.update(batch)
            results[steps, scale] = parts(ours)["actor"]
    assert torch.equal(results[1, 1.0], results[1, 50.0])
    assert not torch.equal(results[0, 1.0], results[0, 50.0])


def test_cloning_raises_the_likelihood_of_recorded_actions() -> None:
    ours = model(bc_steps=100, ent_coef=0.0, actor_learning_rate=1e-2)
    batch = some_batch(64)._replace(actions=torch.full((64, 1), 0.5))
    likelihood = lambda: ours.actor.get_distribution(batch.observations).log_prob(batch.actions).mean().item()  # noqa: E731
    before, losses = likelihood(), []
    for _ in range(60):
        losses.append(ours.learner.update(batch).metrics["actor_loss"].item())
    assert losses[0] == pytest.approx(-before, rel=1e-5)
    assert likelihood() > before + 1
    assert ours.predict(np.zeros((1, 3), np.float32), deterministic=True)[0].item() == pytest.approx(
        float(ours.policy.to_env(np.array([[0.5]])).item()), abs=0.5
    )


def test_no_action_is_drawn_twice() -> None:
    ours, batch = model(n_action_samples=4), some_batch()
    torch.manual_seed(5)
    ours.learner.update(batch)
    after = torch.get_rng_state()
    torch.manual_seed(5)
    torch.randn(16, 4, 1)
    torch.randn(16, 4, 1)
    torch.rand(16, 4, 1)
    assert torch.equal(torch.get_rng_state(), after)


def test_contradictions_are_refused() -> None:
    with pytest.raises(HyperparameterError, match="max_q_backup=True cannot be used: the best next action is taken"):
        model(soft_q_backup=True, max_q_backup=True)
