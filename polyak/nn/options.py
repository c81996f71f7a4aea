"""Checks of ``policy_kwargs``: the names that a class accepts, and errors for others."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from polyak.nn.errors import PolicyError
from polyak.suggestions import did_you_mean
from polyak.warning import warn_user

_FIRST = {"self", "observation_space", "action_space"}


@lru_cache(maxsize=512)
def parameters_of(module_class: type, whole: bool = False) -> Mapping[str, inspect.Parameter]:
    """Returns the named arguments of a class, by name.

    Where an ``__init__`` takes ``**kwargs``, those of the next class up count too; with ``whole`` they always do.
    """
    found: dict[str, inspect.Parameter] = {}
    for owner in module_class.__mro__:
        if "__init__" not in vars(owner):
            continue
        parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
        found = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)} | found
        if not whole and not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return found


def keywords_of(module_class: type) -> set[str]:
    """Returns names of the arguments of a class that ``policy_kwargs`` may hold."""
    return parameters_of(module_class).keys() - _FIRST


def all_keywords(module_class: type) -> set[str]:
    """Returns :func:`keywords_of` and the arguments of all base classes, which a constructor between may fill in."""
    return parameters_of(module_class, whole=True).keys() - _FIRST


def split(options: Mapping[str, Any], names: Collection[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Splits options into those with these names and the others."""
    own = {name: value for name, value in options.items() if name in names}
    return own, {name: value for name, value in options.items() if name not in names}


def check_keywords(owner: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Check ``policy_kwargs`` against the names that a policy accepts.

    Raises:
        TypeError: an unknown name; the message gives the most similar accepted name and all accepted names.
    """
    for name in given:
        if name in known:
            continue
        raise TypeError(
            f"{owner} got an unexpected keyword argument {name!r} in policy_kwargs.{did_you_mean(name, known)} "
            f"It knows: {', '.join(sorted(known))}; and optimizer_class, optimizer_kwargs."
        )


def check_counts(classes: Iterable[type], given: Mapping[str, Any]) -> None:
    """Check those ``policy_kwargs`` that classes take as integers, and the widths of layers.

    Raises:
        ValueError: naming the option that is something else.
    """
    found = (p for cls in classes for p in parameters_of(cls, whole=True).values())
    counted = {parameter.name for parameter in found if parameter.annotation in (int, "int")}
    for name, value in given.items():
        numbers = [value] if name in counted else _widths(value) if name == "net_arch" else ()
        if not all(map(_is_count, numbers)):
            raise ValueError(f"policy_kwargs[{name!r}]={value!r} cannot be used: give integers of at least 0.")


def _widths(arch: Any) -> Iterator[Any]:
    """Yields the widths in a ``net_arch`` of any form; none if it is not a list."""
    for part in arch.values() if isinstance(arch, Mapping) else arch if isinstance(arch, list | tuple) else ():
        if isinstance(part, Mapping | list | tuple):
            yield from _widths(part)
        else:
            yield part


def _is_count(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def check_sde_on_states(sde_on_states: bool, use_sde: bool) -> None:
    """Refuse to let noise be linear in states where none depends on them.

    Raises:
        PolicyError: ``sde_on_states`` without ``use_sde``.
    """
    if sde_on_states and not use_sde:
        raise PolicyError(f"sde_on_states={sde_on_states!r} needs noise that depends on states: add use_sde=True.")


def warn_without_sde(**options: tuple[Any, Any]) -> None:
    """Warn of options that only state-dependent exploration reads, given as name=(value, default) without it."""
    changed = [f"{name}={value!r}" for name, (value, default) in options.items() if value != default]
    if changed:
        warn_user(f"{', '.join(changed)} has no effect without use_sde=True.")
