"""Groups of runs that differ in their seed only, and names for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

#: Entries of ``args.yml`` that affect learning; the rest is about files, frequencies of evaluation, and the seed.
_ARGS_THAT_COUNT = ("n_timesteps", "env_kwargs", "trained_agent")
_MAX_TEXT = 300
_NAMED = 3


def as_text(value: Any) -> str:
    """Write a setting as one short line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."


def flatten(settings: Mapping[Any, Any], prefix: str = "") -> dict[str, str]:
    """Return settings as lines of text: ``{"a": {"b": [1]}}`` -> ``{"a.b": "[1]"}``."""
    flat: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = as_text(value)
    return flat


def in_force(config: Mapping[Any, Any], args: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return the settings that a run trained with.

    ``config.yml`` has the tuned ``n_timesteps``, as the Zoo writes it; that of the command line, if any, is in
    ``args.yml`` only.
    """
    steps = args.get("n_timesteps")
    given = isinstance(steps, int | float) and steps > 0
    return {**config, "n_timesteps": steps} if given else dict(config)


def what_counts(config: Mapping[Any, Any], args: Mapping[Any, Any]) -> dict[str, str]:
    """Return the settings of a run that its seeds share."""
    given = {key: args[key] for key in _ARGS_THAT_COUNT if args.get(key) not in (None, "", {}, [], -1)}
    return flatten({**config, **given})


def differing(settings: Iterable[Mapping[str, str]]) -> list[str]:
    """Return the names, in the order of their first use, whose values differ; a missing name differs from any value."""
    every = list(settings)
    names = dict.fromkeys(name for one in every for name in one)
    return [name for name in names if len({one.get(name) for one in every}) > 1]


def labels(families: Mapping[str, Mapping[str, str]], name: str) -> dict[str, str]:
    """Name the groups of one algorithm in one environment: the algorithm, and the distinguishing settings of each
    group.

    Args:
        families: the settings of each group, by any key.
        name: the algorithm's name, which is the label of a single group.
    """
    if len(families) == 1:
        return dict.fromkeys(families, name)
    names = differing(families.values())
    named: dict[str, str] = {}
    for key, settings in families.items():
        parts = [f"{setting}={_short(settings.get(setting, 'default'))}" for setting in names[:_NAMED]]
        more = ["..."] if len(names) > _NAMED else []
        label = " ".join([name, *parts, *more])
        twins = sum(other == label or other.startswith(f"{label} #") for other in named.values())
        named[key] = label if not twins else f"{label} #{twins + 1}"
    return named


def _short(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:21]}..."
