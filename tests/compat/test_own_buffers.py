"""Buffers and policies of a user's own, files of parts by themselves, and what is known at a rollout's end."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from polyak.compat.sb3 import A2C, DQN, SAC
from polyak.compat.sb3.common.buffers import BaseBuffer, ReplayBuffer, RolloutBuffer
from polyak.compat.sb3.common.callbacks import BaseCallback
from polyak.compat.sb3.common.env_util import make_vec_env
from polyak.compat.sb3.common.policies import BasePolicy
from polyak.compat.sb3.common.type_aliases import ReplayBufferSamples
from polyak.compat.sb3.common.vec_env import VecNormalize
from polyak.compat.sb3.dqn.policies import DQNPolicy
from tests.warm import python

REPLAY: dict[str, Any] = {
    "policy_kwargs": {"net_arch": [8]},
    "device": "cpu",
    "buffer_size": 50,
    "learning_starts": 10,
    "batch_size": 8,
}


class Plain(ReplayBuffer):
    """Arrays of its own: it never calls ``ReplayBuffer.__init__``."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: Any,
        action_space: Any,
        device: Any = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
    ):
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.buffer_size = max(buffer_size // n_envs, 1)
        shape = (self.buffer_size, n_envs)
        self.observations = np.zeros((*shape, *self.obs_shape), dtype=observation_space.dtype)
        self.next_observations = np.zeros_like(self.observations)
        self.actions = np.zeros((*shape, self.action_dim), dtype=action_space.dtype)
        self.rewards, self.dones = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        self.more = {"count": np.zeros(shape, np.int64)}

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any, infos: Any) -> None:  # type: ignore[override]
        self.observations[self.pos], self.next_observations[self.pos] = obs, next_obs
        self.actions[self.pos] = np.reshape(action, (self.n_envs, self.action_dim))
        self.rewards[self.pos], self.dones[self.pos] = reward, done
        self.more["count"][self.pos] = self.pos
        self.pos += 1
        if self.pos == self.buffer_size:
            self.pos, self.full = 0, True

    def _get_samples(self, batch_inds: np.ndarray, env: Any = None) -> ReplayBufferSamples:
        columns = (self.observations, self.actions, self.next_observations)
        obs, actions, then = (self.to_torch(column[batch_inds, 0]) for column in columns)
        dones, rewards = (self.to_torch(column[batch_inds, :1]) for column in (self.dones, self.rewards))
        return ReplayBufferSamples(obs, actions, then, dones, rewards)


@pytest.mark.parametrize(("algorithm", "env"), [(DQN, "CartPole-v1"), (SAC, "Pendulum-v1")])
def test_a_replay_buffer_with_arrays_of_its_own(algorithm: Any, env: str, tmp_path: Path) -> None:
    model = algorithm("MlpPolicy", env, replay_buffer_class=Plain, **REPLAY).learn(40)
    buffer = model.replay_buffer
    assert buffer.size() == 40
    assert np.abs(buffer.observations[:40]).sum() > 0
    assert isinstance(buffer, ReplayBuffer)
    with pytest.raises(AttributeError, match="Plain has no timeouts"):
        _ = buffer.timeouts

    model.save_replay_buffer(tmp_path / "replay")
    other = algorithm("MlpPolicy", env, replay_buffer_class=Plain, **REPLAY)
    other.load_replay_buffer(tmp_path / "replay")
    model.save(tmp_path / "m", include=["replay_buffer"])
    again = algorithm.load(tmp_path / "m", env=env, resume=True)
    for copied in (other.replay_buffer, again.replay_buffer, pickle.loads(pickle.dumps(buffer))):
        assert (copied.pos, copied.full) == (40, False)
        for name in ("observations", "actions", "rewards", "dones"):
            assert np.array_equal(getattr(copied, name), getattr(buffer, name)), name
        assert np.array_equal(copied.more["count"], buffer.more["count"])
    again.learn(30, reset_num_timesteps=False)
    assert again.replay_buffer.full
    smaller = algorithm("MlpPolicy", env, replay_buffer_class=Plain, **{**REPLAY, "buffer_size": 30})
    with pytest.raises(ValueError, match="buffer_size=50, this one 30"):
        smaller.load_replay_buffer(tmp_path / "replay")
    another = algorithm("MlpPolicy", "Acrobot-v1", replay_buffer_class=Plain, **REPLAY) if algorithm is DQN else None
    if another is not None:
        with pytest.raises(ValueError, match="'(next_)?observations' do not fit"):
            another.load_replay_buffer(tmp_path / "replay")
    buffer.reset()
    assert not model.replay_buffer.can_sample()


def test_what_is_known_at_the_end_of_a_rollout() -> None:
    seen: list[Any] = []

    class Own(RolloutBuffer):
        def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: np.ndarray) -> None:
            seen.append(last_values.clone())
            super().compute_returns_and_advantage(last_values, dones)

    class Look(BaseCallback):
        def _on_rollout_end(self) -> None:
            seen.append(self.locals["values"])

        def _on_step(self) -> bool:
            return True

    env = make_vec_env("CartPole-v1", 2)
    model = A2C("MlpPolicy", env, n_steps=4, rollout_buffer_class=Own, device="cpu").learn(8, callback=Look())
    assert len(seen) == 2
    assert all(isinstance(values, torch.Tensor) and values.shape == (2, 1) for values in seen)
    assert torch.equal(*seen)
    assert model.num_timesteps == 8


def test_a_policy_that_works_in_numpy() -> None:
    class Table(BasePolicy):
        def __init__(self, observation_space: Any, action_space: Any, lr_schedule: Any = None, **kwargs: Any):
            super().__init__(observation_space, action_space, **kwargs)
            self.table = np.arange(4.0)
            self.unused = nn.Parameter(torch.zeros(1))

        def _predict(self, observation: Any, deterministic: bool = False) -> Any:
            scores = observation.cpu().numpy() @ self.table
            return (scores > 0).astype(np.int64)

    env = make_vec_env("CartPole-v1", 2)
    policy = Table(env.observation_space, env.action_space)
    actions, _ = policy.predict(np.array([[0, 0, 0, 1], [0, 0, 0, -1]], np.float32))
    assert actions.tolist() == [1, 0]
    assert policy.predict(np.array([0, 0, 0, 1], np.float32))[0] == 1

    class Numpy(DQNPolicy):
        def _predict(self, observation: Any, deterministic: bool = True) -> Any:
            return self.q_net(observation).numpy().argmax(1)

    model = DQN(Numpy, env, **REPLAY, exploration_initial_eps=0.0, exploration_final_eps=0.0).learn(30)
    assert model.predict(env.reset())[0].shape == (2,)


def test_a_policys_file_is_one_of_torch_too(tmp_path: Path) -> None:
    policy = SAC("MlpPolicy", "Pendulum-v1", **REPLAY).policy
    for number, network in enumerate((policy, policy.actor)):
        network.save(tmp_path / f"{number}.pkl")
        stored = torch.load(tmp_path / f"{number}.pkl", weights_only=False)
        assert stored["state_dict"].keys() == network.state_dict().keys()
        again = type(network)(**stored["data"])
        again.load_state_dict(stored["state_dict"])
        assert np.array_equal(again.parameters_to_vector(), network.parameters_to_vector())


def test_statistics_are_read_as_pickles(tmp_path: Path) -> None:
    env = VecNormalize(make_vec_env("Pendulum-v1", 2), clip_obs=3.0)
    env.seed(0)
    env.reset()
    for _ in range(5):
        env.step([env.action_space.sample()] * 2)
    env.save_sb3(tmp_path / "stats.pkl")
    with (tmp_path / "dumped.pkl").open("wb") as file:
        pickle.dump(env, file)
    for name in ("stats.pkl", "dumped.pkl"):
        again = VecNormalize.load(str(tmp_path / name), make_vec_env("Pendulum-v1", 2))
        assert np.array_equal(again.obs_rms.mean, env.obs_rms.mean)
        assert again.clip_obs == 3.0
    code = (
        "import polyak.compat; polyak.compat.install()\nimport pickle, sys\n"
        "from stable_baselines3.common.env_util import make_vec_env\n"
        "stats = pickle.load(open(sys.argv[1], 'rb')); stats.set_venv(make_vec_env('Pendulum-v1', 2))\n"
        "print(stats.obs_rms.mean.tolist()); stats.reset(); print(stats.clip_obs)"
    )
    done = python(["-c", code, tmp_path / "stats.pkl"])
    assert done.stdout.splitlines() == [str(env.obs_rms.mean.tolist()), "3.0"], done.stderr


class DoubledRewards(ReplayBuffer):
    @staticmethod
    def _normalize_reward(reward: Any, env: Any = None) -> Any:
        return 2 * reward


class ShiftedObservations(ReplayBuffer):
    @staticmethod
    def _normalize_obs(obs: Any, env: Any = None) -> Any:
        return obs + 1


@pytest.mark.parametrize(("own", "changed"), [(DoubledRewards, "rewards"), (ShiftedObservations, "observations")])
def test_how_a_buffer_normalises_is_asked_also_where_nothing_is_normalised(own: Any, changed: str) -> None:
    batches = []
    for cls in (ReplayBuffer, own):
        torch.manual_seed(0)
        env = make_vec_env("CartPole-v1", seed=0)
        buffer = cls(20, env.observation_space, env.action_space, device="cpu")
        obs = env.reset()
        for _ in range(20):
            then, reward, done, infos = env.step(np.zeros(1, int))
            buffer.add(obs, then, np.zeros((1, 1), int), reward, done, infos)
            obs = then
        batches.append(buffer._get_samples(np.arange(20)))
    plain, ours = (getattr(batch, changed) for batch in batches)
    assert torch.equal(ours, 2 * plain if changed == "rewards" else plain + 1)
