"""The documentation of an algorithm in ``help``: its constructor's arguments, each with the sentence below its field.

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
"""Names that authors of algorithms read, and users do not: ``dir``, ``help`` and the pages leave them out."""


class Listed(ABCMeta):
    """A class whose ``dir`` and ``help`` list what users call. Its settings are arguments of the constructor."""

    def __dir__(cls) -> list[str]:
        return sorted({*super().__dir__()} - FOR_AUTHORS - set(getattr(cls, "__dataclass_fields__", ())))


class Signature:
    """``inspect.signature(SAC)`` for readers: plain types, no ``InitVar``, no ``self``."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        parameters = list(inspect.signature(owner.__init__).parameters.values())[1:]  # type: ignore[misc]
        kinds = declared(owner) if is_dataclass(owner) else {}  # dataclass() asks before it is done with the class
        meant = {(f.name, str(f.type)): kinds[f.name] for f in fields(owner)} if kinds else {}  # also written as text
        found = [meant.get((p.name, str(p.annotation)), p.annotation) for p in parameters]
        return inspect.Signature([p.replace(annotation=_plain(a)) for p, a in zip(parameters, found, strict=True)])


class Documentation:
    """``SAC.__doc__``: what stands below ``class SAC``, then the constructor's arguments."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __get__(self, instance: object, owner: type) -> str | None:
        if self.text is None:
            return None  # inspect.getdoc() then continues to the class above
        if "__dataclass_fields__" in vars(owner) and "__match_args__" not in vars(owner):
            return self.text  # asked by dataclass(), which is not done with the class
        return _with_arguments(owner, self.text)


@cache
def sentences(cls: type) -> dict[str, str]:
    """Name -> the text below it, of the fields and attributes of one class; none where there is no source to read."""
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
    """The text below a field, in the class or the nearest one above it that has any."""
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
    """An annotation without ``InitVar`` and without bounds and marks."""
    if isinstance(annotation, InitVar):
        return annotation.type
    kind, args = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        return _plain(args[0])
    if kind in (Union, types.UnionType):
        return Union[tuple(map(_plain, args))]  # noqa: UP007  # of parts that are known only now
    return annotation


def _name(annotation: Any) -> str:
    """An annotation as it would be written."""
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
