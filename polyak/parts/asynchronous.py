"""Rollouts of an actor whose weights may lag behind the learner's."""

from collections.abc import Callable
from typing import Any, ClassVar, cast

from polyak.distributed.separate_runners import SeparateRunners
from polyak.experience.reused_batches import CircularBuffer
from polyak.hyperparameters.declaration import require
from polyak.learning.vtrace_learner import Unroll
from polyak.loops.asynchronous import log_lag
from polyak.loops.updates import Gained, Minibatches, measured
from polyak.nn.policies.base import Policy
from polyak.parts.rollouts import Rollouts


class OlderRollouts(Rollouts):
    """Rollouts from a collector: see :mod:`polyak.loops.asynchronous`."""

    numpy_alone: ClassVar = "an actor with weights of its own fills its rollouts"
    watching: ClassVar[tuple[Callable[..., None], ...]] = (log_lag,)
    takes_all: ClassVar[bool] = False
    """Whether an update uses all waiting rollouts instead of the oldest one."""
    per_batch: ClassVar[int] = 1
    """With ``n_runners``: number of runners' rollouts per gradient step."""
    requests_per_runner: ClassVar[int] = 1
    """With ``n_runners``: number of rollouts requested from a runner at a time, if it is ``asynchronous``."""

    def check(self) -> None:
        """Refuses settings that V-trace does not support."""
        model = self.model
        fix = f"it must be at most rho_bar={model.rho_bar}."
        require(model.c_bar <= model.rho_bar, "c_bar", model.c_bar, fix)
        cls = model.rollout_buffer_class
        fix = "it has an add() or compute_returns_and_advantage() of its own, and V-trace reads neither."
        late = cls is None or cls.__new__(cls).values_may_follow  # from the class, not an instance
        require(late, "rollout_buffer_class", cls, fix)

    @property
    def n_envs(self) -> int:
        return cast(int, self.model.runner.rollout_envs)

    @property
    def acting_policy(self) -> Policy:
        """The actor's own copy of the policy, which the learner does not change while the actor reads it."""
        model = self.model
        return cast(Policy, model.policy if model.runner is None else model.runner.actor.policy)

    def make_group(self, actor: Any) -> SeparateRunners:
        """Returns the model's runners, each of which collects independently."""
        model = self.model
        waiting, requests = model.queue_size * self.per_batch, self.requests_per_runner
        held = model.env, actor, model._progress, model._split, model._uses_masks
        return SeparateRunners(*held, not model.asynchronous, waiting, requests)

    def expected_updates(self, timesteps: int) -> tuple[int, int]:
        model = self.model
        rows = model.n_steps * model._envs_of_an_actor * (self.per_batch if model.n_runners else 1)
        return -(-timesteps // rows) * self.updates_per_rollout(rows), rows

    def minibatches(self) -> Minibatches:
        return cast(Minibatches, self.model.collector.minibatches)


class UsedAgain(OlderRollouts):
    """Makes gradient steps on rollouts drawn from a circular buffer, whenever new ones have arrived."""

    takes_all: ClassVar = True

    def build(self) -> None:
        super().build()
        self._forget()

    def _forget(self) -> None:
        self.kept: CircularBuffer[Unroll] = CircularBuffer(self.model.circular_buffer_size, self.model.uses_per_rollout)

    def begin(self, reset: bool) -> None:
        if reset:
            self._forget()

    def updates_per_rollout(self, rows: int) -> int:
        return cast(int, self.model.uses_per_rollout)

    def lesson(self, minibatches: Minibatches) -> Gained:
        for unroll in minibatches(None):
            self.kept.add(unroll)
        updates = list(self.model.learner.learn_all(self.kept.draw(self.model.uses_per_rollout)))
        return Gained(measured(updates), len(updates))
