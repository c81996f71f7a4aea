"""Hyper-parameters that are set on a model that is built: ``model.batch_size = 64``.

Each takes effect at the next update, after the checks of the constructor, or is refused with the reason and the fix. A
class names the fields that cannot change in ``built_with``; the consequences of a change are in ``_adopt``. While a
model is being built, loaded or changed, its attributes are set without checks.
"""

from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from polyak.hyperparameters.declaration import HyperparameterError, declared, fitted, left_out

NETWORKS = "the networks are built with it. Make a new model."
OPTIMIZER = "the optimizer is built with it. Set its param_groups, or make a new model."
SAVED_WITH = frozenset({NETWORKS, OPTIMIZER})
"""Reasons for which a hyper-parameter cannot change when a model is loaded either: what is in the file follows it."""

FREE = frozenset({"policy"})
"""Fields that programs may set to anything: they are read before each step."""


class FixedHyperparameterError(HyperparameterError, AttributeError):
    """A hyper-parameter that cannot change any more. Also an AttributeError, as of any attribute that cannot be set."""


class Changeable:
    """The attribute of a hyper-parameter. A class has its default, a model its value, as without.

    Args:
        name: of the field.
        default: of the field.
    """

    def __init__(self, name: str, default: Any) -> None:
        self.name, self.default = name, default

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        try:
            return model.__dict__[self.name]
        except (AttributeError, KeyError):  # of the class, or of a model that lacks it
            return self._default_of(owner or type(model))

    def _default_of(self, owner: type) -> Any:
        if self.default is MISSING:
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self.name!r}")
        return self.default

    def __set__(self, model: Any, value: Any) -> None:
        if "_is_built" in model.__dict__:
            change(model, self.name, value)
        else:
            model.__dict__[self.name] = value

    def __delete__(self, model: Any) -> None:
        if self.name not in model.__dict__:
            raise AttributeError(self.name)
        del model.__dict__[self.name]


def make_changeable(cls: type) -> None:
    """Make the attributes of a class's hyper-parameters, and of those that it lacks, check assignments."""
    if "_is_changeable" in vars(cls):
        return
    setattr(cls, "_is_changeable", True)  # noqa: B010  # of this class alone
    defaults = {f.name: f.default for f in fields(cls)} | {name: getattr(cls, name, MISSING) for name in left_out(cls)}
    for name in defaults.keys() - FREE:
        found = next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)
        own = isinstance(found, Changeable) and found.default is defaults[name]
        if not own and (isinstance(found, Changeable) or not hasattr(type(found), "__set__")):
            setattr(cls, name, Changeable(name, defaults[name]))


def why_fixed(cls: type, name: str) -> str | None:
    """Why a hyper-parameter cannot change once a model is built, and the fix; ``None``: it can."""
    if name in left_out(cls):
        return f"{cls.__name__} has no use for it."
    return inherited(cls, "built_with").get(name)


def inherited(cls: type, table: str) -> dict[str, str]:
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
