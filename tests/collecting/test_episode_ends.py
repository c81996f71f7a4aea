"""Where episodes end: where the vector says so, whichever wrapper ends them, and whoever else plays in there."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit, TransformReward

from polyak import ARS, DQN, IMPALA, PPO, QLearning
from polyak.callbacks.callback import BaseCallback
from polyak.callbacks.evaluating import EvalCallback
from polyak.envs import DummyVecEnv, Monitor, SubprocVecEnv, TruncatedOnSuccessWrapper, load_results, make_vec_env
from polyak.evaluation.in_environments import evaluate, evaluate_policy
from tests.worlds import World

ENDLESS = 10**9


class Counting(World):
    """Observes how many steps the episode has made; the reward is 1, and from step 3 on it is a success."""

    observation_space, pays = gym.spaces.Box(0.0, 1e9, (1,), np.float32), 1.0

    def __init__(self, length: int = ENDLESS) -> None:
        self.length = length

    def look(self) -> np.ndarray:
        return np.array([self.t], np.float32)

    def info(self) -> dict[str, Any]:
        return {"is_success": self.t >= 3}


class CountingTo5(Counting):
    """Ends after 5 steps; its observations are numbers of states."""

    def __init__(self) -> None:
        super().__init__(5)
        self.observation_space = gym.spaces.Discrete(6)

    def look(self) -> Any:
        return self.t


class Lives(gym.Wrapper):
    """Ends an episode every second step, of which only that at the game's end resets the game."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        if getattr(self, "_over", True):
            self._steps = 0
            return self.env.reset(**kwargs)
        return self.unwrapped.look(), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        self._over = terminated or truncated
        return obs, reward, terminated or self._steps % 2 == 0, truncated, info


class Fixed:
    """A predictor that always takes action 0."""

    def predict(self, observation: Any, *args: Any, **kwargs: Any) -> tuple[np.ndarray, None]:
        return np.zeros(len(observation), np.int64), None


# -- wrappers around a Monitor -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("vector", [DummyVecEnv, SubprocVecEnv])
def test_an_episode_that_a_wrapper_ends_is_recorded_with_the_rewards_that_the_monitor_saw(
    vector: Any, tmp_path: Path
) -> None:
    def wrapped(env: gym.Env) -> gym.Env:
        return TimeLimit(TransformReward(env, lambda reward: 10 * reward), 4)

    envs = make_vec_env(Counting, 2, monitor_dir=tmp_path, wrapper_class=wrapped, vec_env_cls=vector)
    try:
        result = evaluate(Fixed(), envs, 4)
    finally:
        envs.close()
    assert result.lengths.tolist() == [4] * 4
    assert result.returns.tolist() == [4.0] * 4
    assert result.success_rate == 1
    assert load_results(tmp_path)["l"].tolist() == [4] * 4


def test_evaluate_policy_and_eval_callback_return_where_a_time_limit_is_around_the_monitor() -> None:
    returns, lengths = evaluate_policy(Fixed(), TimeLimit(Monitor(Counting()), 10), 3, return_episode_rewards=True)
    assert (returns, lengths) == ([10.0] * 3, [10] * 3)
    env, other = TimeLimit(Monitor(Counting()), 10), TimeLimit(Monitor(Counting()), 10)
    callback = EvalCallback(other, eval_freq=16, n_eval_episodes=2, verbose=0)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, n_epochs=1).learn(64, callback)
    assert callback.last_mean_reward == 10
    assert [(e["r"], e["l"]) for e in model.ep_info_buffer] == [(10.0, 10)] * 6


def test_successes_that_end_episodes_are_counted() -> None:
    envs = make_vec_env(
        lambda: TimeLimit(Counting(), 50), wrapper_class=TruncatedOnSuccessWrapper, wrapper_kwargs={"reward_offset": -1}
    )
    result = evaluate(Fixed(), envs, 5)
    assert result.lengths.tolist() == [3] * 5
    assert result.returns.tolist() == [3.0] * 5  # the offset is the wrapper's, around the Monitor
    assert result.success_rate == 1


def test_a_life_is_no_episode() -> None:
    result = evaluate(Fixed(), Lives(Monitor(Counting(5))), 3)
    assert result.lengths.tolist() == [5] * 3


def test_a_monitor_on_both_sides_of_the_limit_counts_once() -> None:
    inner = Monitor(Counting())
    outer = Monitor(TimeLimit(inner, 6))
    result = evaluate(Fixed(), outer, 3)
    assert result.lengths.tolist() == inner.get_episode_lengths() == outer.get_episode_lengths() == [6] * 3


def test_an_episode_that_the_vector_is_reset_in_is_none() -> None:
    env = Monitor(Counting())
    envs = DummyVecEnv([lambda: TimeLimit(env, 4)])
    envs.reset()
    envs.step([0])
    envs.reset()
    for _ in range(4):
        _, _, dones, infos = envs.step([0])
    assert dones[0]
    assert infos[0]["episode"]["l"] == 4
    assert env.get_episode_lengths() == [4]


# -- evaluation in the training environment ----------------------------------------------------------------------------


def _learned_beside_evaluations(cls: Any, env: gym.Env, steps: int, **options: Any) -> Any:
    model = cls("MlpPolicy", env, **options) if cls is not QLearning else cls(env, **options)
    callback = EvalCallback(env, eval_freq=7, n_eval_episodes=2, verbose=0)
    with pytest.warns(UserWarning, match="training environment itself"):
        model.learn(steps, callback)
    assert callback.last_mean_reward == 5
    return model


def _episodes(model: Any) -> set[tuple[float, int]]:
    return {(episode["r"], episode["l"]) for episode in model.ep_info_buffer}


def test_ppo_logs_whole_episodes_only_and_a_rollout_has_the_cuts() -> None:
    model = _learned_beside_evaluations(PPO, Counting(5), 64, n_steps=64, n_epochs=1)
    assert _episodes(model) == {(5.0, 5)}
    buffer = model.rollout_buffer
    starts, observations = buffer.episode_starts.ravel(), buffer.observations.ravel()
    assert np.array_equal(starts == 1, observations == 0)
    assert np.flatnonzero(starts)[:4].tolist() == [0, 5, 7, 12]  # the evaluation after step 7 cuts an episode


def test_dqn_stores_true_successors_and_where_an_episode_was_cut() -> None:
    model = _learned_beside_evaluations(DQN, Counting(5), 40, n_steps=3, learning_starts=100)
    assert _episodes(model) == {(5.0, 5)}
    buffer = model.replay_buffer
    assert buffer is not None
    seen = buffer.observations[:40, 0, 0]
    ends = [i for i in range(39) if seen[i + 1] == 0]
    assert 6 in ends
    for _ in range(20):
        window = buffer.sample(32)
        first, then = window.observations[:, 0].numpy(), window.next_observations[:, 0].numpy()
        assert np.all((then > first) & (then <= np.minimum(first + 3, 5)))


@pytest.mark.parametrize(
    ("cls", "env", "options"), [(ARS, Counting(5), {"n_delta": 2}), (QLearning, CountingTo5(), {})]
)
def test_others_log_whole_episodes_only(cls: Any, env: gym.Env, options: dict[str, Any]) -> None:
    model = _learned_beside_evaluations(cls, env, 60, **options)
    assert _episodes(model) <= {(5.0, 5)}


def test_the_same_vector_with_wrappers_is_noticed_too() -> None:
    envs = make_vec_env(lambda: Counting(5), 2)
    model = PPO("MlpPolicy", envs, n_steps=32, batch_size=64, n_epochs=1)
    with pytest.warns(UserWarning, match="training environment itself"):
        model.learn(64, EvalCallback(envs, eval_freq=7, n_eval_episodes=2, verbose=0))
    assert _episodes(model) == {(5.0, 5)}
    buffer = model.rollout_buffer
    assert np.array_equal(buffer.episode_starts.ravel() == 1, buffer.observations.ravel() == 0)


def test_an_evaluation_between_two_learns_lets_new_episodes_begin() -> None:
    model = PPO("MlpPolicy", Counting(5), n_steps=8, batch_size=8, n_epochs=1).learn(8)
    assert model.env is not None
    evaluate(model, model.env, 1)
    observations = model.env.reset()
    for _ in range(2):
        observations = model.env.step(np.zeros(1, np.int64))[0]
    assert observations[0, 0] == 2
    model.learn(8, reset_num_timesteps=False)
    assert _episodes(model) == {(5.0, 5)}
    assert model.rollout_buffer.observations.ravel()[:6].tolist() == [0, 1, 2, 3, 4, 0]


def test_an_evaluation_of_a_users_own_callback_is_noticed() -> None:
    class Looking(BaseCallback):
        def _on_step(self) -> bool:
            if self.n_calls == 7:
                evaluate(self.model, self.model.get_env(), 1)
            return True

        def _on_rollout_end(self) -> None:
            evaluate(self.model, self.model.get_env(), 1)

    model = PPO("MlpPolicy", Counting(5), n_steps=8, batch_size=8, n_epochs=1).learn(24, Looking())
    assert _episodes(model) == {(5.0, 5)}
    assert model.rollout_buffer.observations.ravel().tolist() == [0, 1, 2, 3, 4, 0, 1, 2]


def test_an_environment_that_another_thread_steps_is_refused() -> None:
    env = Counting(5)
    model = IMPALA("MlpPolicy", env, n_steps=16, asynchronous=True)
    with pytest.raises(ValueError, match="Make a second environment"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.learn(64, EvalCallback(env, eval_freq=7, n_eval_episodes=1, verbose=0))
