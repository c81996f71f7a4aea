"""Rollouts that hold the recurrent state before each step, and return padded sequences.

Shape letters: T steps, N environments, K layers, H units, B rows, S sequences, L steps of the longest.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.arrays import mapped
from polyak.compat.sb3_face.recurrent.type_aliases import (
    RecurrentDictRolloutBufferSamples,
    RecurrentRolloutBufferSamples,
    RNNStates,
)
from polyak.experience import DictRolloutBuffer, RolloutBuffer
from polyak.experience.base_buffer import Normalizer
from polyak.experience.schema import Column, Schema
from polyak.nn.policies.recurrent import ACTOR, CRITIC

_NAMES = ("hidden", "cell")
Padding = Callable[..., Tensor]


def pad(
    seq_start_indices: np.ndarray,
    seq_end_indices: np.ndarray,
    device: torch.device | str,
    tensor: np.ndarray,
    padding_value: float = 0.0,
) -> Tensor:
    """Pads rows [B, ...] to sequences [S, L, ...].

    Args:
        seq_start_indices, seq_end_indices: [S] first and last row of each sequence.
        device: device of the result.
        tensor: the rows, an array.
        padding_value: the value after the end of a sequence.
    """
    lengths = np.asarray(seq_end_indices) - seq_start_indices + 1
    steps = np.arange(lengths.max())
    rows = np.minimum(np.asarray(seq_start_indices)[:, None] + steps, len(tensor) - 1)
    sequences = np.asarray(tensor)[rows]
    sequences[steps >= lengths[:, None]] = padding_value
    return torch.as_tensor(sequences, device=device)


def pad_and_flatten(
    seq_start_indices: np.ndarray,
    seq_end_indices: np.ndarray,
    device: torch.device | str,
    tensor: np.ndarray,
    padding_value: float = 0.0,
) -> Tensor:
    """Pads sequences and flattens all axes: [B, ...] -> [S * L * ...]. See :func:`pad`."""
    return pad(seq_start_indices, seq_end_indices, device, tensor, padding_value).flatten()


def create_sequencers(
    episode_starts: np.ndarray, env_change: np.ndarray, device: torch.device | str
) -> tuple[np.ndarray, Padding, Padding]:
    """Cut rows into sequences: where an episode begins, or the rows of another environment.

    Args:
        episode_starts: [B] 1 where an episode begins.
        env_change: [B] 1 at the first row of an environment.
        device: device of the sequences.

    Returns:
        first rows of the sequences [S]; :func:`pad` and :func:`pad_and_flatten` for them.
    """
    first = np.logical_or(np.reshape(episode_starts, -1), np.reshape(env_change, -1))
    first[0] = True
    starts = np.flatnonzero(first)
    ends = np.append(starts[1:], len(first)) - 1
    return starts, partial(pad, starts, ends, device), partial(pad_and_flatten, starts, ends, device)


class RecurrentRolloutBuffer(RolloutBuffer):
    """A :class:`~polyak.experience.RolloutBuffer` with the state of an LSTM before each step; see there for arguments.

    ``minibatches`` gives equal sequences, which polyak's own losses read; ``get`` gives padded ones of any length.

    Args:
        hidden_state_shape: (T, K, N, H).
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        hidden_state_shape: tuple[int, int, int, int],
        device: torch.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        *,
        columns: Schema | Iterable[Column] | None = None,
        sequence_length: int = 1,
    ) -> None:
        self.hidden_state_shape = hidden_state_shape
        self.seq_start_indices = self.seq_end_indices = None
        if columns is None:
            _, layers, _, units = hidden_state_shape
            names = [side + name for side in (ACTOR, CRITIC) for name in _NAMES]
            columns = [Column(name, np.float32, (layers, units)) for name in names]
        super().__init__(
            *(buffer_size, observation_space, action_space, device, gae_lambda, gamma, n_envs),
            columns=columns,
            sequence_length=sequence_length,
        )

    seq_start_indices: np.ndarray | None
    """[S] first rows of the sequences of the last minibatch that :meth:`get` gave."""
    seq_end_indices: np.ndarray | None
    """[S] last rows."""

    # -- recurrent state ----------------------------------------------------------------------------------------------

    @property
    def hidden_states_pi(self) -> np.ndarray:
        """The actor's outputs before each step, [T, K, N, H], or [T * N, K, H] once the rollout is read; a view."""
        return self._states(ACTOR, "hidden")

    @property
    def cell_states_pi(self) -> np.ndarray:
        """The actor's cells, likewise."""
        return self._states(ACTOR, "cell")

    @property
    def hidden_states_vf(self) -> np.ndarray:
        """The value function's outputs, likewise; the actor's if it has no recurrent layers of its own."""
        return self._states(CRITIC, "hidden")

    @property
    def cell_states_vf(self) -> np.ndarray:
        """The value function's cells, likewise."""
        return self._states(CRITIC, "cell")

    def _states(self, side: str, name: str) -> np.ndarray:
        states: Any = self.extras.get(side + name, self.extras[ACTOR + name])
        return states if self.generator_ready else states.swapaxes(1, 2)

    def add(
        self, *args: Any, lstm_states: RNNStates | None = None, extras: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Adds a step with its recurrent states: see :meth:`RolloutBuffer.add`.

        Args:
            args, extras, kwargs: arguments of that method.
            lstm_states: the states before the step, [K, N, H] each, if ``extras`` do not have them.
        """
        if lstm_states is not None:
            extras = dict(extras or {})
            for side, states in zip((ACTOR, CRITIC), lstm_states, strict=True):
                known = ((side + name, state) for name, state in zip(_NAMES, states, strict=True))
                extras |= {name: _array(state).swapaxes(0, 1) for name, state in known if name in self.extras}
        super().add(*args, extras=extras, **kwargs)

    # -- sequences -----------------------------------------------------------------------------------------------------

    def get(self, batch_size: int | None = None) -> Generator[RecurrentRolloutBufferSamples, None, None]:  # type: ignore[override]
        """Yields all rows once, in order from a random one on.

        Args:
            batch_size: rows of a minibatch before padding (the last one may be smaller); None gives all at once.
        """
        if not self.full:
            raise AssertionError(
                f"The rollout buffer holds {self.pos} of {self.buffer_size} steps: fill it before reading it."
            )
        if not self.generator_ready:
            self._flatten()
        order = np.roll(np.arange(self._rows), -int(self.rng.randint(self._rows)))
        env_change = np.arange(self._rows) % self.buffer_size == 0
        size = self._rows if batch_size is None else batch_size
        for start in range(0, self._rows, size):
            yield self._get_samples(order[start : start + size], env_change)

    def _get_samples(  # type: ignore[override]
        self, batch_inds: np.ndarray, env_change: np.ndarray, env: Normalizer | None = None
    ) -> RecurrentRolloutBufferSamples:
        """Returns rows of the flattened rollout as padded sequences.

        Args:
            batch_inds: [B] rows.
            env_change: [T * N] whether a row is the first of an environment.
            env: not used: rollouts are stored as they were learned from.
        """
        starts, padded, flat = create_sequencers(self.episode_starts[batch_inds], env_change[batch_inds], self.device)
        self.seq_start_indices, self.seq_end_indices = starts, np.append(starts[1:], len(batch_inds)) - 1
        first = batch_inds[starts]

        def rows(column: np.ndarray) -> Tensor:
            return padded(column[batch_inds]).flatten(0, 1)

        def state(states: np.ndarray) -> Tensor:
            return torch.as_tensor(np.ascontiguousarray(states[first].swapaxes(0, 1)), device=self.device)

        nested = isinstance(self.observations, dict)
        return (RecurrentDictRolloutBufferSamples if nested else RecurrentRolloutBufferSamples)(
            observations=mapped(rows, self.observations),
            actions=rows(self.actions),
            old_values=flat(self.values[batch_inds]),
            old_log_prob=flat(self.log_probs[batch_inds]),
            advantages=flat(self.advantages[batch_inds]),
            returns=flat(self.returns[batch_inds]),
            lstm_states=RNNStates(
                (state(self.hidden_states_pi), state(self.cell_states_pi)),
                (state(self.hidden_states_vf), state(self.cell_states_vf)),
            ),
            episode_starts=flat(self.episode_starts[batch_inds]),
            mask=flat(np.ones(len(batch_inds), np.float32)),
        )


class RecurrentDictRolloutBuffer(RecurrentRolloutBuffer, DictRolloutBuffer):
    """:class:`RecurrentRolloutBuffer` under sb3-contrib's name for Dict observations, which that class takes too."""


def _array(value: Any) -> np.ndarray:
    return value.numpy(force=True) if isinstance(value, Tensor) else np.asarray(value)
