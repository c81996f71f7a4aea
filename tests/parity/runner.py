"""Runs the programs of one file and writes what they return as JSON.

    python runner.py programs/monitors.py answers.json

Started by a Python that has Stable-Baselines3, or by ``polyak run``; it imports neither library itself.
"""

import contextlib
import importlib
import inspect
import io
import json
import math
import random
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

WHOLE = 40
"""Arrays of at most so many numbers are written out; of larger ones the first few and two sums."""


def plain(value: Any) -> Any:
    """``value`` as JSON can hold it: arrays with shape and dtype, classes and objects by the name of their class."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, np.integer | int) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, np.floating | float):
        return number(float(value))
    if value is None or isinstance(value, str):
        return str(value) if value is not None else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, torch.Tensor):
        return array(value.detach().cpu().numpy(), "torch." + str(value.dtype).removeprefix("torch."))
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return plain(value.item())
    if isinstance(value, np.ndarray):
        return array(value, str(value.dtype))
    if isinstance(value, Path):
        return value.name
    return f"<{value.__name__ if isinstance(value, type) else type(value).__name__}>"


def number(value: float) -> float | str:
    """A float to seven digits; JSON has no infinities."""
    return float(f"{value:.7g}") if math.isfinite(value) else str(value)


def array(values: np.ndarray, dtype: str) -> dict[str, Any]:
    """Shape, dtype and numbers."""
    shape = {"dtype": dtype, "shape": list(values.shape)}
    if values.dtype == object:
        return shape | {"values": [plain(item) for item in values.ravel()]}
    if values.size <= WHOLE:
        return shape | {"values": [plain(item) for item in values.ravel()]}
    wide = values.astype(np.float64)
    sums = {"sum": number(float(wide.sum())), "size": number(float(np.abs(wide).sum()))}
    return shape | sums | {"first": [plain(item) for item in values.ravel()[:6]]}


def builtin_name(error: BaseException) -> str:
    """The built-in class that an ``except`` clause would name for it."""
    return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins")


def answer(program: Any, folder: Path) -> Any:
    """What a program returns, or that it raised."""
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    takes_folder = "folder" in inspect.signature(program).parameters
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return plain(program(folder) if takes_folder else program())
    except Exception as error:
        return {"raised": builtin_name(error), "message": f"{type(error).__name__}: {error}"[:300]}


def main(path: str, out: str) -> None:
    """Answer every public function of the file."""
    torch.set_num_threads(1)
    file = Path(path).resolve()
    sys.path.insert(0, str(file.parent))
    module = importlib.import_module(file.stem)
    answers = {}
    for name, program in list(vars(module).items()):
        if inspect.isfunction(program) and not name.startswith("_") and program.__module__ == module.__name__:
            with tempfile.TemporaryDirectory() as folder:
                answers[name] = answer(program, Path(folder))
    Path(out).write_text(json.dumps(answers, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
