"""Warnings of what is allowed and yet seldom meant. Each is given once in a process, with the way out."""

from __future__ import annotations

from polyak.warning import warn_user

_given: set[str] = set()


def advise(kind: str, message: str) -> None:
    """Warn, unless this kind of warning has been given before.

    Args:
        kind: what the warning is about.
        message: what happens, and what to write if something else was meant.
    """
    if kind in _given:
        return
    _given.add(kind)
    warn_user(message, UserWarning)


def forget() -> None:
    """Let every kind of warning be given again."""
    _given.clear()
