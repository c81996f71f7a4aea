"""The wrappers that RL Baselines3 Zoo has, step by step on an environment that counts."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak.envs import (
    ActionNoiseWrapper,
    ActionSmoothingWrapper,
    DelayedRewardWrapper,
    FrameSkip,
    HistoryWrapper,
    HistoryWrapperObsDict,
    TruncatedOnSuccessWrapper,
    YAMLCompatResizeObservation,
)
from tests.worlds import World


class Counting(World):
    """The observation is the number of steps so far, twice; the reward that number; the episode has `length` steps."""

    action_space: spaces.Space = spaces.Box(np.array([-1, -2], np.float32), np.array([1, 2], np.float32))

    def __init__(self, length: int = 5, successes: tuple[int, ...] = (), is_dict: bool = False) -> None:
        box = spaces.Box(-3.0, 7.0, (2,), np.float32)
        self.length, self.successes, self.is_dict = length, successes, is_dict
        self.observation_space = spaces.Dict(observation=box, achieved_goal=box) if is_dict else box
        self.actions: list[Any] = []

    def look(self) -> Any:
        now = np.full(2, self.t, np.float32)
        return {"observation": now, "achieved_goal": now + 1} if self.is_dict else now

    def act(self, action: Any) -> float:
        self.actions.append(action)
        return float(self.t)

    def info(self) -> dict[str, Any]:
        return {"is_success": self.t in self.successes}

    def compute_reward(self, achieved: Any, desired: Any, info: Any) -> Any:
        return np.asarray(achieved) - np.asarray(desired)


def play(env: gym.Env, actions: list[Any]) -> list[tuple[float, bool, bool]]:
    """Rewards and ends of one episode, as far as the actions go."""
    env.reset(seed=0)
    seen = []
    for action in actions:
        _, reward, terminated, truncated, _ = env.step(action)
        seen.append((float(reward), terminated, truncated))
        if terminated or truncated:
            break
    return seen


ACTION = np.array([0.5, -1.0], np.float32)


def test_frame_skip() -> None:
    env = Counting(length=5)
    assert play(FrameSkip(env, skip=2), [0, 1, 2, 3]) == [(3.0, False, False), (7.0, False, False), (5.0, True, False)]
    assert env.actions == [0, 0, 1, 1, 2], "the end cuts the last one short"


def test_delayed_reward() -> None:
    env = DelayedRewardWrapper(Counting(length=7), delay=3)
    for _ in range(2):  # the second episode owes nothing of the first
        assert [reward for reward, *_ in play(env, [0] * 7)] == [0, 0, 6, 0, 0, 15, 7]
    play(env, [0] * 2)
    assert [reward for reward, *_ in play(env, [0] * 3)] == [0, 0, 6]


def test_history() -> None:
    env = HistoryWrapper(Counting(), horizon=2)
    assert env.observation_space == spaces.Box(
        np.array([-3, -3, -3, -3, -1, -2, -1, -2], np.float32), np.array([7, 7, 7, 7, 1, 2, 1, 2], np.float32)
    )
    for _ in range(2):
        assert env.reset()[0].tolist() == [0] * 8
        assert env.step(ACTION)[0].tolist() == [0, 0, 1, 1, 0, 0, 0.5, -1]
        observation = env.step(2 * ACTION)[0]
        assert observation.tolist() == [1, 1, 2, 2, 0.5, -1, 1, -2]
        assert observation in env.observation_space


def test_history_of_a_dict() -> None:
    env = HistoryWrapperObsDict(Counting(is_dict=True), horizon=2)
    first = env.reset()[0]
    assert first["achieved_goal"].tolist() == [1, 1]
    observation = env.step(ACTION)[0]
    assert observation["achieved_goal"].tolist() == [2, 2]
    assert observation["observation"].tolist() == [0, 0, 1, 1, 0, 0, 0.5, -1]
    assert observation in env.observation_space


def test_smoothed_actions() -> None:
    env = Counting()
    smooth = ActionSmoothingWrapper(env, smoothing_coef=0.75)
    for _ in range(2):
        env.actions.clear()
        play(smooth, [ACTION, ACTION, 0 * ACTION])
        np.testing.assert_allclose(env.actions, [ACTION / 4, 7 * ACTION / 16, 21 * ACTION / 64], rtol=1e-6)


def test_noisy_actions() -> None:
    env = Counting(length=4000)
    noisy = ActionNoiseWrapper(env, noise_std=0.1)
    play(noisy, [0 * ACTION] * 4000)
    first = np.array(env.actions)
    assert first.dtype == np.float32
    # Standard errors of mean and deviation of 8000 draws: 0.1 / sqrt(8000) and 0.1 / sqrt(16000); six of them.
    assert abs(first.mean()) < 6 * 0.1 / 8000**0.5
    assert abs(first.std() - 0.1) < 6 * 0.1 / 16000**0.5
    env.actions.clear()
    play(noisy, [0 * ACTION] * 4000)
    assert (np.array(env.actions) == first).all(), "the seed of reset repeats the noise"
    env.actions.clear()
    play(ActionNoiseWrapper(env, noise_std=5.0), [0 * ACTION] * 100)
    assert all(action in env.action_space for action in env.actions)


def test_success_ends_an_episode() -> None:
    env = TruncatedOnSuccessWrapper(Counting(length=9, successes=(2, 3, 5, 6, 7)), reward_offset=-1.0, n_successes=3)
    for _ in range(2):
        seen = play(env, [0] * 9)
        assert [reward for reward, *_ in seen] == [0, 1, 2, 3, 4, 5, 6]
        assert [truncated for *_, truncated in seen] == [False] * 6 + [True]
    assert env.compute_reward([3.0], [1.0], {}).tolist() == [1.0]
    assert len(play(TruncatedOnSuccessWrapper(Counting(length=9, successes=(2,))), [0] * 9)) == 2


def test_resized_images() -> None:
    pytest.importorskip("cv2")

    class Images(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Box(0, 255, (8, 6, 3), np.uint8)

        def look(self) -> np.ndarray:
            return np.full((8, 6, 3), 9, np.uint8)

    env = YAMLCompatResizeObservation(Images(), shape=[4, 3])
    assert env.observation_space.shape == (4, 3, 3)
    assert (env.reset()[0] == np.full((4, 3, 3), 9)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FrameSkip(Counting(), skip=0), "skip must be at least 1, got 0"),
        (lambda: DelayedRewardWrapper(Counting(), delay=0), "delay must be at least 1, got 0"),
        (lambda: HistoryWrapper(Counting(), horizon=0), "HistoryWrapper: horizon must be at least 1, got 0"),
        (lambda: HistoryWrapper(Counting(is_dict=True)), "HistoryWrapper needs observations in a Box of one"),
        (lambda: HistoryWrapper(gym.make("CartPole-v1")), "HistoryWrapper needs actions in a Box of one dimension"),
        (lambda: HistoryWrapperObsDict(Counting()), "needs Dict observations with a part 'observation'"),
        (lambda: ActionNoiseWrapper(gym.make("CartPole-v1")), "needs actions in a Box, got Discrete"),
        (lambda: ActionNoiseWrapper(Counting(), noise_std=-1), "noise_std must be at least 0, got -1"),
        (lambda: ActionSmoothingWrapper(Counting(), 1.5), "smoothing_coef must be between 0 and 1, got 1.5"),
        (lambda: TruncatedOnSuccessWrapper(Counting(), n_successes=0), "n_successes must be at least 1, got 0"),
    ],
)
def test_wrong_arguments_are_named(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
