"""A learner that learns as one with others, as another process holds it. It does not know how it is reached.

Shapes: B rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import cloudpickle
import torch
from torch import Tensor

from polyak.distributed.exchange import SocketGroup
from polyak.learning.data_parallel import Group, each
from polyak.learning.engine.engine import Engine
from polyak.learning.learner import Learner, Update
from polyak.seeding import set_random_seed


class Said(NamedTuple):
    """What a learner returns of a gradient step on its share."""

    metrics: dict[str, Tensor]
    td_error: Tensor | None


class LearnerProcess:
    """Makes the gradient steps that others make, on its own share of the rows.

    Args:
        rank: which of the learners; 0 is the one that they learn for.
        seed: of its random numbers.
        alone: it has the process for itself, and one thread.
    """

    learner: Learner

    def __init__(self, rank: int, seed: int, alone: bool) -> None:
        self.rank, self.seed, self.alone = rank, seed, alone
        if alone:
            torch.set_num_threads(1)

    def describe(self) -> int:
        """Its process."""
        return os.getpid()

    def take(self, pickled: bytes, device: str, compiles: bool) -> None:
        """Be a copy of this learner from now on."""
        self.learner = cloudpickle.loads(pickled).to(device)
        self.device = device
        Engine(self.learner, compiles)

    def seed_streams(self) -> None:
        """Draw from streams of its own."""
        set_random_seed(self.seed, using_cuda=torch.cuda.is_available())

    def join(self, group: Group | tuple[str, int, int, float]) -> None:
        """Learn as one with all that join at the same time.

        Args:
            group: its place among them; or address, port, number of learners and seconds of patience.
        """
        self.learner.join(group if not isinstance(group, tuple) else SocketGroup(*group[:2], self.rank, *group[2:]))

    def update(self, batch: Any, values: Mapping[str, Any]) -> Said:
        """One gradient step.

        Args:
            batch: its share.
            values: hyper-parameters as they are now.
        """
        brought(self.learner, values)
        return said(self.learner.update(each(batch, lambda column: column.to(self.device))))

    def call(self, method: str, values: Mapping[str, Any]) -> None:
        """What all learners do besides gradient steps, by these hyper-parameters."""
        brought(self.learner, values)
        getattr(self.learner, method)()


def said(update: Update) -> Said:
    """Of a gradient step, in main memory."""
    metrics = {name: value.detach().cpu() for name, value in update.metrics.items()}
    return Said(metrics, None if update.td_error is None else update.td_error.detach().cpu())


def texts_of(learner: Learner) -> list[str]:
    """Names of a learner's hyper-parameters that are texts."""
    return [name for name in learner.declared_tunables() if isinstance(getattr(learner, name, None), str)]


def hyperparameters(learner: Learner, texts: Iterable[str]) -> dict[str, Any]:
    """The values by which a learner makes its next step; ``texts``: see :func:`texts_of`."""
    return {**learner.tunables, **{name: getattr(learner, name) for name in texts}}


def brought(learner: Learner, values: Mapping[str, Any]) -> None:
    """Bring hyper-parameters to a learner."""
    for name, value in values.items():
        if isinstance(value, str):
            setattr(learner, name, value)
    learner.set(**{name: value for name, value in values.items() if not isinstance(value, str)})
