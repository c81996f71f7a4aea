"""sb3-contrib's tuples of recurrent states and sequences.

Shape letters: K layers, S sequences, H units, R rows with padding (S sequences as long as the longest, one after
another), A numbers of an action.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from polyak.experience.batch import TensorObs

State = tuple[Tensor, ...]
"""The state of an LSTM: output and cell, [K, S, H] each."""


class RNNStates(NamedTuple):
    """Recurrent states of an actor and a value function."""

    pi: State
    vf: State


class RecurrentRolloutBufferSamples(NamedTuple):
    """Rows of sequences, padded with zeros."""

    observations: TensorObs  # [R, ...]
    actions: Tensor  # [R, A]
    old_values: Tensor  # [R]
    old_log_prob: Tensor  # [R]
    advantages: Tensor  # [R]
    returns: Tensor  # [R]
    lstm_states: RNNStates  # before the first step of each sequence
    episode_starts: Tensor  # [R] 1 where an episode begins
    mask: Tensor  # [R] 0 where a row is padding, elsewhere 1


class RecurrentDictRolloutBufferSamples(RecurrentRolloutBufferSamples):
    """:class:`RecurrentRolloutBufferSamples` whose observations are dicts."""
