"""Methods that a user's subclass overrides, and checks for those that polyak would not call.

An override is called, or refused before training, with the reason.
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
    """Returns those of the methods ``names`` that a subclass overrides or adds."""
    return [name for name in names if _found(cls, name) not in (None, _found(base, name))]


def _found(cls: type, name: str) -> Any:
    return inspect.getattr_static(cls, name, None)


def refuse(argument: str, cls: type, base: type, reasons: Mapping[str, str]) -> None:
    """Refuse a subclass that overrides methods which polyak does not call.

    Args:
        argument: the argument that the class was given as.
        cls: the subclass.
        base: the base class whose methods it may override.
        reasons: method -> the reason why it is not called, and the alternative.

    Raises:
        HyperparameterError: it does; the message names the method and the reason.
    """
    for name in changed(cls, base, reasons):
        require(False, argument, cls, f"its {name}() would never be called: {reasons[name]}.")
