"""Methods of ours that a subclass or a program may have replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def plain(method: Method) -> Method:
    """Mark a method whose random numbers ``draw_noise`` of the policy draws, or that nothing but speed depends on.

    An override in a subclass, or a function assigned in its place, lacks the mark, and draws by itself.
    """
    method.is_plain = True  # type: ignore[attr-defined]
    return method


def is_plain(owner: object, *methods: str) -> bool:
    """Whether those of these methods that an object has are marked as :func:`plain`."""
    found = (getattr(owner, name, None) for name in methods)
    return all(method is None or getattr(method, "is_plain", False) is True for method in found)
