"""Rollouts that store action masks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.envs.masks import mask_size
from polyak.experience import DictRolloutBuffer, RolloutBuffer
from polyak.experience.batch import TensorObs
from polyak.experience.schema import Column

MASKS = "action_masks"
"""The column, and the argument of policies that takes it."""


class MaskableRolloutBufferSamples(NamedTuple):
    """:class:`~polyak.experience.RolloutBufferSamples` with masks."""

    observations: TensorObs  # [B, ...]
    actions: Tensor  # [B, A] float32
    old_values: Tensor  # [B]
    old_log_prob: Tensor  # [B]
    advantages: Tensor  # [B]
    returns: Tensor  # [B]
    action_masks: Tensor  # [B, M] float32, 1 where a choice is allowed

    @property
    def extras(self) -> dict[str, Tensor]:
        """The masks, as a further column for learners."""
        return {MASKS: self.action_masks}


class MaskableDictRolloutBufferSamples(MaskableRolloutBufferSamples):
    """:class:`MaskableRolloutBufferSamples` whose observations are dicts."""


class MaskableRolloutBuffer(RolloutBuffer):
    """A :class:`~polyak.experience.RolloutBuffer` with ``action_masks`` [buffer_size, n_envs, M], 1 where a choice was
    allowed; M is :attr:`mask_dims`. See there for the arguments.

    Raises:
        ValueError: the action space has no choices.
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
    ) -> None:
        size = mask_size(action_space)
        if size is None:
            raise ValueError(f"masks are for Discrete, MultiDiscrete and MultiBinary actions, got {action_space}.")
        self.mask_dims = size
        column = Column(MASKS, np.float32, (size,))
        super().__init__(
            buffer_size, observation_space, action_space, device, gae_lambda, gamma, n_envs, columns=[column]
        )

    @property
    def action_masks(self) -> np.ndarray:
        """The masks: [buffer_size, n_envs, M], or flattened, as the other arrays."""
        return self.extras[MASKS]

    @action_masks.setter
    def action_masks(self, masks: np.ndarray) -> None:
        self.extras[MASKS] = masks

    def reset(self) -> None:
        super().reset()
        self.action_masks = np.ones_like(self.action_masks)

    def add(self, *args: Any, action_masks: np.ndarray | None = None, **kwargs: Any) -> None:
        """Adds a step with its masks: see :meth:`RolloutBuffer.add`.

        Args:
            args, kwargs: arguments of that method.
            action_masks: [n_envs, M], or any array of that many entries; ``None``: all choices were allowed.
        """
        masks = np.ones(1) if action_masks is None else np.asarray(action_masks).reshape(self.n_envs, self.mask_dims)
        super().add(*args, extras={MASKS: np.broadcast_to(masks, (self.n_envs, self.mask_dims))}, **kwargs)

    def _arguments(self, extras: dict[str, Any]) -> dict[str, Any]:
        return extras

    def _rollout(self) -> MaskableRolloutBufferSamples:  # type: ignore[override]
        rollout, nested = super()._rollout(), isinstance(self.observations, dict)
        kind = MaskableDictRolloutBufferSamples if nested else MaskableRolloutBufferSamples
        return kind(*rollout[:6], action_masks=rollout.extras[MASKS])


class MaskableDictRolloutBuffer(MaskableRolloutBuffer, DictRolloutBuffer):
    """:class:`MaskableRolloutBuffer` under sb3-contrib's name for Dict observations, which that class takes too."""
