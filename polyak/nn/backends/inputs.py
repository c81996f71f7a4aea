"""The input tensors of a program: they are filled with observations at each run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.utils._pytree import tree_map

from polyak.envs.nan_checks import is_finite
from polyak.envs.spaces import is_image_space
from polyak.nn.backends.tracing import UntraceableError
from polyak.nn.plain import is_plain
from polyak.nn.policies.base import Policy


class Seen:
    """Observations of one kind, converted for a policy.

    Args:
        policy: converts observations that are not plain arrays of its space.
        observations: [B, ...], or a dict of such, as those to come.

    Attributes:
        tensors: [B, ...], or a dict of such.
        read: copies finite observations of the same kind as the first ones; raises ValueError where one is too large
            for float32, or not in its space.

    Raises:
        UntraceableError: the policy is not for numpy.
        ValueError: the policy refuses the observations.
    """

    def __init__(self, policy: Policy, observations: Any) -> None:
        _check(policy)
        self._policy = policy
        found = policy.obs_to_tensor(observations)[0]
        self.tensors: Any = tree_map(torch.clone, found)
        self.read: Callable[[Any], None] = self._read
        self._columns: dict[str, _Column] = {}
        several = isinstance(self.tensors, dict)
        if several and not isinstance(observations, Mapping):
            return
        named = observations if several else {"": observations}
        tensors = self.tensors if several else {"": self.tensors}
        of: Any = policy.observation_space if several else {"": policy.observation_space}
        if not all(_can_be_copied(of[key], named[key], tensor) for key, tensor in tensors.items()):
            return
        self._columns = {key: _Column(of[key], named[key], tensor) for key, tensor in tensors.items()}
        if several:
            self.read = self._read_named
        elif self._columns[""].is_plain:
            self.read = partial(np.copyto, self._columns[""].array, casting="unsafe")
        else:
            self.read = self._read_checked

    def _read(self, observations: Any) -> None:
        found = self._policy.obs_to_tensor(observations)[0]  # or raises the error that explains the input
        for kept, given in zip(parts(self.tensors), parts(found), strict=True):
            kept.copy_(given)

    def _read_checked(self, observations: Any) -> None:
        if not self._columns[""].copied(observations):
            self._read(observations)

    def _read_named(self, observations: Any) -> None:
        if len(observations) != len(self._columns) or not all(
            key in observations and column.copied(observations[key]) for key, column in self._columns.items()
        ):
            self._read(observations)


class _Column:
    """The memory for observations of one space [B, ...].

    Args:
        space: of the observations.
        example: [B, ...] as those to come.
        tensor: [B, ...] to fill.
    """

    def __init__(self, space: spaces.Space, example: np.ndarray, tensor: Tensor) -> None:
        self.array: np.ndarray = tensor.numpy()
        self._wide = example.dtype.kind == "f" and example.dtype.itemsize > 4
        self._limits: tuple[Any, Any] | None = None
        if isinstance(space, spaces.Discrete):
            self._limits = int(space.start), int(space.start + space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            self._limits = space.start, space.start + space.nvec
        self.is_plain = not self._wide and self._limits is None

    def copied(self, observations: np.ndarray) -> bool:
        """Copy the observations; whether they are valid."""
        if self._wide:  # beyond float32 it becomes infinite
            with np.errstate(over="ignore", invalid="ignore"):
                self.array[...] = observations
                return is_finite(self.array)
        if self._limits is not None:
            low, end = self._limits
            if np.count_nonzero(observations < low) or np.count_nonzero(observations >= end):
                return False
        self.array[...] = observations
        return True


def _can_be_copied(space: spaces.Space, example: Any, tensor: Tensor) -> bool:
    kinds = "iu" if isinstance(space, spaces.Discrete | spaces.MultiDiscrete) else "fiub"
    return type(example) is np.ndarray and example.shape == tensor.shape and example.dtype.kind in kinds


def parts(tensors: Tensor | Mapping[str, Tensor] | None) -> list[Tensor]:
    """Returns a list of the tensors: a single one, those of a dict, or none for ``None``."""
    if tensors is None:
        return []
    return [tensors] if isinstance(tensors, Tensor) else list(tensors.values())


def _check(policy: Policy) -> None:
    """Check the conditions that recorded operations cannot show."""
    space = policy.observation_space
    if any(map(is_image_space, space.spaces.values() if isinstance(space, spaces.Dict) else [space])):
        raise UntraceableError("numpy is not faster than torch's convolutions of images")
    if policy.device.type != "cpu":
        raise UntraceableError(f"the policy is on {policy.device}")
    if not is_plain(policy, "obs_to_tensor"):
        raise UntraceableError("the policy converts observations in its own way")
