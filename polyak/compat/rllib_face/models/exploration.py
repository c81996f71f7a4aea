"""Values that move with environment steps, and no exploration."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.collecting.actor import Actor
from polyak.compat.rllib_face.bases import BeforeAlgorithm


class PointSchedule:
    """Straight lines between points, and the last value behind them.

    Args:
        epsilon: a number, or points [[environment step, value], ...].
    """

    def __init__(self, epsilon: Any) -> None:
        points = epsilon if isinstance(epsilon, list | tuple) else [[0, epsilon]]
        self._steps, self._values = zip(*points, strict=True)
        self._now = float(self._values[0])

    def update(self, timestep: int) -> float:
        """Sets the environment step; returns the schedule's value there."""
        self._now = float(np.interp(timestep, self._steps, self._values))
        return self._now

    def get_current_value(self) -> float:
        """Returns the result of the last :meth:`update`; the first value before."""
        return self._now


class ActsGreedily(BeforeAlgorithm):
    """A mixin for algorithms: experience is collected without exploration, for ``explore=False``."""

    def make_actor(self) -> Any:
        """Takes the policy's likeliest actions."""
        actor = super().make_actor()
        assert isinstance(actor, Actor)
        actor.deterministic = True
        return actor

    def _exploration(self) -> dict[str, Any]:
        return {}
