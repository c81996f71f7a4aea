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
from polyak.nn.backends.recording import Untranslatable
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
        Untranslatable: the policy is not for numpy.
        ValueError: the policy refuses the observations.
    """

    def __init__(self, policy: Policy, observations: Any) -> None:
        _check(policy)
        self._policy = policy
        found = policy.obs_to_tensor(observations)[0]
        self.tensors: Any = tree_map(torch.clone, found)
        self._array: np.ndarray | None = None
        self._limits: tuple[Any, Any] | None = None
        self._wide = False
        self.read: Callable[[Any], None] = self._read
        space = policy.observation_space
        choices = isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        if type(observations) is not np.ndarray or observations.shape != getattr(self.tensors, "shape", None):
            return
        if observations.dtype.kind in ("iu" if choices else "fiub"):
            self._array = self.tensors.numpy()
        self._wide = observations.dtype.kind == "f" and observations.dtype.itemsize > 4
        if isinstance(space, spaces.Discrete):
            self._limits = int(space.start), int(space.start + space.n)
        elif isinstance(space, spaces.MultiDiscrete):
            self._limits = space.start, space.start + space.nvec
        if self._array is not None and not self._wide and self._limits is None:
            self.read = partial(np.copyto, self._array, casting="unsafe")

    def _read(self, observations: Any) -> None:
        if self._array is None or not self._copied(self._array, observations):
            found = self._policy.obs_to_tensor(observations)[0]  # or raises the error that explains the input
            for kept, given in zip(parts(self.tensors), parts(found), strict=True):
                kept.copy_(given)

    def _copied(self, array: np.ndarray, observations: np.ndarray) -> bool:
        """Copy the observations; whether they are valid."""
        if self._wide:  # beyond float32 it becomes infinite
            with np.errstate(over="ignore", invalid="ignore"):
                array[...] = observations
                return is_finite(array)
        if self._limits is not None:
            low, end = self._limits
            if np.count_nonzero(observations < low) or np.count_nonzero(observations >= end):
                return False
        array[...] = observations
        return True


def parts(tensors: Tensor | Mapping[str, Tensor] | None) -> list[Tensor]:
    """Returns a list of the tensors: a single one, those of a dict, or none for ``None``."""
    if tensors is None:
        return []
    return [tensors] if isinstance(tensors, Tensor) else list(tensors.values())


def _check(policy: Policy) -> None:
    """Check the conditions that recorded operations cannot show."""
    space = policy.observation_space
    if any(map(is_image_space, space.spaces.values() if isinstance(space, spaces.Dict) else [space])):
        raise Untranslatable("numpy is not faster than torch's convolutions of images")
    if policy.device.type != "cpu":
        raise Untranslatable(f"the policy is on {policy.device}")
    if not is_plain(policy, "obs_to_tensor"):
        raise Untranslatable("the policy converts observations in its own way")
