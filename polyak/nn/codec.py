"""Actions in the environment's units and in the network's."""

from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.nn.errors import PolicyError


class ActionCodec:
    """Translates actions between the units of a network and those of an environment.

    A squashed Box is [-1, 1] for the network and [low, high] for the environment; any other Box is the same for both,
    but clipped on the way to the environment. The choices of a Discrete or MultiDiscrete count from 0 for the network.

    Args:
        space: the environment's actions.
        squash: the network's actions lie in [-1, 1] and stand for the range of the Box.
    """

    def __init__(self, space: spaces.Space, squash: bool = False) -> None:
        self.space, self.squash = space, squash
        self._start = _start(space)
        self._box = isinstance(space, spaces.Box)
        if isinstance(space, spaces.Box):
            self._low, self._high = space.low, space.high
            with np.errstate(over="ignore", invalid="ignore"):
                self._span = space.high - space.low

    def to_env(self, action: np.ndarray) -> np.ndarray:
        """From the network's units to the environment's."""
        if self._box:
            if self.squash:
                return self._low + 0.5 * (action + 1.0) * self._span
            # np.clip costs several times as much on arrays this small
            return np.minimum(np.maximum(action, self._low), self._high)
        return action if self._start is None else action + self._start

    def from_env(self, action: np.ndarray) -> np.ndarray:
        """From the environment's units to the network's: the inverse of :meth:`to_env`, but for clipping."""
        if self._box:
            return self.scale(action) if self.squash else action
        return action if self._start is None else action - self._start

    def scale(self, action: np.ndarray) -> np.ndarray:
        """From [low, high] to [-1, 1].

        Raises:
            PolicyError: the action space is not a Box.
        """
        self._check_box()
        return 2.0 * ((action - self._low) / np.where(self._span > 0, self._span, 1)) - 1.0

    def unscale(self, action: np.ndarray) -> np.ndarray:
        """From [-1, 1] to [low, high].

        Raises:
            PolicyError: the action space is not a Box.
        """
        self._check_box()
        return self._low + 0.5 * (action + 1.0) * self._span

    def _check_box(self) -> None:
        if not self._box:
            raise PolicyError(f"only actions of a Box can be scaled, but the action space is {self.space}.")


def _start(space: spaces.Space) -> Any:
    """Where the choices of a Discrete or MultiDiscrete begin; None at 0."""
    if isinstance(space, spaces.Discrete):
        return space.start if space.start else None
    return space.start if isinstance(space, spaces.MultiDiscrete) and np.any(space.start) else None
