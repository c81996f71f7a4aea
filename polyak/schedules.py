"""Schedules: hyper-parameters as functions of the remaining progress, 1 at the start of training and 0 at its end."""

from polyak.core.schedules import (
    ConstantSchedule,
    CosineSchedule,
    LinearSchedule,
    PiecewiseSchedule,
    Schedule,
    parse_schedule,
)

__all__ = [
    "ConstantSchedule",
    "CosineSchedule",
    "LinearSchedule",
    "PiecewiseSchedule",
    "Schedule",
    "parse_schedule",
]
