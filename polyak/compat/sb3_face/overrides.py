"""Methods that a user's subclass overrides, and checks for those that polyak would not call.

What a subclass overrides is called, or refused before anything is trained, with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from polyak.hyperparameters.declaration import require


def is_ours(cls: Any, base: type) -> bool:
    """Whether a class is one of ``base``'s kind."""
    return isinstance(cls, type) and issubclass(cls, base)


def changed(cls: type, base: type, names: Iterable[str]) -> list[str]:
    """Those of some methods that a subclass overrides or adds."""
    return [name for name in names if _found(cls, name) not in (None, _found(base, name))]


def _found(cls: type, name: str) -> Any:
    return inspect.getattr_static(cls, name, None)


def refuse(argument: str, cls: type, base: type, reasons: Mapping[str, str]) -> None:
    """Refuse a subclass that overrides methods which polyak does not call.

    Args:
        argument: where the program gave it.
        cls: the subclass.
        base: whose methods it may have taken over.
        reasons: method -> why it is not called, and what to do instead.

    Raises:
        HyperparameterError: naming the method, with the reason.
    """
    for name in changed(cls, base, reasons):
        require(False, argument, cls, f"its {name}() would never be called: {reasons[name]}.")
