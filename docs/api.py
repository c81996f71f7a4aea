"""What the pages of the API show of classes: docstrings as they are inherited, and signatures as one would write them.

The tool that makes the pages (griffe) reads the source and runs nothing. It does not see that ``learn.__doc__`` is set
from another function's, nor what ``Becomes``, ``Annotated`` and ``later`` stand for.
"""

import re
from typing import Any

import griffe

from polyak.hyperparameters.docstrings import FOR_AUTHORS

_HIDDEN = ("Becomes", "Annotated", "InitVar")
"""Generics of which a reader wants the first argument alone."""
_FACES = r"polyak\.(algorithm|network_algorithm|fields|algorithms)\."
"""Where classes stand that users call, and the groups of fields that these are made of."""


class Readable(griffe.Extension):
    """Looks over each package once it is loaded."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Of all classes, give methods the docstrings that they inherit, and fields plain annotations and defaults.

        Methods that stand elsewhere are shown as such. Constructors of dataclasses are made of those fields afterwards.
        """
        for cls in _classes(pkg, set()):
            if re.match(_FACES, cls.path):
                for name in FOR_AUTHORS:
                    cls.members.pop(name, None)
            for name, member in list(cls.members.items()):
                if isinstance(member, griffe.Attribute) and (found := _named(member)) is not None:
                    cls.set_member(name, member := _as_method(name, found))
                if isinstance(member, griffe.Function):
                    _inherit(cls, name, member)
                elif isinstance(member, griffe.Attribute):
                    _simplify(name, member)


def _classes(parent: griffe.Module | griffe.Class, seen: set[str]) -> Any:
    for member in list(parent.members.values()):
        if isinstance(member, griffe.Module | griffe.Class) and member.path not in seen:
            seen.add(member.path)
            if isinstance(member, griffe.Class):
                yield member
            yield from _classes(member, seen)


def _named(attribute: griffe.Attribute) -> griffe.Function | None:
    """The function of ``predict = predict``, or of ``train = Through("rollouts", Rollouts.train)``."""
    value: Any = attribute.value
    if isinstance(value, griffe.ExprCall) and _last(value.function) == "Through":
        value = value.arguments[1]
    try:
        first, dot, rest = str(value).partition(".")
        found = attribute.modules_collection[f"{attribute.module.resolve(first)}{dot}{rest}"]
    except (KeyError, AttributeError, griffe.GriffeError):
        return None
    return found if isinstance(found, griffe.Function) else None


def _as_method(name: str, function: griffe.Function) -> griffe.Function:
    """A function whose first argument is the object, as one of its methods."""
    rest = list(function.parameters)[1:]
    own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
    docstring = None if function.docstring is None else function.docstring.value
    method = griffe.Function(name, parameters=griffe.Parameters(own, *rest), returns=function.returns)
    method.docstring = None if docstring is None else griffe.Docstring(docstring, parent=method)
    return method


def _inherit(cls: griffe.Class, name: str, method: griffe.Function) -> None:
    """The nearest docstring that there is, above one that has none."""
    if method.docstring is not None or name.startswith("_"):
        return
    for base in cls.mro():
        above = base.members.get(name)
        if isinstance(above, griffe.Function) and above.docstring is not None:
            method.docstring = griffe.Docstring(above.docstring.value, parent=method)
            return


def _simplify(name: str, field: griffe.Attribute) -> None:
    if str(field.annotation).partition("[")[0] in ("ClassVar", "Settled") or (name.startswith("_") and name != "_"):
        field.annotation = None  # no argument of the constructor, or none that is shown
        return
    field.annotation, value = plain(field.annotation), field.value
    if isinstance(value, griffe.ExprCall) and _last(value.function) == "later":
        field.value = value.arguments[0] if value.arguments else None


def plain(annotation: Any) -> Any:
    """An annotation without what only constructors read, such as the bounds of a number."""
    if isinstance(annotation, griffe.ExprBinOp):
        annotation.left, annotation.right = plain(annotation.left), plain(annotation.right)
    elif isinstance(annotation, griffe.ExprSubscript) and (
        _last(annotation.left) in _HIDDEN or _value_of(annotation.left) is not None
    ):
        inner = annotation.slice
        return plain(inner.elements[0] if isinstance(inner, griffe.ExprTuple) else inner)
    elif isinstance(annotation, griffe.ExprSubscript):
        annotation.slice = plain(annotation.slice)
    elif isinstance(annotation, griffe.ExprTuple):
        annotation.elements = [plain(element) for element in annotation.elements]
    elif isinstance(annotation, griffe.ExprName) and (meant := _value_of(annotation)) is not None:
        return plain(meant)
    return annotation


def _last(expression: Any) -> str:
    return str(expression).rpartition(".")[2]


def _value_of(name: Any) -> Any:
    """Of a name for an annotated type, ``Count = Annotated[int, ...]``, or for what marks one, ``Reload[Count]``, what
    it stands for; ``None`` of any other."""
    try:
        found = name.parent.modules_collection[name.canonical_path] if isinstance(name.parent, griffe.Object) else None
        value = getattr(found, "value", None)
    except (KeyError, AttributeError, griffe.GriffeError):
        return None
    return value if isinstance(value, griffe.ExprSubscript) and _last(value.left) == "Annotated" else None
