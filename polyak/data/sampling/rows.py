"""Drawn transitions on their way to a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyak.data.batch import (
    DictReplayBufferSamples,
    ReplayBufferSamples,
    Transition,
    single_precision,
)


class Rows(NamedTuple):
    """Drawn transitions: arrays, or tensors where a device gathered them. [B, L, ...] of sequences."""

    observations: Any  # [B, ...], or a dict of these
    actions: Any  # [B, A]
    next_observations: Any  # [B, ...], or a dict of these
    terminated: Any  # [B] float32
    rewards: Any  # [B] float32
    discounts: np.ndarray | None  # [B] float32; None: one step each
    extras: dict[str, Any]  # name -> [B, ...]
    valid: np.ndarray | None  # [B, L] bool; None: no sequences

    def samples(
        self, tensor: Callable[[Any], Tensor], weights: np.ndarray | None, cells: np.ndarray
    ) -> ReplayBufferSamples:
        """As SB3 has them, scalars as columns [B, 1]; ``cells`` are the indices if there are ``weights``."""
        samples = DictReplayBufferSamples if isinstance(self.observations, dict) else ReplayBufferSamples
        return samples(
            _each(self.observations, tensor),
            tensor(self.actions),
            _each(self.next_observations, tensor),
            tensor(self.terminated[..., None]),
            tensor(self.rewards[..., None]),
            None if self.discounts is None else tensor(self.discounts[..., None]),
            None if weights is None else tensor(weights[:, None]),
            None if weights is None else torch.from_numpy(cells),
            _each(self.extras, tensor) if self.extras else None,
            None if self.valid is None else tensor(self.valid),
        )

    def transition(self, tensor: Callable[[Any], Tensor], weights: Tensor, gamma: float) -> Transition:
        """The same bits as :meth:`Transition.from_samples` of :meth:`samples`, but for the type of observations."""
        discounts = 1 - self.terminated
        discounts *= gamma if self.discounts is None else self.discounts
        if self.valid is not None:
            discounts *= self.valid
        return Transition(
            _each(self.observations, single_precision, tensor),
            tensor(self.actions),
            tensor(self.rewards),
            _each(self.next_observations, single_precision, tensor),
            tensor(discounts),
            weights,
            _each(self.extras, tensor),
            None if self.valid is None else tensor(self.valid),
        )


def _each(columns: Any, *steps: Callable[[Any], Any]) -> Any:
    """Functions applied one after the other to a column, or to each of a dict of columns."""
    if isinstance(columns, dict):
        return {key: _each(column, *steps) for key, column in columns.items()}
    for step in steps:
        columns = step(columns)
    return columns
