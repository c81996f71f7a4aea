"""The currency between buffers and learners: named tuples of tensors, B rows each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Union

import numpy as np
import torch
from torch import Tensor

from polyak.experience.step import AFTER, NO_EXTRAS

ArrayObs = Union[np.ndarray, "dict[str, np.ndarray]"]
"""A batch of observations: one array [B, ...], or one per key of a Dict space."""
TensorObs = Union[Tensor, "dict[str, Tensor]"]
"""Observations as tensors."""


class ReplayBufferSamples(NamedTuple):
    """A minibatch of a replay buffer (Stable-Baselines3's fields, then further ones). ``discounts`` is None for
    one-step samples.

    With n-step returns ``rewards`` is the discounted sum over the window, ``next_observations`` and ``dones`` belong to
    the window's last step, and ``discounts`` is gamma**k for the k steps in it. ``dones`` is 1 only where the episode
    terminated; a time limit leaves it 0.

    For sequences, all fields but ``weights`` and ``indices`` have a second axis, of L steps: [B, L, ...]. Where
    ``valid`` is False the episode is over: the last row is repeated there, with rewards 0.
    """

    observations: TensorObs  # [B, ...]
    actions: Tensor  # [B, A]
    next_observations: TensorObs  # [B, ...]
    dones: Tensor  # [B, 1] float32
    rewards: Tensor  # [B, 1] float32
    discounts: Tensor | None = None  # [B, 1] float32
    weights: Tensor | None = None  # [B, 1] importance-sampling weights of a prioritised sampler
    indices: Tensor | None = None  # [B] int64, to hand back to ``update_priorities``
    extras: dict[str, Tensor] | None = None  # name -> [B, ...], as stored with the (first) row; None: no columns
    valid: Tensor | None = None  # [B, L] bool, of sequences only


class DictReplayBufferSamples(ReplayBufferSamples):
    """:class:`ReplayBufferSamples` whose observations are dicts."""


class RolloutBufferSamples(NamedTuple):
    """A minibatch of an on-policy rollout, in the policy's action units."""

    observations: TensorObs  # [B, ...]
    actions: Tensor  # [B, A] float32
    old_values: Tensor  # [B]
    old_log_prob: Tensor  # [B]
    advantages: Tensor  # [B]
    returns: Tensor  # [B]

    @property
    def extras(self) -> dict[str, Tensor]:
        """The further columns: none, since programs unpack these six fields."""
        return NO_EXTRAS


class ExtendedRolloutSamples(NamedTuple):
    """:class:`RolloutBufferSamples` of a buffer with further columns."""

    observations: TensorObs  # [B, ...]
    actions: Tensor  # [B, A] float32
    old_values: Tensor  # [B]
    old_log_prob: Tensor  # [B]
    advantages: Tensor  # [B]
    returns: Tensor  # [B]
    extras: dict[str, Tensor]  # name -> [B, ...]


RolloutSamples = RolloutBufferSamples | ExtendedRolloutSamples


class RolloutRows(NamedTuple):
    """Some rows of a rollout, to be gathered by the learner: a compiled step does so as it reads them."""

    rollout: RolloutSamples  # of R rows
    rows: Tensor  # [B] int64, in [0, R)

    def gathered(self) -> RolloutSamples:
        """The minibatch itself."""
        return type(self.rollout)(*(_gather(column, self.rows) for column in self.rollout))

    def __getattr__(self, name: str) -> Any:
        """A column of the minibatch, for learners that read it outside of their ``run``."""
        if name.startswith("_"):
            raise AttributeError(name)
        return _gather(getattr(self.rollout, name), self.rows)


class DictRolloutBufferSamples(RolloutBufferSamples):
    """:class:`RolloutBufferSamples` whose observations are dicts."""


class Transition(NamedTuple):
    """A minibatch of (possibly n-step) transitions for the learner.

    ``discounts`` already holds gamma**k and is 0 where the k-th successor is terminal, so that every
    temporal-difference target is ``rewards + discounts * value(next_observations)`` for any n.

    For sequences, all fields but ``weights`` have a second axis, of L steps: [B, L, ...]. Where ``valid`` is False the
    episode is over: the last row is repeated there, with rewards and discounts 0.
    """

    observations: TensorObs  # [B, ...]
    actions: Tensor  # [B, A]
    rewards: Tensor  # [B]
    next_observations: TensorObs  # [B, ...]
    discounts: Tensor  # [B]
    weights: Tensor  # [B] importance weights, 1 unless prioritised
    extras: dict[str, Tensor] = NO_EXTRAS  # name -> [B, ...], as stored with the (first) row
    valid: Tensor | None = None  # [B, L] bool, of sequences only

    @classmethod
    def from_samples(cls, samples: ReplayBufferSamples, gamma: float | Tensor) -> Transition:
        """Fold termination and discount into one factor.

        Args:
            samples: of any buffer, also SB3-style ones that leave the trailing fields out.
            gamma: discount of one step; used where the samples carry no ``discounts`` of their own.
        """
        rewards, alive = _scalars(samples.rewards), 1 - _scalars(samples.dones)
        discounts, weights = getattr(samples, "discounts", None), getattr(samples, "weights", None)
        valid = getattr(samples, "valid", None)
        discounts = alive * (gamma if discounts is None else _scalars(discounts))
        return cls(
            observations=samples.observations,
            actions=samples.actions,
            rewards=rewards,
            next_observations=samples.next_observations,
            discounts=discounts if valid is None else discounts * valid,
            weights=rewards.new_ones(len(rewards)) if weights is None else weights.reshape(-1),
            extras=getattr(samples, "extras", None) or NO_EXTRAS,
            valid=valid,
        )

    def split(self, parts: int) -> Iterator[Transition]:
        """``parts`` equal minibatches [B / parts], each a slice of this one; nothing is copied.

        One part is the minibatch itself, which may then hold observations in sequences.
        """
        return (
            iter([self])
            if parts == 1
            else map(Transition._make, zip(*(_unbind(field, parts) for field in self), strict=True))
        )


class TransitionColumns(NamedTuple):
    """The R rows of a replay buffer as it stores them, sharing its memory."""

    observations: TensorObs  # [R, ...]
    actions: Tensor  # [R, A]
    rewards: Tensor  # [R]
    next_observations: TensorObs  # [R, ...]
    dones: Tensor  # [R] float32 or bool, 1 at the end of an episode
    timeouts: Tensor  # [R] the same, 1 where a time limit ended it
    extras: dict[str, Tensor] = NO_EXTRAS  # name -> [R, ...]


class Span(NamedTuple):
    """Describes how n-step transitions are made of the rows of a ring of E environments."""

    offsets: Tensor  # [n] int64: how far the rows of a transition are from its first
    powers: Tensor  # [n + 1] float64: of the discount of one step
    newest: Tensor  # [E] int64: the rows that were written last, which nothing follows

    def parts(self, columns: TransitionColumns, first: Tensor) -> tuple[Tensor, Tensor]:
        """The rows [B, n] of transitions that begin in ``first`` [B], and whether they belong to them [B, n] bool."""
        rows = (first[:, None] + self.offsets) % len(columns.rewards)
        ends = (columns.dones[rows] > 0) | (columns.timeouts[rows] > 0)
        ends |= (rows >= self.newest[0]) & (rows <= self.newest[-1])
        belongs = [torch.ones_like(ends[:, 0])]
        for end in ends.unbind(1)[:-1]:
            belongs.append(belongs[-1] & ~end)
        return rows, torch.stack(belongs, 1)

    def rewards(self, columns: TransitionColumns, first: Tensor) -> Tensor:
        """Returns the discounted sums of rewards: [B]"""
        rows, belongs = self.parts(columns, first)
        return (columns.rewards[rows] * belongs * self.powers[:-1]).sum(1).float()

    def last(self, columns: TransitionColumns, first: Tensor) -> tuple[Tensor, Tensor]:
        """The rows [B] with which they end, and their discounts [B] if these are not the end of an episode."""
        rows, belongs = self.parts(columns, first)
        steps = belongs.sum(1)
        return rows.gather(1, steps[:, None] - 1).squeeze(1), self.powers[steps].float()


class TransitionRows(NamedTuple):
    """Some rows of a replay buffer, to be gathered by the learner, as :class:`RolloutRows` are.

    It has the fields of :class:`Transition`, each gathered whenever it is read; call :meth:`gathered` first to read
    them repeatedly. Observations of 64 bits become float32, to which networks would convert them.
    """

    columns: TransitionColumns
    rows: Tensor  # [B] int64, in [0, R): the first of each transition
    gamma: Tensor  # [] discount of one step
    weights: Tensor  # [B]
    span: Span | None = None  # None: each row is a transition

    @property
    def observations(self) -> TensorObs:
        """[B, ...]"""
        return single_precision(_gather(self.columns.observations, self.rows))

    @property
    def actions(self) -> Tensor:
        """[B, A]"""
        return _gather(self.columns.actions, self.rows)

    @property
    def rewards(self) -> Tensor:
        """[B]"""
        if self.span is None:
            return _gather(self.columns.rewards, self.rows)
        return self.span.rewards(self.columns, self.rows)

    @property
    def next_observations(self) -> TensorObs:
        """[B, ...]"""
        return single_precision(_gather(self.columns.next_observations, self._last()[0]))

    @property
    def discounts(self) -> Tensor:
        """[B]"""
        last, discounts = self._last()
        dones, timeouts = _gather(self.columns.dones, last), _gather(self.columns.timeouts, last)
        return (1 - (dones > timeouts).float()) * discounts

    @property
    def extras(self) -> dict[str, Tensor]:
        """Name -> [B, ...]"""
        after = {name: self._last()[0] for name in self.columns.extras if name.startswith(AFTER)}
        return {name: _gather(column, after.get(name, self.rows)) for name, column in self.columns.extras.items()}

    def _last(self) -> tuple[Tensor, Tensor]:
        """The row with which each transition ends [B], and its discount [B] or [] if that is not an episode's end."""
        return (self.rows, self.gamma) if self.span is None else self.span.last(self.columns, self.rows)

    @property
    def valid(self) -> None:
        """None: these are not sequences."""
        return None

    def gathered(self) -> Transition:
        """The minibatch itself."""
        return Transition(
            self.observations,
            self.actions,
            self.rewards,
            self.next_observations,
            self.discounts,
            self.weights,
            self.extras,
        )


Late = RolloutRows | TransitionRows
"""Batches that are still to be gathered."""


def gathered(batch: Any) -> Any:
    """A batch that is still to be gathered, gathered; any other as it is."""
    return batch.gathered() if isinstance(batch, Late) else batch


def _gather(column: TensorObs, rows: Tensor) -> Any:
    """Rows [B] of [R, ...] -> [B, ...]"""
    if isinstance(column, dict):
        return {key: entry.index_select(0, rows) for key, entry in column.items()}
    return column.index_select(0, rows)


def single_precision(obs: Any) -> Any:
    """Converts float64 to float32, as the networks would at every use; other dtypes are unchanged.

    ``obs`` is a tensor, an array, or a dict of them.
    """
    if isinstance(obs, dict):
        return {key: single_precision(entry) for key, entry in obs.items()}
    if isinstance(obs, np.ndarray):
        return obs.astype(np.float32) if obs.dtype.char == "d" else obs
    return obs.float() if obs.dtype == torch.float64 else obs


def _unbind(rows: TensorObs | None, parts: int) -> Sequence[TensorObs | None]:
    """[B, ...] -> ``parts`` slices [B / parts, ...]; of a dict, as many dicts; of None, as many Nones."""
    if isinstance(rows, Tensor):
        return rows.unflatten(0, (parts, -1)).unbind(0)
    if not rows:
        return [rows] * parts
    columns = zip(*(_unbind(tensor, parts) for tensor in rows.values()), strict=True)
    return [dict(zip(rows, column, strict=True)) for column in columns]


def _scalars(column: Tensor) -> Tensor:
    """Flattens one number per row, [B] or [B, 1] -> [B]; for sequences [B, L, 1] -> [B, L]."""
    return column.squeeze(-1) if column.ndim == 3 else column.reshape(-1)
