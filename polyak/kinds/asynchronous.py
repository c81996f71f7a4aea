"""Asynchronous learning: actors continue with older weights while the learner learns, and V-trace corrects for that.

A rollout is ``n_steps`` of each environment, all with the weights that were broadcast last before it began. In a thread
of its own the actor makes one rollout after another, and the learner takes them as they come. With
``asynchronous=False`` the two take turns, so that equal seeds give equal numbers.

Shapes: T steps of N environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from threading import Lock
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.saved import Saved, prefixed
from polyak.collecting.actor import copy_of
from polyak.collecting.actor_thread import ActorThread
from polyak.collecting.rollout import RolloutWriter, Successors
from polyak.collecting.runner import Acting
from polyak.collecting.time_split import TimeSplit
from polyak.data import RolloutBuffer
from polyak.data.batch import TensorObs
from polyak.data.step import Observations, Step
from polyak.data.trajectory import Trajectory
from polyak.distributed.runners import RunnerGroup
from polyak.distributed.separate_runners import Finished, SeparateRunners
from polyak.distributed.weights import put_back
from polyak.experience import arrays
from polyak.hyperparameters.changing import Reload
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative, Positive, Rate, require
from polyak.kinds.on_policy import OnPolicyAlgorithm
from polyak.learning.data_parallel import each, share_of
from polyak.learning.learner import Tunable
from polyak.learning.rollout_learner import RolloutLearner
from polyak.loops.on_policy import OnPolicyLoop, on_policy_loop
from polyak.loops.training import Loop, engine_checks, restart_if_interrupted
from polyak.loops.updates import record_means
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import Policy
from polyak.ops.returns import vtrace
from polyak.schedules import Schedule


class Unroll(NamedTuple):
    """A rollout as learners see it."""

    trajectory: Trajectory
    """Of T steps of N environments; ``log_probs`` are those of the policy that acted."""
    memory: dict[str, Tensor]
    """Name -> [N, ...]: recurrent state of the policy that acted, after the last step; empty if it has none."""


class Evaluated(NamedTuple):
    """What a policy has to say of an unroll."""

    values: Tensor  # [T + 1, N]; the last ones, of what followed the last step, without gradients
    log_probs: Tensor  # [T, N] of the actions taken
    entropy: Tensor | None  # [T, N]; None where there is no closed form


class VTraceLearner(RolloutLearner):
    """A stochastic actor and a value function that learn from what an older policy did."""

    policy: ActorCriticPolicy
    gae_lambda: Tunable[Tensor]
    rho_bar: Tunable[float]
    pg_rho_bar: Tunable[float]
    c_bar: Tunable[float]
    entropy_index: Tunable[float]

    def share(self, batch: Unroll, rank: int, size: int) -> Unroll:
        """Some of the environments."""
        environments = share_of(batch.trajectory.rewards.shape[1], rank, size)

        def some(axis: int) -> Callable[[Tensor], Tensor]:
            return lambda column: column.index_select(axis, environments.to(column.device))

        return Unroll(each(batch.trajectory, some(1)), each(batch.memory, some(0)))

    def evaluate_unroll(self, policy: ActorCriticPolicy, unroll: Unroll) -> Evaluated:
        """Values, log-probabilities and entropies by a policy as it is now."""
        named: dict[str, Any] = self.columns(unroll)
        if self.entropy_index != 1:
            named["entropy_index"] = self.entropy_index
        observations, actions = self.observations(unroll), rows_of(unroll.trajectory.actions)
        values, log_probs, entropy = policy.evaluate_actions(observations, actions, **named)
        with torch.no_grad():
            followed = arrays.mapped(lambda column: column[-1], unroll.trajectory.observations)
            last = policy.predict_values(followed, **unroll.memory)
        like = unroll.trajectory.rewards
        values = torch.cat([in_time(values, like), last.reshape(1, -1)])
        return Evaluated(values, in_time(log_probs, like), None if entropy is None else in_time(entropy, like))

    def observations(self, unroll: Unroll) -> Any:
        """What was acted on [N * T, ...]."""
        return rows_of(arrays.mapped(lambda column: column[:-1], unroll.trajectory.observations))

    def columns(self, unroll: Unroll) -> dict[str, Tensor]:
        """Further columns of an unroll, as a policy reads them: memory, masks, and where episodes begin."""
        found = {name: rows_of(column) for name, column in unroll.trajectory.extras.items()}
        if unroll.memory:
            cuts = unroll.trajectory.cuts
            found["starts"] = rows_of(torch.cat([torch.zeros_like(cuts[:1]), cuts[:-1]]).to(torch.float32))
        return found

    def vtrace(self, unroll: Unroll, values: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """Targets of the values and advantages [T, N], from values [T + 1, N] and the log-probabilities [T, N] of the
        policy whose values these are to be: see :func:`~polyak.ops.returns.vtrace`."""
        with torch.no_grad():
            t, values = unroll.trajectory, values.detach()
            return vtrace(
                log_probs.detach() - t.log_probs,
                t.rewards,
                values[:-1],
                t.next_values(values),
                t.discounts,
                t.cuts,
                self.gae_lambda,
                self.rho_bar,
                self.c_bar,
                self.pg_rho_bar,
            )


def rows_of(columns: TensorObs) -> Any:
    """[T, N, ...] -> [N * T, ...], one environment after another, so that sequences stay together."""
    return arrays.mapped(lambda column: column.transpose(0, 1).flatten(0, 1), columns)


def in_time(rows: Tensor, like: Tensor) -> Tensor:
    """The inverse of :func:`rows_of` for a number in each row: [N * T] or [N * T, 1] -> [T, N] as ``like`` is."""
    steps, columns = like.shape
    return rows.reshape(columns, steps).t()


def joined(unrolls: Iterable[Unroll]) -> Unroll:
    """Rollouts of equal length side by side: [T, N1, ...] and [T, N2, ...] -> [T, N1 + N2, ...]."""
    several = list(unrolls)
    if len(several) == 1:
        return several[0]
    trajectories = [unroll.trajectory._asdict() for unroll in several]
    columns = arrays.mapped(lambda *parts: torch.cat(parts, 1), *trajectories)
    memory = arrays.mapped(lambda *parts: torch.cat(parts, 0), *(unroll.memory for unroll in several))
    return Unroll(Trajectory(**columns), memory)


class Rollout(NamedTuple):
    """What the actor hands over."""

    buffer: RolloutBuffer
    last_observations: Observations
    episode_starts: np.ndarray
    memory: dict[str, Tensor]
    version: int
    """The learner's updates when the weights were broadcast."""
    steps: list[Step | None]
    """``None`` where no callback reads it."""

    def unrolled(self) -> Unroll:
        """As learners see it."""
        return Unroll(self.buffer.trajectory(self.last_observations, self.episode_starts), self.memory)


@dataclass
class _Begun:
    """A rollout that the actor's thread is making."""

    writer: RolloutWriter
    version: int
    steps: list[Step | None] = field(default_factory=list)


class _Weights(NamedTuple):
    """As they were broadcast."""

    version: int
    tensors: list[Tensor]


class _EnvironmentsLock:
    """A lock on the environments; a copy is free."""

    def __init__(self) -> None:
        self.lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class AsynchronousLoop:
    """Takes the rollouts that actors have made, learns from them, and publishes weights now and then.

    Args:
        model: the algorithm.
        callback: asked after every step whether to continue.
        log_interval: iterations between two tables.
    """

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback, self.log_interval = model, callback, log_interval
        self.between = engine_checks(model)
        model._turns = turns = on_policy_loop(model, callback, log_interval)
        turns.collector.policy = partial(getattr, model, "_acting_policy")
        turns.estimates = False  # V-trace estimates advantages and targets as the learner learns

    def iterate(self) -> bool:
        """Rollouts, and what is learned from them. False: a callback asked to stop."""
        model, clock = self.model, self.model.clock
        if not model._collected(self.callback):
            return False
        clock.iterations += 1
        clock.tick()
        if self.log_interval is not None and clock.iterations % self.log_interval == 0:
            model.dump_logs(clock.iterations)
        with model._split.update:
            model.train()
            if model._since_broadcast >= model.broadcast_interval:
                model._broadcast()
        restart_if_interrupted(model)
        for check in self.between:
            check()
        return True


@dataclass(eq=False, repr=False)
class AsynchronousAlgorithm(OnPolicyAlgorithm):
    """Those that learn from the rollouts of an actor that need not have the newest weights."""

    learning_rate: Rate | Schedule = 5e-4
    _: KW_ONLY
    n_steps: Reload[Count] = 50
    """Steps per environment in one rollout."""
    gae_lambda: Fraction = 1.0
    """Trace decay lambda of V-trace, in [0, 1] (remark 2 of its paper)."""
    rho_bar: Positive = 1.0
    """Largest ratio of probabilities in a temporal difference: which policy's values are learned."""
    c_bar: Positive = 1.0
    """Largest ratio in a trace, at most ``rho_bar``: how fast they are learned."""
    pg_rho_bar: Positive = 1.0
    """Largest ratio in the policy gradient."""
    ent_coef: NonNegative | Schedule = 0.01
    """Weight of the entropy bonus: a number, or a function of the remaining progress."""
    vf_coef: NonNegative = 0.5
    """Weight of the value loss, which is half the squared error."""
    max_grad_norm: NonNegative | None = 40.0
    """Largest global norm of the gradient, beyond which it is scaled down; ``None`` never does."""
    asynchronous: Reload[bool] = True
    """Act in a thread of its own while the learner learns; with ``n_runners``, take the rollouts of each as they come.
    ``False``: take turns, runners in their order, so that equal seeds give equal numbers."""
    queue_size: Reload[Count] = 3
    """Rollouts that may wait for the learner, if it is ``asynchronous``; while there are so many, the actor waits, and
    no runner is asked for another."""
    broadcast_interval: Count = 1
    """Updates of the learner between two broadcasts of its weights to the actor."""

    loop: ClassVar[Callable[..., Loop]] = AsynchronousLoop
    _turns = cast(OnPolicyLoop, None)  # not annotated, since it is no hyper-parameter
    normalize_advantage: ClassVar[bool] = False  # type: ignore[misc]
    takes_all: ClassVar[bool] = False
    """Whether the learner wants all rollouts that wait at once, rather than the oldest."""
    rollouts_per_batch: ClassVar[int] = 1
    """With ``n_runners``: of how many of their rollouts, side by side, a gradient step is made."""
    requests_per_runner: ClassVar[int] = 1
    """With ``n_runners``: how many rollouts one is asked for at a time, if it is ``asynchronous``."""

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = f"it must be at most rho_bar={self.rho_bar}."
        require(self.c_bar <= self.rho_bar, "c_bar", self.c_bar, fix)

    @classmethod
    def trial(cls) -> dict[str, Any]:
        return {**super().trial(), "n_steps": 16, "asynchronous": False}

    # -- construction --------------------------------------------------------------------------------------------------

    def __post_init__(self, _init_setup_model: bool) -> None:
        self._acting: Policy | None = None
        self._weights: _Weights | None = None
        self._since_broadcast, self._publish = 0, False
        self._begun: _Begun | None = None
        self._given: _Weights | None = None
        """What runners have been given last."""
        self._received: list[Rollout] = []
        """Rollouts of runners that are to be learned from next."""
        self._turn = _EnvironmentsLock()
        self.rollouts: list[Rollout] = []
        self._unrolls: list[Unroll] = []
        self._lags: list[int] = []
        super().__post_init__(_init_setup_model)

    @property
    def _acting_policy(self) -> Policy:
        return self.policy if self._acting is None else self._acting

    def make_actor(self) -> Acting:
        self._acting = copy_of(self.policy)
        return super().make_actor()

    def _make_runner(self) -> None:
        super()._make_runner()
        assert self.runner is not None
        if self.steps_in_thread:  # the learner's clock counts how long it waits
            self.runner.split = TimeSplit()
        self._thread = ActorThread(self._make_rollout, self.queue_size)
        self._begun = None

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        rows = self.n_steps * self._envs_of_a_rollout * (self.rollouts_per_batch if self.n_runners else 1)
        return -(-timesteps // rows) * self._updates_per_rollout(rows), rows

    def _make_group(self, actor: Any) -> RunnerGroup:
        assert self.env is not None
        self._given = None
        waiting, requests = self.queue_size * self.rollouts_per_batch, self.requests_per_runner
        held = self.env, actor, self._progress, self._split, self._uses_masks
        return SeparateRunners(*held, not self.asynchronous, waiting, requests)

    @property
    def _envs_of_a_rollout(self) -> int:
        return self._envs_of_an_actor

    def _make_rollout_buffer(self) -> RolloutBuffer:
        buffer = super()._make_rollout_buffer()
        fix = "it has an add() or compute_returns_and_advantage() of its own, and V-trace reads neither."
        require(buffer.values_may_follow, "rollout_buffer_class", type(buffer), fix)
        return buffer

    # -- weights -------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _broadcast(self) -> None:
        """Publish the learner's weights, which the actor takes up before its next rollout."""
        tensors = [tensor.detach().clone() for tensor in self.policy.state_dict().values()]
        self._weights, self._since_broadcast = _Weights(self.learner.steps, tensors), 0

    @torch.no_grad()
    def _catch_up(self) -> int:
        """Bring the latest weights to the actor; their version."""
        assert self._weights is not None
        version, tensors = self._weights
        own = list(self._acting_policy.state_dict().values())
        if own:
            torch._foreach_copy_(own, tensors)
        return version

    # -- the loop ------------------------------------------------------------------------------------------------------

    @property
    def steps_in_thread(self) -> bool:
        """Whether environments are stepped in another thread while callbacks are asked."""
        return self.asynchronous and self.n_runners == 0

    def _prepare_to_learn(self, reset: bool) -> None:
        super()._prepare_to_learn(reset)
        if self._since_broadcast == 0 or self._weights is None:
            self._broadcast()

    def _start_episodes(self) -> None:
        super()._start_episodes()
        self._thread, self._begun = ActorThread(self._make_rollout, self.queue_size), None
        self._received.clear()

    @contextmanager
    def _while_learning(self) -> Iterator[None]:
        with super()._while_learning():
            try:
                yield
            finally:
                self._thread.stop()

    def train(self) -> None:
        """Learn from the rollouts that were taken."""
        self.policy.set_training_mode(True)
        type(self).following(self)()
        self.metrics = metrics = cast("dict[str, list[Tensor]]", {})
        for update in self.learner.learn_all(self._lessons(self._unrolls)):
            for name, value in update.metrics.items():
                metrics.setdefault(name, []).append(value)
            self._n_updates += 1
            self._since_broadcast += 1
        if metrics:
            record_means(metrics, self.logger, self.host)
        self.logger.record("train/policy_lag", float(np.mean(self._lags)))
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if (log_std := getattr(self.policy, "log_std", None)) is not None:
            self.logger.record("train/std", torch.exp(log_std.detach()).mean())

    def _lessons(self, unrolls: list[Unroll]) -> Iterable[Unroll]:
        """What to make gradient steps on, now that these have come."""
        return unrolls

    def _collected(self, callback: BaseCallback) -> bool:
        """Take rollouts to learn from. False: a callback asked to stop."""
        if isinstance(self.runner, SeparateRunners):
            return self._take_finished(self.runner, callback)
        return self._receive_all(callback) if self.asynchronous else self._collect_one(callback)

    # -- from runners --------------------------------------------------------------------------------------------------

    def _take_finished(self, runner: SeparateRunners, callback: BaseCallback) -> bool:
        """Take what a runner has finished, or all that wait, and show callbacks its steps. False: one of them asked
        to stop; what is in hand stays there."""
        batches = runner.waiting() // self.rollouts_per_batch if self.takes_all and self.asynchronous else 1
        while len(self._received) < max(batches, 1) * self.rollouts_per_batch:
            if self._given is not self._weights:
                runner.publish(self._catch_up(), self._acting_policy)
                self._given = self._weights
            self._begin_acting(runner.actor)
            runner.plan(self.n_steps)
            with self._split.env:
                finished = runner.take()
            rollout = self._rollout_of(runner, finished)
            if not self._show(runner, rollout, callback):
                return False
            runner.finish()
            self._received.append(rollout)
        self.take(self._received, self.rollouts_per_batch)
        self._received = []
        return True

    def _rollout_of(self, runner: SeparateRunners, finished: Finished) -> Rollout:
        """A chunk as a rollout, with values and log-probabilities by the weights that acted."""
        chunk, buffer = finished.chunk, self._make_rollout_buffer()
        put_back(self._acting_policy, finished.weights)
        writer = self._writer(buffer, Successors())
        if writer.adopts:
            writer.adopt(chunk.rows, chunk.seen, ((end.step, runner.step_in_hand(end.step)) for end in chunk.ends))
        else:
            for row in range(self.n_steps):
                writer.record(runner.step_in_hand(row))
        last = runner.after_in_hand()
        with self._split.inference:
            states = writer.ends(cast(Any, last), self.device)
            writer.fill(cast(RolloutLearner, self.learner).prepare(writer.rows(), states, self._acting_policy))
        memory = dict(cast(Any, self.runner).actor.recall(last.episode_starts) or {})
        return Rollout(buffer, last.obs, last.episode_starts, memory, finished.version, [])

    def _show(self, runner: SeparateRunners, rollout: Rollout, callback: BaseCallback) -> bool:
        """Show callbacks the steps of a rollout that they have not seen. False: one of them asked to stop."""
        assert runner.in_hand is not None
        self.rollout_buffer = rollout.buffer
        callback.on_rollout_start()
        idle, publish = callback.is_idle, callback.needs_locals
        names = self._names_of(callback, rollout.buffer) if publish else {}
        ends = {end.step for end in runner.in_hand.chunk.ends}
        while runner.row < self.n_steps:
            number = runner.row
            step = runner.step_in_hand(number) if publish or number in ends else None
            if not runner.shown:
                self.num_timesteps += rollout.buffer.n_envs
                runner.shown = True
                if publish and step is not None:
                    callback.update_locals(
                        self._turns.published(_with_evaluation(step, rollout, number), {**names, "n_steps": number})
                    )
                if not (idle or callback.on_step()):
                    return False
            if step is not None and step.episodes:
                self.statistics.note(step.episodes)
            runner.row, runner.shown = number + 1, False
        callback.on_rollout_end()
        return True

    def _names_of(self, callback: BaseCallback, buffer: RolloutBuffer) -> dict[str, Any]:
        """What callbacks find in ``self.locals`` throughout a rollout."""
        return self._callback_locals(
            callback=callback, rollout_buffer=buffer, n_rollout_steps=self.n_steps, iteration=self._iteration
        )

    # -- taking turns --------------------------------------------------------------------------------------------------

    def _collect_one(self, callback: BaseCallback) -> bool:
        """Make a rollout and take it. False: a callback asked to stop."""
        version = self._catch_up()  # also for a collection that a file has brought: it began with these
        if not self._turns.collect():
            return False
        self.take([self._made(self.rollout_buffer, version, [])])
        return True

    def take(self, rollouts: list[Rollout], per_batch: int = 1) -> None:
        """Let these be what :meth:`train` learns from, so many in each batch."""
        self.rollouts = rollouts
        unrolls = [rollout.unrolled() for rollout in rollouts]
        self._unrolls = [joined(unrolls[first : first + per_batch]) for first in range(0, len(unrolls), per_batch)]
        self._lags = [self.learner.steps - rollout.version for rollout in rollouts]

    def _made(self, buffer: RolloutBuffer, version: int, steps: list[Step | None]) -> Rollout:
        assert self.runner is not None
        memory = cast(Any, self.runner).actor.recall(self.runner.episode_starts) or {}
        return Rollout(buffer, self.runner.obs, self.runner.episode_starts, dict(memory), version, steps)

    def _begin_acting(self, actor: Any) -> None:
        """Before a rollout that no collector makes."""
        actor.use(self._acting_policy)
        actor.begin(self.n_envs)

    # -- in a thread ---------------------------------------------------------------------------------------------------

    def _receive_all(self, callback: BaseCallback) -> bool:
        """Take the rollout that has waited longest, or all that wait, and show callbacks their steps. False: one of
        them asked to stop."""
        self._publish = callback.needs_locals
        self._thread.start()
        taken: list[Rollout] = []
        while not taken or (self.takes_all and len(self._thread)):
            with self._split.env:
                rollout = self._thread.take()
            if not self._receive(rollout, callback):
                return False
            taken.append(rollout)
        self.take(taken)
        return True

    def _receive(self, rollout: Rollout, callback: BaseCallback) -> bool:
        self.rollout_buffer = rollout.buffer
        callback.on_rollout_start()
        idle, publish = callback.is_idle, callback.needs_locals
        names = self._names_of(callback, rollout.buffer) if publish else {}
        for number, step in enumerate(rollout.steps):
            self.num_timesteps += self.n_envs
            if publish and step is not None:
                callback.update_locals(
                    self._turns.published(_with_evaluation(step, rollout, number), {**names, "n_steps": number})
                )
            if not (idle or callback.on_step()):
                return False
            if step is not None and step.episodes:
                self.statistics.note(step.episodes)
        callback.on_rollout_end()
        return True

    def _make_rollout(self, stopping: Callable[[], bool]) -> Rollout | None:
        """In the actor's thread: a whole rollout; ``None``: it is to stop, and what there is of one is kept."""
        assert self.runner is not None
        if self._begun is None:
            version = self._catch_up()
            self._begin_acting(self.runner.actor)
            self.runner.plan(self.n_steps)
            self._begun = _Begun(self._writer(self._make_rollout_buffer(), Successors()), version)
        begun = self._begun
        while len(begun.steps) < self.n_steps:
            if stopping():
                return None
            with self._turn.lock:
                step = self.runner.step()
                begun.writer.record(step)
                begun.steps.append(_kept(step, whole=self._publish) if step.ended or self._publish else None)
        with self._split.inference:
            ends = begun.writer.ends(self.runner, self.device)
            begun.writer.fill(
                cast(RolloutLearner, self.learner).prepare(begun.writer.rows(), ends, self._acting_policy)
            )
        self._begun = None
        return self._made(begun.writer.buffer, begun.version, begun.steps)

    # -- files ---------------------------------------------------------------------------------------------------------

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        with self._turn.lock:
            super()._save_state(saved, include)
        saved.info["since_broadcast"] = self._since_broadcast
        if self._since_broadcast and self._weights is not None:
            saved.info["broadcast"] = self._weights.version
            names = self.policy.state_dict()
            tensors = zip(names, self._weights.tensors, strict=True)
            saved.state |= prefixed("broadcast", {name: tensor.numpy(force=True) for name, tensor in tensors})

    def _resume(self, saved: Saved, resume: bool, force_reset: bool) -> None:
        super()._resume(saved, resume, force_reset)
        if resume and "broadcast" in saved.info:
            arrays = saved.state_of("broadcast")
            like = self.policy.state_dict()
            tensors = [torch.as_tensor(np.array(arrays[name])).to(own) for name, own in like.items()]
            self._weights = _Weights(saved.info["broadcast"], tensors)
            self._since_broadcast = saved.info["since_broadcast"]


def _with_evaluation(step: Step, rollout: Rollout, row: int) -> Step:
    """A step with what the policy that acted says of it."""
    q_of_policy = {"values": rollout.buffer.values[row], "log_probs": rollout.buffer.log_probs[row]}
    return step._replace(extras={**step.extras, **q_of_policy})


def _kept(step: Step, whole: bool) -> Step:
    """A step that the environments cannot change any more; unless ``whole`` only its ends and infos."""
    ends = step._replace(infos=[dict(info) for info in step.infos], dones=step.dones.copy())
    if not whole:
        return ends
    arrays = {name: value for name, value in step._asdict().items() if name not in ("infos", "dones", "ended")}
    return ends._replace(**{name: _copied(value) for name, value in arrays.items()})


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    return value.copy() if isinstance(value, np.ndarray) else list(value)
