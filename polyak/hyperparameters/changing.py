"""Setting hyper-parameters on a built model: ``model.batch_size = 64``.

Each takes effect at the next update, after the checks of the constructor, or is refused with the reason and the fix. A
field that cannot change is marked at its declaration, ``buffer_size: Reload[Count] = 1_000_000``; the effects of a
change are in ``_adopt``. While a model is being built, loaded or changed, its attributes are set without checks.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np

from polyak.hyperparameters.declaration import HyperparameterError, T, declared, fitted, left_out, marked


@dataclass(frozen=True)
class Fixed:
    """Part of an annotation, ``Annotated[int, Fixed(...)]``: the hyper-parameter cannot change once a model is built.
    Subclasses that redeclare it inherit this.

    Args:
        why: the reason, and the alternative; ``{}`` stands for the name.
    """

    why: str


NETWORKS = "the networks are built with it. Make a new model."
OPTIMIZER = "the optimizer is built with it. Set its param_groups, or make a new model."
SAVED_WITH = frozenset({NETWORKS, OPTIMIZER})
"""Reasons why a hyper-parameter cannot change when a model is loaded, either: the file's contents depend on it."""
WithNetworks = Annotated[T, Fixed(NETWORKS)]
WithOptimizer = Annotated[T, Fixed(OPTIMIZER)]
WithDataset = Annotated[T, Fixed("the dataset has been read with it. Make a new model.")]
NewModel = Annotated[T, Fixed("the model is built with it. Make a new one.")]
Reload = Annotated[T, Fixed("the model is built with it. Make a new one, or save this one and use load(path, {}=...).")]
_OF_ALL = {"env": Fixed("use model.set_env(env).")}

FREE = frozenset({"policy"})
"""Fields that programs may set to anything: they are read before each step."""


class FixedHyperparameterError(HyperparameterError, AttributeError):
    """A hyper-parameter that can no longer change. Also an AttributeError, as for any attribute that cannot be set."""


def checked_names(cls: type) -> frozenset[str]:
    """Returns the attributes that a model checks when they are set: its hyper-parameters, and unsupported ones."""
    if "_checked" not in vars(cls):
        names = ({f.name for f in fields(cls)} | set(left_out(cls))) - FREE
        setattr(cls, "_checked", frozenset(n for n in names if not hasattr(type(_found(cls, n)), "__set__")))  # noqa: B010
    return cls._checked  # type: ignore[attr-defined]


def _found(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def why_fixed(cls: type, name: str) -> str | None:
    """Returns the reason why a hyper-parameter cannot change once a model is built, and the fix; ``None`` if it can."""
    if name in left_out(cls):
        return f"{cls.__name__} has no use for it."
    fixed = marked(cls, name, Fixed) or _OF_ALL.get(name)
    return fixed.why.format(name) if fixed else None


def inherited(cls: type, table: str) -> dict[str, Any]:
    """Returns the merged entries of a class attribute of this name in a class and its bases."""
    return {name: value for base in reversed(cls.__mro__) for name, value in vars(base).get(table, {}).items()}


def change(model: Any, name: str, value: Any) -> None:
    """Set a hyper-parameter of a built model.

    Raises:
        FixedHyperparameterError: it can no longer change.
        HyperparameterError: the constructor would refuse the value. The model is then unchanged.
    """
    known, cls = vars(model), type(model)
    if name in known and same(known[name], value):
        return
    if (why := why_fixed(cls, name)) is not None:
        raise FixedHyperparameterError(f"{name}={value!r:.200} cannot be set on a model that is built: {why}")
    value = fitted(name, value, declared(cls)[name])
    before = {field.name: known[field.name] for field in fields(cls) if field.name in known}
    del known["_is_built"]  # attributes are set without checks below
    try:
        known[name] = value
        model._check_hyperparameters()
        model._adopt(name, before.get(name))
    except BaseException:
        known.update(before)
        raise
    finally:
        known["_is_built"] = True


def same(a: Any, b: Any) -> bool:
    """Whether two values of a hyper-parameter are equivalent for a model."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, np.ndarray):
        return False
    try:
        return bool(a == b)
    except Exception:  # a user's own class
        return False
