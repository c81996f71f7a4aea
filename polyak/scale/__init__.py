# ruff: noqa: F401 - the imports are for type checkers; names are found in the table
"""RLlib's way of speaking: configs that build algorithms, modules and catalogs, on polyak's own algorithms. Beside it,
what lets games be played on Ray.

Names are imported from their files when first used, so that importing this package stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polyak.scale.algorithm import Algorithm
    from polyak.scale.callbacks import DefaultCallbacks, RLlibCallback
    from polyak.scale.columns import ACTOR, CRITIC, DEFAULT_MODULE_ID, ENCODER_OUT, Columns
    from polyak.scale.config.base import AlgorithmConfig
    from polyak.scale.config.dqn import DQNConfig, RainbowConfig
    from polyak.scale.config.impala import APPOConfig, IMPALAConfig
    from polyak.scale.config.ppo import PPOConfig
    from polyak.scale.config.sac import SACConfig
    from polyak.scale.environments import EnvContext, register_env
    from polyak.scale.errors import NotThereYetError
    from polyak.scale.filters import MeanStdFilter
    from polyak.scale.models.catalog import Catalog, DefaultModelConfig, DQNCatalog, DQNRainbowCatalog, PPOCatalog
    from polyak.scale.models.configs import (
        ActorCriticEncoderConfig,
        CNNEncoderConfig,
        FreeLogStdMLPHeadConfig,
        MLPEncoderConfig,
        MLPHeadConfig,
        ModelConfig,
        RecurrentEncoderConfig,
    )
    from polyak.scale.models.default_modules import (
        DefaultDQNTorchRLModule,
        DefaultPPOTorchRLModule,
        DQNRainbowTorchRLModule,
        PPORLModule,
        PPOTorchRLModule,
    )
    from polyak.scale.models.encoders import Encoder, TorchModel
    from polyak.scale.models.multi import MultiRLModule, MultiRLModuleSpec
    from polyak.scale.models.rl_module import (
        InferenceOnlyAPI,
        QNetAPI,
        RLModule,
        RLModuleSpec,
        TargetNetworkAPI,
        TorchRLModule,
        ValueFunctionAPI,
    )
    from polyak.scale.processes.players import RayCrew
    from polyak.scale.trainables import get_algorithm_class, get_trainable_cls
    from polyak.scale.tuning import tune_trainable

_PLACES = {
    "algorithm": "Algorithm",
    "callbacks": "DefaultCallbacks RLlibCallback",
    "columns": "ACTOR CRITIC DEFAULT_MODULE_ID ENCODER_OUT Columns",
    "config.base": "AlgorithmConfig",
    "config.dqn": "DQNConfig RainbowConfig",
    "config.impala": "APPOConfig IMPALAConfig",
    "config.ppo": "PPOConfig",
    "config.sac": "SACConfig",
    "environments": "EnvContext register_env",
    "errors": "NotThereYetError",
    "filters": "MeanStdFilter",
    "models.catalog": "Catalog DefaultModelConfig DQNCatalog DQNRainbowCatalog PPOCatalog",
    "models.configs": "ActorCriticEncoderConfig CNNEncoderConfig FreeLogStdMLPHeadConfig MLPEncoderConfig "
    "MLPHeadConfig ModelConfig RecurrentEncoderConfig",
    "models.default_modules": "DefaultDQNTorchRLModule DefaultPPOTorchRLModule DQNRainbowTorchRLModule PPORLModule "
    "PPOTorchRLModule",
    "models.encoders": "Encoder TorchModel",
    "models.multi": "MultiRLModule MultiRLModuleSpec",
    "models.rl_module": "InferenceOnlyAPI QNetAPI RLModule RLModuleSpec TargetNetworkAPI TorchRLModule "
    "ValueFunctionAPI",
    "processes.players": "RayCrew",
    "trainables": "get_algorithm_class get_trainable_cls",
    "tuning": "tune_trainable",
}
_HOME = {name: module for module, names in _PLACES.items() for name in names.split()}
_ALGORITHMS = ("PPO", "DQN", "Rainbow", "SAC", "IMPALA", "APPO")

__all__ = sorted([*_HOME, *_ALGORITHMS])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in _ALGORITHMS:
        return importlib.import_module(f"{__name__}.trainables").get_trainable_cls(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
