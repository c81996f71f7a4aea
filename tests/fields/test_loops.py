"""What the loops store and bootstrap, against brute force on environments with planned endings."""

import copy
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

from polyak import DDPG, DQN, PPO, SAC
from polyak.callbacks.callback import BaseCallback
from polyak.envs import DummyVecEnv, VecNormalize
from polyak.learning.learner import Update
from polyak.noise import NormalActionNoise
from tests.tolerance import bound


class Planned(gym.Env):
    """Observation = (number of the env, number of the step since the very first); episodes end as planned.

    Args:
        number: of the environment.
        ends: one letter a step, repeated: ``.`` goes on, ``t`` terminates, ``c`` cuts short.
        continuous: a Box of actions instead of two.
    """

    def __init__(self, number: int, ends: str, continuous: bool = False) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        box, two = gym.spaces.Box(-2, 2, (1,), np.float32), gym.spaces.Discrete(2)
        self.action_space = box if continuous else two
        self.number, self.ends, self.time = number, ends, 0

    def _obs(self) -> np.ndarray:
        return np.array([self.number, self.time / 10], dtype=np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.time += 100
        return self._obs(), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        end = self.ends[self.time % 100 % len(self.ends)]
        self.time += 1
        return self._obs(), float(self.time % 7), end == "t", end == "c", {}


CLOCK = bound(2, size=500.0)
"""Between times: a reset moves the clock by ten, and there are no fifty resets."""

PLANS = ["..t", "....c", ".....", "c", ".t.c"]


def vec(continuous: bool = False) -> DummyVecEnv:
    return DummyVecEnv([lambda i=i, p=p: Planned(i, p, continuous) for i, p in enumerate(PLANS)])


class Recorder(BaseCallback):
    """Keeps every step as the environment gave it."""

    def _on_training_start(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def _on_step(self) -> bool:
        self.steps.append({key: self.locals[key] for key in ("new_obs", "rewards", "dones", "infos", "actions")})
        return True


def test_advantages_bootstrap_at_truncation_and_not_at_termination() -> None:
    gamma, lam, steps = 0.9, 0.8, 24
    model = PPO("MlpPolicy", vec(), n_steps=steps, batch_size=8, n_epochs=1, gamma=gamma, gae_lambda=lam, seed=0)
    recorder = Recorder()
    model.train = lambda: None  # the values must be those of the rollout
    model.learn(steps * len(PLANS), callback=recorder)
    buffer = model.rollout_buffer

    def value(obs: np.ndarray) -> float:
        return model.policy.predict_values(torch.as_tensor(obs)[None]).item()

    # at each step the reward, below 7, and two values; a value is a sum over the widths of the layers
    near = bound(3 * steps + 2 * 64, size=3 * 7 / (1 - gamma * lam))
    for i in range(len(PLANS)):
        trace = 0.0
        for t in reversed(range(steps)):
            step = recorder.steps[t]
            done, info = step["dones"][i], step["infos"][i]
            successor = info["terminal_observation"] if done else step["new_obs"][i]
            terminated = done and not info["TimeLimit.truncated"]
            next_value = 0.0 if terminated else value(successor)
            delta = step["rewards"][i] + gamma * next_value - value(buffer.observations[t, i])
            trace = delta + gamma * lam * (0.0 if done else trace)
            assert buffer.advantages[t, i] == pytest.approx(trace, abs=near)
            assert buffer.returns[t, i] == pytest.approx(trace + value(buffer.observations[t, i]), abs=near)


def test_rollout_values_and_log_probs_are_those_of_each_step() -> None:
    model = PPO("MlpPolicy", vec(), n_steps=16, batch_size=8, n_epochs=1, seed=0)
    model.train = lambda: None
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    class Values(BaseCallback):
        def _on_step(self) -> bool:
            seen.append((self.locals["values"].flatten(), self.locals["log_probs"]))
            return True

    model.learn(16 * len(PLANS), callback=Values())
    near = bound(2 + 2 * 64, size=5)  # the widths of the layers
    np.testing.assert_allclose(model.rollout_buffer.values, np.stack([v for v, _ in seen]), rtol=0, atol=near)
    np.testing.assert_allclose(model.rollout_buffer.log_probs, np.stack([p for _, p in seen]), rtol=0, atol=near)


@pytest.mark.parametrize("saving", [False, True])
def test_replay_holds_true_successors_and_true_ends(saving: bool) -> None:
    recorder = Recorder()
    model = DQN("MlpPolicy", vec(), buffer_size=1000, learning_starts=10_000, optimize_memory_usage=saving, seed=0)
    model.learn(200, callback=recorder)
    batch = model.replay_buffer.sample(2000)
    by_time = {}
    for step in recorder.steps:
        for i in range(len(PLANS)):
            info, done = step["infos"][i], step["dones"][i]
            successor = info["terminal_observation"] if done else step["new_obs"][i]
            terminal = done and not info["TimeLimit.truncated"]
            by_time[(i, round(float(successor[1]), 1))] = (step["rewards"][i], terminal)
    assert {bool(terminal) for _, terminal in by_time.values()} == {True, False}
    for obs, successor, reward, done in zip(
        batch.observations, batch.next_observations, batch.rewards, batch.dones, strict=True
    ):
        number, time = int(successor[0]), round(float(successor[1]), 1)
        assert obs[0] == successor[0]
        assert successor[1] == pytest.approx(float(obs[1]) + 0.1, abs=CLOCK)  # never the first of the next episode
        expected_reward, terminal = by_time[(number, time)]
        assert reward.item() == expected_reward
        assert bool(done.item()) == terminal


def test_normalised_envs_store_what_came_before_normalisation() -> None:
    env = VecNormalize(vec(continuous=True))
    model = SAC("MlpPolicy", env, buffer_size=1000, learning_starts=10_000, seed=0)
    model.learn(100)
    batch = model.replay_buffer.sample(500)
    assert set(batch.observations[:, 0].tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
    np.testing.assert_allclose(batch.next_observations[:, 1] - batch.observations[:, 1], 0.1, rtol=0, atol=CLOCK)
    normalised = model.replay_buffer.sample(500, env=env)
    assert normalised.observations.abs().max() <= env.clip_obs
    assert not set(normalised.observations[:, 0].tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}


def test_actions_are_stored_scaled_and_sent_unscaled() -> None:
    recorder = Recorder()
    noise = NormalActionNoise(np.zeros(1), np.full(1, 5.0))  # large, so that clipping shows
    model = DDPG("MlpPolicy", vec(continuous=True), action_noise=noise, buffer_size=1000, learning_starts=0, seed=0)
    model.learner.update = lambda batch: Update({})
    model.learn(100, callback=recorder)
    sent = np.stack([step["actions"] for step in recorder.steps])
    stored = model.replay_buffer.actions[: len(sent)]
    np.testing.assert_allclose(sent, 2 * stored, rtol=0, atol=bound(4, size=2))
    assert stored.min() == -1
    assert stored.max() == 1


def test_a_second_learn_starts_new_episodes_that_no_window_reaches_into() -> None:
    env = DummyVecEnv([lambda: Planned(0, ".....................")])
    model = DQN("MlpPolicy", env, n_steps=3, gamma=0.5, buffer_size=100, learning_starts=1000, seed=0)
    model.learn(10)
    model.learn(10)
    batch = model.replay_buffer.sample(500)
    steps = (10 * (batch.next_observations[:, 1] - batch.observations[:, 1])).round()
    assert set(steps.tolist()) == {1.0, 2.0, 3.0}
    np.testing.assert_allclose(batch.discounts.flatten(), 0.5**steps)


@pytest.mark.parametrize(
    ("train_freq", "gradient_steps", "expected"),
    [(4, 1, 25), ((4, "step"), 3, 75), (2, -1, 100), ((1, "episode"), 2, 66)],
)
def test_train_freq_and_gradient_steps(train_freq: Any, gradient_steps: int, expected: int) -> None:
    env = DummyVecEnv([lambda: Planned(0, "..t")])
    model = DQN(
        "MlpPolicy", env, train_freq=train_freq, gradient_steps=gradient_steps, learning_starts=0, buffer_size=500
    )
    model.learn(100)
    assert model._n_updates == pytest.approx(expected, abs=2)


def test_gradient_steps_minus_one_counts_all_environments() -> None:
    model = DQN("MlpPolicy", vec(), train_freq=2, gradient_steps=-1, learning_starts=0, buffer_size=500).learn(100)
    assert model._n_updates == 100


def test_episodes_as_unit_need_a_single_environment() -> None:
    with pytest.raises(ValueError, match="train_freq.*single environment"):
        DQN("MlpPolicy", vec(), train_freq=(1, "episode"), buffer_size=500)
    model = DQN("MlpPolicy", vec(), buffer_size=500)
    with pytest.raises(ValueError, match="train_freq.*single environment"):
        model.train_freq = (1, "episode")  # type: ignore[assignment]


def test_target_network_follows_on_the_environments_clock() -> None:
    model = DQN("MlpPolicy", vec(), target_update_interval=50, learning_starts=0, buffer_size=500, seed=0)
    moved = []
    model.learner.update_target = lambda: moved.append(model.num_timesteps)
    model.learn(200)
    assert moved == [50, 100, 150, 200]


class Echo(gym.Env):
    """Shows again what it was told, and notes every action; says nothing in its infos."""

    def __init__(self, n: int = 4) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(n)
        self.show, self.actions = np.ones(3, np.float32), []
        self.info: dict[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        return self.show, self.info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.actions.append(int(action))
        return self.show, 0.0, False, False, self.info


class Prefer(BaseCallback):
    """Before step ``t``, makes a network that prefers action ``t % 4`` and lets ``put`` bring it into the model."""

    def __init__(self, put: Any) -> None:
        super().__init__()
        self.put = put

    def _on_step(self) -> bool:
        net = copy.deepcopy(self.model.policy.q_net)
        net._forward_hooks.clear()
        with torch.no_grad():
            net.q_net[-1].weight.zero_()
            net.q_net[-1].bias.copy_(torch.eye(4)[self.n_calls % 4])
        self.put(self.model, net)
        return True


def _put_policy(model: Any, net: Any) -> None:
    policy = copy.deepcopy(model.policy)
    policy.q_net = net
    model.policy = policy


def _put_storage(model: Any, net: Any) -> None:
    for mine, other in zip(model.policy.q_net.parameters(), net.parameters(), strict=True):
        mine.data = other.data


def _put_parameters(model: Any, net: Any) -> None:
    parameters = model.get_parameters()
    parameters["policy"] |= {f"q_net.{name}": value for name, value in net.state_dict().items()}
    model.set_parameters(parameters)


@pytest.mark.parametrize(
    "put",
    [
        lambda model, net: setattr(model.policy, "q_net", net),
        lambda model, net: setattr(model.policy.q_net, "q_net", net.q_net),
        lambda model, net: model.policy.q_net.q_net.__setitem__(-1, net.q_net[-1]),
        lambda model, net: model.policy.q_net.load_state_dict(net.state_dict()),
        lambda model, net: model.policy.q_net.register_forward_hook(lambda module, obs, q: net(*obs)),
        _put_policy,
        _put_storage,
        _put_parameters,
    ],
)
def test_what_a_callback_does_to_the_policy_shows_in_the_next_action(put: Any) -> None:
    env = Echo()
    greedy = {"exploration_initial_eps": 0.0, "exploration_final_eps": 0.0}
    model = DQN("MlpPolicy", env, learning_starts=0, train_freq=40, device="cpu", **greedy)
    model.train = lambda gradient_steps, batch_size: None
    model.learn(40, callback=Prefer(put))
    assert env.actions[1:] == [t % 4 for t in range(1, 40)]


def test_every_step_has_infos_and_arrays_of_its_own() -> None:
    env = Echo()
    recorder = Recorder()
    PPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu").learn(8, callback=recorder)
    assert env.info == {}
    for one, other in zip(recorder.steps, recorder.steps[1:], strict=False):
        assert one["infos"][0] == {"TimeLimit.truncated": False}
        assert one["infos"] is not other["infos"]
        assert one["infos"][0] is not other["infos"][0]
        for name in ("new_obs", "rewards", "dones", "actions"):
            assert not np.shares_memory(one[name], other[name])


def test_a_replay_buffer_may_be_deleted_and_loaded_again(tmp_path: Path) -> None:
    small = {"learning_starts": 10, "buffer_size": 50, "policy_kwargs": {"net_arch": [8]}}
    model = SAC("MlpPolicy", "Pendulum-v1", **small).learn(20)
    model.save_replay_buffer(tmp_path / "buffer")
    del model.replay_buffer
    with pytest.raises(AttributeError):
        _ = model.replay_buffer
    model.load_replay_buffer(tmp_path / "buffer")
    assert model.replay_buffer.size() == 20
