"""A learner that learns as one with others, as another process holds it. It does not know how it is reached.

Shapes: B rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from polyak.distributed.exchange import SocketGroup
from polyak.learning.data_parallel import Group, each
from polyak.learning.engine.engine import Engine
from polyak.learning.learner import Learner
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

    def update(self, batch: Any, values: Hyperparameters) -> Said:
        """One gradient step.

        Args:
            batch: its share, as :func:`arrays_in` makes it.
            values: hyper-parameters as they are now.
        """
        brought(self.learner, values)
        update = self.learner.update(each(tensors_in(batch), lambda column: column.to(self.device)))
        said: Said = arrays_in(Said(dict(update.metrics), update.td_error))
        return said

    def call(self, method: str, values: Hyperparameters) -> None:
        """What all learners do besides gradient steps, by these hyper-parameters."""
        brought(self.learner, values)
        getattr(self.learner, method)()


def texts_of(learner: Learner) -> list[str]:
    """Names of a learner's hyper-parameters that are texts."""
    return [name for name in learner.declared_tunables() if isinstance(getattr(learner, name, None), str)]


class Hyperparameters(NamedTuple):
    """By which a learner makes its next step."""

    values: dict[str, Any]
    texts: dict[str, str]
    rates: dict[str, list[float]]
    """Name of an optimizer -> the learning rate of each of its groups."""


def hyperparameters(learner: Learner, texts: Iterable[str]) -> Hyperparameters:
    """Those of a learner as it is; ``texts``: see :func:`texts_of`."""
    rates = {name: [float(group["lr"]) for group in one.param_groups] for name, one in learner.optimizers.items()}
    return Hyperparameters(dict(learner.tunables), {name: getattr(learner, name) for name in texts}, rates)


def brought(learner: Learner, known: Hyperparameters) -> None:
    """Bring hyper-parameters to a learner."""
    for name, text in known.texts.items():
        setattr(learner, name, text)
    learner.set(**{name: value for name, value in known.values.items() if name not in known.texts})
    for name, rates in known.rates.items():  # which need not be those of the learner's one rate
        for group, rate in zip(learner.optimizers[name].param_groups, rates, strict=True):
            if isinstance(group["lr"], torch.Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate


def arrays_in(batch: Any) -> Any:
    """Tensors of named tuples and dicts as arrays, which travel by themselves: pickling a tensor takes ten times as
    long."""
    return each(batch, lambda tensor: tensor.numpy(force=True))


def tensors_in(batch: Any) -> Any:
    """The inverse of :func:`arrays_in`. Arrays are copied: those of another process are read-only."""
    return each(batch, lambda array: torch.from_numpy(np.array(array)), np.ndarray)
