"""Hyper-parameters that are set on a model that is built: ``model.batch_size = 64``.

Each takes effect at the next update, after the checks of the constructor, or is refused with the reason and the fix. A
field that cannot change is marked where it is declared, ``buffer_size: Reload[Count] = 1_000_000``; the consequences of
a change are in ``_adopt``. While a model is being built, loaded or changed, its attributes are set without checks.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any

import numpy as np

from polyak.hyperparameters.declaration import HyperparameterError, T, declared, fitted, left_out, marked


@dataclass(frozen=True)
class Fixed:
    """Part of an annotation, ``Annotated[int, Fixed(...)]``: the hyper-parameter cannot change once a model is built.
    This holds for subclasses, too, that declare it again.

    Args:
        why: the reason, and what to do instead; ``{}`` stands for the name.
    """

    why: str


NETWORKS = "the networks are built with it. Make a new model."
OPTIMIZER = "the optimizer is built with it. Set its param_groups, or make a new model."
SAVED_WITH = frozenset({NETWORKS, OPTIMIZER})
"""Reasons for which a hyper-parameter cannot change when a model is loaded either: what is in the file follows it."""
WithNetworks = Annotated[T, Fixed(NETWORKS)]
WithOptimizer = Annotated[T, Fixed(OPTIMIZER)]
WithDataset = Annotated[T, Fixed("the dataset has been read with it. Make a new model.")]
NewModel = Annotated[T, Fixed("the model is built with it. Make a new one.")]
Reload = Annotated[T, Fixed("the model is built with it. Make a new one, or save this one and use load(path, {}=...).")]
_OF_ALL = {"env": Fixed("use model.set_env(env).")}

FREE = frozenset({"policy"})
"""Fields that programs may set to anything: they are read before each step."""


class FixedHyperparameterError(HyperparameterError, AttributeError):
    """A hyper-parameter that cannot change any more. Also an AttributeError, as of any attribute that cannot be set."""


def checked_names(cls: type) -> frozenset[str]:
    """Attributes that a model checks when they are set: its hyper-parameters, and those that its class lacks."""
    if "_checked" not in vars(cls):
        names = ({f.name for f in fields(cls)} | set(left_out(cls))) - FREE
        setattr(cls, "_checked", frozenset(n for n in names if not hasattr(type(_found(cls, n)), "__set__")))  # noqa: B010
    return cls._checked  # type: ignore[attr-defined]


def _found(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def why_fixed(cls: type, name: str) -> str | None:
    """Why a hyper-parameter cannot change once a model is built, and the fix; ``None``: it can."""
    if name in left_out(cls):
        return f"{cls.__name__} has no use for it."
    fixed = marked(cls, name, Fixed) or _OF_ALL.get(name)
    return fixed.why.format(name) if fixed else None


def inherited(cls: type, table: str) -> dict[str, Any]:
    """The entries of a class attribute, and those that the classes above have besides under the same name."""
    return {name: value for base in reversed(cls.__mro__) for name, value in vars(base).get(table, {}).items()}


def change(model: Any, name: str, value: Any) -> None:
    """Set a hyper-parameter of a model that is built.

    Raises:
        FixedHyperparameterError: it cannot change any more.
        HyperparameterError: the constructor would refuse the value. The model is as before then.
    """
    known, cls = vars(model), type(model)
    if name in known and same(known[name], value):
        return
    if (why := why_fixed(cls, name)) is not None:
        raise FixedHyperparameterError(f"{name}={value!r:.200} cannot be set on a model that is built: {why}")
    value = fitted(name, value, declared(cls)[name])
    before = {field.name: known[field.name] for field in fields(cls) if field.name in known}
    del known["_is_built"]  # what follows sets attributes as they are
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
    """Whether two values of a hyper-parameter are equal for a model."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, np.ndarray):
        return False
    try:
        return bool(a == b)
    except Exception:  # of a class of the user's own
        return False
