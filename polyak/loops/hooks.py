"""The loop of algorithms that write their iteration as a hook of the model."""

from typing import Any, Protocol

from polyak.callbacks.callback import BaseCallback
from polyak.data.step import Step


class Loop(Protocol):
    """What happens when, in one call of ``learn``."""

    def iterate(self) -> bool:
        """Collect some experience and learn from it. False: a callback asked to stop."""


class ModelUpdates:
    """Gradient steps that a model makes by a ``train`` of its own.

    Args:
        model: has ``train``.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.memory, self.clock, self.split = model, model.memory, model.clock, model._split

    def make(self, steps: int, rows: int, *_: Any) -> None:
        """Some gradient steps on minibatches of so many rows."""
        self.model.train(gradient_steps=steps, batch_size=rows)


class ModelLessons:
    """What a model learns from its rollout by a ``train`` of its own.

    Args:
        model: has ``train``.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def make(self, buffer: Any) -> None:
        """Learn from a rollout, which the model holds."""
        self.model.train()


class Storing:
    """Where a model puts steps that it stores in its own way.

    Args:
        model: has ``_store``.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def record(self, step: Step) -> None:
        """Take a step of the environments."""
        self.model._store(step, self.model.memory.own)


class HookLoop:
    """Asks a model for one iteration after another.

    Args:
        model: has ``_iterate``.
        callback: asked after every step whether to continue.
        log_interval: between two log tables.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback, self.log_interval = model, callback, log_interval

    def iterate(self) -> bool:
        """Collect some experience and learn from it. False: a callback asked to stop."""
        continues = self.model._iterate(self.callback, self.log_interval)
        if continues:
            self.model._check_iteration()
        return continues
