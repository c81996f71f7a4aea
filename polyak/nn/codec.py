"""Conversion of actions between the environment's units and the network's."""

from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.nested_spaces import SpacePart, compose, is_composed, parts
from polyak.envs.spaces import clipped, get_action_dim, own_actions, wide_bounds
from polyak.nn.errors import PolicyError


class ActionCodec:
    """Converts actions between the units of a network and those of an environment.

    A squashed Box is [-1, 1] for the network and [low, high] for the environment; any other Box is the same for both,
    but clipped on the way to the environment. The choices of a Discrete or MultiDiscrete count from 0 for the network.

    Actions for an environment are always in its space, in the space's own dtype: finite numbers are clipped to the
    bounds, and rounded to the nearest integer for a Box of integers.

    Args:
        space: the environment's actions.
        squash: the network's actions lie in [-1, 1] and are scaled to the bounds of the Box.
    """

    def __init__(self, space: spaces.Space, squash: bool = False) -> None:
        self.space, self.squash = space, squash
        self.shape: tuple[int, ...] = tuple(space.shape or ())
        """Shape of one action in the network's units."""
        self.continuous = isinstance(space, spaces.Box)
        """Whether actions have real numbers, which might not be finite."""
        # Switches are given as they are chosen, in the dtypes that Stable-Baselines3 gives them.
        self._dtype = None if space.dtype is None or isinstance(space, spaces.MultiBinary) else np.dtype(space.dtype)
        self._start = _start(space)
        self._box = space if isinstance(space, spaces.Box) else None
        self.parts = [(SpacePart((), space), self)]
        """Each part of an action with its codec."""
        if isinstance(space, spaces.Box):
            self._low, self._high = wide_bounds(space)
            with np.errstate(over="ignore", invalid="ignore"):
                self._span = self._high - self._low
            self._half = 0.5 * self._span

    def numbers(self) -> dict[str, np.ndarray]:
        """Further arguments of :func:`stretched` for a Box, or ``start``, the first choice, for a discrete space."""
        if self._box is not None:
            return {"low": self._low, "high": self._high} | ({"stretch": self._half} if self.squash else {})
        return {"start": np.array(0 if self._start is None else self._start)}

    def to_env(self, action: np.ndarray) -> Any:
        """Converts actions [B, ...] from the network's units to the environment's."""
        if self._box is not None:
            inside = stretched(action, self._low, self._high, self._half if self.squash else None)
            # clipped() is slow, and needed where the Box has another dtype than its bounds here
            return inside if inside.dtype is self._dtype else clipped(inside, self._box)
        if self._start is not None:
            action = action + self._start
        return action if self._dtype is None or action.dtype is self._dtype else action.astype(self._dtype)

    def from_env(self, action: Any) -> np.ndarray:
        """Converts actions from the environment's units to the network's. It inverts :meth:`to_env`, except for
        clipping."""
        if self._box is not None:
            return self.scale(action) if self.squash else action
        # not in the space's own type, where the difference may overflow
        return action if self._start is None else np.asarray(action).astype(np.int64, copy=False) - self._start

    def scale(self, action: np.ndarray) -> np.ndarray:
        """Scales actions from [low, high] to [-1, 1].

        Raises:
            PolicyError: the action space is not a Box.
        """
        self._check_box()
        return 2.0 * ((action - self._low) / np.where(self._span > 0, self._span, 1)) - 1.0

    def unscale(self, action: np.ndarray) -> np.ndarray:
        """Scales actions from [-1, 1] to [low, high], extrapolating beyond; does not round for a Box of integers.

        Raises:
            PolicyError: the action space is not a Box.
        """
        self._check_box()
        action = np.asarray(action)
        numbers = self._low + (action + 1.0) * self._half
        return np.where(np.abs(action) <= 1, np.minimum(np.maximum(numbers, self._low), self._high), numbers)

    def _check_box(self) -> None:
        if self._box is None:
            raise PolicyError(f"only actions of a Box can be scaled, but the action space is {self.space}.")


class ComposedCodec(ActionCodec):
    """The codec of Dict and Tuple spaces.

    For the network an action is one row of W floats: the flat numbers of the parts, concatenated in the order of
    :mod:`polyak.envs.nested_spaces`. A Discrete has one number, a MultiDiscrete one for each choice, MultiBinary and
    Box one for each entry. For the environments, B actions are a list of B elements of the space.

    Args:
        space: the environment's actions.
    """

    def __init__(self, space: spaces.Space) -> None:
        super().__init__(space)
        self.parts = [(part, ActionCodec(part.space)) for part in parts(space)]
        self.widths = [get_action_dim(part.space) for part, _ in self.parts]
        self._ends = np.cumsum(self.widths)
        self.shape = (sum(self.widths),)
        self.continuous = any(codec.continuous for _, codec in self.parts)

    def to_env(self, action: np.ndarray) -> list[Any]:
        """[B, W] -> B values of the space."""
        columns = np.split(action, self._ends[:-1], axis=1)
        values = (self._values(codec, own) for (_, codec), own in zip(self.parts, columns, strict=True))
        return [compose(self.space, iter(row)) for row in zip(*values, strict=True)]

    def from_env(self, action: list[Any]) -> np.ndarray:
        """B elements of the space -> [B, W]; clipping is not undone."""
        columns = []
        for part, codec in self.parts:
            values = codec.from_env(np.stack([np.asarray(part.of(row)) for row in action]))
            columns.append(values.reshape(len(action), -1).astype(np.float32))
        return np.concatenate(columns, axis=1)

    @staticmethod
    def _values(codec: ActionCodec, numbers: np.ndarray) -> Any:
        """[B, width] of one part -> B elements of its space."""
        values = codec.to_env(numbers.reshape(len(numbers), *codec.shape))
        return own_actions(values, codec.space)


def make_codec(space: spaces.Space, squash: bool = False) -> ActionCodec:
    """The codec of an action space."""
    return ComposedCodec(space) if is_composed(space) else ActionCodec(space, squash)


def stretched(numbers: Any, low: Any, high: Any, stretch: Any = None, library: Any = np) -> Any:
    """Scales numbers [B, *shape] from [-1, 1] to the bounds of a Box, and clips them to the bounds.

    Args:
        stretch: half the difference of the bounds; None: numbers are in the units of the Box already.
        library: ``numpy`` or ``torch``, whose arrays all are.
    """
    # np.clip costs several times as much on arrays this small
    numbers = numbers if stretch is None else low + (numbers + 1.0) * stretch
    return library.minimum(library.maximum(numbers, low), high)


def _start(space: spaces.Space) -> Any:
    """The first choices of a Discrete or MultiDiscrete, in 64 bits; None if they are 0."""
    if isinstance(space, spaces.Discrete):
        return np.int64(space.start) if space.start else None
    return space.start.astype(np.int64) if isinstance(space, spaces.MultiDiscrete) and np.any(space.start) else None
