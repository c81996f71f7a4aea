"""Algorithms by their names."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

from polyak.compat.rllib_face import CONFIGS
from polyak.compat.rllib_face.algorithm import Algorithm
from polyak.compat.rllib_face.errors import NotThereYetError
from polyak.suggestions import did_you_mean

NOT_YET = ("DreamerV3",)
"""Algorithms of RLlib that have no config here."""
_MADE: dict[str, type[Algorithm]] = {}


def config_class(name: str) -> type[Any]:
    """Returns the config of an algorithm.

    Raises:
        NotThereYetError: RLlib has an algorithm of that name, and there is no config of it here.
        ValueError: none has; the message names the closest.
    """
    if name not in CONFIGS:
        there = f"There are {', '.join(CONFIGS)}."
        if name in NOT_YET:
            raise NotThereYetError(f"{name} has no config yet. {there}")
        raise ValueError(f"the algorithm {name!r} is unknown. {there}{did_you_mean(name, CONFIGS)}")
    found: type[Any] = resolve_name(CONFIGS[name])
    return found


def get_trainable_cls(name: str) -> type[Algorithm]:
    """Returns the class of an algorithm: ``get_trainable_cls("PPO").get_default_config()``.

    Raises:
        NotThereYetError: see :func:`config_class`.
        ValueError: see :func:`config_class`.
    """
    if name not in _MADE:
        about = {"__doc__": f"{name}, as its config says.", "__module__": __name__}
        config = config_class(name)
        _MADE[name] = type(name, (resolve_name(config.built),), {"config_class": config, **about})
    return _MADE[name]


get_algorithm_class = get_trainable_cls


def __getattr__(name: str) -> Any:
    if name in CONFIGS:
        return get_trainable_cls(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
