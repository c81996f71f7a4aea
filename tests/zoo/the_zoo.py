"""RL Baselines3 Zoo itself, to run beside ours.

``POLYAK_ZOO_PYTHON`` is the interpreter of an environment with ``rl_zoo3`` (its plots included) in it.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = os.environ.get("POLYAK_ZOO_PYTHON", "")
needs_the_zoo = pytest.mark.skipif(not PYTHON, reason="needs POLYAK_ZOO_PYTHON, a Python with rl_zoo3")


def program(words: list[str], folder: Path) -> str:
    """Run a program in `folder` and return what it printed; it must end well."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    result = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def theirs(module: str, *words: str, folder: Path) -> str:
    """Run a module of the Zoo's."""
    return program([PYTHON, "-m", f"rl_zoo3.{module}", *words], folder)


def ours(*words: str, folder: Path) -> str:
    """Run a command of polyak's."""
    return program([sys.executable, "-m", "polyak", *words], folder)
