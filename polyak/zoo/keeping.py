"""Saving the results of a training however it ends, and the report of what was and was not saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polyak.writing import replacing
from polyak.zoo.errors import NOTHING_SAVED, SAVED, TrainingFailed, in_one_line, readable
from polyak.zoo.interruption import status_of
from polyak.zoo.model_files import save
from polyak.zoo.output import note
from polyak.zoo.run_folder import FULL

MODEL = "model"


@dataclass
class Kept:
    """The result of saving: ``lost`` maps parts that could not be saved to the reason."""

    lost: dict[str, BaseException] = field(default_factory=dict)

    @property
    def has_model(self) -> bool:
        """Whether there is a file of the model as it was when training ended."""
        return MODEL not in self.lost

    def reasons(self) -> str:
        """The parts that could not be saved, with their errors; empty if there are none."""
        why = [f"the {part} could not be saved: {in_one_line(error)}" for part, error in self.lost.items()]
        return "; ".join(why)


def learned(learn: Callable[[], Any]) -> BaseException | None:
    """Train, and return the exception that ended it early: an error, Ctrl-C or ``sys.exit()``; else None."""
    try:
        learn()
    except BaseException as error:
        return error
    return None


def keep(parts: Mapping[str, Callable[[], Any]]) -> Kept:
    """Save the parts of a run independently: a replay buffer that does not fit on the disk does not affect the others.

    Args:
        parts: functions that save each; none may leave an incomplete file when it raises.
    """
    kept = Kept()
    for part, save_it in parts.items():
        try:
            save_it()
        except Exception as error:
            kept.lost[part] = error
        except KeyboardInterrupt as interrupt:  # a further signal: no other part is begun
            kept.lost |= dict.fromkeys(list(parts)[list(parts).index(part) :], interrupt)
            break
    return kept


def save_sound(model: Any, path: Path, file_format: str) -> None:
    """Write a model that can act.

    Raises:
        ValueError: parameters hold NaN or infinity; nothing is written.
    """
    from polyak.learning.nan_guard import broken_parameters

    if broken := broken_parameters(model):
        raise ValueError(f"its parameters {', '.join(broken[:3])} hold NaN or infinity, with which it cannot act")
    save(model, path, file_format)


def conclusion(
    ended: BaseException | None, kept: Kept, steps: int, model: Path, note_file: Path | None = None
) -> SystemExit | TrainingFailed | None:
    """Return the exception that ends a command after training and saving; None if both succeeded.

    Args:
        ended: the exception that ended training early.
        kept: the result of saving.
        steps: environment steps made.
        model: the file of the model. Where it could not be written, other models in its folder are named.
        note_file: file of the error, for later readers of the folder.
    """
    if ended is None and not kept.lost:
        return None
    interrupt = ended if isinstance(ended, KeyboardInterrupt) else None
    how = "interrupted" if interrupt else "training failed" if ended else "training ended"
    outcome = f"{how} after {steps:,} steps"
    outcome += f"; the model is in {model}" if kept.has_model else ""
    outcome += f"; {kept.reasons()}" if kept.lost else ""
    if interrupt and kept.has_model:
        note(outcome)
        return SystemExit(status_of(interrupt))
    if not kept.has_model:
        names = sorted(file.name for file in model.parent.glob("*.zip"))
        others = ", ".join(name for name in names if not name.startswith(f"{FULL}_"))
        outcome += f". Models in {model.parent} from before: {others or 'none'}"
    cause = next(iter(kept.lost.values())) if ended is None or interrupt else ended
    if note_file is not None:
        with suppress(OSError), replacing(note_file) as file:  # the disk may be full
            file.write(f"{readable(cause)}{outcome}\n".encode())
    return TrainingFailed(cause, outcome, SAVED if kept.has_model else NOTHING_SAVED)
