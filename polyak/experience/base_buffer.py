"""The base of all buffers: sizes, device, random numbers, conversion to tensors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.arrays import shared, to_device
from polyak.envs.spaces import get_action_dim, get_obs_shape
from polyak.experience.batch import ArrayObs
from polyak.experience.randomness import Randomness
from polyak.experience.record import record_dtype
from polyak.experience.schema import Schema


class Normalizer(Protocol):
    """The part of VecNormalize that buffers use."""

    def normalize_obs(self, obs: Any) -> Any:
        """Normalise a batch of observations with the running statistics."""
        ...

    def normalize_reward(self, reward: np.ndarray) -> np.ndarray:
        """Scale rewards with the running statistics."""
        ...


def single_dtype(dtype: Any) -> Any:
    """float32 for float64; every other type as it is."""
    return np.float32 if dtype == np.float64 else dtype


def observation_dtype(space: spaces.Space, shape: Any = None, stored: Callable[[Any], Any] = np.dtype) -> np.dtype:
    """Returns the numpy type of one stored observation: a subarray, or for a Dict space a record of subarrays.

    Args:
        shape: shape of an observation, for a Dict a dict of these; ``None``: the shape of the space.
        stored: maps the dtype of the space to the stored dtype.
    """
    if isinstance(space, spaces.Dict):
        parts = {key: (sub, shape and shape[key], stored) for key, sub in space.spaces.items()}
        return record_dtype({key: observation_dtype(*part) for key, part in parts.items()})
    return np.dtype((stored(space.dtype), (space.shape or ()) if shape is None else shape))


def row_dtype(observation: np.dtype, action: np.dtype, scalars: Mapping[str, Any], schema: Schema) -> np.dtype:
    """The record type of a transition: observations, actions, ``scalars``, and ``extras`` if there are further
    columns."""
    fields = {"observations": observation, "next_observations": observation, "actions": action}
    fields |= {name: np.dtype(dtype) for name, dtype in scalars.items()}
    return record_dtype(fields | ({"extras": record_dtype(schema.layouts())} if len(schema) else {}))


class BaseBuffer(Randomness, ABC):
    """Fixed-size storage of the experience of ``n_envs`` parallel environments.

    Args:
        buffer_size: number of steps kept; see the subclasses for its unit.
        observation_space: Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these.
        action_space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, whose actions are stored
            flat, as the policy returns them.
        device: device of sampled tensors; "auto" takes the GPU if there is one. Rows stay in main memory.
        n_envs: number of parallel environments.
    """

    pos, full = 0, False
    prepared: ClassVar[Callable[[BaseBuffer], None] | None] = None
    """Called with every new buffer after its sizes are set."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        n_envs: int = 1,
    ):
        if buffer_size < 1:
            raise ValueError(f"buffer_size must be at least 1, got {buffer_size}.")
        if n_envs < 1:
            raise ValueError(f"n_envs must be at least 1, got {n_envs}. It is the number of parallel environments.")
        self.buffer_size, self.n_envs = int(buffer_size), int(n_envs)
        self.observation_space, self.action_space = observation_space, action_space
        self.obs_shape: Any = get_obs_shape(observation_space)
        self.action_dim = get_action_dim(action_space)
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        self._obs_batch: Any = self._with_envs(self.obs_shape)  # shapes of one vectorised step
        self._action_batch, self._scalar_batch = (self.n_envs, self.action_dim), (self.n_envs,)
        if BaseBuffer.prepared is not None:
            BaseBuffer.prepared(self)

    def _with_envs(self, shape: Any) -> Any:
        if isinstance(shape, dict):
            return {key: self._with_envs(sub) for key, sub in shape.items()}
        return (self.n_envs, *shape)

    @staticmethod
    def swap_and_flatten(arr: np.ndarray) -> np.ndarray:
        """[steps, envs, ...] -> [envs * steps, ...] with each environment's steps in order; [T, N] -> [N * T, 1]."""
        shape = arr.shape if arr.ndim > 2 else (*arr.shape, 1)
        return arr.swapaxes(0, 1).reshape(shape[0] * shape[1], *shape[2:])

    def size(self) -> int:
        """Number of filled steps (of all environments together)."""
        return self.buffer_size if self.full else self.pos

    @abstractmethod
    def add(self, *args: Any, **kwargs: Any) -> None:
        """Add one vectorised step."""

    def extend(self, *args: Any, **kwargs: Any) -> None:
        """Add several vectorised steps: each argument is a sequence over time of arguments of :meth:`add`."""
        for step in zip(*args, *kwargs.values(), strict=True):
            self.add(*step[: len(args)], **dict(zip(kwargs, step[len(args) :], strict=True)))

    def reset(self) -> None:
        """Empty the buffer."""
        self.pos, self.full = 0, False

    def sample(self, batch_size: int, env: Normalizer | None = None) -> Any:
        """Draw ``batch_size`` rows uniformly; ``env`` (a VecNormalize) normalises them."""
        if self.size() == 0:
            raise ValueError("The buffer is empty: add something before sampling.")
        return self._get_samples(self.rng.randint(0, self.size(), batch_size), env=env)

    @abstractmethod
    def _get_samples(self, batch_inds: np.ndarray, env: Normalizer | None = None) -> Any:
        """Turn row numbers [B] into a batch; subclasses may override it."""

    def to_torch(self, array: np.ndarray, copy: bool = True) -> Tensor:
        """The array as a tensor on the buffer's device.

        Args:
            copy: False may share memory with the array (on the CPU only).
        """
        if copy:
            return torch.tensor(array, device=self.device)
        return to_device(shared(array) if isinstance(array, np.ndarray) else torch.as_tensor(array), self.device)

    @staticmethod
    def _normalize_obs(obs: ArrayObs, env: Normalizer | None = None) -> ArrayObs:
        return obs if env is None else env.normalize_obs(obs)

    @staticmethod
    def _normalize_reward(reward: np.ndarray, env: Normalizer | None = None) -> np.ndarray:
        return reward if env is None else env.normalize_reward(reward).astype(np.float32)

    def _batched(self, name: str, value: Any, shape: Any) -> Any:
        """Observations, actions ... of all environments, as arrays of exactly this shape; for Dict spaces per key.

        Raises:
            ValueError: they have another size; names the argument.
        """
        if isinstance(value, np.ndarray):
            if value.shape == shape:
                return value
            if value.shape == shape[:1] and shape[1:] == (1,):  # one number for each environment
                return value.reshape(shape)
        if isinstance(shape, dict):
            missing = [key for key in shape if key not in value]
            if missing:
                raise ValueError(f"{name} lacks the keys {missing} of the observation space.")
            return {key: self._batched(f"{name}[{key!r}]", value[key], shape[key]) for key in shape}
        array = value if isinstance(value, Tensor) else np.asarray(value)
        if math.prod(array.shape) != math.prod(shape):
            raise ValueError(f"{name} must have shape {shape} (n_envs first), got {tuple(array.shape)}.")
        return array.reshape(shape)


def tensor_of(buffer: BaseBuffer, values: np.ndarray | Tensor) -> Tensor:
    """A freshly made array as a tensor on a buffer's device, without a copy on the CPU; a tensor as it is."""
    return values if isinstance(values, Tensor) else buffer.to_torch(values, copy=False)
