"""AIRL: its logit by the definition, in the units of the generator, and the reward that it hands out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from polyak import AIRL
from polyak.algorithms.airl import WIDEST, discriminator_logits
from polyak.algorithms.imitation.rounds import comparison
from polyak.envs import VecNormalize, make_vec_env
from polyak.envs.testing import InvalidActionEnvDiscrete
from polyak.experience import collect
from polyak.nn.networks.rewards import ShapedRewardNet
from tests.tolerance import bound

SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 2}
OFF_POLICY = {"learning_starts": 20, "batch_size": 16, "buffer_size": 300}


def small(env: Any = "CartPole-v1", acts: str = "CartPole-v1", **changes: Any) -> AIRL:
    options = {"generator_kwargs": SMALL, "demo_batch_size": 16, "n_disc_updates_per_round": 2, "device": "cpu"}
    return AIRL("MlpPolicy", env, demonstrations=collect(acts, None, 100, seed=0), seed=3, **{**options, **changes})


@pytest.mark.parametrize("use_action", [False, True])
def test_f_is_the_reward_with_a_potential_that_is_0_in_terminal_states(use_action: bool) -> None:
    torch.manual_seed(0)
    seen, acted = spaces.Box(-1, 1, (3,), np.float64), spaces.Box(-2, 2, (2,), np.float64)
    network = ShapedRewardNet(seen, acted, gamma=0.9, use_action=use_action, net_arch=[8], potential_arch=[4]).double()
    network.preprocess = network.reward.preprocess = network.potential.preprocess = lambda obs: obs  # type: ignore[method-assign]
    network.reward._encode_action._preprocess = lambda actions: actions
    obs, then, actions = torch.randn(5, 3).double(), torch.randn(5, 3).double(), torch.randn(5, 2).double()
    ends = torch.tensor([0, 1, 0, 1, 0]).double()

    def perceptron(module: Any, x: Tensor) -> Tensor:
        first, _, last = module.network
        return (torch.relu(x @ first.weight.T + first.bias) @ last.weight.T + last.bias)[:, 0]

    state = [network.reward.norm(obs), network.potential.norm(obs), network.potential.norm(then)]
    g = perceptron(network.reward, torch.cat([state[0], actions / 2], 1) if use_action else state[0])
    now, after = perceptron(network.potential, state[1]), perceptron(network.potential, state[2])
    expected = g + 0.9 * torch.where(ends > 0, 0.0, after) - now
    found = network(obs, actions, then, ends)
    torch.testing.assert_close(found, expected, rtol=0, atol=bound(20, 10.0, np.float64))
    log_probs = torch.randn(5).double()
    torch.testing.assert_close(discriminator_logits(found, log_probs), expected - log_probs)
    d = found.exp() / (found.exp() + log_probs.exp())  # eq. 3
    torch.testing.assert_close(torch.sigmoid(discriminator_logits(found, log_probs)), d)


def test_the_generator_learns_from_the_logit_by_its_present_policy() -> None:
    model = small(make_vec_env("CartPole-v1", n_envs=2, seed=1))
    for _ in range(2):  # the policy moves, and the density with it
        model.learn(64)
        steps = collect("CartPole-v1", None, 60, seed=4).transitions()
        policy, network = model.policy, model.learner.policy
        obs, then = (torch.from_numpy(x) for x in (steps.observations, steps.next_observations))
        with torch.no_grad():
            probabilities = policy.get_distribution(obs).logits.softmax(1)
            f = network(obs, torch.from_numpy(steps.actions), then, torch.from_numpy(steps.terminations).float())
        taken = probabilities[torch.arange(60), torch.from_numpy(steps.actions)]
        args = steps.observations, steps.actions, steps.next_observations, steps.terminations
        np.testing.assert_allclose(model._rewards(*args), f - taken.log(), atol=bound(64 + 64 + 32, 10.0))


@pytest.mark.parametrize("generator", ["ppo", "sac"])
def test_densities_are_in_one_unit_for_expert_and_generator(generator: str) -> None:
    """Both are looked up by actions in the environment's units, [-2, 2] here."""
    own = SMALL if generator == "ppo" else OFF_POLICY
    model = small("Pendulum-v1", "Pendulum-v1", generator=generator, generator_kwargs=own, steps_per_round=50)
    model.learn(64)
    obs = np.zeros((5, 3), np.float32)
    actions = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]], np.float32)
    found = model._log_probs(obs, actions)
    assert torch.isfinite(found).all()
    policy: Any = model.policy
    with torch.no_grad():
        if generator == "ppo":  # clipped on the way to the environment, and not scaled
            distribution = policy.get_distribution(torch.from_numpy(obs))
            normal = torch.distributions.Normal(distribution.mean, distribution.std)
            expected = normal.log_prob(torch.from_numpy(actions)).sum(1)
        else:
            mean, log_std, _ = policy.actor.get_action_dist_params(torch.from_numpy(obs))
            squashed = torch.from_numpy(actions / 2).double().clamp(-WIDEST, WIDEST)
            normal = torch.distributions.Normal(mean.double(), log_std.double().exp())
            expected = (normal.log_prob(torch.atanh(squashed)) - (1 - squashed**2).log()).sum(1).float()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_minibatches_hold_the_density_of_all_their_rows() -> None:
    model = small(VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=1))).learn(64)
    batch = comparison(model)
    normalizer: Any = model.get_vec_normalize_env()
    obs = torch.from_numpy(normalizer.normalize_obs(batch.observations.numpy()))
    policy: Any = model.policy
    with torch.no_grad():
        expected = policy.get_distribution(obs).log_prob(batch.actions.flatten())
    torch.testing.assert_close(batch.log_probs, expected)
    assert batch.expert.tolist() == [1.0] * 16 + [0.0] * 16


def test_stored_rewards_are_by_the_present_policy() -> None:
    model = small("Pendulum-v1", "Pendulum-v1", generator="sac", generator_kwargs=OFF_POLICY, steps_per_round=50)
    model.learn(100)  # a round has just ended
    buffer: Any = model.generator.replay_buffer
    row = buffer.storage.read(np.arange(100))
    expected = model._rewards(row["observations"], 2 * row["actions"], row["next_observations"], np.zeros(100))
    np.testing.assert_allclose(buffer.rewards[:100, 0], expected, rtol=1e-4, atol=1e-4)


def test_the_reward_that_is_handed_out_depends_on_the_state_alone() -> None:
    model = small().learn(64)
    steps = collect("CartPole-v1", None, 20, seed=4).transitions()
    found = model.reward(steps.observations, steps.actions, steps.next_observations, steps.terminations)
    others = model.reward(steps.observations, 1 - steps.actions, steps.observations, ~steps.terminations)
    np.testing.assert_array_equal(found, others)
    network: Any = model.learner.policy
    with torch.no_grad():
        g = network.reward(torch.from_numpy(steps.observations), torch.zeros(20), None, torch.zeros(20))
    np.testing.assert_array_equal(found, g)
    by_action = small(use_action=True).reward
    assert not np.array_equal(
        by_action(steps.observations, steps.actions, None, steps.terminations),
        by_action(steps.observations, 1 - steps.actions, None, steps.terminations),
    )


def test_what_has_no_density_is_refused() -> None:
    with pytest.raises(ValueError, match="generator='dqn' cannot be used: AIRL needs the density"):
        small(generator="dqn", generator_kwargs=OFF_POLICY)
    with pytest.raises(ValueError, match="a policy without memory"):
        small(policy_kwargs={"memory": "lstm"})
    env = InvalidActionEnvDiscrete(dim=5, n_invalid_actions=2)
    demonstrations = collect(InvalidActionEnvDiscrete(dim=5, n_invalid_actions=0), None, 20)
    with pytest.raises(ValueError, match="where masks forbid some"):
        AIRL("MlpPolicy", env, demonstrations=demonstrations.for_env(env), generator_kwargs=SMALL, device="cpu")
