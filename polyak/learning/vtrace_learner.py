"""A learner from rollouts of older policies, with V-trace.

Shapes: T steps of N environments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from polyak import arrays
from polyak.experience.batch import TensorObs
from polyak.experience.trajectory import Trajectory
from polyak.learning.data_parallel import each, share_of
from polyak.learning.learner import Learner, LearnerRecipe, Tunable
from polyak.learning.rollout_learner import RolloutLearner
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.ops.returns import vtrace


class Unroll(NamedTuple):
    """A rollout in the form that learners take."""

    trajectory: Trajectory
    """T steps of N environments; ``log_probs`` are those of the behaviour policy."""
    memory: dict[str, Tensor]
    """Name -> [N, ...]: recurrent state of the behaviour policy after the last step; empty without recurrence."""


class Evaluated(NamedTuple):
    """A policy's evaluation of an unroll."""

    values: Tensor  # [T + 1, N]; the last row, of the observations after the last step, has no gradient
    log_probs: Tensor  # [T, N] of the actions taken
    entropy: Tensor | None  # [T, N]; None without a closed form


class PublishedWeights(NamedTuple):
    """Weights that actors use until newer ones are published."""

    version: int
    """The learner's steps when they were published."""
    tensors: list[Tensor]

    @torch.no_grad()
    def put_into(self, policy: nn.Module) -> int:
        """Copy these weights into a copy of the policy. Returns their version."""
        own = list(policy.state_dict().values())
        if own:
            torch._foreach_copy_(own, self.tensors)
        return self.version


class VTraceLearner(RolloutLearner):
    """A stochastic actor and a value function that learn from rollouts of older policies.

    Attributes:
        published: the weights for actors; ``None`` before the first :meth:`publish`.
    """

    estimates_itself: ClassVar[bool] = True
    counters: ClassVar[frozenset[str]] = Learner.counters | {"published"}
    published: PublishedWeights | None
    policy: ActorCriticPolicy
    gae_lambda: Tunable[Tensor]
    rho_bar: Tunable[float]
    pg_rho_bar: Tunable[float]
    c_bar: Tunable[float]
    entropy_index: Tunable[float]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.published = None

    # -- publication of weights ----------------------------------------------------------------------------------------

    def publish(self, policy: nn.Module) -> None:
        """Publish the present weights of a policy, which actors load before their next rollout."""
        self.published = PublishedWeights(self.steps, [part.detach().clone() for part in policy.state_dict().values()])

    @property
    def unpublished(self) -> int:
        """The number of steps since the last publication."""
        return 0 if self.published is None else self.steps - self.published.version

    # -- learning ------------------------------------------------------------------------------------------------------

    def share(self, batch: Unroll, rank: int, size: int) -> Unroll:
        """Returns the unroll of one learner's share of the environments."""
        environments = share_of(batch.trajectory.rewards.shape[1], rank, size)

        def some(axis: int) -> Callable[[Tensor], Tensor]:
            return lambda column: column.index_select(axis, environments.to(column.device))

        return Unroll(each(batch.trajectory, some(1)), each(batch.memory, some(0)))

    def evaluate_unroll(self, policy: ActorCriticPolicy, unroll: Unroll) -> Evaluated:
        """Returns values, log-probabilities and entropies under the current policy."""
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
        """Returns the observations of the steps [N * T, ...]."""
        return rows_of(arrays.mapped(lambda column: column[:-1], unroll.trajectory.observations))

    def columns(self, unroll: Unroll) -> dict[str, Tensor]:
        """Returns further columns of an unroll, as a policy takes them: recurrent state, masks, and episode starts."""
        found = {name: rows_of(column) for name, column in unroll.trajectory.extras.items()}
        if unroll.memory:
            cuts = unroll.trajectory.cuts
            found["starts"] = rows_of(torch.cat([torch.zeros_like(cuts[:1]), cuts[:-1]]).to(torch.float32))
        return found

    def vtrace(self, unroll: Unroll, values: Tensor, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """Returns value targets and advantages [T, N], from values [T + 1, N] and log-probabilities [T, N] of the
        target policy: see :func:`~polyak.ops.returns.vtrace`."""
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
    """Reshapes [T, N, ...] to [N * T, ...], environment by environment, so that sequences stay together."""
    return arrays.mapped(lambda column: column.transpose(0, 1).flatten(0, 1), columns)


def in_time(rows: Tensor, like: Tensor) -> Tensor:
    """Reshapes scalars of rows, [N * T] or [N * T, 1], to [T, N] like ``like``; the inverse of :func:`rows_of`."""
    steps, columns = like.shape
    return rows.reshape(columns, steps).t()


def joined(unrolls: Iterable[Unroll]) -> Unroll:
    """Concatenates rollouts of equal length: [T, N1, ...] and [T, N2, ...] -> [T, N1 + N2, ...]."""
    several = list(unrolls)
    if len(several) == 1:
        return several[0]
    trajectories = [unroll.trajectory._asdict() for unroll in several]
    columns = arrays.mapped(lambda *parts: torch.cat(parts, 1), *trajectories)
    memory = arrays.mapped(lambda *parts: torch.cat(parts, 0), *(unroll.memory for unroll in several))
    return Unroll(Trajectory(**columns), memory)
