"""QAC: SARSA's targets, the policy gradient by action values, and the fixed point that both have."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from polyak import QAC
from polyak.algorithms import qac
from polyak.envs import DummyVecEnv
from polyak.experience.batch import ExtendedRolloutSamples
from tests.algorithms.test_deep_sarsa import Restless
from tests.algorithms.test_reinforce import ENDS, MOVES, REWARDS, TwoStates
from tests.fields.test_masks import Forbidding
from tests.pairs import one_of_each
from tests.scores.small_envs import Corridor
from tests.scores.test_small_problems import mean_return
from tests.tolerance import bound

GAMMA, STEPS = 0.9, 40


def small(env: Any = "CartPole-v1", **options: Any) -> QAC:
    options = {"policy_kwargs": {"net_arch": [8]}, "compile": False, **options}
    return QAC("MlpPolicy", env, device="cpu", seed=0, **options)


def in_doubles(masked: bool, **options: Any) -> tuple[Any, ExtendedRolloutSamples, Tensor]:
    """A learner in float64, a batch of rows whose values are those of its critic, and all its values [B, A]."""
    model = small(Restless(), **options)
    learner = model.learner.double()
    learner.policy._preprocess = lambda obs: obs  # which would make float32 of them
    generator = torch.Generator().manual_seed(1)
    rows = 12
    obs = torch.rand(rows, 3, generator=generator, dtype=torch.float64)
    actions = torch.arange(rows) % 3
    masks = torch.ones(rows, 3, dtype=torch.bool)
    if masked:
        masks[torch.arange(rows), (actions + 1) % 3] = False
    values, log_prob, _ = learner.policy.evaluate_actions(obs, actions, masks)
    returns = torch.randn(rows, generator=generator, dtype=torch.float64)
    numbers = values.detach().flatten(), log_prob.detach(), torch.full_like(returns, torch.nan), returns
    batch = ExtendedRolloutSamples(obs, actions[:, None].double(), *numbers, {"masks": masks})
    return learner, batch, learner.policy.q_values(obs).detach()


# -- policy and losses -------------------------------------------------------------------------------------------------


def test_expected_value_by_hand() -> None:
    q, probs = torch.tensor([[1.0, 4.0, -2.0], [0.0, 3.0, 9.0]]).double(), torch.tensor([[0.5, 0.25, 0.25], [0, 1, 0]])
    assert qac.expected_value(q, probs).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_the_policy_has_a_value_for_an_action_and_a_mean_without_one(sparse: bool, masked: bool) -> None:
    learner, batch, q = in_doubles(masked, policy_kwargs={"net_arch": [8], "sparse": sparse, "ortho_init": False})
    policy, masks = learner.policy, batch.extras["masks"]
    values, _, _ = policy.evaluate_actions(batch.observations, batch.actions, masks)
    torch.testing.assert_close(values, q.gather(1, batch.actions.long()))
    logits = policy.action_net(policy.mlp_extractor.forward_actor(batch.observations)).masked_fill(~masks, -torch.inf)
    if not sparse:
        expected = (logits.softmax(1) * q).sum(1, keepdim=True)
        torch.testing.assert_close(policy.predict_values(batch.observations, masks), expected)
    each = [policy.evaluate_actions(batch.observations, torch.full((12,), a), masks)[1].exp() for a in range(3)]
    probs = torch.stack(each, 1)
    torch.testing.assert_close(policy.predict_values(batch.observations, masks), (probs * q).sum(1, keepdim=True))
    actions, values, log_prob = policy(batch.observations)
    torch.testing.assert_close(values, q.gather(1, actions[:, None]))
    torch.testing.assert_close(log_prob, policy.evaluate_actions(batch.observations, actions)[1])
    assert not policy.acts_by_forward


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("baseline", [False, True])
def test_gradients_are_those_of_finite_differences(baseline: bool, masked: bool) -> None:
    """Of -E[Q log pi] - c H and E[(G - Q)^2] in float64, with Q, less its mean, a number in the first."""
    learner, batch, q = in_doubles(masked, baseline=baseline, ent_coef=0.3)
    policy, rows, actions = learner.policy, torch.arange(12), batch.actions.long().flatten()
    masks, found = batch.extras["masks"], {}

    def probabilities() -> Tensor:
        logits = policy.action_net(policy.mlp_extractor.forward_actor(batch.observations))
        return logits.masked_fill(~masks, -torch.inf).softmax(1)

    weights = q[rows, actions] - (probabilities().detach() * q).sum(1) * baseline

    def actor() -> Tensor:
        probs = probabilities()
        entropy = -(probs * probs.clamp_min(1e-300).log()).sum(1)
        return -(weights * probs[rows, actions].log() + 0.3 * entropy).mean()

    def critic() -> Tensor:
        return ((batch.returns - policy.q_values(batch.observations)[rows, actions]) ** 2).mean()

    owned = {"actor": policy.actor_parameters(), "critic": policy.critic_parameters()}
    learner.minimise = lambda name, loss, *_: found.update({name: torch.autograd.grad(loss, owned[name])})
    metrics = learner.gradient_step(batch).metrics
    torch.testing.assert_close(metrics["policy_loss"], -(weights * probabilities()[rows, actions].log()).mean())
    torch.testing.assert_close(metrics["value_loss"], critic().detach())
    for name, loss in (("actor", actor), ("critic", critic)):
        for parameter, gradient in zip(owned[name], found[name], strict=True):
            for index in np.ndindex(*parameter.shape[:1], *(1,) * (parameter.ndim - 1)):
                with torch.no_grad():
                    before = parameter[index].clone()
                    parameter[index] = before + 1e-6
                    above = loss()
                    parameter[index] = before - 1e-6
                    below = loss()
                    parameter[index] = before
                assert float(gradient[index]) == pytest.approx(float(above - below) / 2e-6, abs=1e-8, rel=1e-6)


@pytest.mark.parametrize("masked", [False, True])
def test_a_baseline_leaves_the_expected_gradient_as_it_is(masked: bool) -> None:
    """sum_a pi(a|s) Q(s, a) grad log pi(a|s) is the gradient of sum_a pi(a|s) Q(s, a), with and without."""
    expected, of_actions = {}, {}
    for baseline in (False, True):
        learner, batch, q = in_doubles(masked, baseline=baseline)
        policy, masks = learner.policy, batch.extras["masks"]
        weight, total, each = policy.action_net.weight, 0, []
        for action in range(3):
            actions = torch.full((12,), action)
            _, log_prob, _ = policy.evaluate_actions(batch.observations, actions, masks)
            rows = batch._replace(actions=actions[:, None].double(), old_values=q[:, action])
            probs, values = log_prob.exp().detach(), learner.action_values(rows)
            loss = -(torch.where(masks[:, action], probs * values * log_prob, 0)).mean()
            each.append(-torch.autograd.grad(loss, weight)[0])
            total = total + each[-1]
        expected[baseline], of_actions[baseline] = total, each
        mean = policy.get_distribution(batch.observations).masked(masks).probs
        exact = torch.autograd.grad((mean * q).sum(1).mean(), weight)[0]
        torch.testing.assert_close(total, exact)
    torch.testing.assert_close(expected[True], expected[False])
    assert not torch.allclose(of_actions[True][0], of_actions[False][0])


# -- targets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("decay", [0.0, 0.7, 1.0])
def test_targets_by_their_recursion(decay: float, masked: bool) -> None:
    """G_t = r + gamma (Q(s', a') + decay (G_(t+1) - Q(s', a'))); where no a' was taken, the mean stands for all."""
    env = Forbidding(spaces.Discrete(4), cuts=True) if masked else Restless()
    model = small(env, n_steps=STEPS, gamma=GAMMA, gae_lambda=decay)
    steps: list[Any] = []
    prepare, model.train = model._prepare_to_learn, lambda: None

    def watch(reset: bool) -> None:
        prepare(reset)  # the first reset may show that there are masks, for which the buffer is made anew
        record = model.rollout_buffer.record
        model.rollout_buffer.record = lambda step, **more: (steps.append(step), record(step, **more))

    model._prepare_to_learn = watch
    model.learn(STEPS)
    assert any(step.truncated[0] for step in steps)
    assert masked or any(step.terminated[0] for step in steps)

    @torch.no_grad()
    def q(obs: np.ndarray) -> np.ndarray:
        return model.policy.q_values(torch.as_tensor(obs))[0].double().numpy()

    @torch.no_grad()
    def mean(obs: np.ndarray) -> float:
        probs = model.policy.get_distribution(torch.as_tensor(obs)).probs[0].double().numpy()
        probs = probs * (obs[0] > 0) if masked else probs  # it shows what it allows
        return float((probs / probs.sum() * q(obs)).sum())

    returns = np.zeros(STEPS)
    for t in reversed(range(STEPS)):
        step = steps[t]
        returns[t] = step.rewards[0]
        if not step.terminated[0]:
            after = step.next_observations
            if step.truncated[0] or t == STEPS - 1:
                returns[t] += GAMMA * mean(after)
            else:
                then = q(after)[steps[t + 1].actions[0]]
                returns[t] += GAMMA * (then + decay * (returns[t + 1] - then))
    np.testing.assert_allclose(model.rollout_buffer.returns.reshape(-1), returns, rtol=0, atol=bound(STEPS * 80, 5))
    taken = [q(step.observations)[step.actions[0]] for step in steps]
    np.testing.assert_allclose(model.rollout_buffer.values.reshape(-1), taken, rtol=0, atol=bound(80, 5))


class Tabular(qac.ActionValuePolicy):
    """Of what is seen in TwoStates: a table of logits and one of values."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "net_arch": [], "ortho_init": False, "share_features_extractor": False})
        with torch.no_grad():
            self.action_net.weight[:] = torch.tensor([[0.5, -0.3], [-0.2, 0.8]])
            for bias in (self.action_net.bias, self.value_net.bias):
                bias.zero_().requires_grad_(False)


@pytest.mark.slow
def test_the_critic_finds_the_values_of_the_policy_that_acts() -> None:
    """Those of Bellman's equation, in which a time limit ends nothing."""
    env, rates = DummyVecEnv([TwoStates] * 64), {"learning_rate": 0.0, "critic_learning_rate": lambda left: 0.1 * left}
    model = QAC(Tabular, env, **rates, gamma=GAMMA, device="cpu", seed=0).learn(64 * 8 * 300)
    probs = model.policy.action_net.weight.detach().softmax(0).T.double().numpy()  # [state, action]
    transitions = GAMMA * ((1 - ENDS)[:, :, None, None] * MOVES[..., None] * probs).reshape(4, 4)
    exact = np.linalg.solve(np.eye(4) - transitions, REWARDS.reshape(4)).reshape(2, 2)
    np.testing.assert_allclose(model.policy.value_net.weight.detach().T.numpy(), exact, rtol=0, atol=0.05)


# -- learning ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("baseline", one_of_each([False, True], True))
def test_it_carries_value_back_through_a_corridor(baseline: bool) -> None:
    env = DummyVecEnv([lambda: Corridor(False)] * 16)
    rates = {"learning_rate": 3e-3, "critic_learning_rate": 3e-2, "ent_coef": 0.02}
    model = QAC("MlpPolicy", env, gamma=0.97, baseline=baseline, device="cpu", seed=2, **rates)
    assert mean_return(model, Corridor(False)) < 1
    assert mean_return(model.learn(16 * 8 * 60), Corridor(False)) == pytest.approx(1.0)
