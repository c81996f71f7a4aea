"""Settings of RLlib that nothing here reads: what to write instead, and what they are by default.

RLlib's ``config.to_dict()`` has a hundred of them. At RLlib's own default such a one asks for nothing, and is left out;
at another value it is refused, with what to use instead. ``unread.json`` has them, under what to use instead; ``null``
is the default of what RLlib has given up. Defaults that only one algorithm has are under ``of``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.models.catalog import REPLACED, DefaultModelConfig
from polyak.warning import warn_user

NotProvided = type("NotProvided", (), {"__doc__": "Stands for a setting that is not given, in signatures of ones own."})
METHODS = {
    "rollouts": "env_runners()",
    "exploration": "env_runners(explore=...), or the algorithm's own settings in training()",
}
"""Methods of the builder that RLlib had -> what to use instead."""
_TABLE = json.loads(Path(__file__).with_suffix(".json").read_text())
SETTINGS: dict[str, str] = {name: instead for instead, names in _TABLE["settings"].items() for name in names}
"""Names of settings -> what to use instead."""
_DEFAULTS = {name: value for names in _TABLE["settings"].values() for name, value in names.items()}
"""Names of settings -> RLlib's default; of a class or a function its name, in angle brackets."""
RENAMED = {"lr_schedule": "lr", "entropy_coeff_schedule": "entropy_coeff"}
"""Old names of settings that still mean the same."""
NO_CALLBACKS = "ray.rllib.algorithms.callbacks.DefaultCallbacks"
"""How a dump calls the class whose methods do nothing."""


def default_of(name: str, algorithm: str) -> Any:
    """RLlib's default of a setting of an algorithm; ``None`` also of a class or a function."""
    default = _TABLE["of"].get(algorithm, {}).get(name, _DEFAULTS.get(name))
    return None if str(default).startswith("<") else copy.copy(default)


def is_default(value: Any, default: Any) -> bool:
    """Whether a value is RLlib's default, written out or not: -1 and ``None`` stand for what was never given."""
    if value is None or (isinstance(value, int) and value == -1) or (not default and value == {}):
        return True
    if isinstance(default, str):
        said = str(getattr(value, "__name__", value))
        return default[1:-1] in said if default.startswith("<") else said.rpartition(".")[2].lower() == default.lower()
    return bool(value == default)


def asks_for_nothing(name: str, value: Any, algorithm: str = "") -> bool:
    """Whether a setting that nothing here reads is at RLlib's default for an algorithm."""
    if name in ("_is_frozen", "_prior_exploration_config"):  # a state, and what RLlib itself reads of no module
        return True
    if name == "policies" and isinstance(value, Mapping | set | list | tuple):
        return list(value) == [DEFAULT_MODULE_ID]
    return name in SETTINGS and is_default(value, _TABLE["of"].get(algorithm, _DEFAULTS).get(name, _DEFAULTS[name]))


def meant(settings: Mapping[str, Any], known: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Settings in today's names, without those that ask for nothing.

    Args:
        settings: as a program gives them.
        known: names that a config here has.
        algorithm: its own name.

    Raises:
        TypeError: RLlib's old dict of a model has an entry that nothing here reads.
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if value is NotProvided:
            continue
        if name in RENAMED and RENAMED[name] in known:
            if value is not None:
                warn_user(f"{name} is an old name. Use {RENAMED[name]}=[[0, first], [step, value], ...].")
                found[RENAMED[name]] = value
        elif isinstance(value, str) and _is_default_class(name, value, algorithm):
            continue
        elif name in known or not asks_for_nothing(name, value, algorithm):
            found[name] = value
    if isinstance(found.get("model"), Mapping) and (options := options_of(found.pop("model"))):
        found["model_config"] = {**options, **(found.get("model_config") or {})}
    return found


def _is_default_class(name: str, value: str, algorithm: str) -> bool:
    """Whether a dump names a class that is the default here."""
    return (name == "callbacks_class" and NO_CALLBACKS in value) or (
        name == "algo_class" and value.endswith(f".{algorithm}")
    )


def options_of(model: Mapping[str, Any]) -> dict[str, Any]:
    """What RLlib's old dict of a model asks for, as ``model_config``.

    Raises:
        TypeError: it has an entry that nothing here reads, or that is none.
    """
    default, options = DefaultModelConfig(), {}
    known = {one.name for one in fields(DefaultModelConfig)}
    for name, value in model.items():
        now = REPLACED.get(name, name)
        if now in known:
            if value != getattr(default, now):
                options[now] = value
        elif name not in _TABLE["model"] or not is_default(value, _TABLE["model"][name]):
            raise TypeError(
                f"model[{name!r}]={value!r} is not read here. Use rl_module(model_config={{...}}), or a module of your "
                "own: rl_module(rl_module_spec=RLModuleSpec(module_class=...))."
            )
    return options
