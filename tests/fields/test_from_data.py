"""Learning from a dataset: instead of acting, beside it, and before it."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from polyak import DQN, SAC, TD3, TD3BC
from polyak.callbacks.callback import BaseCallback
from polyak.experience import Dataset, ReplayBuffer, collect
from polyak.experience.replay_memory import mixed
from polyak.parts.units import affine

SMALL: dict[str, Any] = {"policy_kwargs": {"net_arch": [16, 16]}, "batch_size": 16, "device": "cpu", "seed": 1}


@pytest.fixture(scope="module")
def swings() -> Dataset:
    return collect("Pendulum-v1", None, 450, seed=0)


@pytest.fixture(scope="module")
def poles() -> Dataset:
    return collect("CartPole-v1", None, 300, seed=0)


class Counting(BaseCallback):
    def __init__(self, stop_at: int = 10**9) -> None:
        super().__init__()
        self.stop_at = stop_at

    def _on_step(self) -> bool:
        return self.n_calls < self.stop_at


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.learner.networks().items()}


def assert_equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_time_is_counted_in_gradient_steps(swings: Dataset) -> None:
    counting = Counting()
    model = SAC("MlpPolicy", swings, **SMALL).learn(70, counting)
    assert model.learns_offline
    assert (model.num_timesteps, model._n_updates, counting.n_calls) == (70, 70, 70)
    assert model.replay_buffer is None


def test_a_callback_stops_it(swings: Dataset) -> None:
    assert SAC("MlpPolicy", swings, **SMALL).learn(70, Counting(stop_at=5)).num_timesteps == 5


@pytest.mark.parametrize("learning_rate", [1e-3, lambda left: 1e-3 * left])
def test_watching_it_changes_nothing(swings: Dataset, learning_rate: Any) -> None:
    options = {**SMALL, "learning_rate": learning_rate}
    alone, watched = (TD3("MlpPolicy", swings, **options).learn(40, callback) for callback in (None, Counting()))
    assert_equal(weights(alone), weights(watched))


def test_it_replays_what_the_dataset_holds(swings: Dataset) -> None:
    model = TD3("MlpPolicy", swings, **SMALL)
    rows = swings.transitions()
    buffer = model.data_buffer
    assert buffer.size() == len(swings)
    assert buffer.full
    np.testing.assert_array_equal(buffer.observations[:, 0], rows.observations)
    np.testing.assert_array_equal(buffer.next_observations[:, 0], rows.next_observations)
    np.testing.assert_array_equal(buffer.rewards[:, 0], rows.rewards.astype(np.float32))
    np.testing.assert_array_equal(buffer.dones[:, 0], rows.terminations | rows.truncations)
    np.testing.assert_array_equal(buffer.timeouts[:, 0], rows.truncations)
    np.testing.assert_allclose(buffer.actions[:, 0], rows.actions / 2, rtol=0, atol=2 * np.finfo(np.float32).eps)


def test_discrete_actions(poles: Dataset) -> None:
    model = DQN("MlpPolicy", poles, **SMALL).learn(30)
    np.testing.assert_array_equal(model.data_buffer.actions[:, 0, 0], poles.actions)
    assert poles.terminated.any()
    np.testing.assert_array_equal(model.data_buffer.timeouts[:, 0], poles.truncations)


def test_the_same_model_continues_by_acting(swings: Dataset) -> None:
    model = TD3BC("MlpPolicy", swings, **SMALL).learn(20)
    learned = weights(model)
    model.set_env(gym.make("Pendulum-v1"))
    assert_equal(learned, weights(model))
    model.learn(30)
    assert not model.learns_offline
    assert model.num_timesteps == model.replay_buffer.size() == 30
    assert model._n_updates == 50, "it learns from the first step on, since it has data"


def test_it_takes_several_environments(swings: Dataset) -> None:
    model = SAC("MlpPolicy", swings, **SMALL)
    model.set_env(gym.make_vec("Pendulum-v1", num_envs=3))
    assert model.learn(30).replay_buffer.n_envs == 3


def test_a_model_with_data_does_not_begin_at_random(swings: Dataset) -> None:
    model = TD3("MlpPolicy", swings, **SMALL)
    model.set_env(gym.make("Pendulum-v1"))
    assert "warm_up" not in model.make_actor().exploration
    assert "warm_up" in TD3("MlpPolicy", "Pendulum-v1", **SMALL).make_actor().exploration


def test_what_it_acts_is_the_dataset_s_share(swings: Dataset) -> None:
    own = ReplayBuffer(100, swings.observation_space, swings.action_space, device="cpu")
    obs = np.zeros((1, 3), np.float32)
    for _ in range(50):
        own.add(obs, obs, np.zeros((1, 1)), np.full(1, 7.0), np.zeros(1), [{}])
    data = TD3("MlpPolicy", swings, **SMALL).data_buffer
    for batch, _ in mixed(own, data, 0.25, 16, 0.99, None, 3):
        assert batch.rewards.shape == (16,)
        assert (batch.rewards == 7).sum() == 12
    counts = [int((batch.rewards != 7).sum()) for batch, _ in mixed(own, data, 1 / 3, 16, 0.99, None, 500)]
    deviation = (500 * 16 * (1 / 3) * (2 / 3)) ** 0.5
    assert abs(sum(counts) - 500 * 16 / 3) < 5 * deviation
    assert len(set(counts)) > 3


def test_without_a_share_all_rows_are_as_likely(swings: Dataset) -> None:
    model = TD3("MlpPolicy", swings, **SMALL)
    model.set_env(gym.make("Pendulum-v1"))
    model.learn(150)
    drawn = [batch for batch, _ in model.memory.batches(16, 0.99, 300)]
    known = {row.tobytes() for row in swings.transitions().observations}
    recorded = sum(row.tobytes() in known for batch in drawn for row in batch.observations.numpy())
    share = len(swings) / (len(swings) + 150)
    assert abs(recorded - 4800 * share) < 5 * (4800 * share * (1 - share)) ** 0.5


def test_data_beside_an_environment_from_the_start(swings: Dataset) -> None:
    model = SAC("MlpPolicy", gym.make("Pendulum-v1"), dataset_share=0.5, **SMALL)
    model.set_dataset(swings)
    model.learn(20)
    assert model._n_updates == 20


def test_rewards_are_scaled_alike_in_both(swings: Dataset) -> None:
    model = TD3BC("MlpPolicy", swings, reward_scaling=(0.5, 3.0), **SMALL)
    np.testing.assert_array_equal(
        model.data_buffer.rewards[:, 0], (swings.rewards * 0.5 + 3.0).astype(np.float32), "of the dataset"
    )
    model.set_env(gym.make("Pendulum-v1"))
    model.learn(5)
    episode = model.env.envs[0]
    assert model.replay_buffer.rewards[:5, 0] == pytest.approx(
        [0.5 * reward + 3.0 for reward in episode.get_wrapper_attr("rewards")[:5]],
        abs=16 * float(np.finfo(np.float32).eps),
    )


def test_reward_scalings(swings: Dataset) -> None:
    rewards = swings.rewards
    scale, shift = affine("standard", swings)
    rewards = rewards.astype(np.float64)
    assert (rewards * scale + shift).mean() == pytest.approx(0, abs=1e-9)
    assert (rewards * scale + shift).std() == pytest.approx(1)
    scale, shift = affine("range", swings)
    assert [min(rewards * scale + shift), max(rewards * scale + shift)] == pytest.approx([0, 1], abs=1e-9)
    assert affine("returns", swings) == (pytest.approx(1000 / np.ptp(swings.returns)), 0.0)
    assert affine("none", swings) == (1.0, 0.0)


def test_observations_are_standardised_by_the_dataset(swings: Dataset) -> None:
    model = TD3BC("MlpPolicy", swings, **SMALL)
    seen = torch.as_tensor(swings.transitions().observations)
    for network in (model.actor, model.actor_target, model.critic, model.critic_target):
        features = network.extract_features(seen, network.features_extractor)
        assert features.mean(0) == pytest.approx(0, abs=1e-4)
        assert features.std(0, correction=0).numpy() == pytest.approx(1, abs=1e-3)
    assert "norm" not in str(TD3BC("MlpPolicy", swings, normalize_observations=False, **SMALL).actor).lower()


def test_a_file_holds_the_units(swings: Dataset, tmp_path: Path) -> None:
    model = TD3BC("MlpPolicy", swings, reward_scaling="standard", **SMALL).learn(20)
    model.save(tmp_path / "model")
    for loaded in (TD3BC.load(tmp_path / "model"), TD3BC.load(tmp_path / "model", env=swings)):
        assert loaded.reward_affine == model.reward_affine
        assert_equal(weights(loaded), weights(model))
        obs = swings.observations[:20]
        np.testing.assert_array_equal(loaded.predict(obs)[0], model.predict(obs)[0])
    assert loaded.learn(5, reset_num_timesteps=False).num_timesteps == 25


@pytest.mark.parametrize("prioritized", [False, True])
def test_resumed_it_resumes_as_if_nothing_had_happened(swings: Dataset, prioritized: bool, tmp_path: Path) -> None:
    model = TD3("MlpPolicy", swings, prioritized=prioritized, **SMALL).learn(30)
    model.save(tmp_path / "model", include=["replay_buffer"])
    model.learn(30, reset_num_timesteps=False)
    torch.manual_seed(0)
    np.random.seed(0)
    resumed = TD3.load(tmp_path / "model", env=swings, resume=True)
    assert_equal(weights(resumed.learn(30, reset_num_timesteps=False)), weights(model))


def test_memory_learns_from_data_too(swings: Dataset) -> None:
    memory = {"memory": "gru", "memory_size": 8, "max_seq_len": 4, "burn_in": 2, "net_arch": [8]}
    model = SAC("MlpPolicy", swings, **{**SMALL, "policy_kwargs": memory})
    assert model.learn(10)._n_updates == 10


def test_n_steps_and_priorities_from_data(poles: Dataset) -> None:
    assert DQN("MlpPolicy", poles, n_steps=3, prioritized=True, **SMALL).learn(20)._n_updates == 20


def test_refusals(swings: Dataset, poles: Dataset) -> None:
    with pytest.raises(ValueError, match="does not support the action space"):
        SAC("MlpPolicy", poles, **SMALL)
    with pytest.raises(ValueError, match="for_env"):
        SAC("MlpPolicy", "Pendulum-v1", **SMALL).set_dataset(poles)
    model = SAC("MlpPolicy", swings, prioritized=True, **SMALL)
    with pytest.raises(ValueError, match="prioritized"):
        model.set_env(gym.make("Pendulum-v1"))
    with pytest.raises(ValueError, match="Observation spaces do not match"):
        SAC("MlpPolicy", swings, **SMALL).set_env(gym.make("MountainCarContinuous-v0"))
    with pytest.raises(ValueError, match="eval_freq"):
        SAC("MlpPolicy", swings, **SMALL).learn(5, eval_freq=2)
