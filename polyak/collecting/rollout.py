"""A rollout while it is collected: rows in a buffer, and beside it the true successors that no row holds.

The row after a step holds its true successor, but for two kinds of steps: those that cut an episode short, after which
the next episode begins, and the last ones. Their successors are kept here, so that the learner evaluates each state of
a rollout once, when the rollout is complete.

Shapes: T steps of N environments; R = T * N rows, step by step; S successors, those of K cut episodes and N last ones.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyak.collecting.actor import Actor
from polyak.collecting.runner import Runner, flat, unflat
from polyak.experience import RolloutBuffer
from polyak.experience.step import Step
from polyak.learning.rollout_learner import Evaluation, States
from polyak.nn.policies.base import State


class Successors:
    """True successors of the steps that cut episodes short. Of a terminal state nothing is kept: its value is 0."""

    def __init__(self) -> None:
        self.rows = np.zeros(0, np.int64)
        """[K] the rows that they follow."""
        self.states: list[States] = []
        """K in all."""

    def add(self, first_row: int, step: Step, memory: State | None) -> None:
        """Keep those of a step.

        Args:
            first_row: of the step.
            step: cuts at least one episode short.
            memory: the recurrent state [N, ...] after it.
        """
        self.rows = np.concatenate([self.rows, first_row + step.truncated.nonzero()[0]])
        self.states.append(States.cut(step, memory))

    def state(self) -> dict[str, np.ndarray]:
        """As arrays by name; none where nothing is kept."""
        if not self.states:
            return {}
        observations, memory, masks = States.joined(self.states)
        arrays = {f"memory/{name}": state.numpy(force=True) for name, state in memory.items()}
        return {"rows": self.rows, **flat("observations", observations), **arrays, **flat("masks", masks)}

    @classmethod
    def from_state(cls, arrays: dict[str, np.ndarray], device: torch.device) -> "Successors":
        """The inverse of :meth:`state`; the recurrent state goes to a device."""
        kept = cls()
        if arrays:
            memory = {k: torch.from_numpy(np.array(v)).to(device) for k, v in (unflat("memory", arrays) or {}).items()}
            kept.rows = arrays["rows"].astype(np.int64)
            kept.states = [States(unflat("observations", arrays), memory, unflat("masks", arrays))]
        return kept


class RolloutWriter:
    """Writes steps into a rollout buffer, and what the learner says of them when all are there.

    Args:
        buffer: where to.
        actor: makes the steps, and holds the recurrent state after them.
        successors: those that an earlier part of the rollout has left.
        steps: how many the rollout has; ``None``: as many as there is room for.
    """

    def __init__(self, buffer: RolloutBuffer, actor: Actor, successors: Successors, steps: int | None = None) -> None:
        self.buffer: Any = buffer
        self.actor, self.successors = actor, successors
        self.steps = buffer.buffer_size if steps is None else steps
        self._last: Step
        self._state_values: np.ndarray | None = None

    def is_complete(self, series: Any) -> bool:
        """Whether all steps are there: see :class:`~polyak.checkpoint.collection.Collection`."""
        return series.steps >= self.steps

    def missing(self, series: Any) -> int:
        """Steps that are sure to follow."""
        return self.steps - series.steps

    def ready(self, step: Step) -> Step:
        """A step with all that the buffer wants of it, before callbacks read it."""
        return step

    def record(self, step: Step) -> None:
        """The one place where steps enter the buffer."""
        buffer, self._last = self.buffer, step
        if step.ended and step.truncated.any():
            self.successors.add(buffer.pos * buffer.n_envs, step, self.actor.memory)
        buffer.record(columns_of(step) if step.extras else step)

    @property
    def adopts(self) -> bool:
        """Whether a whole rollout may enter at once: nothing of a program's own looks at each step."""
        return type(self) is RolloutWriter and type(self.buffer).add is RolloutBuffer.add

    def adopt(self, columns: Mapping[str, Any], seen: Any, cut: Iterable[tuple[int, Step]]) -> None:
        """Let columns be the rollout, uncopied where they have the types of the buffer.

        Args:
            columns: see :meth:`~polyak.experience.RolloutBuffer.adopt`.
            seen: see there.
            cut: the steps in which episodes ended, after each of which the actor holds the recurrent state, and their
                numbers.
        """
        for number, step in cut:
            if step.truncated.any():
                self.successors.add(number * self.buffer.n_envs, step, self.actor.memory)
        self.buffer.adopt(columns, seen)

    def rows(self) -> tuple[Any, ...]:
        """Observations [R, ...], actions [R, ...], and a dict of further columns [R, ...] if there are some, of a whole
        rollout; empty: the rows have values already."""
        return self.buffer.flat_inputs()

    def ends(self, runner: Runner, device: torch.device) -> States:
        """The successors that no row holds: those kept, then those after the last step, which the runner holds."""
        last = States(runner.obs, self.actor.recall(runner.episode_starts) or {}, runner.allowed)
        kept = self.successors.states
        return (States.joined([*kept, last]) if kept else last).tensors(self.buffer.observation_space, device)

    def following(self, runner: Any) -> tuple[Any, np.ndarray, State]:
        """What the runner holds after the last step: observations [N, ...], where episodes begin [N], and the recurrent
        state [N, ...] by name; empty of a policy without one."""
        return runner.obs, runner.episode_starts, dict(self.actor.recall(runner.episode_starts) or {})

    def fill(self, evaluation: Evaluation) -> Tensor:
        """Put in what the learner says. -> values [N, 1] of the observations after the last step"""
        buffer = self.buffer
        cut, last = np.split(evaluation.next_values.numpy(force=True), [len(self.successors.rows)])
        if evaluation.values is not None and evaluation.log_probs is not None:
            buffer.values[:] = evaluation.values.numpy(force=True).reshape(buffer.values.shape)
            buffer.log_probs[:] = evaluation.log_probs.numpy(force=True).reshape(buffer.log_probs.shape)
        if len(cut):
            buffer.final_values.flat[self.successors.rows] = cut
        if evaluation.state_values is not None:
            self._state_values = evaluation.state_values.numpy(force=True).reshape(buffer.values.shape)
        return torch.from_numpy(last)[:, None]

    def estimate(self, last_values: Tensor, dones: Any) -> None:
        """Put in advantages and returns.

        Args:
            last_values: what :meth:`fill` returned.
            dones: [N] whether the last step ended an episode.
        """
        then: dict[str, Any] = {}
        if self._state_values is not None:
            then = {"next_values": np.concatenate([self._state_values[1:], last_values.numpy().reshape(1, -1)])}
        self.buffer.compute_returns_and_advantage(last_values=last_values, dones=dones, **then)

    def last(self) -> Step:
        """The last step of a whole rollout, with its values."""
        row = {"values": self.buffer.values[-1], "log_probs": self.buffer.log_probs[-1]}
        return self._last._replace(extras={**self._last.extras, **row})


def columns_of(step: Step) -> Step:
    """A step whose extras are the further columns of a rollout: without values, and without what holds after it."""
    others = ("values", "log_probs", "next_masks")
    return step._replace(extras={name: column for name, column in step.extras.items() if name not in others})
