"""Environments with rewards from a function of the transition, such as a learned reward.

Shape letters: N environments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, SupportsFloat, cast

import gymnasium as gym
import numpy as np

from polyak.arrays import assign, mapped
from polyak.envs.make import make_env
from polyak.envs.vec.vec_env import VecEnv, VecEnvObs, VecEnvStepReturn, VecEnvWrapper
from polyak.envs.wrappers.normalize import VecNormalize, unwrap_vec_normalize

Reward = Callable[[Any, Any, Any, Any], np.ndarray]
"""``(observations [N, ...], actions [N, ...], next_observations [N, ...], terminated [N]) -> rewards [N]``, of
observations and actions as the environment has them, and of successors as they were before any reset."""


class LearnedReward(gym.Wrapper):
    """An environment with other rewards; its own are in the infos, as ``"true_reward"``.

    Args:
        env: the environment to wrap.
        reward: the reward function, such as the ``reward`` of a model that learned one.
    """

    def __init__(self, env: gym.Env, reward: Reward) -> None:
        super().__init__(env)
        check_callable(reward)
        self.reward = reward
        self._observation: Any = None

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._observation, info = self.env.reset(**kwargs)
        return self._observation, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, own, terminated, truncated, info = self.env.step(action)
        before, self._observation = self._observation, observation
        rows = _one(before), _one(action), _one(observation), np.array([terminated])
        learned = float(self.reward(*rows)[0])
        return observation, learned, terminated, truncated, {**info, "true_reward": own}


class VecLearnedReward(VecEnvWrapper):
    """Replaces the rewards of several environments.

    The episode statistics of the wrapped environments, ``info["episode"]``, count their own rewards.

    Args:
        venv: the VecEnv to wrap, without normalisation: see :func:`with_reward`.
        reward: the reward function, such as the ``reward`` of a model that learned one.
        watch: called at each step with the arguments of ``reward`` and which episodes ended [N], before ``reward``.

    Attributes:
        late: return 0, and compute the rewards of many steps in a later call to :meth:`settle`.
        waiting: those steps: the arguments of ``reward``, and which episodes ended.
        true_rewards: [N] rewards of the wrapped environments at the last step.
        returns: [N] float64, sums of the other rewards since each episode began.
        ended: those sums of the episodes that ended since the list was emptied.
    """

    passes_on = ("observations",)
    state_attributes = ("returns", "_before")

    def __init__(
        self, venv: VecEnv, reward: Reward, watch: Callable[[Any, Any, Any, Any, Any], None] | None = None
    ) -> None:
        super().__init__(venv)
        check_callable(reward)
        self.reward, self.watch = reward, watch
        self.late, self.waiting = False, cast("list[tuple[Any, Any, Any, Any, Any]]", [])
        self.true_rewards = np.zeros(self.num_envs, np.float32)
        self.returns = np.zeros(self.num_envs)
        self.ended: list[float] = []
        self._before: Any = None
        self._actions: Any = None

    def reset(self) -> VecEnvObs:
        self.returns[:] = 0
        self.waiting = []
        self._before = self.venv.reset()
        return self._before

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        observations, self.true_rewards, dones, infos = self.venv.step_wait()
        before, self._before = self._before, observations
        successors, terminated, ended = observations, dones, np.flatnonzero(dones)
        if len(ended):
            successors, terminated = _with_final(observations, ended, infos), dones.copy()
            for index in ended.tolist():
                terminated[index] = not infos[index].get("TimeLimit.truncated", False)
        if self.watch is not None:
            self.watch(before, self._actions, successors, terminated, dones)
        if self.late:
            self.waiting.append((before, self._actions, successors, terminated, dones))
            return observations, np.zeros(self.num_envs, np.float32), dones, infos
        rewards = np.asarray(self.reward(before, self._actions, successors, terminated), np.float32)
        self._count(rewards, dones)
        return observations, rewards, dones, infos

    def _count(self, rewards: np.ndarray, dones: np.ndarray) -> None:
        self.returns += rewards
        if True in dones.tolist():
            self.ended += self.returns[dones].tolist()
            self.returns[dones] = 0

    def owed(self) -> np.ndarray:
        """Rewards of the :attr:`waiting` steps: [T, N] float32."""
        if not self.waiting:
            return np.zeros((0, self.num_envs), np.float32)
        before, actions, successors, terminated, _ = zip(*self.waiting, strict=True)
        rows = _stacked(before), np.concatenate(actions), _stacked(successors), np.concatenate(terminated)
        return np.asarray(self.reward(*rows), np.float32).reshape(len(before), self.num_envs)

    def settle(self) -> np.ndarray:
        """Computes the rewards as :meth:`owed` does, and empties the list of waiting steps."""
        rewards = self.owed()
        for row, step in zip(rewards, self.waiting, strict=True):
            self._count(row, step[-1])
        self.waiting = []
        return rewards

    def resume(self, observations: Any) -> None:
        """Continue in the middle of episodes, after these last observations [N, ...]."""
        self._before = observations


def with_reward(env: Any, reward: Reward) -> Any:
    """Wraps an environment, or a vector of them, so that it gives other rewards.

    The wrapper is put beneath a :class:`~polyak.envs.VecNormalize`, so that ``reward`` gets raw observations and its
    result is normalised. The given and the returned normaliser share their statistics.

    Args:
        env: an environment, a vector of them, or a registered name.
        reward: the reward function, such as the ``reward`` of a model that learned one.

    Raises:
        ValueError: ``reward`` cannot be called, or belongs to other observations or actions.
    """
    check_callable(reward)
    env = make_env(env) if isinstance(env, str) else env
    check_spaces(env if not isinstance(env, VecEnv) else beneath_normalisation(env), reward)
    if isinstance(env, VecEnv):
        return rewarded(env, lambda venv: VecLearnedReward(venv, reward))
    return LearnedReward(env, reward)


def rewarded(env: VecEnv, wrap: Callable[[VecEnv], VecEnv]) -> VecEnv:
    """Returns ``wrap(env)``, or copies of the layers down to the normaliser around ``wrap`` of the environment it
    wraps."""
    if unwrap_vec_normalize(env) is None:
        return wrap(env)
    assert isinstance(env, VecEnvWrapper)
    if not isinstance(env, VecNormalize):
        return env.around(rewarded(env.venv, wrap))
    layer = env.around(wrap(env.venv))
    layer._forget_episode()  # the given normaliser continues its own episode
    return layer


def beneath_normalisation(env: VecEnv) -> VecEnv:
    """Returns the environment that the normaliser wraps; ``env`` itself if there is none."""
    normalizer = unwrap_vec_normalize(env)
    return env if normalizer is None else normalizer.venv


def check_callable(reward: Any) -> None:
    """Raise ValueError if a reward cannot be called."""
    if not callable(reward):
        raise ValueError(f"reward={reward!r} must be a function of observations, actions, successors and their ends.")


def check_spaces(env: gym.Env | VecEnv, reward: Any) -> None:
    """Refuse a reward that declares other spaces than the environment's.

    Raises:
        ValueError: they differ.
    """
    for name in ("observation_space", "action_space"):
        space = getattr(reward, name, None)
        if space is not None and space != getattr(env, name):
            raise ValueError(f"reward has {name}={space}, but the environment {getattr(env, name)}.")


def _with_final(observations: Any, ended: np.ndarray, infos: list[dict[str, Any]]) -> Any:
    """``observations`` [N, ...] with the last ones of ended episodes in place of the first ones of new episodes."""
    successors = mapped(np.copy, observations)
    for index in ended.tolist():
        assign(successors, index, infos[index]["terminal_observation"])
    return successors


def _stacked(observations: Any) -> Any:
    """Several batches of observations one after another."""
    return mapped(lambda *batches: np.concatenate(batches), *observations)


def _one(value: Any) -> Any:
    """Returns one observation or action as a batch of one."""
    return mapped(lambda part: np.asarray(part)[None], value)
