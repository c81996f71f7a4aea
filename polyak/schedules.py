"""Schedules of hyper-parameters: functions of the remaining progress, 1 at the start of training, 0 at the end."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any, TypeGuard

__all__ = [
    "ConstantSchedule",
    "CosineSchedule",
    "LinearSchedule",
    "PiecewiseSchedule",
    "Schedule",
    "parse_schedule",
]

Schedule = Callable[[float], float]


@dataclass(frozen=True)
class ConstantSchedule:
    """A constant value.

    Args:
        val: the value.
    """

    val: float

    def __call__(self, progress_remaining: float) -> float:
        return float(self.val)


@dataclass(frozen=True)
class LinearSchedule:
    """A straight line from ``start`` to ``end``, then flat.

    Args:
        start: value at the beginning of training.
        end: value from ``end_fraction`` of training on.
        end_fraction: the share of training, in [0, 1], at which ``end`` is reached; 0 means at once.

    Raises:
        ValueError: ``end_fraction`` lies outside [0, 1].
    """

    start: float
    end: float
    end_fraction: float

    def __post_init__(self) -> None:
        if not 0 <= self.end_fraction <= 1:
            raise ValueError(
                f"end_fraction must lie in [0, 1], got {self.end_fraction!r}: it is the share of training after which "
                "the value stays at `end`. Use 1.0 to reach it at the very end."
            )

    def __call__(self, progress_remaining: float) -> float:
        done = 1.0 - progress_remaining
        if done >= self.end_fraction:
            return float(self.end)
        return float(self.start + done * (self.end - self.start) / self.end_fraction)


@dataclass(frozen=True)
class PiecewiseSchedule:
    """Linear interpolation between points, constant before the first and after the last.

    Args:
        points: (share of training done, value) each; shares increase, and may exceed 1.

    Raises:
        ValueError: there are no points, or shares do not increase.
    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        shares = [share for share, _ in self.points]
        if not shares or any(a >= b for a, b in pairwise(shares)):
            raise ValueError(f"points must be (share of training, value) with shares that grow, got {self.points!r}.")

    def __call__(self, progress_remaining: float) -> float:
        done = 1.0 - progress_remaining
        last = self.points[0]
        for point in self.points:
            if done <= point[0]:
                break
            last = point
        else:
            return float(last[1])
        if point is last or done <= last[0]:
            return float(last[1])
        return float(last[1] + (done - last[0]) * (point[1] - last[1]) / (point[0] - last[0]))


@dataclass(frozen=True)
class CosineSchedule:
    """Half a cosine wave from ``start`` to 0 (arXiv:1608.03983).

    Args:
        start: value at the beginning of training.
    """

    start: float

    def __call__(self, progress_remaining: float) -> float:
        return float(self.start * 0.5 * (1 + math.cos(math.pi * (1 - progress_remaining))))


class FloatSchedule:
    """A schedule or number as a schedule that returns a Python ``float``.

    Users' schedules may return numpy or torch scalars, which break comparisons, JSON and pickles elsewhere.

    Args:
        value_schedule: a number, or a function of the remaining progress.

    Raises:
        TypeError: it is neither a number nor callable.
    """

    def __init__(self, value_schedule: Schedule | float) -> None:
        self.value_schedule: Schedule
        if isinstance(value_schedule, FloatSchedule):
            self.value_schedule = value_schedule.value_schedule
        elif callable(value_schedule):
            self.value_schedule = value_schedule
        elif _is_number(value_schedule):
            self.value_schedule = ConstantSchedule(float(value_schedule))
        else:
            raise TypeError(
                f"a schedule must be a number or a function of the remaining progress, got {value_schedule!r}. "
                "Strings such as 'lin_3e-4' are understood by parse_schedule()."
            )

    def __call__(self, progress_remaining: float) -> float:
        return float(self.value_schedule(progress_remaining))

    def __repr__(self) -> str:
        return f"FloatSchedule({self.value_schedule!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FloatSchedule) and self.value_schedule == other.value_schedule

    def __hash__(self) -> int:
        return hash((FloatSchedule, self.value_schedule))


def get_schedule_fn(value_schedule: Schedule | float) -> FloatSchedule:
    """Returns ``value_schedule`` as a function of the remaining progress that returns a ``float``.

    Raises:
        TypeError: it is neither a number nor callable.
    """
    return value_schedule if isinstance(value_schedule, FloatSchedule) else FloatSchedule(value_schedule)


def value_of(name: str, schedule: Schedule, progress: float) -> float:
    """Returns the value of a hyper-parameter's schedule at the remaining progress, which falls from 1 to 0.

    Raises:
        ValueError: NaN, or a learning rate that is infinite or negative.
    """
    value = schedule(progress)
    counts = "learning_rate" in name and progress >= 0  # negative during a last rollout that overshoots
    if value != value or (counts and not 0 <= value < math.inf):
        wanted = "a finite number of at least 0" if "learning_rate" in name else "a number"
        raise ValueError(
            f"{name}: {schedule!r:.200} returned {value} with {progress:.3g} of the training left, and must return "
            f"{wanted} from 1 to 0."
        )
    return value


def is_constant(value: object) -> bool:
    """Whether a hyper-parameter is constant during training: a number, or a schedule that always returns the same."""
    if isinstance(value, FloatSchedule):
        value = value.value_schedule
    return not callable(value) or isinstance(value, ConstantSchedule)


def parse_schedule(value: str | float | Schedule) -> float | Schedule:
    """Parses a hyper-parameter that may be scheduled, from a settings file or a command line.

    Args:
        value: ``"lin_3e-4"`` (falls linearly from 3e-4 to 0), a number, a number as text (YAML reads ``3e-4`` as text),
            or a function, which is returned unchanged.

    Returns:
        a ``float`` for a number, otherwise the schedule.

    Raises:
        ValueError: another text.
        TypeError: not a text, a number or a function.
    """
    if isinstance(value, str):
        is_linear = value.startswith("lin_")
        try:
            number = float(value.removeprefix("lin_"))
        except ValueError:
            raise ValueError(
                f"cannot read {value!r} as a schedule. Write a number (0.0003 or 3e-4) or 'lin_' and a number "
                "('lin_3e-4': falls linearly to 0)."
            ) from None
        return LinearSchedule(number, 0.0, 1.0) if is_linear else number
    if _is_number(value):
        return float(value)
    if callable(value):
        return value
    raise TypeError(f"a schedule must be a number, a text such as 'lin_3e-4' or a function, got {value!r}.")


def schedule_to_json(schedule: Any) -> float | dict[str, Any] | None:
    """Returns a schedule as plain JSON data.

    Args:
        schedule: a number or a schedule.

    Returns:
        a number, a dict, or ``None`` if ``schedule`` is a user's own function.
    """
    if _is_number(schedule):
        return float(schedule)
    kind = type(schedule)
    if kind is ConstantSchedule:
        return {"kind": "constant", "val": float(schedule.val)}
    if kind is LinearSchedule:
        names = ("start", "end", "end_fraction")
        return {"kind": "linear"} | {name: float(getattr(schedule, name)) for name in names}
    if kind is PiecewiseSchedule:
        return {"kind": "piecewise", "points": [[float(share), float(value)] for share, value in schedule.points]}
    if kind is CosineSchedule:
        return {"kind": "cosine", "start": float(schedule.start)}
    if kind is FloatSchedule and (inner := schedule_to_json(schedule.value_schedule)) is not None:
        return {"kind": "float", "schedule": inner}
    return None


def schedule_from_json(data: float | dict[str, Any]) -> float | Schedule:
    """Restores a schedule from :func:`schedule_to_json`.

    Raises:
        ValueError: ``data`` is not a result of that function.
    """
    if _is_number(data):
        return float(data)
    fields = dict(data) if isinstance(data, dict) else {}
    try:
        match fields.pop("kind", None):
            case "constant":
                return ConstantSchedule(**fields)
            case "linear":
                return LinearSchedule(**fields)
            case "piecewise":
                return PiecewiseSchedule(tuple((float(share), float(value)) for share, value in fields["points"]))
            case "cosine":
                return CosineSchedule(**fields)
            case "float":
                return FloatSchedule(schedule_from_json(fields["schedule"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"{data!r} is a damaged schedule: {error}") from error
    raise ValueError(
        f"{data!r} is not a schedule of this version: expected kind 'constant', 'linear', 'piecewise', 'cosine' or "
        "'float'."
    )


def _is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a real number of Python's or numpy's; bools and nan are not."""
    return isinstance(value, Real) and not isinstance(value, bool) and not math.isnan(value)
