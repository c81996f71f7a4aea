"""Asynchronous learning: take rollouts, learn from them, publish weights.

A rollout is ``n_steps`` of each environment, all with the weights that were published last before it began; learners
correct for their age. A :class:`RolloutCollector` brings rollouts: it makes them here, in turn with the learner or in a
thread, or takes them from runners elsewhere. What is under way in it outlives one ``learn``.

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
    """Steps that were made with the same weights, and what these say of them."""

    buffer: Any
    """A :class:`~polyak.experience.RolloutBuffer`; ``None``: its rows are elsewhere."""
    last: Any
    """What there was after the last step: see :meth:`~polyak.collecting.rollout.RolloutWriter.following`."""
    episode_starts: np.ndarray
    version: int
    """The learner's steps when the weights were published."""
    steps: Sequence[Step | None] = ()
    """As far as callbacks are yet to see them; ``None`` where none reads it."""
    elsewhere: UnrollElsewhere | None = None
    """Where its rows are."""

    def unrolled(self) -> Unroll | UnrollElsewhere:
        """As learners see it."""
        if self.elsewhere is not None:
            return self.elsewhere
        return Unroll(self.buffer.trajectory(self.last.observations, self.episode_starts), self.last.memory)

    def evaluated(self, step: Step, row: int) -> Step:
        """A step with what the policy that acted says of it."""
        found = {"values": self.buffer.values[row], "log_probs": self.buffer.log_probs[row]}
        return step._replace(extras={**step.extras, **found})


class AsynchronousLoop:
    """Takes rollouts, learns from them, and publishes weights now and then.

    Args:
        model: the algorithm.
        callback: asked after every step whether to continue.
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
        """Rollouts, and what is learned from them. False: a callback asked to stop."""
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
    """What brings the rollouts of a model."""
    if isinstance(model.runner, SeparateRunners):
        return RunnersCollector(model)
    return ThreadCollector(model) if model.asynchronous else TurnsCollector(model)


def log_lag(model: Any, outcome: Any) -> None:
    """Log by how many updates the weights that acted were behind."""
    model.logger.record("train/policy_lag", float(np.mean(model.collector.lags)))


class RolloutCollector:
    """Brings the rollouts that are learned from next, from an actor that has weights of its own.

    Args:
        model: whose environments, actor and learner these are.

    Attributes:
        rollouts: what is learned from now.
        unrolls: the same as learners see it, those of one gradient step side by side.
        lags: how many updates the weights of each were behind.
    """

    per_batch = 1
    """Rollouts of one gradient step."""

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
        """Collect for another ``learn``: its callbacks, its counters."""
        self.loop = loop
        loop.collector.policy = partial(getattr, self.actor, "policy")
        if self.runner.env.resets != self._resets:
            self.forget()
        self._resets = self.runner.env.resets

    def forget(self) -> None:
        """Drop what is under way, since new episodes have begun."""

    def take(self) -> list[Rollout] | None:
        """Rollouts to learn from. ``None``: a callback asked to stop."""
        raise NotImplementedError

    def hold(self, rollouts: list[Rollout]) -> list[Rollout]:
        """Let these be learned from."""
        self.rollouts = rollouts
        self.lags = [self.settings.learner.steps - rollout.version for rollout in rollouts]
        unrolls: list[Any] = [rollout.unrolled() for rollout in rollouts]
        size = self.per_batch
        self.unrolls = [_side_by_side(unrolls[first : first + size]) for first in range(0, len(unrolls), size)]
        return rollouts

    def minibatches(self, size: int | None = None) -> Iterator[Unroll]:
        """What gradient steps are made on, for the learner's ``update``."""
        return iter(self.unrolls)

    def catch_up(self) -> int:
        """Bring the actor the weights that were published last. -> their version"""
        return int(self.settings.learner.published.put_into(self.actor.policy))

    def fresh(self) -> RolloutWriter:
        """A rollout to fill."""
        return cast(RolloutWriter, self.settings.rollouts.fresh_writer())

    def whole(self, writer: RolloutWriter, after: Any, version: int, steps: Sequence[Step | None] = ()) -> Rollout:
        """A rollout whose steps are all there, with values and log-probabilities by the weights that acted.

        Args:
            writer: has written it.
            after: holds what there is after the last step, as a runner does.
            version: of the weights.
            steps: see :class:`Rollout`.
        """
        settings = self.settings
        with self.runner.split.inference:
            writer.evaluate(settings.learner, after, self.actor.policy)
        return Rollout(writer.buffer, *writer.following(after), version, steps)

    def show(self, rollout: Rollout, rows: Iterable[tuple[int, bool]], step_of: Callable[[int], Step | None]) -> bool:
        """Show callbacks a rollout that was made elsewhere. False: one of them asked to stop.

        Args:
            rollout: what they are shown.
            rows: numbers of its steps, and whether callbacks are still to be asked about each.
            step_of: gives one of these; ``None``: no episode ended with it, and no callback reads it.
        """
        loop, clock, callback = self.loop, self.loop.collector.clock, self.loop.collector.callback
        if rollout.buffer is not None:
            self.settings.rollout_buffer = rollout.buffer
        callback.on_rollout_start()
        asks, shows = not callback.is_idle, callback.needs_locals
        known = {"rollout_buffer": rollout.buffer, "n_rollout_steps": self.settings.n_steps}
        names = {**loop.names, **known, "iteration": clock.iterations}
        for row, is_new in rows:
            step = step_of(row)
            if is_new:
                clock.steps += self.settings.rollouts.n_envs
                if shows and step is not None:
                    callback.update_locals(loop.published(rollout.evaluated(step, row), {**names, "n_steps": row}))
                if asks and not callback.on_step():
                    return False
            if step is not None and step.episodes:
                loop.collector.statistics.note(step.episodes)
        callback.on_rollout_end()
        return True


class TurnsCollector(RolloutCollector):
    """Makes a rollout when the last one has been learned from, so that equal seeds give equal numbers."""

    def take(self) -> list[Rollout] | None:
        version = self.catch_up()  # also for a rollout that a file has brought: it began with these
        if not self.loop.collect():
            return None
        writer = self.loop.rollout
        return self.hold([Rollout(writer.buffer, *writer.following(self.runner), version)])


class ThreadCollector(RolloutCollector):
    """Makes one rollout after another in a thread of its own, as many as may wait."""

    def __init__(self, model: Any) -> None:
        model.runner.split = TimeSplit()  # the learner's clock counts how long it waits
        self._shows = False
        super().__init__(model)

    def forget(self) -> None:
        self._begun: tuple[RolloutWriter, int, list[Step | None]] | None = None
        self.runner.thread = ActorThread(self.make, self.settings.queue_size)

    def take(self) -> list[Rollout] | None:
        """The rollout that has waited longest, or all that wait."""
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
        """In the thread: a whole rollout; ``None``: it is to stop, and what there is of one is kept."""
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
    """Takes what runners elsewhere have finished, each by itself."""

    runner: SeparateRunners

    def __init__(self, model: Any) -> None:
        self.per_batch = model.rollouts.per_batch
        self._given: Any = None
        """What runners have been given last."""
        super().__init__(model)

    def forget(self) -> None:
        self._received: list[Rollout] = []
        """What is to be learned from next, as far as it is there."""

    def take(self) -> list[Rollout] | None:
        """What a runner has finished, or all that wait. What is in hand when a callback asks to stop stays there."""
        settings, runner = self.settings, self.runner
        batches = runner.waiting() // self.per_batch if settings.rollouts.takes_all and settings.asynchronous else 1
        while len(self._received) < max(batches, 1) * self.per_batch:
            if self._given is not settings.learner.published:
                runner.publish(self.catch_up(), self.actor.policy)
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
        """What makes a rollout buffer where learners elsewhere fetch the rows, which no callback reads; ``None``: they
        come here."""
        if self.loop.collector.callback.needs_locals or not getattr(self.settings.learner.fellows, "fetches", False):
            return None
        recipe: Callable[..., Any] | None = self.settings.rollouts.buffer_recipe()
        return recipe

    def rollout_of(self, finished: Finished, recipe: Callable[..., Any] | None) -> Rollout:
        """What a runner has finished as a rollout; ``recipe``: makes its buffer, where its rows are elsewhere."""
        if finished.apart is not None:
            assert recipe is not None
            elsewhere = UnrollElsewhere(recipe, [finished.apart])
            return Rollout(None, None, _NOWHERE, finished.version, elsewhere=elsewhere)
        writer = self.fresh()
        put_back(self.actor.policy, finished.weights)
        write(cast(Chunk, finished.chunk), writer, self.actor)
        return self.whole(writer, self.runner.after_in_hand(), finished.version)

    def _step_of(self, finished: Finished) -> Callable[[int], Any]:
        ends = {end.step: end for end in finished.chunk.ends}
        shows, of = self.loop.collector.callback.needs_locals, self.runner.step_in_hand
        return of if shows else ends.get


def _side_by_side(unrolls: list[Any]) -> Any:
    """Rollouts of one gradient step; those that are here are sent with those that are elsewhere."""
    if not any(isinstance(one, UnrollElsewhere) for one in unrolls):
        return joined(unrolls)
    parts = [one.parts if isinstance(one, UnrollElsewhere) else [one] for one in unrolls]
    recipe = next(one.make_buffer for one in unrolls if isinstance(one, UnrollElsewhere))
    return UnrollElsewhere(recipe, [part for some in parts for part in some])


def _kept(step: Step, whole: bool) -> Step:
    """A step that the environments cannot change any more; unless ``whole`` only its ends and infos."""
    ends = step._replace(infos=[dict(info) for info in step.infos], dones=step.dones.copy())
    return Step(*copied(list(ends), None)) if whole else ends
