"""The two schedules that Stable-Baselines3 before 2.7 saved as functions, recognised without running them.

``clip_range=0.1`` became a function that returns 0.1, saved as its code and the values that it refers to. The values
suffice, once the record of the code identifies that function of that library.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeGuard

from polyak.compat.sb3_face.files import names
from polyak.compat.sb3_face.files.records import Record
from polyak.schedules import ConstantSchedule, FloatSchedule, LinearSchedule, Schedule

_FILE = "stable_baselines3/common/utils.py"


def schedule_of(function: Record, read: Callable[[Any], Any]) -> Schedule | None:
    """Returns the schedule that a function's record describes; ``None`` for any other function.

    Args:
        function: the record from which cloudpickle would make the function.
        read: translates the values that it refers to.
    """
    code = function.args[0] if function.args else None
    if not isinstance(code, Record) or not _is_code(code):
        return None
    if not any(isinstance(part, str) and part.replace("\\", "/").endswith(_FILE) for part in code.args):
        return None
    values = _closure(function)
    free = next((part for part in reversed(code.args[:-1]) if _matches(part, values)), None)
    if free is None:
        return None
    named = dict(zip(free, read([cell.args[0] for cell in values]), strict=True))
    if set(named) == {"val"} and _are_numbers(named):
        return ConstantSchedule(float(named["val"]))
    if set(named) == {"start", "end", "end_fraction"} and _are_numbers(named):
        return LinearSchedule(**{name: float(value) for name, value in named.items()})
    if set(named) == {"value_schedule"} and isinstance(
        named["value_schedule"], ConstantSchedule | LinearSchedule | FloatSchedule
    ):
        return named["value_schedule"]
    return None


def _is_code(code: Record) -> bool:
    """Whether it was made by calling ``types.CodeType``."""
    maker = code.maker
    return maker is not None and maker.origin in names.BUILTIN_TYPE and maker.args == ("CodeType",)


def _closure(function: Record) -> tuple[Record, ...]:
    """Cells of the values that the function refers to; which of the two places holds them depends on the version."""
    state = function.state
    if isinstance(state, tuple) and len(state) == 1:  # as the setter of the state got it
        state = state[0]
    if isinstance(state, tuple) and len(state) == 2 and isinstance(state[1], dict):
        cells = state[1].get("__closure__")
        if _are_cells(cells):
            return cells
    last = function.args[-1]
    return last if _are_cells(last) else ()


def _are_cells(value: Any) -> TypeGuard[tuple[Record, ...]]:
    return isinstance(value, tuple) and all(
        isinstance(cell, Record) and cell.origin in names.MAKE_CELL and len(cell.args) == 1 for cell in value
    )


def _matches(part: Any, cells: tuple[Record, ...]) -> bool:
    """Whether a part of the code is the list of names that the function refers to."""
    return isinstance(part, tuple) and 0 < len(part) == len(cells) and all(isinstance(name, str) for name in part)


def _are_numbers(values: dict[str, Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values.values())
