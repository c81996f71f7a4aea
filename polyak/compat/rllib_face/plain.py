"""Polyak's algorithm as a config words it."""

from __future__ import annotations

from typing import Any

from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.schedules import LinearSchedule


def take_exploration(config: AlgorithmConfig, model: Any) -> None:
    """Let a model take random actions as often as the config says, which may be more than one straight line."""
    schedule = getattr(config, "exploration_schedule", lambda: None)()
    if schedule is not None and not isinstance(schedule, LinearSchedule):
        model.exploration_schedule = schedule
        model.exploration_rate = schedule(model._current_progress_remaining)
