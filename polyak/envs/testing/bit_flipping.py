"""The bit-flipping task of Hindsight Experience Replay (Andrychowicz et al. 2017, section 3.1)."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.sizes import check_size

_IMAGE_SIDE = 36  # the smallest image that the Nature CNN takes
_MAX_DISCRETE_BITS = 62  # 2**n_bits states must fit an int64


class BitFlippingEnv(gym.Env):
    """Flip bits, one a step, until the state equals the goal; the reward is -1 until then, 0 at the goal.

    The goal is all ones, or for one episode the goal set by :meth:`set_goal`.

    Args:
        n_bits: length of the state.
        continuous: take a Box action in [-1, 1] of ``n_bits`` numbers that flips every bit whose number is positive,
            instead of the index of one bit.
        max_steps: an episode is truncated after this many steps; None for ``n_bits``.
        discrete_obs_space: give the state as one integer (bit 0 is the lowest).
        image_obs_space: give the state as an image ``(1, 36, 36)`` whose first ``n_bits`` pixels are 0 or 255.
        channel_first: shape of the image; false for ``(36, 36, 1)``.
        render_mode: "rgb_array" lets ``render()`` return the bits; with any other ``render()`` prints them.

    Raises:
        ValueError: for both observation kinds at once, more bits than they hold, or non-positive sizes.
    """

    metadata = {"render_modes": []}
    state: np.ndarray

    def __init__(
        self,
        n_bits: int = 10,
        continuous: bool = False,
        max_steps: int | None = None,
        discrete_obs_space: bool = False,
        image_obs_space: bool = False,
        channel_first: bool = True,
        render_mode: str | None = "human",
    ):
        check_size("n_bits", n_bits)
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps must be at least 1 (None for n_bits), got {max_steps}.")
        if discrete_obs_space and image_obs_space:
            raise ValueError("discrete_obs_space and image_obs_space cannot both be True: choose one of them.")
        if discrete_obs_space and n_bits > _MAX_DISCRETE_BITS:
            raise ValueError(f"discrete_obs_space needs n_bits <= {_MAX_DISCRETE_BITS}, got {n_bits}.")
        if image_obs_space and n_bits > _IMAGE_SIDE**2:
            raise ValueError(f"image_obs_space needs n_bits <= {_IMAGE_SIDE**2} (its pixels), got {n_bits}.")
        self.n_bits = n_bits
        self.continuous = continuous
        self.discrete_obs_space = discrete_obs_space
        self.image_obs_space = image_obs_space
        self.render_mode = render_mode
        self.image_shape = (1, _IMAGE_SIDE, _IMAGE_SIDE) if channel_first else (_IMAGE_SIDE, _IMAGE_SIDE, 1)
        self.max_steps = n_bits if max_steps is None else max_steps
        self.current_step = 0

        self._bits = spaces.MultiBinary(n_bits)
        state_space = self._state_space()
        self._state_dims = len(state_space.shape or ())
        self.observation_space = spaces.Dict(
            {"observation": state_space, "achieved_goal": state_space, "desired_goal": state_space}
        )
        self.action_space = (
            spaces.Box(-1.0, 1.0, shape=(n_bits,), dtype=np.float32) if continuous else spaces.Discrete(n_bits)
        )
        self.desired_goal = np.ones(n_bits, dtype=self._bits.dtype)
        self._asked: np.ndarray | None = None

    def _state_space(self) -> spaces.Space:
        if self.discrete_obs_space:
            return spaces.Discrete(2**self.n_bits)
        if self.image_obs_space:
            return spaces.Box(0, 255, shape=self.image_shape, dtype=np.uint8)
        return spaces.MultiBinary(self.n_bits)

    # --- the three forms of a state ---

    def convert_if_needed(self, state: np.ndarray) -> int | np.ndarray:
        """Convert a vector of bits to the form of the observation space."""
        if self.discrete_obs_space:
            return int(sum(int(bit) << place for place, bit in enumerate(state)))
        if self.image_obs_space:
            pixels = np.zeros(_IMAGE_SIDE**2, dtype=np.uint8)
            pixels[: self.n_bits] = np.asarray(state, dtype=np.uint8) * 255
            return pixels.reshape(self.image_shape)
        return state

    def convert_to_bit_vector(self, state: int | np.ndarray, batch_size: int) -> np.ndarray:
        """Convert ``batch_size`` states in the form of the observation space to bits ``(batch_size, n_bits)``."""
        flat = np.asarray(state).reshape(batch_size, -1)
        if self.discrete_obs_space:
            return (flat.astype(np.int64) >> np.arange(self.n_bits)) & 1
        if self.image_obs_space:
            return flat[:, : self.n_bits] / 255
        return flat

    # --- Gymnasium ---

    def seed(self, seed: int | None) -> None:
        """Seed the generator of start states."""
        self._bits.seed(seed)

    def set_goal(self, goal: int | np.ndarray) -> None:
        """Set the goal, in the form of the observation space, until the episode ends."""
        self._asked = self.convert_to_bit_vector(goal, 1)[0].astype(self._bits.dtype)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, int | np.ndarray], dict[str, Any]]:
        """Start from random bits; a seed makes them the same again."""
        super().reset(seed=seed)
        if seed is not None:
            self.seed(seed)
        self.current_step, self._asked = 0, None
        self.state = self._bits.sample()
        return self._observe(), {}

    def step(self, action: int | np.ndarray) -> tuple[dict[str, int | np.ndarray], float, bool, bool, dict[str, Any]]:
        """Flip one bit (Discrete) or all bits whose number is positive (continuous).

        Returns:
            observation, reward, terminated (goal reached), truncated (``max_steps``), ``{"is_success": terminated}``
        """
        if not hasattr(self, "state"):
            raise gym.error.ResetNeeded("BitFlippingEnv.step() was called before reset().")
        flipped = np.asarray(action) > 0 if self.continuous else action
        self.state[flipped] = 1 - self.state[flipped]
        self.current_step += 1
        obs = self._observe()
        reward = float(self.compute_reward(obs["achieved_goal"], obs["desired_goal"], None).item())
        terminated = reward == 0.0
        return obs, reward, terminated, self.current_step >= self.max_steps, {"is_success": terminated}

    def _observe(self) -> dict[str, int | np.ndarray]:
        desired = self.desired_goal if self._asked is None else self._asked
        return {
            "observation": self.convert_if_needed(self.state.copy()),
            "achieved_goal": self.convert_if_needed(self.state.copy()),
            "desired_goal": self.convert_if_needed(desired.copy()),
        }

    def compute_reward(self, achieved_goal: int | np.ndarray, desired_goal: int | np.ndarray, _info: Any) -> np.ndarray:
        """Reward of one or more pairs of goals: 0 where they are equal, else -1.

        Args:
            achieved_goal: one state or a batch with the batch dimension first.
            desired_goal: the same shape.

        Returns:
            ``(batch_size,)`` float32; ``(1,)`` for single states.
        """
        batch_size = self._batch_size(achieved_goal)
        achieved = self.convert_to_bit_vector(achieved_goal, batch_size)
        desired = self.convert_to_bit_vector(desired_goal, batch_size)
        return -(achieved != desired).any(axis=-1).astype(np.float32)

    def _batch_size(self, goal: int | np.ndarray) -> int:
        goal = np.asarray(goal)
        return goal.shape[0] if goal.ndim > self._state_dims else 1

    def render(self) -> np.ndarray | None:
        """The bits: returned in mode "rgb_array", printed in any other."""
        if self.render_mode == "rgb_array":
            return self.state.copy()
        print(self.state)
        return None

    def close(self) -> None:
        """Does nothing: there is nothing to free."""
