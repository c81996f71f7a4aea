"""Ray Tune: an algorithm as one of its trainables, which trains, saves, continues, and reports its resources.

Ray is imported only when one is made.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from polyak.compat.rllib_face import CONFIGS, environments
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.trainables import config_class
from polyak.compat.rllib_face.trainables import get_trainable_cls as algorithm_class

_UNKNOWN = float("nan")
_OF_EPISODES = tuple(f"episode_{what}_{how}" for what in ("return", "len") for how in ("mean", "min", "max"))
_TUNES_OWN = ("config", "date", "done", "hostname", "node_ip", "pid", "timestamp", "trial_id")
"""Results that Tune fills in itself."""


def tune_trainable(algorithm: str | AlgorithmConfig) -> type[Any]:
    """Returns a class for ``ray.tune.Tuner(trainable, param_space=...)``: each trial is a separate algorithm.

    The space is a config, whose settings may be searched for (``training(lr=tune.grid_search([1e-3, 1e-4]))``), or a
    dict of settings. A trial reports the results of ``train()``, whose nested keys Tune writes with slashes
    (``stop={"env_runners/episode_return_mean": 450}``), reserves the processors of all its processes, and has
    checkpoints that Tune saves and restores.

    Args:
        algorithm: a name for :func:`~polyak.compat.rllib_face.get_trainable_cls`, or a config, which the space changes.

    Raises:
        ImportError: ``ray[tune]`` is not installed.
        HyperparameterError: an invalid setting.
    """
    base = algorithm if isinstance(algorithm, AlgorithmConfig) else config_class(algorithm)()
    _tune_takes_configs()
    about = {"__doc__": f"{base.name}, as Ray Tune runs it.", "base": base.copy(copy_frozen=False)}
    return type(base.name, (_trial_class(),), {**about, "environments": environments.registered()})


def trial_config(base: AlgorithmConfig, settings: Mapping[str, Any]) -> AlgorithmConfig:
    """Returns a config with the settings of a trial. If these are a whole config, only the settings that differ from
    ``base`` count.

    Raises:
        TypeError: there is no such setting.
        HyperparameterError: a value is invalid.
    """
    known = base.to_dict()
    changed = {name: value for name, value in settings.items() if name not in known or not _same(known[name], value)}
    return base.copy(copy_frozen=False).update_from_dict(changed)


def _same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and bool(one == other))


def bundles(config: AlgorithmConfig) -> list[dict[str, float]]:
    """Returns the resources that the processes of an algorithm reserve: its own first, then runners, learners and
    evaluators."""
    local = config.num_gpus_per_learner if config.num_learners == 0 else 0
    processors = 1 if config.num_cpus_per_learner == "auto" else config.num_cpus_per_learner
    runner = {
        "CPU": config.num_cpus_per_env_runner,
        "GPU": config.num_gpus_per_env_runner,
        **config.custom_resources_per_env_runner,
    }
    learner = {"CPU": processors, "GPU": config.num_gpus_per_learner}
    asked = [{"CPU": 1, "GPU": local}]
    asked += [runner] * (config.num_env_runners + config.evaluation_num_env_runners) + [learner] * config.num_learners
    return [{name: float(amount) for name, amount in one.items() if amount} for one in asked]


def _tune() -> Any:
    try:
        return import_module("ray.tune")
    except ImportError as error:
        raise ImportError("Ray Tune is needed: pip install 'polyak[scale]' 'ray[tune]'") from error


def _tune_takes_configs() -> None:
    """Let ``Tuner(param_space=config)`` read a config as it reads RLlib's, by ``to_dict()``."""
    _tune()
    if (kind := getattr(import_module("ray.tune.tune"), "_Config", None)) is not None:
        kind.register(AlgorithmConfig)


@cache
def _trial_class() -> type[Any]:
    tune = _tune()

    class Trial(tune.Trainable):  # type: ignore[name-defined]
        """An algorithm in a process of Tune's."""

        base: AlgorithmConfig
        environments: Mapping[str, Any]
        """The environments that were registered when the class was sent here, where they are unknown."""

        @classmethod
        def get_default_config(cls) -> AlgorithmConfig:
            """Returns a config to change and to build, or to search in."""
            return cls.base.copy(copy_frozen=False)

        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> Any:
            asked = bundles(trial_config(cls.base, config))
            return tune.PlacementGroupFactory(asked, strategy="PACK")

        def setup(self, config: dict[str, Any]) -> None:
            for name, creator in self.environments.items():
                environments.register_env(name, creator)
            self.algorithm = trial_config(self.base, config).build_algo()
            self.algorithm._files.leave()  # Tune writes its own

        def step(self) -> dict[str, Any]:
            found = self.algorithm.train()
            result = {name: value for name, value in found.items() if name not in _TUNES_OWN}
            # so that a comparison of trials finds them before the first episode has ended
            result["env_runners"] = {**dict.fromkeys(_OF_EPISODES, _UNKNOWN), **result["env_runners"]}
            return result

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            self.algorithm.save_to_path(checkpoint_dir)

        def load_checkpoint(self, checkpoint: Any) -> None:
            self.algorithm.restore_from_path(checkpoint)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.algorithm.stop()
            self.setup(new_config)
            return True

        def cleanup(self) -> None:
            self.algorithm.stop()

    return Trial


# -- under RLlib's own names, for polyak.compat ------------------------------------------------------------------------

_REGISTERED: list[bool] = []
"""Whether the algorithms are registered with Tune."""


def register_all() -> None:
    """Register the algorithms with Tune by their names: ``tune.Tuner("PPO", param_space=config)``."""
    register = import_module("ray.tune.registry").register_trainable
    for name in CONFIGS:
        register(name, tune_trainable(name))
    _REGISTERED[:] = [True]


def register_env(name: str, env_creator: Any) -> None:
    """Registers an environment, also for Tune's trials: see :func:`polyak.compat.rllib_face.register_env`."""
    environments.register_env(name, env_creator)
    if _REGISTERED:
        register_all()


def get_trainable_cls(name: str) -> Any:
    """Returns the class that Tune has registered under a name, if it is imported and has one; else
    :func:`polyak.compat.rllib_face.get_trainable_cls`."""
    if "ray.tune.trainable" in sys.modules:
        registry = import_module("ray.tune.registry")
        if registry._global_registry.contains(registry.TRAINABLE_CLASS, name):
            return registry._global_registry.get(registry.TRAINABLE_CLASS, name)
    return algorithm_class(name)


def prepare() -> None:
    """Let Ray's own Tune take configs, when a program imports it under ``polyak run``."""
    _tune_takes_configs()
