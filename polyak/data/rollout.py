"""Experience of the current policy, used for one update and thrown away."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.data.base import BaseBuffer, Normalizer
from polyak.data.batch import DictRolloutBufferSamples, RolloutBufferSamples, RolloutRows, TensorObs
from polyak.data.storage.memory import check_memory
from polyak.data.storage.table import ArrayObs, observation_dtype
from polyak.ops.returns import gae
from polyak.ops.transfer import to_device

# in the order of RolloutBufferSamples
FIELDS = ("observations", "actions", "values", "log_probs", "advantages", "returns")
COLLECTED = ("observations", "actions", "rewards", "episode_starts", "values", "log_probs")  # step by step


class RolloutBuffer(BaseBuffer):
    """``buffer_size`` steps of ``n_envs`` environments, with advantages and value targets.

    ``values`` and ``log_probs`` may be filled step by step through :meth:`add` or assigned as whole arrays afterwards.

    Attributes:
        observations: [buffer_size, n_envs, ...], or a dict of these.
        actions: [buffer_size, n_envs, action_dim].
        rewards, values, log_probs, advantages, returns, episode_starts: [buffer_size, n_envs] float32.
        generator_ready: whether :meth:`get` has begun; from then on all arrays are [n_envs * buffer_size, ...].

    Args:
        buffer_size: steps of each environment.
        gae_lambda: trace decay of the advantages; 1 gives Monte Carlo returns.
        gamma: discount.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
    ):
        super().__init__(buffer_size, observation_space, action_space, device, n_envs)
        for name, value in (("gae_lambda", gae_lambda), ("gamma", gamma)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value}.")
        self.gae_lambda, self.gamma = gae_lambda, gamma
        self._check_memory()
        self.reset()

    def _check_memory(self) -> None:
        row = observation_dtype(self.observation_space, self.obs_shape).itemsize + 8 * self.action_dim + 6 * 4
        check_memory(
            row * self.buffer_size * self.n_envs,
            f"The rollout buffer ({self.buffer_size:,} steps of n_envs={self.n_envs}, {self.observation_space})",
            "Use fewer steps (n_steps), fewer environments or smaller observations.",
        )

    def reset(self) -> None:
        """Start a new rollout, in new arrays: whoever kept the old ones keeps their contents."""
        super().reset()
        self.generator_ready = False
        self.observations: Any = self._observations(self.observation_space, self.obs_shape)
        self.actions = self._zeros((self.action_dim,), self.action_space.dtype)
        self.rewards, self.episode_starts = self._zeros(), self._zeros()
        self.values, self.log_probs = self._zeros(), self._zeros()
        self.advantages, self.returns = self._zeros(), self._zeros()

    def _zeros(self, shape: tuple[int, ...] = (), dtype: Any = np.float32) -> np.ndarray:
        return np.zeros((self.buffer_size, self.n_envs, *shape), dtype)

    def _observations(self, space: spaces.Space, shape: Any) -> ArrayObs:
        if isinstance(space, spaces.Dict):
            return {key: self._zeros(shape[key], sub.dtype) for key, sub in space.spaces.items()}
        return self._zeros(shape, space.dtype)

    def add(
        self,
        obs: Any,
        action: np.ndarray,
        reward: np.ndarray,
        episode_start: np.ndarray,
        value: Tensor | np.ndarray | None,
        log_prob: Tensor | np.ndarray | None,
    ) -> None:
        """Store one vectorised step.

        Args:
            obs: [n_envs, ...] or a dict of these.
            action: [n_envs, action_dim].
            reward: [n_envs]; at a time limit with the discounted value of the final observation added.
            episode_start: [n_envs] whether ``obs`` is the first of an episode.
            value, log_prob: [n_envs] of the policy that acted; None leaves them to be assigned after the rollout.
        """
        if self.full:
            raise ValueError(
                f"The rollout buffer is full after buffer_size={self.buffer_size} steps: call reset() first."
            )
        pos = self.pos
        if not isinstance(obs, np.ndarray) or obs.shape != self._obs_batch:
            obs = self._batched("obs", obs, self._obs_batch)
        if isinstance(obs, dict):
            for key, array in obs.items():
                self.observations[key][pos] = array
        else:
            self.observations[pos] = obs
        self.actions[pos] = self._batched("action", action, self._action_batch)
        if not isinstance(reward, np.ndarray) or reward.shape != self._scalar_batch:
            reward = self._batched("reward", reward, self._scalar_batch)
        if not isinstance(episode_start, np.ndarray) or episode_start.shape != self._scalar_batch:
            episode_start = self._batched("episode_start", episode_start, self._scalar_batch)
        self.rewards[pos] = reward
        self.episode_starts[pos] = episode_start
        if value is not None:
            self.values[pos] = _flat(value)
        if log_prob is not None:
            self.log_probs[pos] = _flat(log_prob)
        self.pos = pos + 1
        self.full = self.pos == self.buffer_size

    @property
    def resumable(self) -> bool:
        """Whether :meth:`state_dict` says all about a rollout that is being collected: no subclass stores otherwise."""
        return type(self).add is RolloutBuffer.add

    def state_dict(self) -> dict[str, Any]:
        """The steps of a rollout that is being collected, as arrays [steps, n_envs, ...], and the random state."""
        written = {name: getattr(self, name) for name in COLLECTED}
        rows = slice(self.pos)
        return {"rng": self.rng_state()} | {
            name: {key: part[rows] for key, part in column.items()} if isinstance(column, dict) else column[rows]
            for name, column in written.items()
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on with the rollout that :meth:`state_dict` described."""
        self.reset()
        self.load_rng_state(state["rng"])
        self.pos = len(state["rewards"])
        self.full = self.pos == self.buffer_size
        for name in COLLECTED:
            column, saved = getattr(self, name), state[name]
            for mine, theirs in (
                [(column[key], saved[key]) for key in column] if isinstance(column, dict) else [(column, saved)]
            ):
                mine[: self.pos] = theirs

    def flat_inputs(self) -> tuple[TensorObs, Tensor]:
        """All observations and actions, step by step, as tensors [buffer_size * n_envs, ...]; before :meth:`get`."""

        def joined(column: np.ndarray) -> np.ndarray:
            return column.reshape(-1, *column.shape[2:])

        obs = self.observations
        obs = {key: joined(column) for key, column in obs.items()} if isinstance(obs, dict) else joined(obs)
        return self._tensors(obs), self._tensor(joined(self.actions))

    def compute_returns_and_advantage(self, last_values: Tensor | np.ndarray, dones: np.ndarray) -> None:
        """Fill ``advantages`` (GAE, Schulman et al. 2016 eq. 16) and ``returns = advantages + values``.

        An episode end is never bootstrapped here: at a time limit the value of the final observation is expected in
        ``rewards`` already.

        Args:
            last_values: [n_envs] (or [n_envs, 1]) values of the observations after the last step.
            dones: [n_envs] whether the last step ended an episode.
        """
        next_values = np.concatenate([self.values[1:], _flat(last_values)[None]])
        ends = np.concatenate([self.episode_starts[1:], np.asarray(dones, np.float32).reshape(1, self.n_envs)])
        self.advantages, self.returns = gae(
            self.rewards, self.values, next_values, self.gamma * (1 - ends), self.gae_lambda, ends
        )

    def get(self, batch_size: int | None = None) -> Generator[RolloutBufferSamples, None, None]:
        """All rows once, in a new random order at each call.

        Args:
            batch_size: rows of a minibatch (the last one may be smaller); None gives all rows at once.
        """
        if type(self)._get_samples is not RolloutBuffer._get_samples:
            order, size = self._order(batch_size)
            for start in range(0, len(order), size):
                yield self._get_samples(order[start : start + size])
            return
        for minibatch in self.minibatches(batch_size):
            yield minibatch.gathered()

    def minibatches(self, batch_size: int | None = None) -> Generator[RolloutRows, None, None]:
        """As :meth:`get`, but nothing is gathered yet."""
        order, size = self._order(batch_size)
        rollout = self._rollout()  # converted once for all minibatches, as their rows are
        for rows in to_device(torch.from_numpy(order), self.device).split(size):
            yield RolloutRows(rollout, rows)

    @property
    def plain(self) -> bool:
        """Whether minibatches are just rows of the rollout: no subclass makes them otherwise."""
        cls = type(self)
        return cls.get is RolloutBuffer.get and cls._get_samples is RolloutBuffer._get_samples

    def _order(self, batch_size: int | None) -> tuple[np.ndarray, int]:
        """All rows in a new random order, and how many make a minibatch; flattens the arrays."""
        if not self.full:
            raise AssertionError(
                f"The rollout buffer holds {self.pos} of {self.buffer_size} steps: fill it before reading it."
            )
        rows = self.buffer_size * self.n_envs
        batch_size = rows if batch_size is None else batch_size
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        order = self.rng.permutation(rows)
        if not self.generator_ready:
            self._flatten()
        return order, batch_size

    def _flatten(self) -> None:
        """Join the steps of all environments into one axis, environment by environment."""
        for name in (*FIELDS, "rewards", "episode_starts"):
            column = getattr(self, name)
            flat = self.swap_and_flatten
            setattr(self, name, {k: flat(a) for k, a in column.items()} if isinstance(column, dict) else flat(column))
        self.generator_ready = True

    def _rollout(self) -> RolloutBufferSamples:
        """The whole flattened rollout as tensors, sharing memory with the arrays where it can."""
        obs, actions, *scalars = (getattr(self, name) for name in FIELDS)
        actions = actions.astype(np.float32, copy=False)  # one type for all spaces, as in SB3: policies cast back
        samples = DictRolloutBufferSamples if isinstance(obs, dict) else RolloutBufferSamples
        return samples(
            self._tensors(obs), self._tensor(actions), *(self._tensor(column.reshape(-1)) for column in scalars)
        )

    def _get_samples(self, batch_inds: np.ndarray, env: Normalizer | None = None) -> RolloutBufferSamples:
        """Some rows [B] of the flattened rollout; :meth:`get` calls it where a subclass overrides it."""
        rows = to_device(torch.from_numpy(np.asarray(batch_inds, np.int64)), self.device)
        return RolloutRows(self._rollout(), rows).gathered()


class DictRolloutBuffer(RolloutBuffer):
    """:class:`RolloutBuffer` under SB3's name for Dict observations, which that class takes too."""

    def __init__(self, buffer_size: int, observation_space: spaces.Space, *args: Any, **kwargs: Any):
        assert isinstance(observation_space, spaces.Dict), "DictRolloutBuffer must be used with Dict obs space only"
        super().__init__(buffer_size, observation_space, *args, **kwargs)


def _flat(values: Tensor | np.ndarray) -> np.ndarray:
    return (values.numpy(force=True) if isinstance(values, Tensor) else np.asarray(values)).reshape(-1)
