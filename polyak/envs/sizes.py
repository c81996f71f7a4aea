"""Limits on environments, processes and frames, checked before memory is allocated or a process starts."""

from __future__ import annotations

MOST_ENVS = 100_000
"""Environments of a vector of environments."""
MOST_TENSOR_ENVS = 10_000_000
"""Most environments in one tensor of states."""
MOST_PROCESSES = 1_024
"""Processes that one program starts on this machine."""
MOST_RUNNERS = 10_000
"""Processes on a cluster."""
MOST_FRAMES = 1_000
"""Observations that are stacked."""


def check_size(name: str, value: int, most: int | None = None) -> None:
    """Refuse a size below 1, or one that is probably a mistake.

    Raises:
        ValueError: ``value`` is below 1 or exceeds ``most``; the message names the argument, its value and the limit.
    """
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}.")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most:,}, got {value:,}.")
