"""GAIL: the discriminator and its rewards by closed forms, and what goes between discriminator and generator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak import AIRL, GAIL, PPO
from polyak import warning as advice
from polyak.algorithms.gail import GAILLearner, discriminator_loss, expert_penalty, gradient_at, interpolated_penalty
from polyak.algorithms.imitation.reward import RewardFunction, logit, negative, positive
from polyak.algorithms.imitation.rounds import Comparison, comparison
from polyak.callbacks.callback import BaseCallback
from polyak.envs import FixedHorizon, VecNormalize, make_vec_env, with_reward
from polyak.experience import HerReplayBuffer, collect
from polyak.learning.learner import LearnerRecipe, OptimizerRecipe
from polyak.nn.networks.rewards import RewardNet
from tests.pairs import one_of_each
from tests.tolerance import bound

EXPERT = np.array([[6, 2], [1, 8], [3, 4]])
GENERATOR = np.array([[2, 2], [7, 2], [3, 8]])
SMALL = {"n_steps": 32, "batch_size": 32, "n_epochs": 2}


def population() -> tuple[torch.Tensor, ...]:
    """States, actions and origins of 24 demonstrated and 24 generated steps, in the proportions above."""
    rows = [np.repeat(np.argwhere(np.ones((3, 2))), counts.ravel(), axis=0) for counts in (EXPERT, GENERATOR)]
    cells = torch.from_numpy(np.concatenate(rows))
    return cells[:, 0], cells[:, 1], torch.arange(48).lt(24).double()


def test_the_loss_is_least_at_the_ratio_of_densities() -> None:
    states, actions, expert = population()
    table = torch.tensor(np.log(EXPERT / GENERATOR), requires_grad=True)
    loss = discriminator_loss(table[states, actions], expert)
    (gradient,) = torch.autograd.grad(loss, table)
    assert gradient.abs().max() < bound(48, 1.0, np.float64)
    p, q = EXPERT / 24, GENERATOR / 24
    entropies = p * np.log(p / (p + q)) + q * np.log(q / (p + q))
    assert loss.item() == pytest.approx(-entropies.sum() / 2)


def test_a_trained_discriminator_is_the_optimal_one() -> None:
    torch.manual_seed(0)
    states, actions, expert = population()
    make = lambda: RewardNet(spaces.Discrete(3), spaces.Discrete(2), net_arch=[32])  # noqa: E731
    values = {"gradient_penalty": 0.0, "penalty": "expert"}
    learner = GAILLearner(LearnerRecipe(GAILLearner, make, OptimizerRecipe(torch.optim.Adam), 1e-2, values))
    batch = Comparison(states, actions[:, None], None, torch.zeros(48), expert.float(), torch.zeros(48))
    for _ in range(300):
        learner.update(batch)
    grid = np.argwhere(np.ones((3, 2)))
    with torch.no_grad():
        logits = learner.network(torch.from_numpy(grid[:, 0]), torch.from_numpy(grid[:, 1:]), None, torch.zeros(6))
    np.testing.assert_allclose(torch.sigmoid(logits), (EXPERT / (EXPERT + GENERATOR)).ravel(), atol=0.01)


def test_rewards_are_what_they_say_of_d() -> None:
    logits = torch.linspace(-20, 20, 41, dtype=torch.float64)
    d = torch.sigmoid(logits)
    other = torch.sigmoid(-logits)  # 1 - D without cancellation
    torch.testing.assert_close(positive(logits), -other.log())
    torch.testing.assert_close(negative(logits), d.log())
    torch.testing.assert_close(logit(logits), d.log() - other.log())
    assert (positive(logits) >= 0).all()
    assert (negative(logits) <= 0).all()
    assert torch.isfinite(negative(torch.tensor([-1e4, 1e4]))).all()


def test_the_penalty_of_a_linear_network_is_known() -> None:
    weights = torch.tensor([3.0, -4.0], dtype=torch.float64, requires_grad=True)
    squares = gradient_at(lambda inputs, ends: inputs[0] @ weights, (torch.randn(5, 2).double(),), torch.zeros(5))
    torch.testing.assert_close(squares, torch.full((5,), 25.0, dtype=torch.float64))
    assert interpolated_penalty(squares).item() == pytest.approx(16.0)
    assert expert_penalty(squares).item() == pytest.approx(12.5)
    (gradient,) = torch.autograd.grad(expert_penalty(squares), weights)  # of |w|^2 / 2
    torch.testing.assert_close(gradient, weights.detach())


@pytest.mark.parametrize("penalty", one_of_each(["interpolated", "expert"], "interpolated"))
def test_what_is_penalised_gets_smaller(penalty: str) -> None:
    found = []
    for weight in (0.0, 10.0):
        options = {"gradient_penalty": weight, "penalty": penalty, "learning_rate": 1e-2}
        model = small(n_disc_updates_per_round=50, **options).learn(64)
        learner: Any = model.learner
        batch = comparison(model)
        inputs = learner.network.inputs(batch.observations, batch.actions, None, batch.terminated)
        found.append(float(learner.penalty_of(inputs, batch.terminated).detach()))
    free, bounded = found
    assert bounded < 0.5 * free


def small(env: Any = "CartPole-v1", **changes: Any) -> GAIL:
    acts = changes.pop("acts", "CartPole-v1")
    options = {"generator_kwargs": SMALL, "demo_batch_size": 16, "n_disc_updates_per_round": 2}
    demonstrations = collect(acts, None, 100, seed=0)
    return GAIL("MlpPolicy", env, demonstrations=demonstrations, seed=3, device="cpu", **{**options, **changes})


# -- between discriminator and generator -------------------------------------------------------------------------------


class Watch(BaseCallback):
    """Keeps what the loop publishes."""

    def __init__(self) -> None:
        super().__init__()
        self.rewards: list[np.ndarray] = []
        self.owners: set[Any] = set()

    def _on_step(self) -> bool:
        self.rewards.append(self.locals["rewards"])
        self.owners |= {self.model, self.locals["self"]}
        return True


def test_callbacks_see_learned_rewards_and_the_model_that_was_asked_to_learn() -> None:
    model, watch = small(), Watch()
    model.learn(64, watch)
    assert watch.owners == {model}
    assert np.concatenate(watch.rewards).min() > 0
    assert watch.n_calls == 64
    assert watch.num_timesteps == model.num_timesteps == 64


def test_rewards_of_a_rollout_at_once_are_those_of_its_steps() -> None:
    class Rollout(BaseCallback):
        _reads_locals = False

        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            buffer = self.model.generator.rollout_buffer
            self.late = self.model.generator.get_env().late
            self.found = buffer.rewards.copy(), buffer.returns.copy()

    class Step(Rollout):
        _reads_locals = True

    results = []
    for cls in (Rollout, Step):
        callback = cls()
        small(make_vec_env("CartPole-v1", n_envs=3, seed=1)).learn(96, callback)
        assert callback.late == (cls is Rollout)
        results.append(callback.found)
    (rewards, returns), (others, their_returns) = results
    assert rewards.min() > 0
    np.testing.assert_allclose(rewards, others, atol=bound(4 + 32 + 32, 10.0))
    np.testing.assert_allclose(returns, their_returns, atol=bound(32 * 100, 10.0))


def test_true_returns_stay_visible_and_learned_ones_are_logged() -> None:
    logged: dict[str, float] = {}
    model = small(make_vec_env("CartPole-v1", n_envs=2, seed=1))
    model.learn(400)
    lengths = [episode["l"] for episode in model.ep_info_buffer]
    assert lengths == [episode["r"] for episode in model.ep_info_buffer]
    logged.update(model.logger.name_to_value)
    assert logged["rollout/ep_learned_rew_mean"] > 0
    assert "train/disc_loss" in logged
    assert "train/approx_kl" in logged


def test_stored_rewards_follow_the_reward_network() -> None:
    options = {"learning_starts": 20, "batch_size": 16, "buffer_size": 300, "n_steps": 3}
    model = small(generator="dqn", generator_kwargs=options, steps_per_round=40)
    model.learn(200)  # the last of five rounds has just ended
    buffer: Any = model.generator.replay_buffer
    row = buffer.storage.read(np.arange(buffer.size()))
    ends = row["dones"] * (1 - row["timeouts"])
    expected = model.reward(row["observations"], row["actions"][:, 0], row["next_observations"], ends)
    np.testing.assert_allclose(buffer.rewards[: buffer.size(), 0], expected, rtol=1e-5)
    assert model._n_updates == 10


def test_continuous_actions_are_compared_in_the_units_of_the_environment() -> None:
    options = {"learning_starts": 20, "batch_size": 16, "buffer_size": 300}
    model = small("Pendulum-v1", acts="Pendulum-v1", generator="sac", generator_kwargs=options, steps_per_round=50)
    model.learn(100)
    assert model.experience is not None
    assert np.abs(model.experience.actions).max() > 1
    buffer: Any = model.generator.replay_buffer
    row = buffer.storage.read(np.arange(buffer.size()))
    expected = model.reward(row["observations"], 2 * row["actions"], row["next_observations"], np.zeros(100))
    np.testing.assert_allclose(buffer.rewards[:100, 0], expected, rtol=1e-4, atol=1e-5)


def test_beneath_a_normaliser_the_discriminator_sees_what_is() -> None:
    env = VecNormalize(make_vec_env("CartPole-v1", n_envs=2, seed=1))
    model = small(env).learn(200)
    assert model.experience is not None
    seen = model.experience.observations
    inner: Any = model.get_vec_normalize_env()
    assert inner is not env
    assert inner.obs_rms is env.obs_rms
    assert env.obs_rms.count > 200
    assert np.abs(seen).max() < 5  # as CartPole gives them
    assert model.get_env() is env
    model.predict(env.normalize_obs(np.zeros((2, 4), np.float32)))


def test_observations_are_normalised_by_those_of_both() -> None:
    model = small().learn(32)
    norm = model.learner.policy.norm
    assert int(norm.count) == 2 * 2 * 16
    batches: list[np.ndarray] = []
    network: Any = model.learner.policy
    before = norm.count.clone()
    batch = comparison(model)
    batches.append(batch.observations.numpy())
    model.learner.update(batch)
    assert norm.count - before == 32
    assert network.features(batch.observations).abs().max() <= 10


def test_the_learned_reward_trains_another_agent_and_outlives_a_file(tmp_path: Path) -> None:
    model = small().learn(64)
    reward = model.reward
    kept = reward.copy()
    reward.save(tmp_path / "reward")
    again = RewardFunction.load(tmp_path / "reward")
    steps = collect("CartPole-v1", None, 50, seed=5).transitions()
    args = steps.observations, steps.actions, steps.next_observations, steps.terminations
    np.testing.assert_array_equal(reward(*args), again(*args))
    model.learn(64)
    np.testing.assert_array_equal(kept(*args), again(*args))
    assert not np.array_equal(reward(*args), again(*args))

    env = with_reward("CartPole-v1", again)
    env.reset(seed=0)
    _, learned, _, _, info = env.step(0)
    assert info["true_reward"] == 1.0
    assert learned > 0
    vector = with_reward(make_vec_env("CartPole-v1", n_envs=2, seed=0), again)
    agent = PPO("MlpPolicy", vector, **SMALL).learn(64)
    assert agent.num_timesteps == 64
    with pytest.raises(ValueError, match="reward has observation_space"):
        with_reward("Pendulum-v1", again)


def test_parameters_go_from_model_to_model(tmp_path: Path) -> None:
    first, second = small().learn(64), small()
    second.set_parameters(first.get_parameters())
    first.save(tmp_path / "model")
    third = small()
    third.set_parameters(tmp_path / "model")
    for other in (second, third):
        for ours, theirs in ((first.learner, other.learner), (first.generator.learner, other.generator.learner)):
            for name, tensor in ours.networks().items():
                if "exploration" not in name:
                    assert torch.equal(tensor, theirs.networks()[name]), name


def test_another_environment_takes_over() -> None:
    model = small(make_vec_env("CartPole-v1", n_envs=2, seed=1)).learn(64)
    env = make_vec_env("CartPole-v1", n_envs=2, seed=9)
    model.set_env(env)
    assert model.get_env() is env
    assert model.generator.get_env().venv is env
    model.learn(64, reset_num_timesteps=False)
    assert model.num_timesteps == 128
    with pytest.raises(ValueError, match="n_envs=2"):
        model.set_env(make_vec_env("CartPole-v1", n_envs=3))
    assert model.get_env() is env


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="demonstrations have observation_space"):
        small("Pendulum-v1")
    with pytest.raises(ValueError, match="generator=.* cannot be used: it must be an algorithm that learns by acting"):
        small(generator="td3_bc")
    with pytest.raises(ValueError, match="algorithm 'pppo' is unknown"):
        small(generator="pppo")
    with pytest.raises(ValueError, match=r"generator_kwargs\['seed'\]=1 cannot be used: give seed as an argument"):
        small(generator_kwargs={"seed": 1})
    with pytest.raises(ValueError, match="replay_buffer_class.*hindsight"):
        small(generator="dqn", generator_kwargs={"replay_buffer_class": HerReplayBuffer})
    with pytest.raises(ValueError, match="use_state, use_action, use_next_state and use_done are all False"):
        small(use_state=False, use_action=False)
    with pytest.raises(TypeError, match="n_stepz"):
        small(generator_kwargs={"n_stepz": 3})
    model = small().learn(32)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="demonstrations=None: there is nothing to imitate"):
        GAIL.load(tmp_path / "model", env="CartPole-v1", device="cpu").learn(10)
    with pytest.raises(ValueError, match="env=None"):
        GAIL.load(tmp_path / "model", device="cpu").learn(10)


@pytest.mark.parametrize(("algorithm", "fixed"), [(GAIL, False), (AIRL, True)])
def test_episodes_of_varying_length_are_warned_of_once(
    algorithm: type[GAIL], fixed: bool, recwarn: pytest.WarningsRecorder
) -> None:
    def make() -> gym.Env[Any, Any]:
        env = gym.make("CartPole-v1")
        return FixedHorizon(env, 40) if fixed else env

    advice.forget()
    envs = make_vec_env(make, seed=0)
    shown = collect(envs, None, 200, seed=0)
    algorithm("MlpPolicy", envs, demonstrations=shown, generator_kwargs=SMALL, seed=0, device="cpu").learn(256)
    messages = [str(warning.message) for warning in recwarn if "FixedHorizon" in str(warning.message)]
    assert len(messages) == (not fixed)
    if not fixed:
        lengths = shown.lengths[shown.terminated]
        assert f"demonstrated episodes last from {lengths.min()} to {lengths.max()} steps" in messages[0]
