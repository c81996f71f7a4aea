"""Marks that programs written for RLlib put on their classes and methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class _Overriding:
    """A method marked with the class whose method it overrides; its own class stores the method itself."""

    def __init__(self, method: Callable[..., Any], parent: type[Any]) -> None:
        self.method, self.parent = method, parent

    def __set_name__(self, owner: type[Any], name: str) -> None:
        if not issubclass(owner, self.parent):
            raise TypeError(f"override({self.parent.__name__}) of {name}: {owner.__name__} is no subclass of it.")
        if not hasattr(self.parent, name):
            raise NameError(
                f"override({self.parent.__name__}) of {name}: polyak's {self.parent.__name__} has no such method, so "
                "that it would never be called. See docs/scale.md for what is called."
            )
        setattr(owner, name, self.method)


def override(parent_cls: type[Any]) -> Callable[[T], T]:
    """Marks a method as an override of one of ``parent_cls``.

    Raises:
        TypeError: when its class is made, which is no subclass. Before Python 3.12 this error, and the next one, is the
            cause of a RuntimeError.
        NameError: when its class is made: ``parent_cls`` has no such method.
    """
    mark: Any = lambda method: _Overriding(method, parent_cls)  # noqa: E731
    return mark


def OverrideToImplementCustomLogic(marked: T) -> T:
    """Returns its argument: the mark is for readers."""
    return marked


OverrideToImplementCustomLogic_CallToSuperRecommended = ExperimentalAPI = OldAPIStack = OverrideToImplementCustomLogic


def PublicAPI(*marked: Any, **stability: Any) -> Any:
    """Returns its argument, with or without arguments: the mark is for readers."""
    return marked[0] if marked else OverrideToImplementCustomLogic


DeveloperAPI = PublicAPI
