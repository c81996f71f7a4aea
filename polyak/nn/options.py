"""Reading of ``policy_kwargs``: which names a class knows, and what to say of the others."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from polyak.envs.names import did_you_mean
from polyak.warning import warn_user


def keywords_of(module_class: type) -> set[str]:
    """Names of the arguments of a class that ``policy_kwargs`` may hold.

    Where an ``__init__`` takes ``**kwargs``, those of the next class up count too.
    """
    names: set[str] = set()
    for owner in module_class.__mro__:
        if "__init__" not in vars(owner):
            continue
        parameters = inspect.signature(vars(owner)["__init__"]).parameters.values()
        names |= {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return names - {"self", "observation_space", "action_space"}


def check_keywords(owner: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Check ``policy_kwargs`` against the names that a policy knows.

    Raises:
        TypeError: naming the unknown one, its likeliest correction and all known names.
    """
    for name in given:
        if name in known:
            continue
        raise TypeError(
            f"{owner} got an unexpected keyword argument {name!r} in policy_kwargs.{did_you_mean(name, known)} "
            f"It knows: {', '.join(sorted(known))}; and optimizer_class, optimizer_kwargs."
        )


def warn_without_sde(**options: tuple[Any, Any]) -> None:
    """Warn of options that only state-dependent exploration reads, given as name=(value, default) without it."""
    changed = [f"{name}={value!r}" for name, (value, default) in options.items() if value != default]
    if changed:
        warn_user(f"{', '.join(changed)} has no effect without use_sde=True.")
