"""The last few observations of each environment, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.sizes import MOST_FRAMES, check_size
from polyak.envs.spaces import is_image_space, is_image_space_channels_first
from polyak.envs.vec.vec_env import VecEnv, VecEnvObs, VecEnvStepReturn, VecEnvWrapper
from polyak.warning import warn_user

ChannelsOrder = str | None | Mapping[str, str | None]


class ChannelsOrderError(ValueError, AssertionError):
    """An unknown order of channels. Also an AssertionError, which Stable-Baselines3 raises here."""


class StackedObservations:
    """Keeps the last ``n_stack`` observations of each environment, oldest first, zeros before the first.

    Args:
        num_envs: how many environments.
        n_stack: how many observations to stack.
        observation_space: of one environment: a Box, or a Dict of Box spaces (each is stacked).
        channels_order: ``"first"`` stacks along the first dimension, ``"last"`` along the last; None decides: images
            along their channels, anything else along the last dimension. With a Dict space, one for all keys or a dict
            with one per key.

    Raises:
        ValueError: for another space, ``n_stack`` below 1 or above 1,000, or an unknown ``channels_order``.
    """

    def __init__(
        self, num_envs: int, n_stack: int, observation_space: spaces.Space, channels_order: ChannelsOrder = None
    ):
        check_size("n_stack", n_stack, MOST_FRAMES)
        self.num_envs = num_envs
        self.n_stack = n_stack
        self.sub_stacked_observations: dict[str, StackedObservations] | None = None
        if isinstance(observation_space, spaces.Dict):
            self.sub_stacked_observations = {
                key: StackedObservations(num_envs, n_stack, subspace, _order_of(key, channels_order))
                for key, subspace in observation_space.spaces.items()
            }
            self.stacked_observation_space: spaces.Space = spaces.Dict(
                {key: stack.stacked_observation_space for key, stack in self.sub_stacked_observations.items()}
            )
            return
        if not isinstance(observation_space, spaces.Box) or not observation_space.shape:
            raise ValueError(
                "Frames are stacked for Box observations of at least one dimension, or Dict observations of these, "
                f"got {observation_space}. Take out what cannot be stacked, e.g. with VecExtractDictObs."
            )
        if isinstance(channels_order, Mapping):
            raise ValueError(f"channels_order can be a dict for Dict observations only, got {channels_order}.")
        self.channels_first, self.stack_dimension, self.stacked_shape, self.repeat_axis = self.compute_stacking(
            n_stack, observation_space, channels_order
        )
        self.stacked_observation_space = spaces.Box(
            low=np.concatenate([observation_space.low] * n_stack, axis=self.repeat_axis),
            high=np.concatenate([observation_space.high] * n_stack, axis=self.repeat_axis),
            dtype=observation_space.dtype,
        )
        self.stackedobs = np.zeros((num_envs, *self.stacked_shape), dtype=observation_space.dtype)
        axis = self.repeat_axis % len(self.stacked_shape)
        width = observation_space.shape[axis]
        before = (slice(None),) * axis
        self._older = (*before, slice(width, None))
        """The part of one stack that remains when another observation is pushed."""
        self._newest = (slice(None), *before, slice(-width, None))
        """The part of the stacks that holds the newest observations."""
        self._shift = width * int(np.prod(self.stacked_shape[axis + 1 :]))
        """The distance in memory by which a push moves an element."""

    @staticmethod
    def compute_stacking(
        n_stack: int, observation_space: spaces.Box, channels_order: str | None = None
    ) -> tuple[bool, int, tuple[int, ...], int]:
        """Returns the axes and the shape of stacked observations.

        Returns:
            Whether along the first dimension; the dimension of a batch that grows (1 or -1); the shape of one stacked
            observation; the dimension of one observation that grows (0 or -1).
        """
        if channels_order not in (None, "first", "last"):
            raise ChannelsOrderError(f"channels_order must be one of 'first', 'last' or None, got {channels_order!r}.")
        if channels_order is None:
            channels_first = is_image_space(observation_space) and is_image_space_channels_first(observation_space)
        else:
            channels_first = channels_order == "first"
        repeat_axis = 0 if channels_first else -1
        shape = list(observation_space.shape)
        shape[repeat_axis] *= n_stack
        return channels_first, 1 if channels_first else -1, tuple(shape), repeat_axis

    def reset(self, observation: Any) -> Any:
        """Start all stacks again with the first observations ``[N, ...]`` and return the stacks."""
        if self.sub_stacked_observations is not None:
            return {key: stack.reset(observation[key]) for key, stack in self.sub_stacked_observations.items()}
        self.stackedobs = np.zeros_like(self.stackedobs)
        self.stackedobs[self._newest] = observation
        return self.stackedobs

    def update(
        self, observations: Any, dones: np.ndarray, infos: list[dict[str, Any]]
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Push the observations ``[N, ...]``; where an episode ended the stack starts again.

        Returns:
            The stacks, in an array that later calls do not alter, and the infos, in which
            ``"terminal_observation"`` is now the stack that the episode ended with.
        """
        ended = np.flatnonzero(dones).tolist()
        for index in ended:
            if "terminal_observation" in infos[index]:
                infos[index]["terminal_observation"] = self._final(index, infos[index]["terminal_observation"])
            else:
                warn_user(
                    f"An episode of environment {index} ended without terminal_observation in its info, so "
                    "VecFrameStack cannot stack its last observation. The wrapped VecEnv must add it."
                )
        return self._push(observations, ended), infos

    def _final(self, index: int, final: Any) -> Any:
        """The stack that environment ``index`` ends with, given its last observation."""
        if self.sub_stacked_observations is not None:
            return {key: stack._final(index, final[key]) for key, stack in self.sub_stacked_observations.items()}
        return np.concatenate([self.stackedobs[index][self._older], final], axis=self.repeat_axis)

    def _push(self, observations: Any, ended: list[int]) -> Any:
        if self.sub_stacked_observations is not None:
            stacks = self.sub_stacked_observations.items()
            return {key: stack._push(observations[key], ended) for key, stack in stacks}
        # A new array, so that earlier results stay as they were. All elements move by the same distance in memory, so
        # one plain copy does it; elements that spill over from one stack to the next are overwritten by the newest
        # ones.
        previous, self.stackedobs = self.stackedobs, np.empty_like(self.stackedobs)
        self.stackedobs.reshape(-1)[: -self._shift] = previous.reshape(-1)[self._shift :]
        if ended:
            self.stackedobs[ended] = 0
        self.stackedobs[self._newest] = observations
        return self.stackedobs


def _order_of(key: str, channels_order: ChannelsOrder) -> str | None:
    if isinstance(channels_order, Mapping):
        if key not in channels_order:
            raise ValueError(f"channels_order has no entry for the key {key!r}: {dict(channels_order)}.")
        return channels_order[key]
    return channels_order


class VecFrameStack(VecEnvWrapper):
    """Gives each environment's last ``n_stack`` observations as one, so that a policy can see motion.

    Args:
        venv: the VecEnv to wrap; its observations are Box, or a Dict of Box.
        n_stack: how many observations to stack.
        channels_order: see :class:`StackedObservations`.
    """

    passes_on = ("rewards",)

    def __init__(self, venv: VecEnv, n_stack: int, channels_order: ChannelsOrder = None):
        self.stacked_obs = StackedObservations(venv.num_envs, n_stack, venv.observation_space, channels_order)
        super().__init__(venv, observation_space=self.stacked_obs.stacked_observation_space)

    def reset(self) -> VecEnvObs:
        return self.stacked_obs.reset(self.venv.reset())

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        stacked, infos = self.stacked_obs.update(observations, dones, infos)
        return stacked, rewards, dones, infos
