"""Settings of RLlib that nothing here reads, with their replacements and defaults.

RLlib's ``config.to_dict()`` has a hundred of them. At RLlib's own default such a setting has no effect, and is left
out; at another value it is refused, with its replacement. ``unread.json`` lists them by replacement; ``null`` is the
default of settings that RLlib has removed. Defaults of a single algorithm are under ``of``.
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
"""Former methods of RLlib's builder -> their replacements."""
_TABLE = json.loads(Path(__file__).with_suffix(".json").read_text())
SETTINGS: dict[str, str] = {name: instead for instead, names in _TABLE["settings"].items() for name in names}
"""Names of settings -> their replacements."""
_DEFAULTS = {name: value for names in _TABLE["settings"].values() for name, value in names.items()}
"""Names of settings -> RLlib's default; of a class or a function its name, in angle brackets."""
RENAMED = {"lr_schedule": "lr", "entropy_coeff_schedule": "entropy_coeff"}
"""Old names of settings that still mean the same."""
NO_CALLBACKS = "ray.rllib.algorithms.callbacks.DefaultCallbacks"
"""The name in dumped configs of the class whose methods do nothing."""


def default_of(name: str, algorithm: str) -> Any:
    """RLlib's default of a setting of an algorithm; ``None`` also of a class or a function."""
    default = _TABLE["of"].get(algorithm, {}).get(name, _DEFAULTS.get(name))
    return None if str(default).startswith("<") else copy.copy(default)


def is_default(value: Any, default: Any) -> bool:
    """Whether a value is RLlib's default, given or implied: -1 and ``None`` mean that it was not given."""
    if value is None or (isinstance(value, int) and value == -1) or (not default and value == {}):
        return True
    if isinstance(default, str):
        said = str(getattr(value, "__name__", value))
        return default[1:-1] in said if default.startswith("<") else said.rpartition(".")[2].lower() == default.lower()
    return bool(value == default)


def asks_for_nothing(name: str, value: Any, algorithm: str = "") -> bool:
    """Whether a setting that nothing here reads is at RLlib's default for an algorithm."""
    if name in ("_is_frozen", "_prior_exploration_config"):  # a flag, and an entry that RLlib itself reads in no module
        return True
    if name == "policies" and isinstance(value, Mapping | set | list | tuple):
        return list(value) == [DEFAULT_MODULE_ID]
    return name in SETTINGS and is_default(value, _TABLE["of"].get(algorithm, _DEFAULTS).get(name, _DEFAULTS[name]))


def meant(settings: Mapping[str, Any], known: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Returns settings under current names, without those that have no effect.

    Args:
        settings: the program's settings.
        known: names of the config's settings.
        algorithm: name of the algorithm.

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
    """Converts RLlib's old dict of a model to ``model_config``.

    Raises:
        TypeError: it has an entry that nothing here reads, or an unknown one.
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
