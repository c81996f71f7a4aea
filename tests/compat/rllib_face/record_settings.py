"""Prints each setting of RLlib's configs with the method that sets it and its default, as JSON: run by an interpreter
that has ``ray[rllib]``. Nothing of polyak is imported.

``{algorithm: {setting: [method, whether RLlib has given it up, default]}}``; of classes and functions the name.
"""

import inspect
import json
from importlib import import_module

from ray._common.deprecation import DEPRECATED_VALUE

METHODS = (
    *("api_stack", "environment", "env_runners", "learners", "training", "rl_module", "evaluation", "callbacks"),
    *("reporting", "debugging", "fault_tolerance", "offline_data", "framework", "multi_agent", "checkpointing"),
    *("resources", "python_environment", "experimental"),
)
ALGORITHMS = ("PPO", "DQN", "SAC", "IMPALA", "APPO", "BC", "MARWIL", "CQL", "IQL", "TQC")


def plain(value):
    """A value as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return f"<{getattr(value, '__name__', type(value).__name__)}>"


def settings(cls):
    """Of one config."""
    config, found = cls(), {}
    for method in METHODS:
        for base in reversed(cls.__mro__):
            for name, one in inspect.signature(vars(base).get(method, lambda: None)).parameters.items():
                if name not in ("self", "kwargs"):
                    given_up = one.default == DEPRECATED_VALUE
                    default = vars(config).get(name, vars(config).get(f"_{name}"))
                    found[name] = [method, given_up, None if given_up else plain(default)]
    return found


if __name__ == "__main__":
    classes = [getattr(import_module(f"ray.rllib.algorithms.{name.lower()}"), f"{name}Config") for name in ALGORITHMS]
    every = {name: settings(cls) for name, cls in zip(ALGORITHMS, classes, strict=True)}
    common = {name: one for name, one in every["PPO"].items() if all(name in other for other in every.values())}
    own = {
        algorithm: {name: one for name, one in found.items() if common.get(name) != one}
        for algorithm, found in every.items()
    }
    parts = []
    for of, found in {"all": common, **own}.items():
        entries = [f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items()]
        parts.append(f" {json.dumps(of)}: {{\n" + ",\n".join(entries) + "\n }")
    print("{\n" + ",\n".join(parts) + "\n}")
