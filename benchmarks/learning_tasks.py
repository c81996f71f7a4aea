"""The learning tasks of ``tests/scores/tasks.py``, loaded by path so that a peer's environment can read them too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_PATH = Path(__file__).resolve().parents[1] / "tests" / "scores" / "tasks.py"
_spec = importlib.util.spec_from_file_location("learning_tasks_data", _PATH)
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = _module  # dataclasses look their own module up by name
_spec.loader.exec_module(_module)

Task = _module.Task
Library = _module.Library
LEARNING = _module.LEARNING
PARITY = _module.PARITY
EVALUATION_SEED = _module.EVALUATION_SEED
make_env = _module.make_env
make_model = _module.make_model
evaluate = _module.evaluate
