"""Composed spaces (Dict and Tuple, also nested): their parts in order, and values split into parts and joined again.

The order does not depend on how a space was written: entries of a Dict are sorted by key, those of a Tuple keep their
order. The name of a part is the path of keys to it, joined by "/": ``"camera/left"``, ``"arms/0"``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeGuard

from gymnasium import spaces

SEPARATOR = "/"
"""Separates the keys in a name: torch modules are named after the parts, and their names cannot contain a dot."""


class SpacePart(NamedTuple):
    """One of the spaces that a composed space consists of."""

    path: tuple[Any, ...]
    """Keys and places on the way to it; empty where the space is not composed."""
    space: spaces.Space

    @property
    def name(self) -> str:
        return SEPARATOR.join(map(str, self.path))

    def of(self, value: Any) -> Any:
        """Returns this part of a value of the whole space, or of a batch of them."""
        for key in self.path:
            value = value[key]
        return value


def is_composed(space: spaces.Space | None) -> TypeGuard[spaces.Dict | spaces.Tuple]:
    """Whether values of the space consist of values of others."""
    return isinstance(space, spaces.Dict | spaces.Tuple)


def parts(space: spaces.Space) -> list[SpacePart]:
    """The parts of a space in order; the space itself where it is not composed."""
    if isinstance(space, spaces.Dict):
        children: Any = sorted(space.spaces.items(), key=lambda item: str(item[0]))
    elif isinstance(space, spaces.Tuple):
        children = enumerate(space.spaces)
    else:
        return [SpacePart((), space)]
    return [SpacePart((key, *part.path), part.space) for key, child in children for part in parts(child)]


def compose(space: spaces.Space, values: Iterator[Any]) -> Any:
    """A value of the space from those of its parts, in order."""
    if isinstance(space, spaces.Dict):
        return {key: compose(space.spaces[key], values) for key in sorted(space.spaces, key=str)}
    if isinstance(space, spaces.Tuple):
        return tuple(compose(child, values) for child in space.spaces)
    return next(values)


def mapped_parts(function: Callable[..., Any], *values: Any) -> Any:
    """Applies a function of arrays to the parts of values of one space, or of batches of them."""
    first = values[0]
    if isinstance(first, Mapping):
        return {key: mapped_parts(function, *(value[key] for value in values)) for key in first}
    if isinstance(first, tuple):
        return tuple(mapped_parts(function, *parts) for parts in zip(*values, strict=True))
    return function(*values)


# --- observations by name -------------------------------------------------------------------------------------------


def is_nested(space: spaces.Space | None) -> bool:
    """Whether a composed space is part of another."""
    return is_composed(space) and any(len(part.path) > 1 for part in parts(space))


def parts_by_name(space: spaces.Space) -> dict[str, SpacePart]:
    """Returns the parts of a composed space by their names.

    Raises:
        ValueError: two have the same name, or there are none.
    """
    found = parts(space)
    twice = [name for name, count in Counter(part.name for part in found).items() if count > 1]
    if twice:
        paths = " and ".join(str(part.path) for part in found if part.name == twice[0])
        raise ValueError(
            f"two parts of the observation space would have the same name {twice[0]!r}, those at {paths}: {space}. "
            "Rename a key."
        )
    if not found:
        raise ValueError(f"the observation space {space} has no parts. Give it one.")
    return {part.name: part for part in found}


def by_name(observation: Any) -> dict[str, Any]:
    """Returns the arrays of a composed observation, or of a batch of them, under the names of their parts."""
    children = observation.items() if isinstance(observation, Mapping) else enumerate(observation)
    named: dict[str, Any] = {}
    for key, value in children:
        if isinstance(value, Mapping | tuple):
            named |= {f"{key}{SEPARATOR}{name}": part for name, part in by_name(value).items()}
        else:
            named[str(key)] = value
    return named


def as_named(observation: Any, space: spaces.Space) -> Any:
    """:func:`by_name` of a composed observation that has the parts of a Dict space; any other observation as it is."""
    if not isinstance(space, spaces.Dict) or not isinstance(observation, Mapping | tuple):
        return observation
    if isinstance(observation, Mapping) and observation.keys() == space.spaces.keys():
        return observation
    named = by_name(observation)
    return named if named.keys() == space.spaces.keys() else observation
