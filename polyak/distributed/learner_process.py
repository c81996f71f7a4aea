"""A learner of a data-parallel group, as it exists in another process. It does not depend on the transport.

Shapes: B rows, U gradient steps.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple, cast

import cloudpickle
import numpy as np
import torch
from torch import Tensor

from polyak.collecting.actor import copy_of
from polyak.distributed.exchange import SocketGroup
from polyak.distributed.runners import RemoteActor
from polyak.distributed.unrolls import RolloutElsewhere, UnrollElsewhere
from polyak.experience.batch import RolloutRows
from polyak.learning.data_parallel import Group, each
from polyak.learning.learner import Learner, Update
from polyak.seeding import rng_state, set_random_seed, set_rng_state


class Asked(NamedTuple):
    """A request to a learner: gradient steps on its shares of some minibatches."""

    batches: list[Any]
    """Rows of a rollout, or batches as :func:`arrays_in` makes them."""
    rollout: int
    """The number of the rollout; -1 without one."""
    values: Hyperparameters
    """The current hyper-parameters."""
    streams: Any = None
    """Random numbers to continue from; ``None``: its own."""


class Said(NamedTuple):
    """A learner's results of U gradient steps on its shares, as arrays."""

    names: list[list[str]]
    """Names of the metrics of each step."""
    metrics: np.ndarray
    """Metrics of all steps, concatenated."""
    td_errors: list[np.ndarray | None]
    """Temporal-difference errors of each step, [B] or ``None``."""
    skipped: bool | None
    """Whether the last step was skipped; ``None`` if steps are never skipped."""
    seconds: float = 0.0
    """Seconds that the steps took in their process."""
    explained: float | None = None
    """The share of the variance of returns that values explain; ``None``: the rollout was not made here."""


class Learned(NamedTuple):
    """The learned state of a learner."""

    networks: dict[str, Any]
    optimizers: dict[str, dict[str, Any]]
    """State dicts of the optimizers."""


class LearnerProcess:
    """Makes the same gradient steps as the other learners, on its own share of the rows.

    Args:
        rank: rank of the learner.
        seed: seed of its random numbers.
        threads: number of threads of its own process; 0 if it shares a process.
    """

    learner: Learner

    def __init__(self, rank: int, seed: int, threads: int) -> None:
        self.rank, self.seed = rank, seed
        self._held: tuple[int, Any, float | None] = (-1, None, None)
        """The rollout that the last minibatches belong to: its number, the rollout, and the explained variance of its
        values."""
        if threads:
            torch.set_num_threads(threads)

    def describe(self) -> int:
        """Returns the process id."""
        return os.getpid()

    def take(self, pickled: bytes, device: str) -> None:
        """Be a copy of this learner from now on."""
        self.learner = cloudpickle.loads(pickled).to(device)
        self.device = device
        self._actor: RemoteActor | None = None
        with suppress(ImportError):  # torch compiles a class by names of its module, which need not have come with it
            import_module(type(self.learner).__module__)

    def seed_streams(self) -> None:
        """Draw from streams of its own."""
        set_random_seed(self.seed, using_cuda=torch.cuda.is_available())

    def join(self, group: Group | tuple[str, int, int, float, str]) -> None:
        """Learn as one with all that join at the same time.

        Args:
            group: its place among them; or address, port, number of learners, seconds of patience and device.
        """
        self.learner.join(group if not isinstance(group, tuple) else SocketGroup(self.rank, *group))

    def update(self, asked: Asked, rollout: Any = None, *apart: Any) -> tuple[Said, Any]:
        """Makes a gradient step on each of some minibatches, until one is skipped.

        Args:
            asked: the request.
            rollout: the rollout with their rows, as arrays; it is read if its number has changed.
            apart: chunks and weights, which batches reference by their position.

        Returns:
            the results of the steps, and the state of the random streams if one was given.
        """
        began = time.perf_counter()
        brought(self.learner, asked.values)
        if asked.streams is not None:
            set_rng_state(*asked.streams)
        if asked.rollout != self._held[0]:
            if isinstance(rollout, RolloutElsewhere):
                self._held = asked.rollout, *self._built(rollout._replace(weights=apart[0], chunks=apart[1:]))
            else:
                self._held = asked.rollout, self._here(rollout), None
        given = (
            self._unrolled(batch, apart) if isinstance(batch, UnrollElsewhere) else self._here(batch)
            for batch in asked.batches
        )
        shares = (RolloutRows(self._held[1], one) if isinstance(one, Tensor) else one for one in given)
        said = said_of(list(self.learner.updates(shares)))
        said = said._replace(explained=self._held[2], seconds=time.perf_counter() - began)
        return said, None if asked.streams is None else rng_state()

    def _unrolled(self, batch: UnrollElsewhere, apart: Sequence[Any]) -> Any:
        """Builds rollouts from runners' chunks, whose parts are positions in ``apart``, or arrays."""
        parts = [(apart[one[0]], apart[one[1]]) if type(one) is tuple else self._here(one) for one in batch.parts]
        return batch._replace(parts=parts).unrolled(cast(Any, self.learner), self._acting, self.device)

    def _built(self, rollout: RolloutElsewhere) -> tuple[Any, float]:
        """A rollout that runners have made."""
        return rollout.samples(cast(Any, self.learner), self._acting, self.device)

    @property
    def _acting(self) -> RemoteActor:
        """Holds the weights that acted, and the recurrent state between two steps."""
        if self._actor is None:
            self._actor = RemoteActor(copy_of(self.learner.policy), {})
        return self._actor

    def _here(self, batch: Any) -> Any:
        return each(tensors_in(batch), lambda column: column.to(self.device))

    def call(self, method: str, values: Hyperparameters) -> None:
        """Call a method that all learners run besides gradient steps, with these hyper-parameters."""
        brought(self.learner, values)
        getattr(self.learner, method)()

    def state(self, wanted: bool) -> Learned | None:
        """Returns the learned state as arrays, if ``wanted``."""
        if not wanted:
            return None
        optimizers = {name: one.state_dict() for name, one in self.learner.optimizers.items()}
        once: dict[Any, np.ndarray] = {}  # a module that is shared has several names, and travels once
        networks = {
            name: once.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), tensor.numpy(force=True))
            for name, tensor in self.learner.networks().items()
        }
        return Learned(networks, arrays_in(optimizers))

    def apply(self, function: Callable[[Learner], Any]) -> Any:
        """Returns the result of a function of the learner."""
        return function(self.learner)


def said_of(updates: Sequence[Update]) -> Said:
    """Converts a learner's updates, of which there is at least one, to arrays."""
    values = [value.detach().reshape(()).float() for update in updates for value in update.metrics.values()]
    return Said(
        [list(update.metrics) for update in updates],
        torch.stack(values).numpy(force=True) if values else np.empty(0, np.float32),
        [arrays_in(update.td_error) for update in updates],
        None if updates[-1].skipped is None else bool(updates[-1].skipped),
    )


def texts_of(learner: Learner) -> list[str]:
    """Names of a learner's hyper-parameters that are texts."""
    return [name for name in learner.declared_tunables() if isinstance(getattr(learner, name, None), str)]


class Hyperparameters(NamedTuple):
    """The hyper-parameters of a learner's next step."""

    values: dict[str, Any]
    texts: dict[str, str]
    rates: dict[str, list[float]]
    """Name of an optimizer -> the learning rate of each of its groups."""


def hyperparameters(learner: Learner, texts: Iterable[str]) -> Hyperparameters:
    """Returns the current hyper-parameters of a learner; ``texts``: see :func:`texts_of`."""
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
