"""The documentation of an algorithm in ``help``: its constructor's arguments, each with the docstring below its field.

Sources are read on first use.
"""

import ast
import inspect
import re
import sys
import types
from abc import ABCMeta
from dataclasses import InitVar, fields, is_dataclass
from functools import cache
from itertools import pairwise
from textwrap import fill
from typing import Annotated, Any, Union, get_args, get_origin

from polyak.hyperparameters.declaration import declared
from polyak.schedules import Schedule

_WIDTH = 100
_ROLE = re.compile(r":\w+:`~?(?:\w+\.)*(\w+)`")


FOR_AUTHORS = frozenset(
    (
        *("acting_graph", "action_spaces", "card", "clock", "collector", "generator_class", "goes_without", "host"),
        *(
            "in_tensors",
            "learner",
            "learner_class",
            "learner_factory",
            "learns_offline",
            "log_every",
            "loop",
            "made_of",
        ),
        *("make_actor", "make_optimizer", "make_policy", "memory", "normalisation", "parts", "policies", "runner"),
        *("raw_experience", "renew_schedules", "saves_also", "schedules", "statistics", "steps_environments"),
        *("begin_tournament", "replay", "rollouts", "supports_masks"),
    )
)
"""Names for authors of algorithms, not for users: ``dir``, ``help`` and the pages omit them."""


class Listed(ABCMeta):
    """A metaclass whose ``dir`` and ``help`` list the methods for users. Hyper-parameters are listed as constructor
    arguments."""

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__()} - FOR_AUTHORS - set(getattr(cls, "__dataclass_fields__", ())))


class Signature:
    """``inspect.signature(SAC)`` for readers: plain types, no ``InitVar``, no ``self``."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        parameters = list(inspect.signature(owner.__init__).parameters.values())[1:]  # type: ignore[misc]
        kinds = declared(owner) if is_dataclass(owner) else {}  # dataclass() reads it before the class is complete
        meant = {(f.name, str(f.type)): kinds[f.name] for f in fields(owner)} if kinds else {}  # may be strings
        found = [meant.get((p.name, str(p.annotation)), p.annotation) for p in parameters]
        return inspect.Signature([p.replace(annotation=_plain(a)) for p, a in zip(parameters, found, strict=True)])


class Documentation:
    """``SAC.__doc__``: the class docstring, then the constructor's arguments."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __get__(self, instance: object, owner: type) -> str | None:
        if self.text is None:
            return None  # inspect.getdoc() then continues to the class above
        if "__dataclass_fields__" in vars(owner) and "__match_args__" not in vars(owner):
            return self.text  # read by dataclass() before the class is complete
        return _with_arguments(owner, self.text)


@cache
def sentences(cls: type) -> dict[str, str]:
    """Returns name -> docstring below it, for the fields and attributes of one class; empty without source code."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    except (OSError, TypeError, KeyError):
        return {}
    for part in cls.__qualname__.split("."):
        body = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == part]
        if not body:
            return {}
        tree = body[0]  # type: ignore[assignment]
    found = {}
    for statements in [tree.body, *(node.body for node in tree.body if isinstance(node, ast.FunctionDef))]:
        for node, below in pairwise(statements):
            match node, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name))
                    | ast.Assign(targets=[ast.Name(id=name) | ast.Attribute(attr=name)]),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
    return found


def sentence(cls: type, name: str) -> str:
    """Returns the docstring below a field, in the class or its nearest base with one."""
    return next((text for base in cls.__mro__ if (text := sentences(base).get(name))), "")


@cache
def _with_arguments(cls: type, text: str) -> str:
    lines = [inspect.cleandoc(text)]
    arguments = [p for p in inspect.signature(cls).parameters.values() if not p.name.startswith("_")]
    if documented := [_described(cls, p) for p in arguments if p.name in declared(cls)]:
        lines += ["", "Args:", *documented]
    return "\n".join(lines)


def _described(cls: type, parameter: inspect.Parameter) -> str:
    default = "" if parameter.default is parameter.empty else f", default {parameter.default!r}"
    entry = f"{parameter.name} ({_name(parameter.annotation)}{default}): {sentence(cls, parameter.name)}".rstrip(" :")
    unbroken = " ".join(_ROLE.sub(r"``\1``", entry).split())
    return fill(
        unbroken,
        _WIDTH,
        initial_indent=" " * 4,
        subsequent_indent=" " * 8,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _plain(annotation: Any) -> Any:
    """Returns an annotation without ``InitVar``, bounds and marks."""
    if isinstance(annotation, InitVar):
        return annotation.type
    kind, args = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return _plain(args[0])
    if kind in (Union, types.UnionType):
        return Union[tuple(map(_plain, args))]  # noqa: UP007  # of parts that are known only now
    return annotation


def _name(annotation: Any) -> str:
    """Returns an annotation as written in source code."""
    if annotation == Schedule:
        return "Schedule"
    if annotation in (None, type(None)):
        return "None"
    if isinstance(annotation, str):
        return annotation
    kind, args = get_origin(annotation), get_args(annotation)
    if kind in (Union, types.UnionType):
        return " | ".join(map(_name, args))
    if kind is type:
        return f"type[{_name(args[0])}]"
    return (
        annotation.__name__
        if kind is None and isinstance(annotation, type)
        else repr(annotation).replace("typing.", "")
    )
