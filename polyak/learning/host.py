"""The host of a learner: its device, the engine of its gradient steps, threads, and a guard against NaN."""

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
    """Number of gradient steps; 0 if unknown."""
    rows: int
    """Rows of a minibatch."""


class LearnerHost:
    """Runs one learner: device, engine, threads and guard.

    Args:
        compile: run gradient steps as compiled programs: see :class:`~polyak.learning.engine.engine.Engine`.
        precision: of the products in gradient steps.
        report: called with messages about slow tasks, such as ``print``.
    """

    def __init__(
        self,
        compile: bool | Literal["auto", "replay"],
        precision: Literal["float32", "bfloat16"],
        report: Callable[[str], None] | None = None,
    ) -> None:
        self.compile, self.precision, self._report = compile, precision, report
        self.must_run = compile in (True, "replay") or precision != "float32"
        """Whether the engine must make the gradient steps, since ``compile`` or ``precision`` require it: see
        :meth:`check`."""
        self.engine: Engine | None = None
        """Runs gradient steps; ``None`` before :meth:`take`, which a user's own algorithms need not call."""
        self.guard: Guard | None = None
        """Checks for NaN and infinity inside :meth:`at_work`."""
        self.watch: Callable[[Mapping[str, Any]], None] = unwatched
        """Called with the means of the metrics: a loss that is not finite ends training."""
        self._flops = math.inf

    def take(self, learner: Learner, device: torch.device) -> Learner:
        """Move a learner to a device and give it an engine."""
        learner = learner.to(device)
        learner.precision = self.precision
        self.engine = Engine(learner, self.compile, self._report)
        return learner

    def expect(self, load: Load) -> None:
        """Prepare for a run of this load."""
        if self.engine is not None:
            self.engine.expect(*load)
            self._flops = self.engine.flops(load.rows) if load.updates else math.inf

    @contextmanager
    def at_work(self, learner: Any, waits: bool) -> Iterator[None]:
        """Context of a run: threads for its steps, and a guard over a :class:`~polyak.learning.learner.Learner`.

        Args:
            learner: the learner.
            waits: whether reading losses waits for a device, so that it is done rarely.

        Raises:
            NonFiniteError: a learned value is not finite; the last good state has been restored.
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
        """Refuse options that only the engine supports if a learner makes its gradient steps without it; ``name``: of
        the algorithm."""
        if self.must_run:
            self.check(learner, name, False)

    def check(self, learner: Learner | None, owner: str, updated: bool = False) -> None:
        """Refuse options that only the engine supports if gradient steps are made without it; called if
        :attr:`must_run`.

        Args:
            learner: the learner.
            owner: name of the algorithm's class.
            updated: whether there have been gradient steps, which the engine must have run.

        Raises:
            HyperparameterError: ``compile=True`` or ``precision`` would have no effect.
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
    """Ignore the metrics, outside of :meth:`LearnerHost.at_work`."""


def faster_device(learner: Learner, load: Load, timesteps: int, n_envs: int) -> Choice | None:
    """Returns the GPU or the CPU, whichever should be faster for a learner's gradient steps and actions; ``None`` if
    unknown.

    Args:
        learner: on the CPU.
        load: of a run.
        timesteps: of the run, over all environments.
        n_envs: number of environments stepped at once.
    """
    if load.updates == 0:
        return None
    acts, step = timesteps / n_envs / load.updates, flops(learner, load.rows)
    acting = step / (3 * load.rows) * n_envs
    return choose(Work(step, sum(1 for _ in learner.parameters()), acts, acting), speeds())
