"""Learners from rollouts, which are evaluated when they are complete.

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
"""Rows of a rollout evaluated at once: enough to be fast, few enough that activations of images fit into memory."""
_SMALL_ROLLOUT = 256
"""Largest rollout that a compiled program evaluates: its evaluation is mostly overhead, which the program removes.
Larger ones would gain less than 1 % of a training, less than the program costs."""


class RolloutLearner(Learner):
    """A learner with a stochastic actor and a value function."""

    policy: Any
    """An :class:`~polyak.nn.policies.actor_critic.ActorCriticPolicy`, or another if a subclass computes its values."""

    @property
    def rows_together(self) -> int:
        return int(getattr(self.policy, "sequence_length", 1))

    @torch.no_grad()
    def prepare(self, rollout: RolloutBuffer, last: Experience, acting: Any) -> Tensor:
        """Write values and log-probabilities of its rows, and values of successors that are no rows, into a rollout.

        They are computed in batches, as in gradient steps, so that ratios of probabilities begin at 1.

        Args:
            rollout: a complete rollout.
            last: observations and recurrent state after its last step: see
                :meth:`~polyak.experience.RolloutBuffer.successors`.
            acting: the behaviour policy, whose values these are: the learner's own, or an older copy.

        Returns:
            values [N, 1] of the observations after the last step.
        """
        next_values = self.values_of(rollout.successors(last), acting)
        return rollout.fill(self._evaluate(rollout.flat_inputs(), acting), next_values)

    @torch.no_grad()
    def values_of(self, states: Experience, acting: Any) -> Tensor:
        """Returns :meth:`next_values` [S] of states in tensors, computed in pieces that fit into memory."""
        if (count := len(first(states.columns))) > _EVALUATION_ROWS:
            pieces = (states[start : start + _EVALUATION_ROWS] for start in range(0, count, _EVALUATION_ROWS))
            return torch.cat([self.values_of(piece, acting) for piece in pieces])
        return self.eagerly(self.next_values, states, acting)

    def _evaluate(self, rows: tuple[Any, ...], acting: Any) -> Metrics:
        """Returns :meth:`evaluation` of all rows, computed in pieces that fit into memory."""
        parts = [self.eagerly(self.evaluation, piece, acting) for piece in _pieces(rows)]
        return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @torch.no_grad()
    def evaluation(self, rows: tuple[Any, ...], acting: Any = None) -> Metrics:
        """Returns ``values`` and ``log_probs`` [B] of rows.

        Args:
            rows: observations [B, ...], actions [B, ...], and optionally a dict of further columns [B, ...].
            acting: the behaviour policy; ``None``: the learner's own.
        """
        policy = self.policy if acting is None else acting
        observations, actions, *more = rows
        values, log_prob, _ = policy.evaluate_actions(observations, actions, **(more[0] if more else {}))
        return {"values": values.flatten(), "log_probs": log_prob}

    def next_values(self, successors: Experience, acting: Any) -> Tensor:
        """Returns state values [S] of ``observations`` [S, ...], given ``memory`` and ``masks``."""
        columns = successors.columns
        return acting.predict_values(columns["observations"], **columns["memory"]).flatten()


class OnPolicyLearner(RolloutLearner):
    """Learns from rollouts of its own policy."""

    policy: ActorCriticPolicy
    entropy_index: float = 1.0
    """Index of the Tsallis entropy that :meth:`evaluated` returns: see :mod:`polyak.ops.tsallis`."""

    @torch.no_grad()
    def prepare(self, rollout: RolloutBuffer, last: Experience, acting: Any) -> Tensor:
        rows = rollout.flat_inputs()
        if acting is self.policy and len(rows[1]) <= _SMALL_ROLLOUT:
            found = dict(self.run(self.evaluation_and_next, (rows, rollout.tensors(last))))
            next_values = found.pop("next_values")
            if rollout.finals:  # their number varies, and each number would need a program
                next_values = torch.cat([self.values_of(rollout.successors(), acting), next_values])
            return rollout.fill(found, next_values)
        return super().prepare(rollout, last, acting)

    @torch.no_grad()
    def evaluation_and_next(self, whole: tuple[tuple[Any, ...], Experience]) -> Metrics:
        """:meth:`evaluation` of rows, with ``next_values`` [N] of the states after the last of them."""
        rows, last = whole
        return {"next_values": self.next_values(last, self.policy), **self.evaluation(rows)}

    def evaluated(self, batch: RolloutSamples) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns values [B, 1] of a minibatch, log-probabilities [B] of its actions and entropies [B], under the
        current policy.

        Further columns of the rollout, such as masks and recurrent state, are arguments of the policy by their names.
        """
        named: dict[str, Any] = dict(batch.extras)
        if self.entropy_index != 1:
            named["entropy_index"] = self.entropy_index
        return self.policy.evaluate_actions(batch.observations, batch.actions, **named)

    def recurrent_columns(self, batch: RolloutSamples) -> dict[str, Tensor]:
        """Returns the columns of a minibatch with recurrent state: see
        :class:`~polyak.nn.policies.recurrent.RecurrentActorCriticPolicy`."""
        names = {"starts", *(self.policy.initial_memory(1) or ())}
        return {name: column for name, column in batch.extras.items() if name in names}

    def normalized(self, advantages: Tensor) -> Tensor:
        """Normalises advantages [B] to mean 0 and standard deviation 1 over the minibatches of all learners."""
        if self.group is not None:
            return _normalized_together(advantages, self.group)
        return (advantages - advantages.mean()) / (advantages.std() + 1e-8)


def entropy_loss(entropy: Tensor | None, log_prob: Tensor) -> Tensor:
    """Returns -H(pi), or its one-sample estimate E[log pi(a|s)] if the entropy has no closed form.

    It is the entropy bonus of A3C (arXiv:1602.01783, section 4) and PPO (arXiv:1707.06347, eq. 9).
    entropy [B], log_prob [B] -> []
    """
    return -entropy.mean() if entropy is not None else log_prob.mean()


def _normalized_together(advantages: Tensor, group: Group) -> Tensor:
    """Normalises the advantages [B] of one learner of a group by the moments of all."""
    x = advantages.double()  # sums of squares need double precision
    moments = torch.stack([torch.ones_like(x).sum(), x.sum(), x.square().sum()])
    rows, total, squares = group.sum(moments).unbind()
    mean = total / rows
    deviation = ((squares - rows * mean.square()).clamp(min=0) / (rows - 1)).sqrt()
    return ((x - mean) / (deviation + 1e-8)).to(advantages.dtype)


def _pieces(rows: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yields columns [R, ...], tensors or dicts of tensors, in pieces that fit into memory."""
    for start in range(0, len(rows[1]), _EVALUATION_ROWS):
        piece = slice(start, start + _EVALUATION_ROWS)
        yield tuple(mapped(lambda part, piece=piece: part[piece], column) for column in rows)
