"""The source of minibatches: collected experience, a dataset, or both."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from polyak.arrays import mapped
from polyak.experience.base_buffer import Normalizer
from polyak.experience.batch import Transition, TransitionRows
from polyak.experience.datasets.dataset import Dataset
from polyak.experience.replay_buffer import ReplayBuffer
from polyak.experience.step import Step

Batches = Iterator[tuple[Transition | TransitionRows, Tensor | None]]
"""Minibatches, with the indices of their rows where these have priorities."""


@dataclass
class ReplayMemory:
    """Replays an algorithm's collected experience, a given dataset, or a mixture of both."""

    own: ReplayBuffer | None = field(default_factory=lambda: None)  # no attribute of the class: it may be deleted
    """Experience that it has collected."""
    dataset: Dataset | None = None
    """Experience that it was given."""
    recorded: ReplayBuffer | None = None
    """The dataset as it is replayed."""
    empty_at: int = 0
    """Environment steps at which the own experience that is being collected was empty."""
    torn: bool = False
    """Whether a step may be missing between the newest row and the next, after a callback or an exception."""

    def record(self, step: Step) -> None:
        """Take a step of the environments."""
        assert self.own is not None
        self.own.record(step)

    def mend(self) -> None:
        """Let no return of several steps and no hindsight goal reach across a step that was not stored."""
        if self.torn and self.own is not None:
            self.own.cut_episodes()
        self.torn = False

    def begun(self, steps: int, learning_starts: int) -> bool:
        """Whether there is enough to learn from after so many environment steps."""
        assert self.own is not None
        return (self.recorded is not None or steps - self.empty_at > learning_starts) and self.own.can_sample()

    @property
    def prioritized(self) -> ReplayBuffer:
        """The buffer whose rows may have priorities; a mixture has none."""
        buffer = self.recorded if self.own is None else self.own
        assert buffer is not None
        return buffer

    def discount_by(self, gamma: float) -> None:
        """Sum the rewards of several steps by another discount from now on."""
        for buffer in (self.own, self.recorded):
            if buffer is not None:
                buffer.discount_by(gamma)

    def batches(
        self,
        batch_size: int,
        gamma: float,
        steps: int = 1,
        share: float | None = None,
        normalizer: Normalizer | None = None,
        late: bool = False,
    ) -> Batches:
        """Draw minibatches.

        Args:
            batch_size: rows of each minibatch.
            gamma: discount of one step.
            steps: number of minibatches.
            share: share of rows from the dataset, if there are both sources; ``None``: in proportion to their sizes.
            normalizer: normalises observations and rewards.
            late: let the learner gather the rows of a minibatch, if they come from one source.
        """
        if self.own is None or self.recorded is None:
            return self.prioritized.transitions(batch_size, gamma, normalizer, steps, late=late)
        share = _share_of_recorded(self.own, self.recorded, share)
        if 0 < share < 1:
            return mixed(self.own, self.recorded, share, batch_size, gamma, normalizer, steps)
        return (self.recorded if share else self.own).transitions(batch_size, gamma, normalizer, steps, late=late)


def _share_of_recorded(own: ReplayBuffer, recorded: ReplayBuffer, share: float | None) -> float:
    """Returns the share of rows from the dataset, if there are both sources; 1 while there is no collected
    experience."""
    if not (own.can_sample() and own.size()):
        return 1
    return recorded.size() / (recorded.size() + own.size() * own.n_envs) if share is None else share


def mixed(
    own: ReplayBuffer,
    recorded: ReplayBuffer,
    share: float,
    batch_size: int,
    gamma: float,
    normalizer: Normalizer | None,
    steps: int,
) -> Batches:
    """Draws minibatches whose rows come from ``recorded`` with probability ``share`` each, else from ``own``; a share
    that gives a whole number of rows is kept exactly (RLPD, arXiv:2302.02948, uses one half)."""
    for _ in range(steps):
        rows = share * batch_size
        drawn = int(rows) if rows == int(rows) else int(recorded.rng.binomial(batch_size, share))
        parts = [
            next(iter(buffer.transitions(count, gamma, normalizer)))[0]
            for buffer, count in ((own, batch_size - drawn), (recorded, drawn))
            if count
        ]
        yield joined(parts), None


def joined(parts: list[Any]) -> Transition:
    """Concatenates several minibatches to one."""
    columns = [{name: column for name, column in part._asdict().items() if column is not None} for part in parts]
    return Transition(**mapped(lambda *several: several[0] if len(several) == 1 else torch.cat(several), *columns))
