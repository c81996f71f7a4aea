"""Notes that a run writes while it trains, for later readers of its folder.

::

    progress.csv                  every value that is logged: losses, speed, time split
    <EnvId>/warnings.txt          warnings given during the run, one a line
    <EnvId>/system.yml            the machine and the versions
"""

from __future__ import annotations

import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.saved import system_info
from polyak.logging.logger import CSVOutputFormat, KVWriter
from polyak.zoo.run_folder import RunFolder

WARNINGS = "warnings.txt"
SYSTEM = "system.yml"
PROGRESS = "progress.csv"


@contextmanager
def taking_notes(folder: RunFolder) -> Iterator[None]:
    """Write a description of the machine, and every warning inside the block, in order.

    Warnings are shown as before. Those that Python's filters hold back are not written either.
    """
    with suppress(OSError):  # if a run cannot write here, writing its settings reports that
        folder.write_yaml(SYSTEM, machine())
    shown, path = warnings.showwarning, folder.settings_folder / WARNINGS

    def show_and_write(message: Warning | str, category: type[Warning], *where: Any, **also: Any) -> None:
        # A full disk must not turn a warning into the end of a run.
        with suppress(OSError), path.open("a", encoding="utf-8") as file:
            file.write(f"{category.__name__}: {' '.join(str(message).split())}\n")
        shown(message, category, *where, **also)

    warnings.showwarning = show_and_write
    try:
        yield
    finally:
        if warnings.showwarning is show_and_write:
            warnings.showwarning = shown


class SinkCallback(BaseCallback):
    """Makes `sink` one more of the model's logger while it learns."""

    _reads_locals = False

    def __init__(self, sink: KVWriter | None = None) -> None:
        super().__init__()
        self.sink = sink

    def _on_training_start(self) -> None:
        if self.sink is not None and self.sink not in self.logger.output_formats:
            self.logger.output_formats.append(self.sink)

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        if self.sink in self.logger.output_formats:
            self.logger.output_formats.remove(self.sink)


class ProgressFile(SinkCallback):
    """Adds ``progress.csv`` to the outputs of the model's logger while it trains.

    Its first row describes the beginning, so that a run that is killed before its first table has a row, too.

    Args:
        folder: folder of the file; an existing file is overwritten.
        append: continue it instead.
    """

    def __init__(self, folder: Path, append: bool = False) -> None:
        super().__init__()
        self.path, self.append = folder / PROGRESS, append

    def _on_training_start(self) -> None:
        self.sink = CSVOutputFormat(self.path, self.append)
        beginning = {"time/total_timesteps": self.num_timesteps, "time/time_elapsed": 0}
        if not self.append:
            self.sink.write(beginning, dict.fromkeys(beginning, ()))
        super()._on_training_start()

    def _on_training_end(self) -> None:
        super()._on_training_end()
        if self.sink is not None:
            self.sink.close()


def machine() -> dict[str, str]:
    """Return the versions of the libraries, the processor and the GPU, by name, as plain text."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    found = {**system_info(), "GPU": gpu, "Processor": _processor(), "CPU cores": os.cpu_count()}
    return {name: str(value) for name, value in found.items()}  # a version of torch is more than a str


def _processor() -> str:
    """Return the processor's name: on Linux from a file, elsewhere from Python."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
