"""The conversion of runners' chunks to the learner's input, in the process that learns.

Shapes: T steps of N environments of one runner.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from polyak.collecting.rollout import RolloutWriter
from polyak.distributed.runner_process import Chunk
from polyak.distributed.runners import RemoteActor, row_of, side_by_side
from polyak.distributed.weights import put_back
from polyak.experience.step import Observations, Step
from polyak.learning.rollout_learner import RolloutLearner
from polyak.learning.vtrace_learner import Unroll, joined
from polyak.ops.returns import explained_variance


class Last(NamedTuple):
    """The state after the last step of a chunk, under a runner's names for it."""

    obs: Observations
    episode_starts: np.ndarray
    allowed: np.ndarray | None


def last_of(chunk: Chunk, actor: RemoteActor) -> Last:
    """Returns the state after the last step of a chunk; the actor gets the recurrent state then."""
    _, actor.memory, allowed = row_of(chunk, chunk.steps - 1, actor.codec)
    return Last(chunk.observations, np.array(chunk.columns["dones"][-1]), None if allowed is None else allowed.copy())


def write(chunk: Chunk, writer: RolloutWriter, actor: RemoteActor) -> None:
    """Let the steps of a chunk be those of a rollout."""

    def step_at(row: int) -> Step:
        step, actor.memory, _ = row_of(chunk, row, actor.codec)
        return step

    if writer.adopts:
        writer.adopt(chunk.rows, chunk.seen, ((end.step, step_at(end.step)) for end in chunk.ends))
    else:
        for row in range(writer.steps):
            writer.record(step_at(row))


class RolloutElsewhere(NamedTuple):
    """The rollout of all runners, as references or as their values, which the learner's process converts to samples."""

    make_buffer: Callable[..., Any]
    """Makes a rollout buffer on a ``device``."""
    weights: Any
    """The weights that acted."""
    chunks: Sequence[Any]
    """The chunk of each runner."""

    def samples(self, learner: RolloutLearner, actor: RemoteActor, device: str) -> tuple[Any, float]:
        """The rollout as learners see it, with values, advantages and returns by the weights that acted; and which
        share of the variance of returns the values explain."""
        put_back(actor.policy, self.weights)
        writer, chunk = RolloutWriter(self.make_buffer(device=device), actor), side_by_side(self.chunks)
        write(chunk, writer, actor)
        after = last_of(chunk, actor)
        writer.estimate(writer.evaluate(learner, after, actor.policy), after.episode_starts)
        buffer = writer.buffer
        return next(buffer.minibatches()).rollout, explained_variance(buffer.values, buffer.returns)


class UnrollElsewhere(NamedTuple):
    """Rollouts side by side, as references or as their values, which the learner's process converts to
    :class:`~polyak.learning.vtrace_learner.Unroll`."""

    make_buffer: Callable[..., Any]
    """Makes a rollout buffer on a ``device``."""
    parts: Sequence[Any]
    """Chunks, with the weights that acted in each; or rollouts in this process, as they are."""
    share: tuple[int, int] = (0, 1)
    """The number of this share of the environments, and the number of shares."""

    def unrolled(self, learner: RolloutLearner, actor: RemoteActor, device: str) -> Unroll:
        """Returns the rollouts for a learner, with values and log-probabilities by the weights that acted."""
        found = []
        for part in self.parts:
            if isinstance(part, Unroll):
                found.append(part)
                continue
            chunk, weights = part
            put_back(actor.policy, weights)
            writer = RolloutWriter(self.make_buffer(device=device), actor)
            write(chunk, writer, actor)
            after = last_of(chunk, actor)
            writer.evaluate(learner, after, actor.policy)
            last, starts = writer.following(after)
            found.append(Unroll(writer.buffer.trajectory(last.observations, starts), last.memory))
        whole: Unroll = learner.share(joined(found), *self.share) if self.share[1] > 1 else joined(found)
        return whole
