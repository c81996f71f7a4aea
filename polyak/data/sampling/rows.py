"""From drawn cells to batches: gather, relabel, reduce, convert."""

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
from polyak.data.hindsight.relabel import Relabel
from polyak.data.sampling.reduce import Reduce
from polyak.data.sampling.window import Window, windows
from polyak.data.step import NO_EXTRAS
from polyak.data.storage.mirror import Mirror
from polyak.data.storage.storage import Storage


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
            _each(self.extras, tensor),
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


def read_steps(source: Storage | Mirror, cells: np.ndarray, shared: bool) -> Rows:
    """The one-step transitions in some cells [B]; ``shared``: both observations may share memory."""
    row = source.read(cells, shared)
    return Rows(
        row["observations"],
        row["actions"],
        row["next_observations"],
        row["dones"] * (1 - row["timeouts"]),
        row["rewards"],
        None,
        row.get("extras", NO_EXTRAS),
        None,
    )


def read_windows(
    storage: Storage,
    source: Storage | Mirror,
    cells: np.ndarray,
    newest: int,
    relabel: Relabel | None,
    reduce: Reduce,
    normalize_reward: Callable[[np.ndarray], np.ndarray],
) -> Rows:
    """What the windows that begin in some cells [B] are relabelled and reduced to.

    Args:
        storage: of which the slot ``newest`` was written last.
        source: what whole rows are gathered from: the storage, or its mirror on a device.
        normalize_reward: applied to the reward of each step, before they are summed.
    """
    cells, valid = windows(storage, cells, reduce.window, newest)
    first, last, exists = reduce.ends(cells, valid)
    row = _shaped(source.read(first.reshape(-1)), first)
    then = row["next_observations"]
    if last is not first:
        then = _shaped(source.next_observations(last.reshape(-1)), last)
    window = Window(cells, valid, storage.scalars("rewards", cells), row["observations"], then)
    if relabel is not None:
        relabel(storage, window)
    rewards, discounts = reduce.returns(normalize_reward(window.rewards), valid)
    return Rows(
        window.observations,
        row["actions"],
        window.next_observations,
        storage.scalars("dones", last) * (1 - storage.scalars("timeouts", last)),
        rewards,
        discounts,
        row.get("extras", NO_EXTRAS),
        exists,
    )


def _shaped(flat: Any, cells: np.ndarray) -> Any:
    """Arrays or tensors [B * L, ...], or nested dicts of them, as [B, L, ...] where the cells are [B, L]."""
    if cells.ndim == 1:
        return flat
    if isinstance(flat, dict):
        return {name: _shaped(part, cells) for name, part in flat.items()}
    return flat.reshape(*cells.shape, *flat.shape[1:])


def _each(columns: Any, *steps: Callable[[Any], Any]) -> Any:
    """Functions applied one after the other to a column, or to each of a dict of columns."""
    if isinstance(columns, dict):
        return {key: _each(column, *steps) for key, column in columns.items()}
    for step in steps:
        columns = step(columns)
    return columns
