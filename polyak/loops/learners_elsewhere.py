"""Learning from rollouts whose rows remote learners fetch directly from the runners."""

from collections.abc import Callable
from typing import Any

from polyak.distributed.ray_workers import LostRowsError
from polyak.warning import warn_user


class UpdatesElsewhere:
    """Updates remote learners on one rollout after another, and skips rollouts whose rows were lost.

    Args:
        updates: learns from a rollout: :class:`~polyak.loops.updates.RolloutUpdates`, or a wrapper of the model's own
            ``train``.
        on_loss: called after a rollout is skipped.
    """

    def __init__(self, updates: Any, on_loss: Callable[[], None] = lambda: None) -> None:
        self.updates, self.on_loss = updates, on_loss

    def make(self, rollout: Any) -> None:
        """Learn from a rollout."""
        try:
            self.updates.make(rollout)
        except LostRowsError as lost:
            warn_user(f"{lost} It is not learned from, and learners continue from the one here.", RuntimeWarning)
            self.on_loss()


def explained_anywhere(model: Any, explained: Callable[[Any, Any], Any], values: Any, returns: Any) -> Any:
    """Returns the explained variance of the values, which remote learners report for rows that only they hold.

    Args:
        model: owns the rollout.
        explained: computes the explained variance of arrays.
        values, returns: of the rollout, if it is local.
    """
    is_here = model.rollout_buffer.elsewhere is None
    return explained(values, returns) if is_here else model.learner.fellows.explained
