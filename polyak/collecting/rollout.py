"""A rollout while it is collected: how long it is to be, how steps enter it, and what there is after the last one.

Shapes: T steps of N environments.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from polyak.collecting.actor import Actor
from polyak.experience import Experience, RolloutBuffer
from polyak.experience.step import Step
from polyak.learning.rollout_learner import RolloutLearner


class RolloutWriter:
    """Writes steps into a rollout buffer, and what a learner says of them when all are there.

    Args:
        buffer: where to.
        actor: makes the steps, and holds the recurrent state after them.
        steps: how many the rollout has; ``None``: as many as there is room for.
    """

    def __init__(self, buffer: RolloutBuffer, actor: Actor, steps: int | None = None) -> None:
        self.buffer: Any = buffer
        self.actor, self.steps = actor, buffer.buffer_size if steps is None else steps
        self._last: Step

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
        self._last = step
        self.buffer.record(step, memory=self.actor.memory)

    @property
    def adopts(self) -> bool:
        """Whether a whole rollout may enter at once: nothing of a program's own looks at each step."""
        return type(self) is RolloutWriter and type(self.buffer).add is RolloutBuffer.add

    def adopt(self, columns: Mapping[str, Any], seen: Any, ends: Iterable[tuple[int, Step]]) -> None:
        """Let columns be the rollout, uncopied where they have the types of the buffer.

        Args:
            columns, seen: see :meth:`~polyak.experience.RolloutBuffer.adopt`.
            ends: the steps in which episodes ended, after each of which the actor holds the recurrent state, and their
                numbers.
        """
        self.buffer.adopt(columns, seen, ((number, step, self.actor.memory) for number, step in ends))

    def following(self, runner: Any) -> tuple[Experience, Any]:
        """What the runner holds after the last step: ``observations``, recurrent ``memory`` and ``masks``, if there are
        any, [N, ...] each; and where episodes begin [N]."""
        memory = dict(self.actor.recall(runner.episode_starts) or {})
        last = Experience({"observations": runner.obs, "memory": memory})
        return last if runner.allowed is None else last.plus(masks=runner.allowed), runner.episode_starts

    def evaluate(self, learner: RolloutLearner, runner: Any, policy: Any) -> Tensor:
        """Let a learner say of a whole rollout what the policy that made it makes of it. -> values [N, 1] of the
        observations after the last step, which the runner holds"""
        return learner.prepare(self.buffer, self.following(runner)[0], policy)

    def estimate(self, last_values: Tensor, dones: Any) -> None:
        """Put in advantages and returns.

        Args:
            last_values: what :meth:`evaluate` returned.
            dones: [N] whether the last step ended an episode.
        """
        self.buffer.compute_returns_and_advantage(last_values=last_values, dones=dones)

    def last(self) -> Step:
        """The last step of a whole rollout, with its values."""
        row = {"values": self.buffer.values[-1], "log_probs": self.buffer.log_probs[-1]}
        return self._last._replace(extras={**self._last.extras, **row})
