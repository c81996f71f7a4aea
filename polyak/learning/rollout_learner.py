"""Learners that learn from rollouts, and evaluate them first: the critic sees a rollout when it is complete.

Shapes: R rows, step by step; S successors; B minibatch rows; N environments; M choices.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.arrays import mapped, to_device
from polyak.experience import RolloutSamples
from polyak.experience.step import Step
from polyak.learning.data_parallel import Group
from polyak.learning.learner import Learner, Metrics
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import State
from polyak.ops.policy_gradient import normalized

_EVALUATION_ROWS = 1024
"""Rows of a rollout evaluated at once: enough to be fast, few enough for the activations of images to fit."""
_SMALL_ROLLOUT = 256
"""Rows of a rollout up to which evaluating it is mostly overhead, so that a program does it in a fraction of the
time; with more rows it gains less than 1 % of a training, which building one is not worth."""


class Evaluation(NamedTuple):
    """What a policy makes of a rollout's rows and of its successors."""

    values: Tensor | None
    """[R]; ``None``: the rows have values already."""
    log_probs: Tensor | None
    """[R] of the actions taken."""
    next_values: Tensor
    """[S]"""
    state_values: Tensor | None = None
    """[R] what the rows' states count as successors, where that is not their ``values``."""


class States(NamedTuple):
    """Some states in which steps have ended, as arrays or as tensors."""

    observations: Any
    """[S, ...], or a dict of these."""
    memory: State
    """Name -> [S, ...]: the recurrent state, always tensors; empty of a policy without one."""
    masks: Any
    """[S, M] bool, which choices are allowed; ``None``: all."""

    @classmethod
    def cut(cls, step: Step, memory: State | None) -> "States":
        """Those in which a step cut episodes short, from the recurrent state [N, ...] after it."""
        rows, masks = step.truncated, step.extras.get("next_masks")
        kept = torch.from_numpy(rows)
        return cls(
            mapped(lambda part: part[rows], step.next_observations),
            {name: state[kept.to(state.device)] for name, state in (memory or {}).items()},
            None if masks is None else masks[rows],
        )

    @classmethod
    def joined(cls, parts: Sequence["States"]) -> "States":
        """One after another."""
        masks = [part.masks for part in parts if part.masks is not None]
        return cls(
            mapped(lambda *own: np.concatenate(own), *(part.observations for part in parts)),
            {name: torch.cat([part.memory[name] for part in parts]) for name in parts[0].memory},
            np.concatenate(masks) if masks else None,
        )

    def pieces(self, most: int) -> Iterator["States"]:
        """The same, at most so many at a time."""
        count = len(
            next(iter(self.observations.values())) if isinstance(self.observations, dict) else self.observations
        )
        if count <= most:
            yield self
            return
        for start in range(0, count, most):
            rows = slice(start, start + most)
            memory = {name: state[rows] for name, state in self.memory.items()}
            masks = None if self.masks is None else self.masks[rows]
            yield States(sliced(self.observations, rows), memory, masks)

    def tensors(self, space: spaces.Space, device: torch.device) -> "States":
        """The same as tensors; ``space``: of the observations."""
        masks = None if self.masks is None else to_device(torch.from_numpy(self.masks), device)
        return self._replace(observations=_tensors(self.observations, space, device), masks=masks)


class RolloutLearner(Learner):
    """A learner with a stochastic actor and a value function."""

    policy: Any
    """An :class:`~polyak.nn.policies.actor_critic.ActorCriticPolicy`, or another of which a subclass knows values."""

    @property
    def rows_together(self) -> int:
        return int(getattr(self.policy, "sequence_length", 1))

    @torch.no_grad()
    def prepare(self, rows: tuple[Any, ...], successors: States, acting: Any) -> Evaluation:
        """Values and log-probabilities of a rollout's rows, and values of those successors that no row holds.

        They are computed in batches, as gradient steps compute them: ratios of probabilities begin at 1.

        Args:
            rows: see :meth:`~polyak.collecting.rollout.RolloutWriter.rows`.
            successors: of rows.
            acting: the policy that has made it, whose values they are: the learner's own, or an older copy.
        """
        pieces = [self.eagerly(self.next_values, piece, acting) for piece in successors.pieces(_EVALUATION_ROWS)]
        next_values = pieces[0] if len(pieces) == 1 else torch.cat(pieces)
        if not rows:
            return Evaluation(None, None, next_values)
        found = self._evaluate(rows, acting)
        return Evaluation(found["values"], found["log_probs"], next_values, found.get("state_values"))

    def _evaluate(self, rows: tuple[Any, ...], acting: Any) -> Metrics:
        """:meth:`evaluation` of all rows, in pieces of a size that memory bears."""
        parts = [self.eagerly(self.evaluation, piece, acting) for piece in _pieces(rows)]
        return parts[0] if len(parts) == 1 else {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    @torch.no_grad()
    def evaluation(self, rows: tuple[Any, ...], acting: Any = None) -> Metrics:
        """``values`` and ``log_probs`` [B] of rows.

        Args:
            rows: B of those that :meth:`prepare` gets.
            acting: the policy that has acted; ``None``: the learner's own.
        """
        policy = self.policy if acting is None else acting
        observations, actions, *more = rows
        values, log_prob, _ = policy.evaluate_actions(observations, actions, **(more[0] if more else {}))
        return {"values": values.flatten(), "log_probs": log_prob}

    def next_values(self, successors: States, acting: Any) -> Tensor:
        """State values [S]."""
        return acting.predict_values(successors.observations, **successors.memory).flatten()


class OnPolicyLearner(RolloutLearner):
    """Learns from rollouts of its own policy alone."""

    policy: ActorCriticPolicy
    entropy_index: float = 1.0
    """Which Tsallis entropy :meth:`evaluated` gives: see :mod:`polyak.ops.tsallis`."""

    def _evaluate(self, rows: tuple[Any, ...], acting: Any) -> Metrics:
        if acting is self.policy and len(rows[1]) <= _SMALL_ROLLOUT:
            results: Metrics = self.run(self.evaluation, rows)
            return results
        return super()._evaluate(rows, acting)

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
        return normalized(advantages) if self.group is None else _normalized_together(advantages, self.group)


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
        yield tuple(sliced(column, slice(start, start + _EVALUATION_ROWS)) for column in rows)


def sliced(column: Any, rows: slice) -> Any:
    """Some rows of a column, or of a dict of them."""
    return mapped(lambda part: part[rows], column)


def _tensors(observations: Any, space: spaces.Space, device: torch.device) -> Any:
    """Observations [S, ...] of a space as tensors of its shape and type."""
    if isinstance(space, spaces.Dict):
        return {key: _tensors(observations[key], part, device) for key, part in space.spaces.items()}
    rows = np.array(observations, space.dtype, order="C").reshape(-1, *(space.shape or ()))
    return to_device(torch.from_numpy(rows), device)
