"""Learning from replayed sequences with a recurrent policy (R2D2, Kapturowski et al. 2019).

Shapes: B sequences of L steps, n of which are trained on; R = B n rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from polyak.arrays import mapped
from polyak.experience.batch import Transition, gathered
from polyak.nn.networks.recall import FollowingObservations, Sequences

ETA = 0.9
"""Weight of the largest error in the priority of a sequence, section 2.3; the mean of all has the rest."""


@dataclass(frozen=True)
class SequenceRows:
    """Converts sequences to rows, each with the recurrent state before it.

    burn_in: steps of each sequence before those trained on. length: number of steps trained on, n. n_steps: number of
    steps of each n-step return. memory: names of the columns with the policy's recurrent state.
    """

    burn_in: int
    length: int
    n_steps: int
    memory: tuple[str, ...]

    def __call__(self, batch: Any) -> Any:
        """Converts sequences [B, L, ...] to R rows. If an episode ends early, its rows are repeated. Other batches are
        returned unchanged."""
        batch = gathered(batch)
        valid = getattr(batch, "valid", None)
        if valid is None:
            return batch
        b, n = self.burn_in, self.length
        steps = torch.arange(n, device=valid.device)
        rows = b + steps % valid[:, b : b + n].sum(1, keepdim=True)
        newest = valid.shape[1] - 1 - valid.flip(1).int().argmax(1, keepdim=True)
        first = valid.int().argmax(1, keepdim=True)
        positions = torch.arange(valid.shape[1], device=valid.device)
        keep = 1 - ((positions == first) & (first > 0)).float()
        memory = {name: batch.extras[name][:, 0] for name in self.memory}
        here: Any = Sequences(batch.observations, memory, keep, rows)
        last = here._replace(rows=(rows + self.n_steps - 1).minimum(newest))
        then: Any = FollowingObservations(last, mapped(lambda part: picked(part, rows), batch.next_observations))
        return Transition(
            here,
            picked(batch.actions, rows).flatten(0, 1),
            picked(batch.rewards, rows).flatten(),
            then,
            picked(batch.discounts, rows).flatten(),
            batch.weights.repeat_interleave(n),
            {k: picked(v, rows).flatten(0, 1) for k, v in batch.extras.items() if k not in self.memory},
        )


def sequence_errors(errors: Tensor, sequences: int) -> Tensor:
    """Converts absolute errors of rows [R] to those of their sequences [B]: ``ETA max + (1 - ETA) mean``."""
    if len(errors) == sequences:
        return errors
    each = errors.view(sequences, -1)
    return ETA * each.max(1).values + (1 - ETA) * each.mean(1)


def picked(column: Tensor, rows: Tensor) -> Tensor:
    """Returns the ``rows`` [B, n] of a column [B, L, ...]: [B, n, ...]"""
    index = rows.view(*rows.shape, *[1] * (column.ndim - 2))
    return column.gather(1, index.expand(-1, -1, *column.shape[2:]))
