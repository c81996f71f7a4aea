"""REINFORCE: its gradient is that of the expected return, and its updates are made of whole episodes."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from polyak import REINFORCE
from polyak.algorithms import reinforce
from polyak.envs import DummyVecEnv, make_vec_env
from polyak.experience.batch import gathered
from polyak.hyperparameters.declaration import HyperparameterError
from tests.pairs import one_of_each
from tests.tolerance import bound
from tests.worlds import World

GAMMA, HORIZON = 0.8, 3
START = np.array([0.7, 0.3])
MOVES = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.1, 0.9]]])  # [state, action, next state]
REWARDS = np.array([[1.0, -0.5], [0.3, 2.0]])
ENDS = np.array([[0.3, 0.0], [0.1, 0.5]])  # probability of termination after (state, action)


class TwoStates(gym.Env[np.ndarray, Any]):
    """A Markov decision process of two states, told apart by what is seen, that ends by itself or after a few steps."""

    observation_space, action_space = spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.state, self.time = int(self.np_random.random() < START[1]), 0
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        return np.eye(2, dtype=np.float32)[self.state]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward, ends = REWARDS[self.state, action], self.np_random.random() < ENDS[self.state, action]
        self.state = int(self.np_random.random() < MOVES[self.state, action, 1])
        self.time += 1
        return self.seen(), float(reward), bool(ends), self.time == HORIZON, {}


def expected_return(logits: Tensor, t: int = 0, state: int | None = None) -> Tensor:
    """sum of gamma^t r over all that may happen, by enumeration. logits [state, action]"""
    if state is None:
        return sum(p * expected_return(logits, 0, s) for s, p in enumerate(START))
    if t == HORIZON:
        return torch.zeros(())
    total = torch.zeros(())
    for action, p in enumerate(logits[state].softmax(0)):
        then = sum(MOVES[state, action, s] * expected_return(logits, t + 1, s) for s in range(2))
        total = total + p * (REWARDS[state, action] + GAMMA * (1 - ENDS[state, action]) * then)
    return total


class Tabular(reinforce.ActorCriticPolicy):
    """A linear policy: of what is seen here, a table of logits and one of values."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "net_arch": [], "ortho_init": False})
        with torch.no_grad():
            self.action_net.weight[:] = torch.tensor([[0.5, -0.3], [-0.2, 0.8]])
            self.value_net.weight[:] = torch.tensor([[1.0, 2.0]])
            self.action_net.bias.zero_()


@pytest.mark.parametrize("baseline", one_of_each([False, True], True))
def test_its_gradient_is_that_of_the_expected_return(baseline: bool) -> None:
    """The loss' gradient by the logits' weights, of many episodes, against the enumerated exact one: 3 sigma."""
    batches, episodes = 40, 200
    env = DummyVecEnv([TwoStates] * 50)
    options = {"gamma": GAMMA, "discount_states": True, "baseline": baseline, "learning_rate": 0.0, "device": "cpu"}
    model = REINFORCE(Tabular, env, episodes_per_update=episodes, seed=0, **options)
    weight, found = model.policy.action_net.weight, []
    learner = model.learner

    def look(batch: Any) -> Any:
        batch = gathered(batch)
        _, log_prob, entropy = learner.evaluated(batch)
        found.append(-torch.autograd.grad(learner.actor_objective(batch, log_prob, entropy).loss, weight)[0])
        return update(batch)

    update, learner.update = learner.update, look
    while len(found) < batches:
        model.learn(1, reset_num_timesteps=not found)
    gradients = torch.stack(found).double()
    logits = weight.detach().T.clone().requires_grad_()
    exact = torch.autograd.grad(expected_return(logits), logits)[0].T
    error = gradients.std(0) / batches**0.5
    assert (error < 0.05 * exact.abs().max()).all(), "too few episodes to tell"
    assert ((gradients.mean(0) - exact).abs() < 3 * error).all(), (gradients.mean(0), exact, error)


class Lengths(World):
    """Episodes of lengths that a random number decides; rewards and observations tell the step."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def begin(self) -> None:
        self.length = int(self.np_random.integers(1, 9))
        self.truncates = self.length % 2 == 0

    def look(self) -> np.ndarray:
        return np.float32([self.t])

    def act(self, action: Any) -> float:
        return float(self.t)


def rollout(n_envs: int, **options: Any) -> tuple[REINFORCE, Any]:
    """A model that does not move, and its first rollout."""
    env = DummyVecEnv([Lengths] * n_envs)
    model = REINFORCE("MlpPolicy", env, gamma=0.5, learning_rate=0.0, device="cpu", seed=1, **options)
    model.train = lambda: None  # type: ignore[method-assign]
    model.learn(1)
    return model, model.rollout_buffer


@pytest.mark.parametrize(("n_envs", "episodes"), [(1, 1), (1, 7), (4, 4), (4, 10)])
def test_an_update_has_so_many_whole_episodes(n_envs: int, episodes: int) -> None:
    _, buffer = rollout(n_envs, episodes_per_update=episodes, baseline=False)
    starts = buffer.counted & (buffer.episode_starts > 0)
    assert starts.sum() == episodes
    order = np.flatnonzero(buffer.episode_starts > 0)  # time by time, environment by environment
    np.testing.assert_array_equal(order[:episodes], np.flatnonzero(starts), "the first to begin, not the first to end")
    rows = buffer.counted.sum()
    batch = next(iter(buffer.get()))
    assert len(batch.returns) == rows
    assert sum(len(b.returns) for b in buffer.get(3)) == rows
    assert (batch.observations == 0).sum() == episodes


@pytest.mark.parametrize("bootstrap", [False, True])
def test_returns_of_episodes_that_end_and_that_are_cut(bootstrap: bool) -> None:
    model, buffer = rollout(3, episodes_per_update=9, bootstrap_truncated=bootstrap)
    times, counted = buffer.observations[..., 0], buffer.counted
    with torch.no_grad():
        values = model.policy.predict_values(torch.arange(12.0)[:, None]).flatten().numpy()
    seen_cuts = 0
    for i in range(3):
        ends = np.flatnonzero(np.append(buffer.episode_starts[1:, i], True))
        for t in np.flatnonzero(counted[:, i]):
            end = ends[ends >= t][0]
            rewards = times[t : end + 1, i] + 1
            expected = (0.5 ** np.arange(len(rewards)) * rewards).sum()
            length = int(rewards[-1])
            if length % 2 == 0:
                seen_cuts += 1
                expected += bootstrap * 0.5 ** len(rewards) * values[length]
            assert buffer.returns[t, i] == pytest.approx(expected, abs=bound(100, 10))
            baseline = values[int(times[t, i])]
            assert buffer.advantages[t, i] == pytest.approx(expected - baseline, abs=bound(100, 10))
    assert seen_cuts


def test_weights_of_later_states_and_normalised_returns() -> None:
    options = {"episodes_per_update": 9, "baseline": False}
    plain, scaled, later, both = (
        rollout(3, **options, **extra)[1]
        for extra in (
            {},
            {"normalize_returns": True},
            {"discount_states": True},
            {"normalize_returns": True, "discount_states": True},
        )
    )
    weights = 0.5 ** plain.observations[..., 0]
    np.testing.assert_allclose(later.advantages, plain.advantages * weights, rtol=1e-6)
    np.testing.assert_allclose(both.advantages, scaled.advantages * weights, rtol=1e-6)
    chosen = scaled.advantages[scaled.counted]
    assert chosen.mean() == pytest.approx(0, abs=1e-6)
    assert chosen.std(ddof=1) == pytest.approx(1, abs=1e-6)
    np.testing.assert_array_equal(scaled.returns, plain.returns)


def test_the_value_loss_moves_the_baseline_alone_and_the_policy_loss_the_actor_alone() -> None:
    model = REINFORCE("MlpPolicy", "CartPole-v1", episodes_per_update=2, device="cpu", seed=0, compile=False).learn(1)
    learner, policy = model.learner, model.policy
    batch = next(iter(model.rollout_buffer.get()))
    values, log_prob, entropy = learner.evaluated(batch)
    losses = {
        "actor": learner.actor_objective(batch, log_prob, entropy).loss,
        "critic": learner.critic_objective(batch, values.flatten()).loss,
    }
    owned = {"actor": policy.actor_parameters(), "critic": policy.critic_parameters()}
    assert len(owned["actor"]) + len(owned["critic"]) == len(list(policy.parameters()))
    for name, loss in losses.items():
        for other, parameters in owned.items():
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True, retain_graph=True)
            assert all((gradient is not None) == (name == other) for gradient in gradients)


def test_the_critic_has_a_learning_rate_of_its_own() -> None:
    options = {"episodes_per_update": 2, "learning_rate": 1e-3, "device": "cpu"}
    model = REINFORCE("MlpPolicy", "CartPole-v1", critic_learning_rate=lambda left: left * 0.1, **options).learn(200)
    rates = {name: float(o.param_groups[0]["lr"]) for name, o in model.learner.optimizers.items()}
    assert rates["actor"] == pytest.approx(1e-3)
    assert 0 <= rates["critic"] < 0.1 * (1 - 20 / 200)
    model.critic_learning_rate = 0.5
    model.learn(1)
    assert float(model.learner.optimizers["critic"].param_groups[0]["lr"]) == 0.5
    shared = REINFORCE("MlpPolicy", "CartPole-v1", **options).learn(1)
    assert float(shared.learner.optimizers["critic"].param_groups[0]["lr"]) == pytest.approx(1e-3)


def test_without_a_baseline_there_is_no_critic_to_learn() -> None:
    model = REINFORCE("MlpPolicy", "CartPole-v1", baseline=False, device="cpu", seed=0)
    before = [p.clone() for p in model.policy.critic_parameters()]
    model.learn(300)
    assert all(map(torch.equal, before, model.policy.critic_parameters()))
    with pytest.raises(HyperparameterError, match="bootstrap_truncated=True cannot be used: without a baseline"):
        REINFORCE("MlpPolicy", "CartPole-v1", baseline=False, bootstrap_truncated=True)
    with pytest.raises(HyperparameterError, match="episodes_per_update=3 cannot be used: each of the n_envs=4"):
        REINFORCE("MlpPolicy", make_vec_env("CartPole-v1", n_envs=4), episodes_per_update=3)
