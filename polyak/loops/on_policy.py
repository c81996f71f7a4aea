"""On-policy learning: collect a rollout, evaluate it with the learner, learn from it, discard it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from typing_extensions import Self

from polyak.callbacks.callback import BaseCallback, LoopLocals
from polyak.checkpoint.collection import Collection
from polyak.collecting import stepwise
from polyak.collecting.rollout import RolloutWriter
from polyak.collecting.runner import on_host
from polyak.collecting.time_split import TimeSplit
from polyak.distributed.runners import RunnerGroup
from polyak.experience.step import Step
from polyak.loops.collector import Collector
from polyak.loops.group_collector import GroupCollector
from polyak.loops.learners_elsewhere import UpdatesElsewhere, explained_anywhere
from polyak.loops.training import Task, engine_checks, is_own, tasks
from polyak.loops.updates import RolloutUpdates
from polyak.ops.returns import explained_variance, explained_variance_of_tensors


class ModelLessons:
    """Learns from a rollout by the ``train`` method of a user's subclass.

    Args:
        model: has ``train``.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    def make(self, buffer: Any) -> None:
        """Learn from the rollout that the model holds."""
        self.model.train()


@dataclass
class OnPolicyLoop:
    """Collects a rollout, then learns from it; repeatedly."""

    settings: Any
    """The model, whose learner a program may change during training."""
    rollouts: Any
    """The storage of rollouts: see :class:`~polyak.parts.rollouts.Rollouts`."""
    collector: Collector
    """The source of experience."""
    updates: RolloutUpdates | ModelLessons | UpdatesElsewhere
    """Makes gradient steps."""
    split: TimeSplit
    """Measures the time of each stage."""
    names: dict[str, Any]
    """The constant variables in callbacks' ``locals``."""
    beginning: tuple[Task, ...]
    """Called before a rollout begins."""
    completing: tuple[Task, ...]
    """Called when a rollout is complete, before it is evaluated."""
    between: tuple[Task, ...]
    """Called after each rollout and its gradient steps."""
    tick: Task
    """Advances schedules."""
    log_interval: int | None
    """Rollouts between two tables."""
    estimates: bool
    """Whether advantages are estimated before the gradient steps."""
    conversions: tuple[Callable[[Step], Step], ...]
    """Convert a step to numpy arrays for callbacks."""

    @classmethod
    def of(cls, model: Any, callback: BaseCallback, log_interval: int | None) -> Self:
        """Creates the loop of a model that learns from rollouts."""
        runner, clock, split, late = model.runner, model.clock, model._split, model.rollouts.rewards_follow
        kind = GroupCollector if isinstance(runner, RunnerGroup) else Collector
        policy = partial(getattr, model, "policy")
        collector = kind(
            runner, model._progress, clock, model.statistics, callback, unseen, policy, model._start_episodes
        )
        updates: Any = ModelLessons(model) if is_own(model, "train") else rollout_updates(model)
        if isinstance(collector, GroupCollector):
            collector.whole = late is None
            if late is None and not tasks(model, "completing"):
                collector.rows_stay, updates = model.rollouts.left_to_learners, UpdatesElsewhere(updates)
        completing = () if late is None else (lambda: late(model.rollout_buffer),)
        loop = cls(
            model,
            model.rollouts,
            collector,
            updates,
            split,
            model._callback_locals(callback=callback),
            beginning=tasks(model, "beginning"),
            completing=(*completing, *tasks(model, "completing")),
            between=engine_checks(model),
            tick=clock.tick,
            log_interval=log_interval,
            estimates=not model.learner.estimates_itself,
            conversions=(on_host,) if model.in_tensors else (),
        )
        collector.shown = loop.shown
        return loop

    def iterate(self) -> bool:
        """Collect a rollout and learn from it. Returns False if a callback stops training."""
        rollout = self.begin()
        if self.collector.collect(rollout, rollout, complete=(self.complete,)) is None:
            return False
        self.note()
        with self.split.update:
            self.updates.make(rollout.buffer)
        for check in self.between:
            check()
        return True

    def collect(self, steps: int | None = None) -> bool:
        """Collect a rollout of ``steps`` steps without learning. Returns False if a callback stops training."""
        rollout = self.begin(steps)
        return self.collector.collect(rollout, rollout, complete=(self.complete,)) is not None

    def begin(self, steps: int | None = None) -> RolloutWriter:
        """Returns an empty rollout to fill, or the partial one restored from a file."""
        for task in self.beginning:
            task()
        if self.collector.clock.series is None:
            self.rollouts.renew()
        self.rollout: RolloutWriter = self.rollouts.writer(steps)
        return self.rollout

    def complete(self) -> None:
        """Evaluate a complete rollout: the learner's values and log-probabilities, then advantages and returns."""
        for task in self.completing:
            task()
        rollout, collector, settings = self.rollout, self.collector, self.settings
        with self.split.inference:
            last_values = rollout.evaluate(settings.learner, collector.runner, collector.policy())
        if self.estimates:
            with self.split.update:
                rollout.estimate(last_values, collector.runner.episode_starts)
        if collector.callback.needs_locals:
            collector.callback.update_locals(self.published(rollout.last(), {"values": last_values}))

    def note(self) -> None:
        """Count a rollout, and write a log table if one is due."""
        clock = self.collector.clock
        clock.iterations += 1
        self.tick()
        if self.log_interval is not None and clock.iterations % self.log_interval == 0:
            self.settings.dump_logs(clock.iterations)

    def shown(self, step: Step, series: Collection) -> LoopLocals:
        """Returns the variables of callbacks' ``self.locals`` for a step, before it is stored."""
        step = series.pending = self.rollout.ready(step)
        buffer, number = self.rollout.buffer, series.steps - 1
        names = {"rollout_buffer": buffer, "n_rollout_steps": self.rollout.steps, "n_steps": number}
        return self.published(step, {**self.names, "iteration": self.collector.clock.iterations, **names})

    def published(self, step: Step, names: dict[str, Any]) -> LoopLocals:
        """Returns a step and further variables as ``locals``; expensive entries are computed when they are read."""
        for convert in self.conversions:
            step = convert(step)
        later = partial(stepwise.locals_of, step, self.settings.learner, self.collector.policy(), self.split.inference)
        return LoopLocals({**names, **on_policy_locals(step)}, later)


def unseen(step: Step, series: Collection) -> dict[str, Any]:
    """Placeholder for callbacks' ``locals`` until the loop sets its own."""
    return {}


def rollout_updates(model: Any) -> RolloutUpdates:
    """Creates the gradient steps on rollouts of a model."""
    known = model.host, model._following(), model.clock, model.logger, model._split
    rollouts, watching = model.rollouts, tasks(model, "watching")
    explained: Any = explained_variance_of_tensors if model.in_tensors else explained_variance
    if isinstance(model.runner, RunnerGroup):
        explained = partial(explained_anywhere, model, explained)
    explain = None if model.learner.estimates_itself else explained
    return RolloutUpdates(model.learner, rollouts.lesson, rollouts.minibatches, *known, watching, explain)


def on_policy_locals(step: Step) -> dict[str, Any]:
    """Returns a step under the names that callbacks written for Stable-Baselines3 read."""
    return {
        "actions": step.actions,
        "clipped_actions": step.env_actions,
        "rewards": step.rewards,
        "dones": step.dones,
        "infos": list(step.infos),
        "new_obs": step.new_obs,
    }
