"""Settings that can have one value only: ``fixed.json`` has them, for each class of settings, under the reason."""

import copy
import inspect
import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from polyak.hyperparameters.declaration import Only

Settings = TypeVar("Settings", bound=type)
_TABLE = json.loads(Path(__file__).with_suffix(".json").read_text())


@dataclass(frozen=True)
class To:
    """Part of an annotation: the keyword argument of polyak's algorithm that a setting is; ``""``: it is none."""

    argument: str


def fixed(cls: Settings) -> Settings:
    """A class of settings with those that the table has for it. They are no arguments of polyak's algorithm."""
    table, made = _TABLE[cls.__name__], cast(Any, cls)
    made.defaults = {**{k: v for values in table.values() for k, v in values.items()}, **vars(cls).get("defaults", {})}
    for why, values in table.items():
        for name, value in values.items():
            kind = Any if value is None else type(value)
            shown = "what it is by default" if isinstance(value, dict) and value else repr(value)
            only = Only(f"{shown}: {why}", partial(_is, value))
            cls.__annotations__[name] = Annotated[kind, only, To("")]
            setattr(cls, name, field(default_factory=partial(copy.copy, value)) if isinstance(value, dict) else value)
    return cls


def is_fixed(cls: type, name: str) -> bool:
    """Whether a setting of a class can have one value only."""
    owner = next(base for base in cls.__mro__ if name in inspect.get_annotations(base))
    return any(name in values for values in _TABLE.get(owner.__name__, {}).values())


def _is(wanted: Any, given: Any) -> bool:
    return bool(given is None if wanted is None else given == wanted)
