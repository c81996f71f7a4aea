"""Learners that learn from rollouts, and evaluate them first: the critic sees a rollout when it is complete.

Shapes: R rows, step by step; S successors; B minibatch rows; N environments; M choices.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from polyak.arrays import first, mapped
from polyak.experience import Experience, RolloutBuffer, RolloutSamples
from polyak.learning.data_parallel import Group
from polyak.learning.learner import Learner, Metrics
from polyak.nn.policies.actor_critic import ActorCriticPolicy

_EVALUATION_ROWS = 1024
"""Rows of a rollout evaluated at once: enough to be fast, few enough for the activations of images to fit."""
_SMALL_ROLLOUT = 256
"""Rows of a rollout up to which evaluating it is mostly overhead, so that a program does it in a fraction of the
time; with more rows it gains less than 1 % of a training, which building one is not worth."""


class RolloutLearner(Learner):
    """A learner with a stochastic actor and a value function."""

    policy: Any
    """An :class:`~polyak.nn.policies.actor_critic.ActorCriticPolicy`, or another of which a subclass knows values."""

    @property
    def rows_together(self) -> int:
        return int(getattr(self.policy, "sequence_length", 1))

    @torch.no_grad()
    def prepare(self, rollout: RolloutBuffer, last: Experience, acting: Any) -> Tensor:
        """Put values and log-probabilities of its rows into a rollout, and values of the successors that no row holds.

        They are computed in batches, as gradient steps compute them: ratios of probabilities begin at 1.

        Args:
            rollout: is whole.
            last: what there is after its last step: see :meth:`~polyak.experience.RolloutBuffer.successors`.
            acting: the policy that has made it, whose values they are: the learner's own, or an older copy.

        Returns:
            values [N, 1] of the observations after the last step.
        """
        next_values = self.values_of(rollout.successors(last), acting)
        return rollout.fill(self._evaluate(rollout.flat_inputs(), acting), next_values)

    @torch.no_grad()
    def values_of(self, states: Experience, acting: Any) -> Tensor:
        """:meth:`next_values` of states in tensors, in pieces of a size that memory bears: [S]"""
        if (count := len(first(states.columns))) > _EVALUATION_ROWS:
            pieces = (states[start : start + _EVALUATION_ROWS] for start in range(0, count, _EVALUATION_ROWS))
            return torch.cat([self.values_of(piece, acting) for piece in pieces])
        return self.eagerly(self.next_values, states, acting)

    def _evaluate(self, rows: tuple[Any, ...], acting: Any) -> Metrics:
        """:meth:`evaluation` of all rows, in pieces of a size that memory bears."""
        parts = [self.eagerly(self.evaluation, piece, acting) for piece in _pieces(rows)]
        return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @torch.no_grad()
    def evaluation(self, rows: tuple[Any, ...], acting: Any = None) -> Metrics:
        """``values`` and ``log_probs`` [B] of rows.

        Args:
            rows: observations [B, ...], actions [B, ...], and a dict of further columns [B, ...] if there are some.
            acting: the policy that has acted; ``None``: the learner's own.
        """
        policy = self.policy if acting is None else acting
        observations, actions, *more = rows
        values, log_prob, _ = policy.evaluate_actions(observations, actions, **(more[0] if more else {}))
        return {"values": values.flatten(), "log_probs": log_prob}

    def next_values(self, successors: Experience, acting: Any) -> Tensor:
        """State values [S] of ``observations`` [S, ...], given ``memory`` and ``masks``."""
        columns = successors.columns
        return acting.predict_values(columns["observations"], **columns["memory"]).flatten()


class OnPolicyLearner(RolloutLearner):
    """Learns from rollouts of its own policy alone."""

    policy: ActorCriticPolicy
    entropy_index: float = 1.0
    """Which Tsallis entropy :meth:`evaluated` gives: see :mod:`polyak.ops.tsallis`."""

    def prepare(self, rollout: RolloutBuffer, last: Experience, acting: Any) -> Tensor:
        rows = rollout.flat_inputs()
        if acting is not self.policy or len(rows[1]) > _SMALL_ROLLOUT:
            return super().prepare(rollout, last, acting)
        found = dict(self.run(self.evaluation_and_next, (rows, rollout.tensors(last))))
        next_values = found.pop("next_values")
        if rollout.finals:  # ever another number of them, for each of which a program would have to be made
            next_values = torch.cat([self.values_of(rollout.successors(), acting), next_values])
        return rollout.fill(found, next_values)

    @torch.no_grad()
    def evaluation_and_next(self, whole: tuple[tuple[Any, ...], Experience]) -> Metrics:
        """:meth:`evaluation` of rows, with ``next_values`` [N] of the states after the last of them."""
        rows, last = whole
        return {"next_values": self.next_values(last, self.policy), **self.evaluation(rows)}

    def evaluated(self, batch: RolloutSamples) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values [B, 1] of a minibatch, log-probabilities [B] of its actions and entropies [B], by the policy as it is.

        Further columns of the rollout, such as masks and recurrent state, are arguments of the policy by their names.
        """
        named: dict[str, Any] = dict(batch.extras)
        if self.entropy_index != 1:
            named["entropy_index"] = self.entropy_index
        return self.policy.evaluate_actions(batch.observations, batch.actions, **named)

    def recurrent_columns(self, batch: RolloutSamples) -> dict[str, Tensor]:
        """The columns of a minibatch that hold recurrent state: see
        :class:`~polyak.nn.policies.recurrent.RecurrentActorCriticPolicy`."""
        names = {"starts", *(self.policy.initial_memory(1) or ())}
        return {name: column for name, column in batch.extras.items() if name in names}

    def normalized(self, advantages: Tensor) -> Tensor:
        """Advantages with mean 0 and standard deviation 1 over the minibatches of all learners. [B] -> [B]"""
        if self.group is not None:
            return _normalized_together(advantages, self.group)
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def entropy_loss(entropy: Tensor | None, log_prob: Tensor) -> Tensor:
    """-H(pi), or its one-sample estimate E[log pi(a|s)] where the entropy has no closed form.

    The bonus that A3C (arXiv:1602.01783, section 4) and PPO (arXiv:1707.06347, eq. 9) add to stay stochastic.
    entropy [B], log_prob [B] -> []
    """
    return -entropy.mean() if entropy is not None else log_prob.mean()


def _normalized_together(advantages: Tensor, group: Group) -> Tensor:
    """Those [B] of one of the learners of a group."""
    x = advantages.double()  # in which sums of squares lose nothing
    moments = torch.stack([torch.ones_like(x).sum(), x.sum(), x.square().sum()])
    rows, total, squares = group.sum(moments).unbind()
    mean = total / rows
    deviation = ((squares - rows * mean.square()).clamp(min=0) / (rows - 1)).sqrt()
    return ((x - mean) / (deviation + 1e-8)).to(advantages.dtype)


def _pieces(rows: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Columns [R, ...], each of them a tensor or a dict of such, in pieces of a size that memory bears."""
    for start in range(0, len(rows[1]), _EVALUATION_ROWS):
        piece = slice(start, start + _EVALUATION_ROWS)
        yield tuple(mapped(lambda part, piece=piece: part[piece], column) for column in rows)
