"""Results of ``train()`` as files for RLlib's users: ``progress.csv``, ``result.json``, ``params.json`` and events of
TensorBoard.

They are written into one folder: that of ``debugging(logger_config={"logdir": ...})``, or else a new one below
``~/ray_results``, once ``algo.logdir`` is read; under ``polyak run`` from the first result on.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from polyak.compat.run import MARK
from polyak.hyperparameters.declaration import require
from polyak.logging.logger import CSVOutputFormat, JSONOutputFormat, KVWriter, TensorBoardOutputFormat
from polyak.warning import advise
from polyak.writing import replacing

FOLDER = Path("~/ray_results")
PROGRESS, RESULT, PARAMS = "progress.csv", "result.json", "params.json"
_NO_CURVES = ("config", "pid", "timestamp", "time_total_s", "training_iteration")
"""Results that are no curves."""


class ResultFiles:
    """The files of one algorithm.

    Args:
        config: the config, whose settings are written.

    Raises:
        HyperparameterError: the folder of ``logger_config`` holds the results of another training.
    """

    def __init__(self, config: Any) -> None:
        self._config, self._writers = config, list[KVWriter]()
        self._folder: Path | None = None
        self._latest: Mapping[str, Any] | None = None
        given = (config.logger_config or {}).get("logdir")
        if given is not None:
            self._folder = Path(given).expanduser()
            taken = (self._folder / PROGRESS).exists()
            fix = "it holds the results of another training. Give another folder."
            require(not taken, "logger_config['logdir']", given, fix)
        self._wanted = given is not None or MARK in os.environ

    @property
    def folder(self) -> Path:
        """The folder of the files, made at the first access. It then holds the latest result and later ones."""
        if not self._writers:
            self._open()
            if self._latest is not None:
                self._write(self._latest)
        assert self._folder is not None
        return self._folder

    def leave(self) -> None:
        """Write nothing: something else does so."""
        self._wanted = False

    def add(self, result: Mapping[str, Any]) -> None:
        """Note one more result."""
        if self._wanted and not self._writers:
            self._open()
        self._latest = result
        if self._writers:
            self._write(result)

    def _open(self) -> None:
        if self._folder is None:
            above = FOLDER.expanduser()
            above.mkdir(parents=True, exist_ok=True)
            env = re.sub(r"\W+", "-", str(getattr(self._config.env, "__name__", self._config.env)))
            name = f"{self._config.name}_{env}_{datetime.now():%Y-%m-%d_%H-%M-%S}"
            self._folder = Path(tempfile.mkdtemp(prefix=name, dir=above))
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        settings = json.dumps(self._config.to_dict(), indent=2, sort_keys=True, default=str)
        with replacing(folder / PARAMS) as file:
            file.write(f"{settings}\n".encode())
        self._writers = [CSVOutputFormat(folder / PROGRESS), JSONOutputFormat(folder / RESULT)]
        if importlib.util.find_spec("tensorboard") is None:
            advise("results without tensorboard", "there are no curves for TensorBoard: pip install 'polyak[extra]'.")
        else:
            self._writers.append(TensorBoardOutputFormat(folder))

    def _write(self, result: Mapping[str, Any]) -> None:
        table, lines, *curves = self._writers
        flat = dict(flattened({name: value for name, value in result.items() if name != "config"}))
        table.write(flat, {})
        lines.write(dict(result), {})
        drawn = {f"ray/tune/{name}": value for name, value in flat.items() if name.split("/")[0] not in _NO_CURVES}
        for one in curves:
            one.write({name: value for name, value in drawn.items() if is_number(value)}, {}, result[_NO_CURVES[-1]])

    def close(self) -> None:
        """Close the files."""
        for writer in self._writers:
            writer.close()


def flattened(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values by their names, joined by slashes."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value


def is_number(value: Any) -> bool:
    """Whether a value can be drawn."""
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
