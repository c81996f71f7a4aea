"""Names of ``ray`` itself that programs use where Ray is not installed.

Without Ray there is one process, and nothing has to be started. More processes, by ``num_env_runners`` and
``num_learners``, need an installed Ray, which then provides these names itself.
"""

from __future__ import annotations

from typing import Any

__version__ = "2.60.0"
"""The version of Ray whose names are provided."""
_RUNNING = False


def init(*args: Any, **kwargs: Any) -> None:
    """Note that the program uses Ray. There are no processes to start or to connect to."""
    global _RUNNING
    _RUNNING = True


def shutdown(*args: Any, **kwargs: Any) -> None:
    """Note that it has ended."""
    global _RUNNING
    _RUNNING = False


def is_initialized() -> bool:
    """Whether :func:`init` was called last."""
    return _RUNNING
