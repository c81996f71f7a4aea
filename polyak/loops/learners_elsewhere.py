"""Learning from rollouts whose rows learners elsewhere fetch from where runners have made them."""

from collections.abc import Callable
from typing import Any

from polyak.distributed.ray_workers import LostRowsError
from polyak.warning import warn_user


class UpdatesElsewhere:
    """Lets learners elsewhere learn from one rollout after another, but for those whose rows are lost on their way.

    Args:
        updates: learns from a rollout: :class:`~polyak.loops.updates.RolloutUpdates`, or what calls the model's own
            ``train``.
        on_loss: called where nothing was learned from one.
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
    """The share of the variance of returns that values explain, which learners report of rows that are with them.

    Args:
        model: whose rollout it is.
        explained: the same of arrays.
        values, returns: of the rollout, if it is here.
    """
    is_here = model.rollout_buffer.elsewhere is None
    return explained(values, returns) if is_here else model.learner.fellows.explained
