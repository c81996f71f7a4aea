"""A rollout in tensors: preallocated columns, evaluated by the learner in two passes, handed out in minibatches.

Shapes: T steps of N environments; R = N * T rows, environment by environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from polyak.arrays import to_device
from polyak.collecting.rollout import RolloutWriter
from polyak.collecting.tensors.rows import row_of, rows_layout
from polyak.experience import Experience, Ring, Schema
from polyak.experience.batch import ExtendedRolloutSamples, RolloutBufferSamples, RolloutRows, RolloutSamples
from polyak.experience.randomness import Randomness
from polyak.experience.step import Step
from polyak.learning.rollout_learner import Evaluation, States
from polyak.ops.returns import gae


class TensorRollout(Randomness):
    """``buffer_size`` steps of ``n_envs`` environments on a device, with advantages and value targets.

    It stands where a :class:`~polyak.experience.RolloutBuffer` stands, and gives the same minibatches.

    Args:
        buffer_size: T.
        observation_space, action_space: of one environment.
        device: where the columns are.
        gae_lambda: trace decay of the advantages.
        gamma: discount.
        n_envs: N.
        columns: what else each row holds.
    """

    plain, resumable, values_may_follow = True, True, True

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device,
        gae_lambda: float,
        gamma: float,
        n_envs: int,
        columns: Any = None,
    ) -> None:
        self.buffer_size, self.n_envs, self.device = buffer_size, n_envs, device
        self.observation_space, self.action_space = observation_space, action_space
        self.gae_lambda, self.gamma, self.schema = gae_lambda, gamma, Schema.of(columns)
        self.ring = Ring(rows_layout(observation_space, action_space, self.schema), buffer_size, n_envs, device)
        self._samples: RolloutSamples | None = None

    def reset(self) -> None:
        """Start a new rollout, over the old one."""
        self.ring.clear()
        self._samples = None

    @property
    def pos(self) -> int:
        """Steps so far."""
        return self.ring.written

    def record(self, step: Step) -> None:
        """Store one step of the environments."""
        self.ring.append(row_of(step, self.schema))

    # -- reading -------------------------------------------------------------------------------------------------------

    def rows(self) -> Experience:
        """[R, ...] environment by environment."""
        return self.ring.all().map(lambda column: column.transpose(0, 1).flatten(0, 1))

    def complete(self, rows: Experience, evaluation: Evaluation) -> None:
        """Take what the learner says of the rows and of their successors, [R] each, and estimate advantages."""
        rollout = self.ring.all()
        values, log_probs = evaluation.values, evaluation.log_probs
        assert values is not None
        assert log_probs is not None
        now, then = (self.in_steps(part) for part in (values, evaluation.next_values))
        discounts = self.gamma * (~rollout.terminated).float()
        advantages, returns = gae(rollout.rewards, now, then, discounts, self.gae_lambda, rollout.ended)
        advantages, returns = (column.transpose(0, 1).reshape(-1) for column in (advantages, returns))
        actions = rows.actions.float()  # one type for all spaces: policies cast back
        columns = rows.observations, actions, values, log_probs, advantages, returns
        extras = rows.columns.get("extras")
        self._samples = ExtendedRolloutSamples(*columns, extras) if extras else RolloutBufferSamples(*columns)

    def in_steps(self, rows: Tensor) -> Tensor:
        """[R] -> [T, N]"""
        return rows.view(self.n_envs, self.buffer_size).transpose(0, 1)

    @property
    def samples(self) -> RolloutSamples:
        """All rows [R, ...] of a rollout that is complete.

        Raises:
            ValueError: it is not.
        """
        if self._samples is None:
            raise ValueError(f"The rollout holds {self.pos} of {self.buffer_size} steps: complete it before reading.")
        return self._samples

    @property
    def values(self) -> Tensor:
        """[R]"""
        return self.samples.old_values

    @property
    def returns(self) -> Tensor:
        """[R]"""
        return self.samples.returns

    def minibatches(self, batch_size: int | None = None) -> Iterator[RolloutRows]:
        """All rows once, in a new random order at each call; nothing is gathered yet.

        Args:
            batch_size: rows of a minibatch (the last one may be smaller); None gives all rows at once.
        """
        samples, order = self.samples, torch.from_numpy(self.rng.permutation(self.buffer_size * self.n_envs))
        for rows in to_device(order, self.device).split(batch_size or len(order)):
            yield RolloutRows(samples, rows)

    def passes(self) -> Callable[[int | None], Iterator[RolloutRows]]:
        """:meth:`minibatches`, whose rows are those of one rollout."""
        return self.minibatches

    def get(self, batch_size: int | None = None) -> Iterator[RolloutSamples]:
        """The same, gathered."""
        return (minibatch.gathered() for minibatch in self.minibatches(batch_size))

    # -- keeping -------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The steps of a rollout that is being collected, as arrays [steps, N, ...]."""
        return {"rng": self.rng_state(), **self.ring.all().to(None).columns}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the rollout that :meth:`state_dict` described."""
        self.reset()
        self.load_rng_state(state["rng"])
        self.ring.extend(Experience({name: column for name, column in state.items() if name != "rng"}), copy=True)


class TensorRolloutWriter(RolloutWriter):
    """Writes steps into a rollout in tensors, and what the learner says of them when all are there.

    Args:
        buffer: where to.
        steps: how many the rollout has.
    """

    adopts = False

    def __init__(self, buffer: TensorRollout, steps: int | None = None) -> None:
        self.buffer, self.steps = buffer, buffer.buffer_size if steps is None else steps
        self._last: Step

    @cached_property
    def _rows(self) -> Experience:
        """[R, ...] of a whole rollout."""
        return self.buffer.rows()

    def record(self, step: Step) -> None:
        """The one place where steps enter the buffer."""
        self._last = step
        self.buffer.record(step)

    def rows(self) -> tuple[Any, ...]:
        """Observations [R, ...], actions [R, ...], and a dict of further columns [R, ...] if there are some."""
        rows = self._rows
        return rows.observations, rows.actions, *([rows.extras] if "extras" in rows.columns else [])

    def ends(self, runner: Any, device: torch.device) -> States:
        """The true successors of all rows: which of them no row holds is not read."""
        return States(self._rows.next_observations, {}, None)

    def fill(self, evaluation: Evaluation) -> Tensor:
        """Take what the learner says. -> values [N, 1] of the observations after the last step"""
        self._evaluation = evaluation
        return self.buffer.in_steps(evaluation.next_values)[-1][:, None]

    def estimate(self, last_values: Tensor, dones: Any) -> None:
        """Put in advantages and returns."""
        self.buffer.complete(self._rows, self._evaluation)

    def last(self) -> Step:
        """The last step of a whole rollout, with its values."""
        samples = self.buffer.samples
        row = {"values": samples.old_values, "log_probs": samples.old_log_prob}
        last: Any = {name: self.buffer.in_steps(column)[-1] for name, column in row.items()}
        return self._last._replace(extras={**self._last.extras, **last})
