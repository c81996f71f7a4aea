"""Functions and constructors with another library's parameter order and defaults."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

from polyak.nn.options import parameters_of
from polyak.suggestions import did_you_mean

T = TypeVar("T")
C = TypeVar("C", bound=type)
Fields = TypeVar("Fields", bound="DataclassInstance")


def with_defaults(function: Callable[..., T], **defaults: Any) -> Callable[..., T]:
    """Returns ``function`` with other default values."""
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

    vars(call).update(__signature__=own, _before_defaults=function)
    return call


def takes(
    order: str, *parts: type, first: str = "observation_space action_space", required: str = "", **defaults: Any
) -> Callable[[C], C]:
    """Decorate a class: its constructor takes exactly these arguments, by position too.

    The constructor that the class has otherwise, below those made here, gets all of them by name. ``_arguments`` of the
    class holds their names.

    Args:
        order: names of arguments after the first ones, separated by blanks.
        parts: further classes in which arguments and their defaults are found, besides the class and those above it.
        first: names of the first arguments.
        required: names of arguments that have no default here.
        defaults: the defaults that differ here.

    Raises:
        TypeError: on a call, naming an argument that is unknown, missing or given twice.
    """

    def decorate(cls: C) -> C:
        build = inspect.unwrap(cls.__init__)  # type: ignore[misc]
        owners: tuple[type, ...] = (*reversed(parts), cls)
        known = {name: p for owner in owners for name, p in parameters_of(owner, whole=True).items()}
        names = [*first.split(), *order.split()]
        changed = defaults | dict.fromkeys(required.split(), inspect.Parameter.empty)
        given = [
            known[name].replace(
                kind=inspect.Parameter.POSITIONAL_OR_KEYWORD, default=changed.get(name, known[name].default)
            )
            for name in names
        ]
        own = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD), *given])

        @wraps(build)
        def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
            call = f"{type(self).__name__}.__init__()"
            for name in kwargs.keys() - names:
                raise TypeError(f"{call} got an unexpected keyword argument {name!r}.{did_you_mean(name, names)}")
            try:
                bound = own.bind(self, *args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{call}: {error}") from None
            bound.apply_defaults()
            build(**bound.arguments)

        vars(__init__)["__signature__"] = own
        setattr(cls, "__init__", __init__)  # noqa: B010  # a plain assignment to a method does not type-check
        setattr(cls, "_arguments", tuple(names))  # noqa: B010
        return cls

    return decorate


def in_order(
    order: str, log_interval: int | None = None, batch_size: int | None = None
) -> Callable[[type[Fields]], type[Fields]]:
    """Decorate an algorithm: its hyper-parameters may be given by position, in this order, after policy and env.

    Args:
        order: names of fields, separated by blanks. Fields that are not named stay keyword-only.
        log_interval: default of its ``learn()``, whose logs are named after the class; ``None`` leaves it as it is.
        batch_size: default of its ``train()``; ``None``: there is none.
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
        changed = {"learn": log_interval and {"log_interval": log_interval, "tb_log_name": cls.__name__}}
        changed["train"] = batch_size and {"batch_size": batch_size}
        for name, defaults in changed.items():
            if defaults:
                inherited = getattr(cls, name)
                setattr(cls, name, with_defaults(vars(inherited).get("_before_defaults", inherited), **defaults))
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
