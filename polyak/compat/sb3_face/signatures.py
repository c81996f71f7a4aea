"""Functions with another library's parameter order and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
Fields = TypeVar("Fields", bound="DataclassInstance")


def with_defaults(function: Callable[..., T], **defaults: Any) -> Callable[..., T]:
    """``function`` with other default values."""
    signature = inspect.signature(function)
    changed = [p.replace(default=defaults.get(name, p.default)) for name, p in signature.parameters.items()]
    own = signature.replace(parameters=changed)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> T:
        try:
            bound = own.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # its error has the fix
        for name, value in defaults.items():
            bound.arguments.setdefault(name, value)
        return function(*bound.args, **bound.kwargs)

    vars(call)["__signature__"] = own
    return call


def in_order(order: str) -> Callable[[type[Fields]], type[Fields]]:
    """Decorate an algorithm: its hyper-parameters may be given by position, in this order, after policy and env.

    Args:
        order: names of fields, separated by blanks. Fields that are not named stay keyword-only.
    """

    def decorate(cls: type[Fields]) -> type[Fields]:
        build, names = cls.__init__, order.split()
        given = {p.name: p for p in inspect.signature(build).parameters.values()}
        positional = ["self", "policy", "env", *names]
        first = [given[name].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in positional]
        rest = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, p in given.items() if name not in positional]
        own = inspect.Signature([*first, *rest])

        @wraps(build)
        def __init__(self: Fields, *args: Any, **kwargs: Any) -> None:
            if len(args) > 3:
                kwargs = {**_by_name(cls.__name__, names[1:], args[3:], kwargs), **kwargs}
            build(self, *args[:3], **kwargs)

        vars(__init__)["__signature__"] = own
        setattr(cls, "__init__", __init__)  # noqa: B010  # a plain assignment to a method does not type-check
        known = {f.name for f in fields(cls)}
        assert known >= set(names) - {"_init_setup_model"}, f"{cls.__name__} lacks {set(names) - known}"
        return cls

    return decorate


def _by_name(owner: str, names: list[str], values: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    if len(values) > len(names):
        raise TypeError(f"{owner}.__init__() takes at most {len(names) + 3} positional arguments.")
    positional = dict(zip(names, values, strict=False))
    if twice := sorted(positional.keys() & kwargs.keys()):
        raise TypeError(f"{owner}.__init__() got multiple values for keyword argument {twice[0]!r}")
    return positional
