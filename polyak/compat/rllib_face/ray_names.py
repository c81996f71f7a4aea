"""Names of ``ray`` itself that programs use where Ray is not installed.

Without it there is one process, in which nothing has to be started. More of them are asked for by ``num_env_runners``
and ``num_learners``, and need an installed Ray, which then answers these names itself.
"""

from __future__ import annotations

from typing import Any

__version__ = "2.60.0"
"""Of the Ray whose RLlib's names are answered."""
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
