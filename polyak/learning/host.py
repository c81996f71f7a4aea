"""What a learner learns by: a device, an engine that runs its gradient steps, threads, and a guard."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch

from polyak.hyperparameters.declaration import require
from polyak.learning.engine.device import Choice, Work, choose
from polyak.learning.engine.engine import Engine
from polyak.learning.engine.flops import flops
from polyak.learning.engine.machine_speed import speeds
from polyak.learning.engine.threads import threads_for
from polyak.learning.learner import Learner
from polyak.learning.nan_guard import Guard, guarding


class Load(NamedTuple):
    """The gradient steps of a run."""

    updates: int
    """How many; 0 if that is not known."""
    rows: int
    """Of a minibatch."""


class LearnerHost:
    """Runs what one learner does while it learns.

    Args:
        compile: run gradient steps as compiled programs: see :class:`~polyak.learning.engine.engine.Engine`.
        precision: of the products in them.
        report: called with what takes long, such as ``print``.
    """

    def __init__(
        self,
        compile: bool | Literal["auto", "replay"],
        precision: Literal["float32", "bfloat16"],
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.compile, self.precision, self._report = compile, precision, report
        self.must_run = compile in (True, "replay") or precision != "float32"
        """Whether gradient steps have to be made by the engine, so that arguments have effect: see :meth:`check`."""
        self.engine: Engine | None = None
        """Runs gradient steps; ``None`` before :meth:`take`, which algorithms of a user's own need not call."""
        self.guard: Guard | None = None
        """Watches what is learned, while :meth:`at_work`."""
        self.watch: Callable[[Mapping[str, Any]], None] = unwatched
        """Called with what updates came to: a loss that is not finite ends training."""
        self._flops = math.inf

    def take(self, learner: Learner, device: torch.device) -> Learner:
        """Let a learner learn here, on a device."""
        learner = learner.to(device)
        learner.precision = self.precision
        self.engine = Engine(learner, self.compile, self._report)
        return learner

    def expect(self, load: Load) -> None:
        """Prepare for a run of so many gradient steps."""
        if self.engine is not None:
            self.engine.expect(*load)
            self._flops = self.engine.flops(load.rows) if load.updates else math.inf

    @contextmanager
    def at_work(self, learner: Any, waits: bool) -> Iterator[None]:
        """Around a run: threads for its steps, and a guard over a :class:`~polyak.learning.learner.Learner`.

        Args:
            learner: that learns.
            waits: whether to look at losses means waiting for a device, and is done rarely.

        Raises:
            NonFiniteError: what was learned is not finite; the last good state has been put back.
        """
        if isinstance(learner, Learner):
            self.guard = Guard(learner, waits)
            self.watch = self.guard.after_update
        try:
            with threads_for(self._flops), guarding(self.guard):
                yield
        finally:
            self.guard, self.watch = None, unwatched

    def check_if_must(self, learner: Learner | None, name: str) -> None:
        """Refuses what the engine alone carries out where a learner of ``name`` makes its gradient steps without it."""
        if self.must_run:
            self.check(learner, name, False)

    def check(self, learner: Learner | None, owner: str, updated: bool = False) -> None:
        """Refuse what the engine alone carries out where gradient steps are made without it; asked if it
        :attr:`must_run`.

        Args:
            learner: that learns.
            owner: name of the class of the algorithm.
            updated: whether there have been gradient steps, so that the engine must have seen them.

        Raises:
            HyperparameterError: ``compile=True`` or ``precision`` would be without effect.
        """
        name, value = ("compile", self.compile) if self.precision == "float32" else ("precision", self.precision)
        engine = self.engine
        require(
            engine is not None and engine.learner is learner,
            name,
            value,
            f"{owner}._setup_model() gives its learner no engine. Let it call super()._setup_model(), which builds "
            "what learner_factory() describes.",
        )
        assert engine is not None
        require(
            engine.learned or not updated,
            name,
            value,
            f"{owner} makes gradient steps of its own. Write them as methods of its learner that its update() calls by "
            "self.run(self.gradient_step, batch), and call self.learner.learn(batch) in train().",
        )


def unwatched(means: Mapping[str, Any]) -> None:
    """Takes what an update came to, where nothing looks at it."""


def faster_device(learner: Learner, load: Load, timesteps: int, n_envs: int) -> Choice | None:
    """The GPU or the CPU, whichever should make a learner's steps in less time, with those of acting; ``None`` if that
    is not known.

    Args:
        learner: on the CPU.
        load: of a run.
        timesteps: that the run lasts, over all environments.
        n_envs: that are acted in at once.
    """
    if load.updates == 0:
        return None
    acts, step = timesteps / n_envs / load.updates, flops(learner, load.rows)
    acting = step / (3 * load.rows) * n_envs
    return choose(Work(step, sum(1 for _ in learner.parameters()), acts, acting), speeds())
