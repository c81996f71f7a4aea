"""Writing of a rollout during collection: its length, its steps, and the observations after the last one.

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
    """Writes steps into a rollout buffer, and evaluates the complete rollout.

    Args:
        buffer: the rollout buffer.
        actor: makes the steps, and holds the recurrent state after them.
        steps: length of the rollout; ``None``: the buffer's size.
    """

    def __init__(self, buffer: RolloutBuffer, actor: Actor, steps: int | None = None) -> None:
        self.buffer: Any = buffer
        self.actor, self.steps = actor, buffer.buffer_size if steps is None else steps
        self._last: Step

    def is_complete(self, series: Any) -> bool:
        """Whether the rollout has all its steps: see :class:`~polyak.checkpoint.collection.Collection`."""
        return series.steps >= self.steps

    def missing(self, series: Any) -> int:
        """Returns the number of missing steps."""
        return self.steps - series.steps

    def ready(self, step: Step) -> Step:
        """Returns a step with all columns that the buffer needs, before callbacks read it."""
        return step

    def record(self, step: Step) -> None:
        """Store a step in the buffer: all steps pass through here."""
        self._last = step
        self.buffer.record(step, memory=self.actor.memory)

    @property
    def adopts(self) -> bool:
        """Whether a whole rollout may be stored at once, since no user code handles single steps."""
        return type(self) is RolloutWriter and type(self.buffer).add is RolloutBuffer.add

    def adopt(self, columns: Mapping[str, Any], seen: Any, ends: Iterable[tuple[int, Step]]) -> None:
        """Take columns as the rollout, without a copy if they have the buffer's types.

        Args:
            columns, seen: see :meth:`~polyak.experience.RolloutBuffer.adopt`.
            ends: the steps in which episodes ended, with their indices; the actor holds the recurrent state after each.
        """
        self.buffer.adopt(columns, seen, ((number, step, self.actor.memory) for number, step in ends))

    def following(self, runner: Any) -> tuple[Experience, Any]:
        """Returns the runner's data after the last step: ``observations``, recurrent ``memory`` and, if any, ``masks``,
        [N, ...] each; and episode starts [N]."""
        memory = dict(self.actor.recall(runner.episode_starts) or {})
        last = Experience({"observations": runner.obs, "memory": memory})
        return last if runner.allowed is None else last.plus(masks=runner.allowed), runner.episode_starts

    def evaluate(self, learner: RolloutLearner, runner: Any, policy: Any) -> Tensor:
        """Compute values and log-probabilities of a whole rollout, for the policy that made it. Returns values [N, 1]
        of the runner's observations after the last step."""
        return learner.prepare(self.buffer, self.following(runner)[0], policy)

    def estimate(self, last_values: Tensor, dones: Any) -> None:
        """Estimate advantages and returns.

        Args:
            last_values: the result of :meth:`evaluate`.
            dones: [N] whether the last step ended an episode.
        """
        self.buffer.compute_returns_and_advantage(last_values=last_values, dones=dones)

    def last(self) -> Step:
        """Returns the last step of a complete rollout, with its values."""
        row = {"values": self.buffer.values[-1], "log_probs": self.buffer.log_probs[-1]}
        return self._last._replace(extras={**self._last.extras, **row})
