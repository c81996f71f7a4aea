"""Training state outside of the model: counts of callbacks, clock, pending log values, lengths of log files.

A full checkpoint holds it, so that a resumed training continues as one run. Loading it runs no code, and sets numbers
only: no text, and so no path, comes from the file.
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polyak.callbacks.callback import BaseCallback, CallbackList
from polyak.callbacks.progress_bar import ProgressBarCallback
from polyak.checkpoint.saved import check_counter
from polyak.checkpoint.serialise import decode, encode
from polyak.logging.logger import Logger, TensorBoardOutputFormat, without_scalar_tensors
from polyak.warning import advise, warn_user
from polyak.writing import replacing

_OF_ALL = ("model", "parent", "_locals", "globals", "verbose")
"""Attributes of callbacks that are not part of their state."""
_TABLES = "*.csv"
_EVENTS = "events.out.tfevents*"
_MOST = 500_000
"""Numbers of one attribute."""
_NAME = re.compile(r"\w[\w.-]*")


class Beside:
    """The training state outside of the model.

    Args:
        model: the model; state from its file is restored at once.
        callbacks: all callbacks of the training.
    """

    def __init__(self, model: Any, callbacks: Iterable[BaseCallback]) -> None:
        self.model = model
        shown = (CallbackList, ProgressBarCallback)
        self.callbacks = [(one, _numbers_of(one)) for one in callbacks if not isinstance(one, shown)]
        if (brought := model.clock.beside) is not None:
            model.clock.beside = None
            self._put_back(brought)

    def state(self, folder: Path) -> dict[str, Any]:
        """Returns the state as JSON values.

        Args:
            folder: of the checkpoint, which may contain log tables.
        """
        logger, clock = self.model.logger, self.model.clock
        counted = [{"class": type(one).__name__, "has": _counted(one, before)} for one, before in self.callbacks]
        values = without_scalar_tensors(logger.name_to_value) if isinstance(logger, Logger) else {}
        waiting = {
            name: [encode(value), logger.name_to_count.get(name, 0), list(logger.name_to_excluded.get(name, ()))]
            for name, value in values.items()
            if _is_numbers(value)
        }
        return {
            "callbacks": counted,
            "waiting": waiting,
            "clock": {
                "total": clock.total,
                "started_at": clock.started_at,
                "iterations": clock.iterations,
                "seconds": (time.time_ns() - clock.began) / 1e9,
            },
            "tables": lengths(folder, _TABLES),
            **_tensorboard(logger),
        }

    def _put_back(self, brought: dict[str, Any]) -> None:
        try:
            self._put_back_clock(brought["clock"])
            logger = self.model.logger
            waiting = brought["waiting"] if isinstance(logger, Logger) else {}
            for name, (value, count, excluded) in waiting.items():
                logger.name_to_value[str(name)] = decode(value)
                logger.name_to_count[str(name)] = int(count)
                logger.name_to_excluded[str(name)] = tuple(map(str, excluded))
            self._put_back_callbacks(brought["callbacks"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"what the file says of callbacks and counters is damaged: {error!r:.200}.") from error

    def _put_back_clock(self, brought: Mapping[str, Any]) -> None:
        clock = self.model.clock
        clock.iterations, clock.started_at = brought["iterations"], brought["started_at"]
        clock.began -= int(brought["seconds"] * 1e9)
        if clock.total == clock.steps:  # no steps were requested beyond those under way
            clock.total = brought["total"]

    def _put_back_callbacks(self, brought: list[dict[str, Any]]) -> None:
        """Restore the callbacks' numbers, if classes and order are equal."""
        present = [type(one).__name__ for one, _ in self.callbacks]
        saved = [one["class"] for one in brought]
        if present != saved:
            warn_user(
                f"callbacks begin to count again: the checkpoint is of a training with {', '.join(saved) or 'none'}, "
                f"and this one has {', '.join(present) or 'none'}. Give learn() the same callbacks in the same order."
            )
            return
        for (callback, _), one in zip(self.callbacks, brought, strict=True):
            for name, value in one["has"].items():
                number = decode(value)
                if _is_numbers(number) and not _is_code(callback, name):
                    setattr(callback, name, number)


def _numbers_of(callback: BaseCallback) -> dict[str, Any]:
    """Returns the attributes that are numbers or collections of numbers, as JSON values; without those too long for a
    file."""
    found = {name: value for name, value in vars(callback).items() if name not in _OF_ALL and _is_numbers(value)}
    if long := [name for name, value in found.items() if _size(value) > _MOST]:
        kind = type(callback).__name__
        advise(
            f"long attributes of {kind} in checkpoints",
            f"{kind}.{long[0]} holds more than {_MOST:,} numbers and is not in checkpoints: it begins again in a "
            "training that is resumed. Write it to a file of its own.",
        )
    return {name: encode(value) for name, value in found.items() if name not in long}


def _counted(callback: BaseCallback, before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the callback's numbers, without constructor arguments that are unchanged since the start of training."""
    arguments = inspect.signature(type(callback)).parameters
    now = _numbers_of(callback)
    return {name: value for name, value in now.items() if name not in arguments or value != before.get(name)}


def _is_numbers(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_numbers(item) for key, item in value.items())
    if type(value) in (list, tuple):
        return all(map(_is_numbers, value))
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "biuf"
    return value is None or isinstance(value, bool | int | float | np.number | np.bool_)


def _size(value: Any) -> int:
    """Returns the number of numbers in a value."""
    if isinstance(value, np.ndarray):
        return value.size
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    return 1 if inside is None else sum(map(_size, inside))


def _is_code(callback: BaseCallback, name: str) -> bool:
    """Whether a name belongs to the class, or to an attribute without numbers."""
    of_class = getattr(type(callback), name, None)
    there = vars(callback).get(name)
    return name in _OF_ALL or callable(of_class) or isinstance(of_class, property) or not _is_numbers(there)


# -- files -------------------------------------------------------------------------------------------------------------


def lengths(folder: Path, pattern: str) -> dict[str, int]:
    """Returns the lengths of files that grow during training, by name: lines of tables, bytes of others."""
    found = sorted(folder.glob(pattern))
    return {file.name: _lines(file) if file.suffix == ".csv" else file.stat().st_size for file in found}


def _lines(file: Path) -> int:
    with file.open("rb") as opened:
        return sum(part.count(b"\n") for part in iter(lambda: opened.read(1 << 20), b""))


def _tensorboard(logger: Any) -> dict[str, Any]:
    """Returns the folder of TensorBoard's files, and their lengths."""
    sinks = logger.output_formats if isinstance(logger, Logger) and logger.dir is not None else []
    if not any(isinstance(sink, TensorBoardOutputFormat) for sink in sinks):
        return {}
    return {"tensorboard": events_in(Path(logger.dir))}


def events_in(folder: Path) -> dict[str, Any]:
    """A folder of TensorBoard's, and the lengths of its files, as :func:`cut_events` takes them."""
    return {"folder": folder.name, "files": lengths(folder, _EVENTS)}


def cut_tables(folder: Path, state: Mapping[str, Any]) -> None:
    """Truncate the log tables in the folder of a checkpoint to their lengths at that time.

    Raises:
        ValueError: the state is damaged.
    """
    _cut(folder, state.get("tables", {}), _TABLES)


def cut_events(folder: Path, state: Mapping[str, Any]) -> None:
    """Truncate TensorBoard's files in the folder of its runs; later files are deleted."""
    if (events := state.get("tensorboard")) is None:
        return
    name, files = events["folder"], events["files"]
    if not _NAME.fullmatch(name) or not (folder / name).is_dir():
        raise ValueError(f"the checkpoint has TensorBoard's files in {name!r:.100}, which is no folder in {folder}.")
    _cut(folder / name, files, _EVENTS)
    for file in (folder / name).glob(_EVENTS):
        if file.name not in files:
            file.unlink()


def _cut(folder: Path, known: Mapping[str, int], pattern: str) -> None:
    """Truncate files to the lengths of :func:`lengths`; a name that does not match the pattern is refused.

    Files are replaced, so that a process with an open file does not write to them.

    Raises:
        ValueError: a name leads to another folder, or a length is not a number.
    """
    for name, length in known.items():
        if not _NAME.fullmatch(name) or not Path(name).match(pattern):
            raise ValueError(f"the checkpoint names {name!r:.100} among the logs in {folder}: it is damaged.")
        check_counter(f"length of {name}", length)
        path = folder / name
        if path.is_file() and not path.is_symlink():
            whole = path.read_bytes()
            rest = whole.split(b"\n", length)[length:] if path.suffix == ".csv" else [whole[length:]]
            kept = whole.removesuffix(b"".join(rest))
            with replacing(path) as file:
                file.write(kept)
