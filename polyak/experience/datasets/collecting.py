"""Recording the experience of a policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from polyak.arrays import mapped
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.nested_spaces import is_composed
from polyak.envs.normalisation import as_trained
from polyak.envs.normalisation_scale import shown_to
from polyak.envs.vec.vec_env import VecEnv
from polyak.envs.wrap import as_vec_env
from polyak.envs.wrappers.normalize import unwrap_vec_normalize
from polyak.experience.datasets.checks import as_actions
from polyak.experience.datasets.dataset import Dataset
from polyak.experience.datasets.episodes import DatasetError, Parts

Acts = Callable[[Any, Any, np.ndarray], tuple[Any, Any]]
"""Observations [E, ...], the policy's memory, which of E episodes begin [E] -> actions [E, ...], memory."""


def collect(
    env: gym.Env | VecEnv | gym.vector.VectorEnv | str,
    policy: Any = None,
    n: int = 10_000,
    *,
    deterministic: bool = False,
    whole_episodes: bool = False,
    seed: int | None = None,
) -> Dataset:
    """Run a policy, and record its experience.

    Args:
        env: an environment, a vector of them, which share the steps, or a registered name. Tuple and nested
            observations are recorded as a Dict of their parts, images with their channels first.
        policy: a model, or anything else with ``predict(observation, state, episode_start, deterministic)``; a function
            of one observation; None acts at random.
        n: number of steps to record; running episodes are truncated there.
        deterministic: whether a model takes its most likely actions.
        whole_episodes: continue each environment's last episode to its end, even if that takes more than ``n`` steps.
        seed: seed of the environments' first reset and of random actions.

    Raises:
        DatasetError: the policy's action is not in the environment's space; the environment's actions are composed.
        ValueError: ``n`` is not positive, ``policy`` cannot act, or the environment normalises.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, got {n}.")
    envs = as_vec_env(env, monitor_wrapper=False)
    try:
        _check(envs)
        if seed is not None:
            envs.seed(seed)
            envs.action_space.seed(seed)
        lanes = [_Lane(n // envs.num_envs + (i < n % envs.num_envs), whole_episodes) for i in range(envs.num_envs)]
        with as_trained(policy, envs):
            _record(envs, _acting(envs, policy, deterministic), lanes)
        parts = _joined([lane for lane in lanes if lane.ends])
        return Dataset.from_parts(parts, envs.observation_space, envs.action_space, _name_of(envs))
    finally:
        if isinstance(env, str):
            envs.close()


class _Lane:
    """The recorded steps of one environment.

    Args:
        steps: number of steps to record.
        whole: continue to the end of the episode then.
    """

    def __init__(self, steps: int, whole: bool) -> None:
        self.steps, self.whole = steps, whole
        self.observations: list[Any] = []
        self.actions: list[np.ndarray] = []
        self.rewards: list[float] = []
        self.ends: list[int] = []
        self.terminated: list[bool] = []
        self.open = steps > 0

    def add(self, obs: Any, action: np.ndarray, reward: float, final: Any, done: bool, terminated: bool) -> None:
        """Record a step; ``final`` is its true successor."""
        self.observations.append(obs)
        self.actions.append(action)
        self.rewards.append(reward)
        full = len(self.actions) >= self.steps
        if done or (full and not self.whole):
            self.observations.append(final)
            self.ends.append(len(self.actions))
            self.terminated.append(terminated)
            self.open = not full


def _check(envs: VecEnv) -> None:
    if is_composed(envs.action_space):
        raise DatasetError(
            f"the environment's actions are composed, {envs.action_space}: datasets hold none such. Wrap the "
            "environment, so that its actions are a Box, Discrete, MultiDiscrete or MultiBinary."
        )
    if unwrap_vec_normalize(envs) is not None:
        raise ValueError(
            "env normalises what it brings (VecNormalize), but datasets hold observations and rewards as they are. "
            "Pass the environments inside; a model that learned from normalised ones normalises for itself."
        )


def _record(envs: VecEnv, act: Acts, lanes: list[_Lane]) -> None:
    rows, space = FromVecEnv(envs), envs.action_space
    state, starts = None, np.ones(envs.num_envs, bool)
    observations = rows.reset().observations
    while any(lane.open for lane in lanes):
        chosen, state = act(observations, state, starts)
        named = lambda i: f"step {len(lanes[i].actions)} of environment {i}"  # noqa: E731
        actions = as_actions(chosen, space, envs.num_envs, "the policy", named)
        step = rows.step(actions)
        for i, lane in enumerate(lanes):
            if lane.open:
                now, then = _row(observations, i), _row(step.successors, i)
                ended = bool(step.dones[i]), bool(step.terminated[i])
                lane.add(now, actions[i].copy(), float(step.rewards[i]), then, *ended)
        observations, starts = step.observations, step.dones


def _row(observations: Any, i: int) -> Any:
    return mapped(lambda array: np.array(array[i]), observations)


def _joined(lanes: list[_Lane]) -> Parts:
    """The episodes of one environment after those of another."""
    offsets = np.cumsum([0, *(len(lane.actions) for lane in lanes)])
    return Parts(
        mapped(lambda *rows: np.stack(rows), *(obs for lane in lanes for obs in lane.observations)),
        np.stack([action for lane in lanes for action in lane.actions]),
        np.array([reward for lane in lanes for reward in lane.rewards], np.float32),
        np.concatenate([np.array(lane.ends) + offset for lane, offset in zip(lanes, offsets, strict=False)]),
        np.array([flag for lane in lanes for flag in lane.terminated]),
        {},
    )


def _acting(envs: VecEnv, policy: Any, deterministic: bool) -> Acts:
    if policy is None:
        return lambda obs, state, starts: ([envs.action_space.sample() for _ in range(envs.num_envs)], None)
    if hasattr(policy, "predict"):
        return lambda obs, state, starts: policy.predict(shown_to(policy, obs), state, starts, deterministic)
    if callable(policy):
        return lambda obs, state, starts: ([policy(_row(obs, i)) for i in range(envs.num_envs)], None)
    raise ValueError(f"policy={policy!r} cannot act: pass a model, a function of one observation, or None.")


def _name_of(envs: VecEnv) -> str | None:
    """Returns the registered name of the environments; ``None`` if it is unknown."""
    try:
        spec = envs.get_attr("spec", [0])[0]
    except (AttributeError, NotImplementedError):
        return None
    return None if spec is None else spec.id
