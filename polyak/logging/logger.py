"""The logger of a training: tables on the screen or in a file, CSV, JSON, TensorBoard, or several of these."""

import csv
import datetime
import json
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from io import TextIOBase, TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch

from polyak.warning import warn_user
from polyak.writing import make_folder, replacing

DEBUG = 10
INFO = 20
WARN = 30
ERROR = 40
DISABLED = 50

Excluded = Mapping[str, tuple[str, ...]]


# -- media and other values --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Video:
    """A clip for TensorBoard.

    Args:
        frames: ``[N, T, C, H, W]``.
        fps: frames per second.
    """

    frames: torch.Tensor
    fps: float


@dataclass(eq=False)
class Figure:
    """A matplotlib figure for TensorBoard.

    Args:
        figure: the figure.
        close: whether to close it once it is written.
    """

    figure: Any
    close: bool


@dataclass(eq=False)
class Image:
    """An image for TensorBoard.

    Args:
        image: array or tensor.
        dataformats: order of its dimensions, such as ``"HWC"`` or ``"CHW"``.
    """

    image: torch.Tensor | np.ndarray | str
    dataformats: str


@dataclass(eq=False)
class HParam:
    """Hyper-parameters for TensorBoard's HPARAMS page.

    Args:
        hparam_dict: name to value.
        metric_dict: names of logged values to show beside them, with a start value each; must not be empty.

    Raises:
        ValueError: ``metric_dict`` is empty: TensorBoard would show nothing.
    """

    hparam_dict: Mapping[str, bool | str | float | None]
    metric_dict: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.metric_dict:
            raise ValueError("metric_dict must not be empty, e.g. {'rollout/ep_rew_mean': 0.0}: TensorBoard needs one.")


class FormatUnsupportedError(NotImplementedError):
    """A value cannot be written in a format.

    Args:
        unsupported_formats: their names, as ``exclude`` takes them.
        value_description: kind of the value, e.g. ``"video"``.
    """

    def __init__(self, unsupported_formats: Sequence[str], value_description: str) -> None:
        super().__init__(
            f"{', '.join(unsupported_formats)} cannot hold a value of kind {value_description!r}. "
            f"Leave it out there: record(key, value, exclude={tuple(unsupported_formats)!r})."
        )


def _refuse_media(value: Any, *formats: str) -> None:
    if isinstance(value, Video | Figure | Image | HParam):
        raise FormatUnsupportedError(formats, type(value).__name__.lower())


# -- sinks -------------------------------------------------------------------------------------------------------------


class KVWriter:
    """A sink for named values."""

    def write(self, key_values: dict[str, Any], key_excluded: Excluded, step: int = 0) -> None:
        """Write one set of values.

        Args:
            key_values: name to value.
            key_excluded: name to the formats that must leave it out.
            step: environment steps so far.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Release the file."""
        raise NotImplementedError


class SeqWriter:
    """A sink for messages."""

    def write_sequence(self, sequence: Sequence[str]) -> None:
        """Write one message given as its parts."""
        raise NotImplementedError


def filter_excluded_keys(key_values: Mapping[str, Any], key_excluded: Excluded, _format: str) -> dict[str, Any]:
    """Returns the values that ``_format`` may write."""
    return {key: value for key, value in key_values.items() if _format not in (key_excluded.get(key) or ())}


class HumanOutputFormat(KVWriter, SeqWriter):
    """A human-readable table per dump, with keys grouped by their part before the first slash.

    Args:
        filename_or_file: path of a file to overwrite, or an open text file.
        max_length: longest key or value; longer ones are cut and end in ``...``.

    Raises:
        ValueError: neither a path nor a writable file; on writing, two keys that look the same once cut.
    """

    def __init__(self, filename_or_file: str | Path | TextIO, max_length: int = 36) -> None:
        self.max_length = max_length
        self.own_file = isinstance(filename_or_file, str | Path)
        # Progress bars replace sys.stdout while they are shown, so that printed text appears above them.
        self._is_stdout = filename_or_file is sys.stdout
        self._file: TextIO | TextIOBase
        if isinstance(filename_or_file, str | Path):
            self._file = open(filename_or_file, "w", encoding="utf-8")  # noqa: SIM115  (closed by close())
        elif hasattr(filename_or_file, "write"):
            self._file = filename_or_file
        else:
            raise ValueError(f"Expected file or str, got {filename_or_file!r}. Pass a path or an open text file.")

    @property
    def file(self) -> Any:
        """The file that is written to."""
        return sys.stdout if self._is_stdout else self._file

    def write(self, key_values: dict[str, Any], key_excluded: Excluded, step: int = 0) -> None:
        rows = self._rows(
            filter_excluded_keys(filter_excluded_keys(key_values, key_excluded, "stdout"), key_excluded, "log")
        )
        if not rows:
            warn_user("The table has no rows: nothing was recorded, or `exclude` leaves out every key.")
            return
        key_width, value_width = (max(map(len, column)) for column in zip(*rows, strict=True))
        rule = "-" * (key_width + value_width + 7)
        body = [f"| {key:<{key_width}} | {value:<{value_width}} |" for key, value in rows]
        self.file.write("\n".join([rule, *body, rule]) + "\n")
        self.file.flush()

    def _rows(self, key_values: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Returns the rows of the table as (key, value), truncated to length."""
        rows: list[tuple[str, str]] = []
        seen: set[tuple[str, str]] = set()
        last_group = ""
        for key, value in sorted(key_values.items()):
            _refuse_media(value, "stdout", "log")
            slash = key.find("/")
            group, name = (key[: slash + 1], "   " + key[slash + 1 :]) if slash > 0 else ("", key)
            if group and group != last_group:
                rows.append((self._cut(group), ""))
                last_group = group
            short = self._cut(name)
            if (group, short) in seen:
                raise ValueError(
                    f"Key {name!r} truncated to {short!r} equals another one. Raise max_length={self.max_length}."
                )
            seen.add((group, short))
            rows.append((short, self._cut(f"{value:<8.3g}" if isinstance(value, float | np.floating) else str(value))))
        return rows

    def _cut(self, text: str) -> str:
        return text if len(text) <= self.max_length else text[: self.max_length - 3] + "..."

    def write_sequence(self, sequence: Sequence[str]) -> None:
        self.file.write(" ".join(sequence) + "\n")
        self.file.flush()

    def close(self) -> None:
        if self.own_file:
            self._file.close()


class JSONOutputFormat(KVWriter):
    """One JSON object per dump and line.

    Args:
        filename: path of the file to overwrite.
    """

    def __init__(self, filename: str | Path) -> None:
        self.file = open(filename, "w", encoding="utf-8")  # noqa: SIM115  (closed by close())

    def write(self, key_values: dict[str, Any], key_excluded: Excluded, step: int = 0) -> None:
        included = filter_excluded_keys(key_values, key_excluded, "json")
        for value in included.values():
            _refuse_media(value, "json")
        self.file.write(json.dumps(included, default=_jsonable) + "\n")
        self.file.flush()

    def close(self) -> None:
        self.file.close()


def _jsonable(value: Any) -> Any:
    """Converts types that JSON lacks: arrays become lists, arrays of one element numbers, other values text."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.item() if np.prod(value.shape) == 1 else value.tolist()
    return str(value)


class CSVOutputFormat(KVWriter):
    """A table with one line per dump; a key that first appears later adds a column, empty in earlier lines.

    Args:
        filename: path of the file to overwrite.
        append: continue an existing file.
    """

    def __init__(self, filename: str | Path, append: bool = False) -> None:
        self.path, self.keys = Path(filename), list[str]()
        self.separator, self.quotechar = ",", '"'
        self.file = self.path.open("a+" if append else "w+", newline="", encoding="utf-8")
        self.file.seek(0)
        self.keys += next(csv.reader(self.file, delimiter=self.separator, quotechar=self.quotechar), [])
        self.file.seek(0, os.SEEK_END)

    def write(self, key_values: dict[str, Any], key_excluded: Excluded, step: int = 0) -> None:
        included = filter_excluded_keys(key_values, key_excluded, "csv")
        for value in included.values():
            _refuse_media(value, "csv")
        if new_keys := sorted(included.keys() - set(self.keys)):
            self._add_columns(new_keys)
        self._writer().writerow([_plain(included.get(key)) for key in self.keys])
        self.file.flush()

    def _writer(self) -> Any:
        return csv.writer(self.file, delimiter=self.separator, quotechar=self.quotechar, lineterminator="\n")

    def _add_columns(self, new_keys: list[str]) -> None:
        """Replace the file by one with the longer header; if the program is killed meanwhile, the earlier file remains."""
        self.file.seek(0)
        rows = list(csv.reader(self.file, delimiter=self.separator, quotechar=self.quotechar))
        self.file.close()
        self.keys += new_keys
        with replacing(self.path) as file, TextIOWrapper(file, newline="", encoding="utf-8") as self.file:
            self._writer().writerow(self.keys)
            self._writer().writerows(row + [""] * len(new_keys) for row in rows[1:])
        self.file = self.path.open("a+", newline="", encoding="utf-8")

    def close(self) -> None:
        self.file.close()


def _plain(value: Any) -> Any:
    """Converts an array of one element to a number."""
    is_single = isinstance(value, torch.Tensor | np.ndarray) and np.prod(value.shape) == 1
    return value.item() if is_single else value


class TensorBoardOutputFormat(KVWriter):
    """Scalars, texts, histograms (arrays), images, figures, videos and hyper-parameters for TensorBoard.

    Args:
        folder: folder of the event file.

    Raises:
        ImportError: TensorBoard is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise ImportError("tensorboard is not installed: pip install 'polyak[extra]'") from error
        self.writer = SummaryWriter(log_dir=str(folder))
        self._is_closed = False

    def write(self, key_values: dict[str, Any], key_excluded: Excluded, step: int = 0) -> None:
        if self._is_closed:
            raise RuntimeError("the TensorBoard writer is closed: make a new logger with configure().")
        for key, value in filter_excluded_keys(key_values, key_excluded, "tensorboard").items():
            self._write_one(key, value, step)
        self.writer.flush()

    def _write_one(self, key: str, value: Any, step: int) -> None:
        if isinstance(value, str):
            self.writer.add_text(key, value, step)
        elif isinstance(value, Video):
            self.writer.add_video(key, value.frames, step, value.fps)
        elif isinstance(value, Figure):
            self.writer.add_figure(key, value.figure, step, close=value.close)
        elif isinstance(value, Image):
            self.writer.add_image(key, value.image, step, dataformats=value.dataformats)
        elif isinstance(value, HParam):
            self._write_hyperparameters(value)
        elif isinstance(value, torch.Tensor | np.ndarray) and value.ndim > 0:
            self.writer.add_histogram(key, value, step)
        elif isinstance(value := _plain(value), bool | int | float | np.generic):
            self.writer.add_scalar(key, value, step)

    def _write_hyperparameters(self, value: HParam) -> None:
        from torch.utils.tensorboard.summary import hparams

        # Written into this run's file: SummaryWriter.add_hparams would start another run.
        for summary in hparams(dict(value.hparam_dict), metric_dict=dict(value.metric_dict)):
            self.writer._get_file_writer().add_summary(summary)

    def close(self) -> None:
        if not self._is_closed:
            self.writer.close()
            self._is_closed = True


def make_output_format(_format: str, log_dir: str, log_suffix: str = "") -> KVWriter:
    """Returns the sink called ``_format``.

    Args:
        _format: ``"stdout"``, ``"log"`` (log.txt), ``"json"`` (progress.json), ``"csv"`` (progress.csv) or
            ``"tensorboard"``.
        log_dir: folder of its file; made if missing.
        log_suffix: appended to the file's stem.

    Raises:
        ValueError: an unknown format.
        ImportError: TensorBoard is requested but not installed.
    """
    folder = Path(log_dir)
    makers = {
        "stdout": lambda: HumanOutputFormat(sys.stdout),
        "log": lambda: HumanOutputFormat(folder / f"log{log_suffix}.txt"),
        "json": lambda: JSONOutputFormat(folder / f"progress{log_suffix}.json"),
        "csv": lambda: CSVOutputFormat(folder / f"progress{log_suffix}.csv"),
        "tensorboard": lambda: TensorBoardOutputFormat(folder),
    }
    if _format not in makers:
        raise ValueError(f"Unknown format specified: {_format}. Use one of {', '.join(makers)}.")
    if _format != "stdout":
        make_folder(folder, "folder")
    return makers[_format]()


# -- the logger --------------------------------------------------------------------------------------------------------


class Logger:
    """Collects values between two dumps and writes them to every sink.

    Args:
        folder: folder of the run's files, or ``None``.
        output_formats: the sinks.
    """

    def __init__(self, folder: str | None, output_formats: list[KVWriter]) -> None:
        self.name_to_value: dict[str, Any] = defaultdict(float)
        self.name_to_count: dict[str, int] = defaultdict(int)
        self.name_to_excluded: dict[str, tuple[str, ...]] = {}
        self.level = INFO
        self.dir = folder
        self.output_formats = output_formats

    @staticmethod
    def to_tuple(string_or_tuple: str | tuple[str, ...] | None) -> tuple[str, ...]:
        """Returns ``exclude`` as a tuple of names of formats."""
        return string_or_tuple if isinstance(string_or_tuple, tuple) else (string_or_tuple or "",)

    def record(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        """Log a value; of several under one key between two dumps, the last is written.

        Args:
            key: its name; the part before the first slash is its group.
            value: a number, a text, an array or tensor, or a :class:`Video`, :class:`Figure`, :class:`Image`,
                :class:`HParam`. A tensor is copied at once, and moved to the CPU when it is dumped.
            exclude: formats to omit it from: ``"stdout"``, ``"log"``, ``"json"``, ``"csv"``, ``"tensorboard"``.
        """
        self.name_to_value[key] = _detached(value)
        self.name_to_excluded[key] = exclude if isinstance(exclude, tuple) else (exclude or "",)

    def record_mean(self, key: str, value: Any, exclude: str | tuple[str, ...] | None = None) -> None:
        """Log the mean of all values under this key between two dumps; ``None`` is ignored.

        Args:
            key: its name.
            value: a number or a tensor.
            exclude: formats to omit it from.
        """
        if value is None:
            return
        count = self.name_to_count[key]
        mean = self.name_to_value[key] if count else 0.0
        self.name_to_value[key] = mean + (_detached(value) - mean) / (count + 1)
        self.name_to_count[key] = count + 1
        self.name_to_excluded[key] = self.to_tuple(exclude)

    def dump(self, step: int = 0) -> None:
        """Write the values since the last dump to every sink, and clear them.

        Args:
            step: environment steps so far.
        """
        if self.level < DISABLED:
            values = without_scalar_tensors(self.name_to_value)
            for sink in self.output_formats:
                if isinstance(sink, KVWriter):
                    sink.write(values, self.name_to_excluded, step)
        self.name_to_value.clear()
        self.name_to_count.clear()
        self.name_to_excluded.clear()

    def log(self, *args: Any, level: int = INFO) -> None:
        """Write a message to every sink that takes messages, if ``level`` is at least the logger's."""
        if self.level <= level:
            for sink in self.output_formats:
                if isinstance(sink, SeqWriter):
                    sink.write_sequence([str(arg) for arg in args])

    def debug(self, *args: Any) -> None:
        """Write a message of level ``DEBUG``."""
        self.log(*args, level=DEBUG)

    def info(self, *args: Any) -> None:
        """Write a message of level ``INFO``."""
        self.log(*args, level=INFO)

    def warn(self, *args: Any) -> None:
        """Write a message of level ``WARN``."""
        self.log(*args, level=WARN)

    def error(self, *args: Any) -> None:
        """Write a message of level ``ERROR``."""
        self.log(*args, level=ERROR)

    def set_level(self, level: int) -> None:
        """Ignore messages below ``level``; ``DISABLED`` also stops values."""
        self.level = level

    def get_dir(self) -> str | None:
        """Returns the run's folder, created if necessary; ``None`` if the logger has none."""
        if self.dir is not None:
            make_folder(self.dir, "folder")
        return self.dir

    def close(self) -> None:
        """Close every sink."""
        for sink in self.output_formats:
            sink.close()


def _detached(value: Any) -> Any:
    """Returns a copy, since training may overwrite a tensor in place before the dump; does not synchronise with a GPU."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.item() if value.ndim == 0 and value.device.type == "cpu" else value.detach().clone()


def without_scalar_tensors(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns ``values`` with tensors on the CPU and scalars as Python numbers, moved once per device and dtype."""
    tensors = {key: value for key, value in values.items() if isinstance(value, torch.Tensor)}
    return {**values, **(_moved(tensors) if tensors else {})}


def _moved(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    kinds: dict[tuple[torch.device, torch.dtype], list[str]] = defaultdict(list)
    for key, value in tensors.items():
        if value.ndim == 0:
            kinds[value.device, value.dtype].append(key)
        else:
            result[key] = value.cpu()
    for keys in kinds.values():
        result.update(zip(keys, torch.stack([tensors[key] for key in keys]).tolist(), strict=True))
    return result


def configure(folder: str | None = None, format_strings: Iterable[str] | None = None) -> Logger:
    """Returns a logger that writes into ``folder``.

    Args:
        folder: ``None`` uses ``$SB3_LOGDIR``, or without that a new temporary folder.
        format_strings: sinks, see :func:`make_output_format`; ``None`` uses ``$SB3_LOG_FORMAT`` (separated by commas),
            or without that ``stdout,log,csv``.

    Raises:
        ValueError: an unknown format.
        ImportError: TensorBoard is requested but not installed.
    """
    if folder is None:
        stamp = datetime.datetime.now().strftime("polyak-%Y-%m-%d-%H-%M-%S-%f")
        folder = os.getenv("SB3_LOGDIR") or os.path.join(tempfile.gettempdir(), stamp)
    elif not isinstance(folder, str | os.PathLike):
        raise TypeError(f"folder must be a path or None, got {folder!r}.")
    folder = os.path.expanduser(folder)
    if format_strings is None:
        format_strings = os.getenv("SB3_LOG_FORMAT", "stdout,log,csv").split(",")
    names = [name for name in format_strings if name]
    logger = Logger(os.fspath(folder), [make_output_format(name, folder) for name in names])
    if set(names) - {"stdout"}:
        logger.log(f"Logging to {folder}")
    return logger


def configure_logger(
    verbose: int = 0, tensorboard_log: str | None = None, tb_log_name: str = "", reset_num_timesteps: bool = True
) -> Logger:
    """Returns the logger of a call of ``learn``.

    Args:
        verbose: 1 or more prints tables.
        tensorboard_log: folder of TensorBoard runs; ``None`` writes none.
        tb_log_name: name of the run; its folder is ``<name>_<n>``, n one more than the highest there.
        reset_num_timesteps: ``False`` continues with the latest run's folder.

    Raises:
        ImportError: ``tensorboard_log`` is given and TensorBoard is not installed.
    """
    formats = ["stdout"] if verbose >= 1 else []
    if tensorboard_log is None:
        return configure(None, formats)
    run_id = get_latest_run_id(tensorboard_log, tb_log_name) + (1 if reset_num_timesteps else 0)
    folder = os.path.join(tensorboard_log, f"{tb_log_name}_{run_id}")
    return configure(folder, [*formats, "tensorboard"])


def get_latest_run_id(log_path: str = "", log_name: str = "") -> int:
    """Returns the highest n of the entries ``<log_name>_<n>`` in ``log_path``; 0 if there is none."""
    prefix = log_name + "_"
    entries = os.listdir(log_path or ".") if os.path.isdir(log_path or ".") else []
    numbers = [entry[len(prefix) :] for entry in entries if entry.startswith(prefix)]
    return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=0)
