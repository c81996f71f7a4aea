"""A learner from what an older policy did, with V-trace.

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


class PublishedWeights(NamedTuple):
    """Weights that actors act with until there are newer ones."""

    version: int
    """The learner's steps when they were published."""
    tensors: list[Tensor]

    @torch.no_grad()
    def put_into(self, policy: nn.Module) -> int:
        """Let a copy of the policy have these weights. -> their version"""
        own = list(policy.state_dict().values())
        if own:
            torch._foreach_copy_(own, self.tensors)
        return self.version


class VTraceLearner(RolloutLearner):
    """A stochastic actor and a value function that learn from what an older policy did.

    Attributes:
        published: the weights that actors act with; ``None``: there are none yet.
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

    # -- what actors act with ------------------------------------------------------------------------------------------

    def publish(self, policy: nn.Module) -> None:
        """Let actors take up the present weights of a policy before their next rollout."""
        self.published = PublishedWeights(self.steps, [part.detach().clone() for part in policy.state_dict().values()])

    @property
    def unpublished(self) -> int:
        """Steps that were made since weights were published."""
        return 0 if self.published is None else self.steps - self.published.version

    # -- learning ------------------------------------------------------------------------------------------------------

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
