"""The losses against closed forms, enumeration and finite differences."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from polyak import PPO, TD3, TQC, FastTD3
from polyak.algorithms import a2c, crossq, ddpg, dqn, ppo, sac, td3, td3_bc, tqc
from polyak.experience import Transition
from polyak.hyperparameters.declaration import HyperparameterError
from polyak.learning.engine.program import Program
from polyak.learning.rollout_learner import entropy_loss
from polyak.nn import ContinuousPolicy, PolicyError
from polyak.ops.updates import polyak_update
from tests.tolerance import bound, drift, sampling
from tests.trials import trial

CLIP = torch.tensor(0.2)


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


# -- PPO ---------------------------------------------------------------------------------------------------------------


def test_clipped_surrogate_by_cases() -> None:
    """Eq. 7, row by row: which of the two terms is the smaller depends on the signs of A and of r - 1."""
    ratio = np.array([0.5, 0.9, 1.1, 1.5, 0.5, 0.9, 1.1, 1.5])
    advantage = np.array([1.0, 1.0, 1.0, 1.0, -2.0, -2.0, -2.0, -2.0])
    expected = [min(r * a, max(min(r, 1.2), 0.8) * a) for r, a in zip(ratio, advantage, strict=True)]
    got = ppo.clipped_surrogate(torch.tensor(ratio).log(), torch.tensor(advantage), CLIP)
    assert got.item() == pytest.approx(-np.mean(expected))


@pytest.mark.parametrize(("log_ratio", "advantage", "flat"), [(0.5, 1.0, True), (0.5, -1.0, False), (-0.5, -1.0, True)])
def test_clipping_stops_the_gradient_only_where_it_must(log_ratio: float, advantage: float, flat: bool) -> None:
    x = torch.tensor([log_ratio], requires_grad=True)
    ppo.clipped_surrogate(x, torch.tensor([advantage]), CLIP).backward()
    assert (x.grad.item() == 0) == flat


@pytest.mark.parametrize(
    ("ratio", "advantage", "gain", "slope"),
    [
        (0.5, 1.0, 0.5, 0.5),  # a good action: as without, clipped from above
        (4.0, 1.0, 1.2, 0.0),
        (0.5, -2.0, -1.6, 0.0),  # a bad one that has become rarer: as without
        (1.5, -2.0, -3.0, -3.0),  # likelier: it counts in full up to the limit
        (2.9, -2.0, -5.8, -5.8),
        (3.1, -2.0, -6.0, 0.0),  # and no more beyond
        (1e6, -2.0, -6.0, 0.0),
        (1e6, 0.0, 0.0, 0.0),
    ],
)
def test_dual_clip_by_cases(ratio: float, advantage: float, gain: float, slope: float) -> None:
    """arXiv:1912.09729 eq. 5 with c = 3, and the derivative by log r."""
    log_ratio = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    loss = ppo.clipped_surrogate(log_ratio, torch.tensor([advantage]), CLIP, torch.tensor(3.0))
    assert -loss.item() == pytest.approx(gain)
    assert -torch.autograd.grad(loss, log_ratio)[0].item() == pytest.approx(slope)


@pytest.mark.parametrize("c", [1, 1.0, 0.5, -2.0])
def test_dual_clip_is_greater_than_one(c: float) -> None:
    with pytest.raises(HyperparameterError, match=r"^dual_clip=.* cannot be used: it must be a number greater than 1"):
        PPO("MlpPolicy", "CartPole-v1", dual_clip=c)


def test_dual_clip_reaches_the_objective() -> None:
    """Of a rollout whose actions have become much likelier than they were."""
    losses = {}
    for c in (None, 3.0):
        model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, dual_clip=c, compile=False, device="cpu", seed=0).learn(64)
        batch = next(iter(model.rollout_buffer.get()))._replace(old_log_prob=torch.full((64,), -20.0))
        losses[c] = model.learner.update(batch).metrics["policy_gradient_loss"].item()
    assert losses[3.0] < 3 < 1e6 < losses[None]


def test_at_ratio_one_the_surrogates_gradient_is_the_policy_gradient() -> None:
    log_prob, advantages = numbers(64).requires_grad_(), numbers(64, seed=1)
    ppo.clipped_surrogate(log_prob - log_prob.detach(), advantages, CLIP).backward()
    torch.testing.assert_close(log_prob.grad, -advantages / 64)


def test_approximate_kl_is_unbiased_for_gaussians() -> None:
    rng = np.random.default_rng(0)
    mu, sd = 0.3, 1.2  # KL(N(0, 1) || N(mu, sd)) in closed form
    exact = math.log(sd) + (1 + mu**2) / (2 * sd**2) - 0.5
    x = torch.from_numpy(rng.standard_normal(400_000))
    log_ratio = (-0.5 * ((x - mu) / sd) ** 2 - math.log(sd)) + 0.5 * x**2
    assert ppo.approximate_kl(log_ratio).item() == pytest.approx(
        exact, abs=sampling(400_000, (log_ratio.exp() - 1 - log_ratio).std().item())
    )
    assert ppo.approximate_kl(numbers(100)).item() >= 0


def test_clipped_values_move_no_further_than_the_range() -> None:
    old, new = torch.tensor([0.0, 0.0, 0.0]), torch.tensor([0.05, 3.0, -3.0])
    torch.testing.assert_close(ppo.clipped_values(new, old, torch.tensor(0.1)), torch.tensor([0.05, 0.1, -0.1]))


def test_value_and_entropy_losses() -> None:
    values, returns = numbers(10), numbers(10, seed=1)
    assert ppo.value_loss(values, returns).item() == pytest.approx(np.mean((values - returns).numpy() ** 2))
    assert a2c.value_loss(values, returns).item() == pytest.approx(np.mean((values - returns).numpy() ** 2))
    assert entropy_loss(values, returns).item() == pytest.approx(-values.mean().item())
    assert entropy_loss(None, returns).item() == pytest.approx(returns.mean().item())


def test_normalized_advantages() -> None:
    scaled = PPO(**trial(PPO)).learner.normalized(5 + 3 * numbers(1000))
    assert scaled.mean().item() == pytest.approx(0, abs=bound(1000, dtype=np.float64))
    assert scaled.std().item() == pytest.approx(1, abs=2e-8)  # 1e-8 is added to a deviation of about 3


# -- A2C ---------------------------------------------------------------------------------------------------------------


def test_policy_gradient_of_a_bandit_equals_enumeration() -> None:
    """E[grad log pi A] over all actions, weighted by their probabilities, is the gradient of the expected advantage."""
    logits, advantage = numbers(5).requires_grad_(), numbers(5, seed=1)
    expected = torch.autograd.grad((logits.softmax(0) * advantage).sum(), logits)[0]
    got = torch.zeros(5, dtype=torch.float64)
    for action, probability in enumerate(logits.detach().softmax(0)):
        loss = a2c.policy_gradient_loss(logits.log_softmax(0)[action].view(1), advantage[action].view(1))
        got -= probability * torch.autograd.grad(loss, logits)[0]
    torch.testing.assert_close(got, expected)


# -- DQN ---------------------------------------------------------------------------------------------------------------


def test_q_loss_clips_the_gradient_of_the_error_and_weighs_rows() -> None:
    q = torch.tensor([0.3, 5.0, -5.0], requires_grad=True)
    dqn.q_loss(q, torch.zeros(3), torch.tensor([1.0, 1.0, 0.5])).backward()
    torch.testing.assert_close(q.grad, torch.tensor([0.3, 1.0, -0.5]) / 3)


# -- DDPG, TD3, SAC ----------------------------------------------------------------------------------------------------


def test_critic_losses() -> None:
    q, target, weights = numbers(2, 7), numbers(7, seed=1), numbers(7, seed=2).abs()
    each = (weights * (q - target) ** 2).mean(1)
    assert td3.critic_loss(q, target, weights).item() == pytest.approx(each.sum().item())
    assert sac.critic_loss(q, target, weights).item() == pytest.approx(each.sum().item() / 2)
    assert ddpg.critic_loss(q[0], target, weights).item() == pytest.approx(each[0].item())


def test_target_smoothing_is_clipped_gaussian_noise_kept_in_range() -> None:
    torch.manual_seed(0)
    sigma, clip = torch.tensor(0.2), torch.tensor(0.3)
    noise = td3.smoothed(torch.zeros(200_000, 1), sigma, clip).flatten()
    assert noise.abs().max().item() <= 0.3 + bound(1, 0.3)
    inside = (noise.abs() < 0.3 - bound(2, 0.3)).float().mean().item()
    assert inside == pytest.approx(math.erf(0.3 / 0.2 / math.sqrt(2)), abs=sampling(200_000, 0.5))
    assert td3.smoothed(torch.full((1000, 1), 0.95), sigma, clip).max().item() <= 1


def test_target_smoothing_without_a_deviation_is_uniform_noise_kept_in_range() -> None:
    torch.manual_seed(0)
    clip = torch.tensor(0.3)
    noise = td3.smoothed(torch.zeros(200_000, 1), None, clip).flatten()
    assert noise.abs().max().item() <= 0.3 + bound(1, 0.3)
    for level in (-0.25, -0.1, 0.0, 0.2):  # of the distribution function, (x + c) / 2c
        below = (noise < level).float().mean().item()
        assert below == pytest.approx((level + 0.3) / 0.6, abs=sampling(200_000, 0.5))
    assert td3.smoothed(torch.full((1000, 1), 0.95), None, clip).max().item() == 1


@pytest.mark.parametrize("cls", [TD3, pytest.param(FastTD3, marks=pytest.mark.slow)])
def test_target_policy_noise_none_trains_as_a_program_too(cls: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And may be set while it learns."""
    monkeypatch.setattr(Program, "compile", lambda self: None)
    learned = []
    for choice in (False, True):
        small = {**trial(cls), "learning_starts": 20, "target_policy_noise": None, "compile": choice, "seed": 0}
        model = cls(**small).learn(40)
        assert model.learner.target_policy_noise is None
        model.target_policy_noise = 0.1
        model.learn(20, reset_num_timesteps=False)
        assert model.learner.target_policy_noise.item() == pytest.approx(0.1)
        model.target_policy_noise = None
        model.learn(20, reset_num_timesteps=False)
        assert model.learner.target_policy_noise is None
        learned.append(torch.nn.utils.parameters_to_vector(model.policy.parameters()))
    torch.testing.assert_close(*learned, rtol=0, atol=drift(model.learner.steps, 1e-3, 64 + 16 + 16))


def test_td3s_actor_follows_the_first_critic_only() -> None:
    model = TD3("MlpPolicy", "Pendulum-v1", buffer_size=10, policy_kwargs={"net_arch": [8]}, device="cpu", seed=0)
    batch = Transition(numbers(5, 3).float(), *[torch.zeros(5)] * 2, numbers(5, 3).float(), *[torch.zeros(5)] * 2)
    expected = -model.critic.qf0(torch.cat([batch.observations, model.actor(batch.observations)], 1)).mean()
    grads = torch.autograd.grad(expected, list(model.actor.parameters()))
    loss = model.learner.delayed_step(batch)["actor_loss"]
    torch.testing.assert_close(loss, expected.detach())
    for parameter, grad in zip(model.actor.parameters(), grads, strict=True):
        torch.testing.assert_close(parameter.grad, grad)


def test_td3_bcs_actor_weighs_values_by_their_size_and_stays_near_what_was_recorded() -> None:
    q, actions, recorded = numbers(7).requires_grad_(), numbers(7, 2, seed=1).requires_grad_(), numbers(7, 2, seed=2)
    loss = td3_bc.actor_loss(q, actions, recorded, torch.tensor(2.5))
    size = np.abs(q.tolist()).mean()
    distance = np.mean((actions.detach().numpy() - recorded.numpy()) ** 2)
    assert loss.item() == pytest.approx(distance - 2.5 * np.mean(q.tolist()) / size)
    by_q, by_actions = torch.autograd.grad(loss, (q, actions))
    torch.testing.assert_close(by_q, torch.full_like(q, -2.5 / size / 7))  # the size is a number
    torch.testing.assert_close(by_actions, 2 * (actions.detach() - recorded) / 14)


def test_soft_value_and_actor_loss() -> None:
    q, log_prob, alpha = numbers(3, 6), numbers(6, seed=1), torch.tensor(0.3)
    least = q.numpy().min(0)
    np.testing.assert_allclose(
        sac.soft_value(q, log_prob, alpha), least - 0.3 * log_prob.numpy(), rtol=0, atol=bound(1, 0.3 * 3)
    )  # 0.3 is in float32
    assert sac.actor_loss(q, log_prob, alpha).item() == pytest.approx(np.mean(0.3 * log_prob.numpy() - least))


def test_crossqs_target_is_by_the_same_critics_and_a_constant() -> None:
    q, log_prob, rewards = numbers(2, 6).requires_grad_(), numbers(3, seed=1), numbers(3, seed=2)
    now, target = crossq.bellman_sides(q, rewards, torch.tensor([0.9, 0.9, 0.0]), log_prob, torch.tensor(0.5))
    torch.testing.assert_close(now, q[:, :3])
    values = q.detach().numpy()[:, 3:].min(0) - 0.5 * log_prob.numpy()
    expected = rewards.numpy() + np.array([0.9, 0.9, 0.0]) * values
    np.testing.assert_allclose(target.numpy(), expected, rtol=0, atol=bound(1, 0.9 * 4))  # 0.9 is in float32
    assert not target.requires_grad


def test_temperature_rises_when_the_policy_is_too_certain() -> None:
    log_alpha = torch.zeros(1, requires_grad=True)
    log_prob = torch.full((4,), 3.0)  # entropy about -3, below the target of -1
    sac.temperature_loss(log_alpha, log_prob, target_entropy=-1.0).backward()
    assert log_alpha.grad.item() == pytest.approx(-(3.0 - 1.0))  # descent raises log alpha


@pytest.mark.parametrize(("text", "expected"), [("auto", (True, 1.0)), ("auto_0.1", (True, 0.1)), (0.2, (False, 0.2))])
def test_ent_coef_is_parsed(text: float | str, expected: tuple[bool, float]) -> None:
    assert sac.parse_ent_coef(text) == expected


@pytest.mark.parametrize("text", ["autos", "auto_x", "auto_-1", "auto_0", "much"])
def test_bad_ent_coef_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ent_coef"):
        sac.parse_ent_coef(text)


# -- TQC ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("critics", "each", "drop"), [(1, 1, 0), (2, 25, 2), (5, 25, 2), (3, 4, 3), (2, 6, 0)])
def test_the_highest_quantiles_of_all_critics_together_are_dropped(critics: int, each: int, drop: int) -> None:
    quantiles = numbers(critics, 7, each) + 3 * numbers(critics, 1, 1, seed=1)  # one critic may lose more than others
    kept = tqc.truncated(quantiles, drop)
    for row in range(7):
        pooled = [float(quantiles[k, row, i]) for k in range(critics) for i in range(each)]
        for _ in range(critics * drop):
            pooled.remove(max(pooled))
        assert kept[row].tolist() == sorted(pooled)


def test_tqcs_critic_loss_is_the_mean_of_its_terms_and_its_gradient_is_right() -> None:
    q, target, weights = numbers(2, 3, 4), 2 * numbers(3, 5, seed=1), numbers(3, seed=2).abs()
    expected = 0.0
    for k, row, i, j in np.ndindex(2, 3, 4, 5):
        u = float(target[row, j] - q[k, row, i])
        huber = u * u / 2 if abs(u) <= 1 else abs(u) - 1 / 2
        expected += float(weights[row]) * abs((i + 0.5) / 4 - (u < 0)) * huber / (2 * 3 * 4 * 5)
    assert tqc.critic_loss(q, target, weights).item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda q: tqc.critic_loss(q, target, weights), q.requires_grad_())


def test_tqcs_actor_sees_all_quantiles() -> None:
    q, log_prob, alpha = numbers(3, 6), numbers(6, seed=1), torch.tensor(0.3)
    expected = np.mean(0.3 * log_prob.numpy() - q.numpy().mean(0))
    assert tqc.actor_loss(q, log_prob, alpha).item() == pytest.approx(expected)


def quantile_model(n_quantiles: int = 4, **options: Any) -> TQC:
    small = {"net_arch": [8], "n_quantiles": n_quantiles, "n_critics": 3}
    return TQC("MlpPolicy", "Pendulum-v1", buffer_size=10, policy_kwargs=small, device="cpu", seed=0, **options)


def some_transitions() -> Transition:
    numbered = (numbers(5, 3).float(), numbers(5, 1, seed=1).float(), numbers(5, seed=2).float())
    discounts = torch.tensor([0.99, 0.0, 0.97, 0.99, 0.0])
    weights = torch.tensor([1.0, 1.0, 0.5, 2.0, 0.0])
    return Transition(*numbered, numbers(5, 3, seed=3).float(), discounts, weights)


@pytest.mark.parametrize("drop", [0, 1, 3])
def test_tqcs_target_and_objectives_are_those_of_the_paper(drop: int) -> None:
    model, batch, alpha = quantile_model(top_quantiles_to_drop_per_net=drop), some_transitions(), torch.tensor(0.2)
    torch.manual_seed(1)
    target = model.learner.td_target(batch, alpha)
    torch.manual_seed(1)
    with torch.no_grad():
        actions, log_prob = model.actor.action_log_prob(batch.next_observations)
        pooled = model.critic_target(batch.next_observations, actions).flatten(1).numpy()
    lowest = np.sort(pooled, 1)[:, : 3 * (4 - drop)] - 0.2 * log_prob.numpy()[:, None]
    expected = batch.rewards.numpy()[:, None] + batch.discounts.numpy()[:, None] * lowest
    np.testing.assert_allclose(target, expected, rtol=0, atol=bound(4, np.abs(expected).max() + np.abs(lowest).max()))
    assert torch.equal(target[1], batch.rewards[1].expand(target.shape[1])), "nothing follows the end"

    q = model.learner.estimates(batch)
    objective = model.learner.critic_objective(batch, q, target)
    torch.testing.assert_close(objective.loss, tqc.critic_loss(q, target, batch.weights))
    assert objective.td_error.shape == (5,)
    assert not objective.td_error.requires_grad
    error = (q.detach().mean(2) - target.mean(1)).abs().mean(0)
    torch.testing.assert_close(objective.td_error, error)
    alike = model.learner.critic_objective(batch, target.mean(1)[None, :, None].expand(3, 5, 4), target)
    assert alike.td_error.max().item() <= bound(8, target.abs().max().item())


def test_dropping_all_quantiles_is_refused() -> None:
    with pytest.raises(HyperparameterError, match="top_quantiles_to_drop_per_net=4 cannot be used.*n_quantiles=4"):
        quantile_model(top_quantiles_to_drop_per_net=4)
    with pytest.raises(HyperparameterError, match="top_quantiles_to_drop_per_net=2 cannot be used.*n_quantiles=2"):
        quantile_model(n_quantiles=2)
    with pytest.raises(PolicyError, match="needs a policy with a QuantileCritic, but its critic is a ContinuousCritic"):
        TQC(ContinuousPolicy, "Pendulum-v1", buffer_size=10)


# -- targets -----------------------------------------------------------------------------------------------------------


def test_polyak_update_is_the_weighted_mean_and_copies_buffers() -> None:
    source, target = (torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)) for _ in range(2))
    source[1].running_mean.fill_(7.0)
    before = [p.clone() for p in target.parameters()]
    polyak_update(source, target, 0.25)
    for new, old, online in zip(target.parameters(), before, source.parameters(), strict=True):
        torch.testing.assert_close(new, 0.75 * old + 0.25 * online)
    torch.testing.assert_close(target[1].running_mean, source[1].running_mean)
    polyak_update(source, target, torch.tensor(1.0))
    for new, online in zip(target.parameters(), source.parameters(), strict=True):
        assert torch.equal(new, online)
