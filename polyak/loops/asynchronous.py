"""Asynchronous learning: take rollouts, learn from them, publish weights.

A rollout is ``n_steps`` steps of each environment, all with the latest weights published before it began; learners
correct for this policy lag. A :class:`RolloutCollector` delivers rollouts: it makes them in this process, alternating
with the learner or in a thread, or takes them from remote runners. A rollout under way outlives one ``learn``.

Shapes: T steps of N environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from polyak.arrays import copied
from polyak.callbacks.callback import BaseCallback
from polyak.collecting.actor_thread import ActorThread
from polyak.collecting.rollout import RolloutWriter
from polyak.collecting.time_split import TimeSplit
from polyak.distributed.runner_process import Chunk
from polyak.distributed.separate_runners import Finished, SeparateRunners
from polyak.distributed.unrolls import UnrollElsewhere, write
from polyak.distributed.weights import put_back
from polyak.experience.step import Step
from polyak.learning.vtrace_learner import Unroll, joined
from polyak.loops.learners_elsewhere import UpdatesElsewhere
from polyak.loops.on_policy import OnPolicyLoop

_NOWHERE = np.zeros(0, bool)


class Rollout(NamedTuple):
    """Steps of one rollout, made with the same weights."""

    buffer: Any
    """The :class:`~polyak.experience.RolloutBuffer`; ``None`` if its rows are stored elsewhere."""
    last: Any
    """Observations and recurrent state after the last step: see
    :meth:`~polyak.collecting.rollout.RolloutWriter.following`."""
    episode_starts: np.ndarray
    version: int
    """The learner's step count when the weights were published."""
    steps: Sequence[Step | None] = ()
    """Steps that callbacks have not seen yet; ``None`` for a step that no callback reads."""
    elsewhere: UnrollElsewhere | None = None
    """Reference to rows that are stored elsewhere."""

    def unrolled(self) -> Unroll | UnrollElsewhere:
        """Returns the rollout in the form that learners take."""
        if self.elsewhere is not None:
            return self.elsewhere
        return Unroll(self.buffer.trajectory(self.last.observations, self.episode_starts), self.last.memory)

    def evaluated(self, step: Step, row: int) -> Step:
        """Returns a step with the values and log-probabilities of the behaviour policy."""
        found = {"values": self.buffer.values[row], "log_probs": self.buffer.log_probs[row]}
        return step._replace(extras={**step.extras, **found})


class AsynchronousLoop:
    """Takes rollouts, learns from them, and publishes weights at intervals.

    Args:
        model: the algorithm.
        callback: called after every step; may stop training.
        log_interval: iterations between two tables.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.settings, self.on_policy = model, OnPolicyLoop.of(model, callback, log_interval)
        if model.collector is None or model.collector.runner is not model.runner:
            model.collector = collector_of(model)
        self.collector: RolloutCollector = model.collector
        if isinstance(self.collector, RunnersCollector):
            updates, begin = cast(Any, self.on_policy.updates), partial(model.rollouts.begin, reset=True)
            self.on_policy.updates = UpdatesElsewhere(getattr(updates, "updates", updates), begin)
        self.collector.begin(self.on_policy)
        if model.learner.unpublished == 0:
            model.learner.publish(model.policy)

    def iterate(self) -> bool:
        """Take rollouts and learn from them. Returns False if a callback stops training."""
        loop, settings = self.on_policy, self.settings
        rollouts = self.collector.take()
        if rollouts is None:
            return False
        loop.note()
        with loop.split.update:
            loop.updates.make(rollouts)
            if settings.learner.unpublished >= settings.broadcast_interval:
                settings.learner.publish(settings.policy)
        for check in loop.between:
            check()
        return True


def collector_of(model: Any) -> RolloutCollector:
    """Returns the rollout collector of a model."""
    if isinstance(model.runner, SeparateRunners):
        return RunnersCollector(model)
    return ThreadCollector(model) if model.asynchronous else TurnsCollector(model)


def log_lag(model: Any, outcome: Any) -> None:
    """Log the policy lag: the number of updates by which the behaviour policy's weights were behind."""
    model.logger.record("train/policy_lag", float(np.mean(model.collector.lags)))


class RolloutCollector:
    """Delivers the rollouts for the next gradient steps, from an actor with weights of its own.

    Args:
        model: provides environments, actor and learner.

    Attributes:
        rollouts: the rollouts to learn from.
        unrolls: the same as learners take them, with those of one gradient step concatenated.
        lags: policy lag of each rollout, in updates.
    """

    per_batch = 1
    """Rollouts per gradient step."""

    def __init__(self, model: Any) -> None:
        self.settings, self.runner = model, model.runner
        self.actor: Any = model.runner.actor
        self.actor.act_by_copy()
        self.rollouts: list[Rollout] = []
        self.unrolls: list[Any] = []
        self.lags: list[int] = []
        self._resets = self.runner.env.resets
        self.forget()

    def begin(self, loop: OnPolicyLoop) -> None:
        """Prepare for another ``learn``, with its callbacks and counters."""
        self.loop = loop
        loop.collector.policy = partial(getattr, self.actor, "policy")
        if self.runner.env.resets != self._resets:
            self.forget()
        self._resets = self.runner.env.resets

    def forget(self) -> None:
        """Drop rollouts under way, since new episodes have begun."""

    def take(self) -> list[Rollout] | None:
        """Returns rollouts to learn from; ``None`` if a callback stops training."""
        raise NotImplementedError

    def hold(self, rollouts: list[Rollout]) -> list[Rollout]:
        """Set the rollouts to learn from, and compute their lags."""
        self.rollouts = rollouts
        self.lags = [self.settings.learner.steps - rollout.version for rollout in rollouts]
        unrolls: list[Any] = [rollout.unrolled() for rollout in rollouts]
        size = self.per_batch
        self.unrolls = [_side_by_side(unrolls[first : first + size]) for first in range(0, len(unrolls), size)]
        return rollouts

    def minibatches(self, size: int | None = None) -> Iterator[Unroll]:
        """Returns the batches of the gradient steps, for the learner's ``update``."""
        return iter(self.unrolls)

    def catch_up(self) -> int:
        """Copy the latest published weights to the actor, and return their version."""
        return int(self.settings.learner.published.put_into(self.actor.policy))

    def fresh(self) -> RolloutWriter:
        """Returns an empty rollout to fill."""
        return cast(RolloutWriter, self.settings.rollouts.fresh_writer())

    def whole(self, writer: RolloutWriter, after: Any, version: int, steps: Sequence[Step | None] = ()) -> Rollout:
        """Returns a complete rollout, with values and log-probabilities of the behaviour policy.

        Args:
            writer: holds the steps.
            after: holds observations and recurrent state after the last step, as a runner does.
            version: of the weights.
            steps: see :class:`Rollout`.
        """
        settings = self.settings
        with self.runner.split.inference:
            writer.evaluate(settings.learner, after, self.actor.policy)
        return Rollout(writer.buffer, *writer.following(after), version, steps)

    def show(self, rollout: Rollout, rows: Iterable[tuple[int, bool]], step_of: Callable[[int], Step | None]) -> bool:
        """Show callbacks a rollout that was collected elsewhere. Returns False if one stops training.

        Args:
            rollout: the rollout.
            rows: indices of its steps, and whether ``on_step`` has not been called for each yet.
            step_of: returns the step at an index; ``None`` if no episode ended at it and no callback reads it.
        """
        loop, clock, callback = self.loop, self.loop.collector.clock, self.loop.collector.callback
        if rollout.buffer is not None:
            self.settings.rollout_buffer = rollout.buffer
        callback.on_rollout_start()
        asks, shows = not callback.is_idle, callback.needs_locals
        known = {"rollout_buffer": rollout.buffer, "n_rollout_steps": self.settings.n_steps}
        names, envs = {**loop.names, **known, "iteration": clock.iterations}, self.settings.rollouts.n_envs
        for row, is_new in rows:
            step = step_of(row)
            if is_new:
                clock.steps += envs
                if shows and step is not None:
                    callback.update_locals(loop.published(rollout.evaluated(step, row), {**names, "n_steps": row}))
                if asks and not callback.on_step():
                    return False
            if step is not None and step.episodes:
                loop.collector.statistics.note(step.episodes)
        callback.on_rollout_end()
        return True


class TurnsCollector(RolloutCollector):
    """Collects a rollout after learning from the previous one, so that equal seeds give equal results."""

    def take(self) -> list[Rollout] | None:
        version = self.catch_up()  # a rollout restored from a file began with these weights, too
        if not self.loop.collect():
            return None
        writer = self.loop.rollout
        return self.hold([Rollout(writer.buffer, *writer.following(self.runner), version)])


class ThreadCollector(RolloutCollector):
    """Collects rollouts in a thread of its own, with a bounded queue."""

    def __init__(self, model: Any) -> None:
        model.runner.split = TimeSplit()  # the learner's time split counts the waiting
        self._shows = False
        super().__init__(model)

    def forget(self) -> None:
        self._begun: tuple[RolloutWriter, int, list[Step | None]] | None = None
        self.runner.thread = ActorThread(self.make, self.settings.queue_size)

    def take(self) -> list[Rollout] | None:
        """Returns the oldest waiting rollout, or all waiting ones."""
        loop, thread = self.loop, self.runner.thread
        self._shows = loop.collector.callback.needs_locals
        thread.start()
        taken: list[Rollout] = []
        while not taken or (self.settings.rollouts.takes_all and len(thread)):
            with loop.split.env:
                rollout = thread.take()
            if not self.show(rollout, ((row, True) for row in range(len(rollout.steps))), rollout.steps.__getitem__):
                return None
            taken.append(rollout)
        return self.hold(taken)

    def make(self, stopping: Callable[[], bool]) -> Rollout | None:
        """Collect a whole rollout, in the thread. Returns ``None`` to stop; a partial rollout is kept."""
        if self._begun is None:
            version = self.catch_up()
            self.actor.begin(self.settings.n_envs)
            self._begun = self.fresh(), version, []
        writer, version, steps = self._begun
        while len(steps) < writer.steps:
            if stopping():
                return None
            step = self.runner.step()
            writer.record(step)
            steps.append(_kept(step, self._shows) if step.ended or self._shows else None)
        rollout = self.whole(writer, self.runner, version, steps)
        self._begun = None
        return rollout


class RunnersCollector(RolloutCollector):
    """Takes rollouts that remote runners have finished, each separately."""

    runner: SeparateRunners

    def __init__(self, model: Any) -> None:
        self.per_batch = model.rollouts.per_batch
        self._given: Any = None
        """The weights that runners were given last."""
        self._held: tuple[Any, Any] = None, None
        """The policy that acts, and the weights in it, as they are sent."""
        super().__init__(model)

    def forget(self) -> None:
        self._received: list[Rollout] = []
        """Rollouts received for the next gradient step."""

    def take(self) -> list[Rollout] | None:
        """Returns the next finished rollouts, or all waiting ones; those received before a callback stops are kept."""
        settings, runner = self.settings, self.runner
        batches = runner.waiting() // self.per_batch if settings.rollouts.takes_all and settings.asynchronous else 1
        while len(self._received) < max(batches, 1) * self.per_batch:
            if self._given is not settings.learner.published:
                self._held = self.actor.policy, runner.publish(self.catch_up(), self.actor.policy)
                self._given = settings.learner.published
            self.actor.begin(settings.n_envs)
            runner.plan(settings.n_steps)
            recipe = self._recipe_elsewhere()
            runner.apart = recipe is not None
            with self.loop.split.env:
                finished = runner.take() if runner.apart else runner.take() and runner.in_hand_whole()
            rollout = self.rollout_of(finished, recipe)
            if not self.show(rollout, runner.rows_in_hand(), self._step_of(finished)):
                return None
            runner.finish()
            self._received.append(rollout)
        received = self._received
        self.forget()
        self.hold(received)
        for lag in self.lags:
            runner.env.traffic.note_lag(settings.n_steps * settings.rollouts.n_envs, lag)
        return received

    def _recipe_elsewhere(self) -> Callable[..., Any] | None:
        """Returns the factory of rollout buffers if remote learners fetch rows that no callback reads, or ``None``."""
        if self.loop.collector.callback.needs_locals or not getattr(self.settings.learner.fellows, "fetches", False):
            return None
        recipe: Callable[..., Any] | None = self.settings.rollouts.buffer_recipe()
        return recipe

    def rollout_of(self, finished: Finished, recipe: Callable[..., Any] | None) -> Rollout:
        """Returns a runner's finished rows as a rollout; ``recipe``: the factory of its buffer for remote learners."""
        if finished.apart is not None:
            assert recipe is not None
            elsewhere = UnrollElsewhere(recipe, [finished.apart])
            return Rollout(None, None, _NOWHERE, finished.version, elsewhere=elsewhere)
        writer = self.fresh()
        policy, weights = self.actor.policy, finished.weights
        if self._held[0] is not policy or self._held[1] is not weights:
            put_back(policy, weights)
            self._held = policy, weights
        write(cast(Chunk, finished.chunk), writer, self.actor)
        return self.whole(writer, self.runner.after_in_hand(), finished.version)

    def _step_of(self, finished: Finished) -> Callable[[int], Any]:
        ends = {end.step: end for end in finished.chunk.ends}
        shows, of = self.loop.collector.callback.needs_locals, self.runner.step_in_hand
        return of if shows else ends.get


def _side_by_side(unrolls: list[Any]) -> Any:
    """Concatenates the rollouts of one gradient step; local rows are sent with the references to remote ones."""
    if not any(isinstance(one, UnrollElsewhere) for one in unrolls):
        return joined(unrolls)
    parts = [one.parts if isinstance(one, UnrollElsewhere) else [one] for one in unrolls]
    recipe = next(one.make_buffer for one in unrolls if isinstance(one, UnrollElsewhere))
    return UnrollElsewhere(recipe, [part for some in parts for part in some])


def _kept(step: Step, whole: bool) -> Step:
    """Returns a copy of a step that the environments cannot overwrite; unless ``whole``, only of its ends and infos."""
    ends = step._replace(infos=[dict(info) for info in step.infos], dones=step.dones.copy())
    return Step(*copied(list(ends), None)) if whole else ends
