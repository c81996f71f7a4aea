"""Marks of methods, by which an override in a subclass or a program is detected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def plain(method: Method) -> Method:
    """Mark a method whose random numbers ``draw_noise`` of the policy draws, or that affects speed only.

    An override in a subclass, or a function assigned in its place, lacks the mark and draws its own random numbers.
    """
    vars(method)["is_plain"] = True
    return method


def is_plain(owner: object, *methods: str) -> bool:
    """Whether each of these methods, where an object has it, is marked as :func:`plain`."""
    found = (getattr(owner, name, None) for name in methods)
    return all(method is None or getattr(method, "is_plain", False) is True for method in found)
