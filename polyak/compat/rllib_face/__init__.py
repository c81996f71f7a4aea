# ruff: noqa: I001 - one statement for each file, which isort would split
"""RLlib's way of speaking: configs that build algorithms, modules and catalogs, on polyak's own algorithms. Beside it,
what lets games be played on Ray.

Names are imported from their files when first used, so that importing this package stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # `as`: type checkers offer a name to others only so
    from polyak.compat.rllib_face.algorithm import Algorithm as Algorithm
    from polyak.compat.rllib_face.callbacks import DefaultCallbacks as DefaultCallbacks, RLlibCallback as RLlibCallback
    from polyak.compat.rllib_face.columns import (
        ACTOR as ACTOR,
        CRITIC as CRITIC,
        DEFAULT_MODULE_ID as DEFAULT_MODULE_ID,
        ENCODER_OUT as ENCODER_OUT,
        Columns as Columns,
    )
    from polyak.compat.rllib_face.config.base import AlgorithmConfig as AlgorithmConfig
    from polyak.compat.rllib_face.config.cql import CQLConfig as CQLConfig
    from polyak.compat.rllib_face.config.dqn import DQNConfig as DQNConfig, RainbowConfig as RainbowConfig
    from polyak.compat.rllib_face.config.impala import APPOConfig as APPOConfig, IMPALAConfig as IMPALAConfig
    from polyak.compat.rllib_face.config.marwil import BCConfig as BCConfig, MARWILConfig as MARWILConfig
    from polyak.compat.rllib_face.config.ppo import PPOConfig as PPOConfig
    from polyak.compat.rllib_face.config.sac import SACConfig as SACConfig
    from polyak.compat.rllib_face.connectors.base import (
        ConnectorPipelineV2 as ConnectorPipelineV2,
        ConnectorV2 as ConnectorV2,
        EnvToModulePipeline as EnvToModulePipeline,
        ModuleToEnvPipeline as ModuleToEnvPipeline,
    )
    from polyak.compat.rllib_face.connectors.batches import (
        AddColumnsFromEpisodesToTrainBatch as AddColumnsFromEpisodesToTrainBatch,
        AddNextObservationsFromEpisodesToTrainBatch as AddNextObservationsFromEpisodesToTrainBatch,
        AddObservationsFromEpisodesToBatch as AddObservationsFromEpisodesToBatch,
        AddOneTsToEpisodesAndTruncate as AddOneTsToEpisodesAndTruncate,
        AddStatesFromEpisodesToBatch as AddStatesFromEpisodesToBatch,
        AddTimeDimToBatchAndZeroPad as AddTimeDimToBatchAndZeroPad,
        BatchIndividualItems as BatchIndividualItems,
        GeneralAdvantageEstimation as GeneralAdvantageEstimation,
        LearnerConnectorPipeline as LearnerConnectorPipeline,
        NumpyToTensor as NumpyToTensor,
    )
    from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode as SingleAgentEpisode
    from polyak.compat.rllib_face.connectors.pieces import (
        FlattenObservations as FlattenObservations,
        FrameStacking as FrameStacking,
        FrameStackingEnvToModule as FrameStackingEnvToModule,
        FrameStackingLearner as FrameStackingLearner,
        PrevActionsPrevRewards as PrevActionsPrevRewards,
        SingleAgentObservationPreprocessor as SingleAgentObservationPreprocessor,
    )
    from polyak.compat.rllib_face.environments import EnvContext as EnvContext, register_env as register_env
    from polyak.compat.rllib_face.errors import NotThereYetError as NotThereYetError
    from polyak.compat.rllib_face.filters import MeanStdFilter as MeanStdFilter
    from polyak.compat.rllib_face.learners.actor_critic import (
        APPOTorchLearner as APPOTorchLearner,
        IMPALATorchLearner as IMPALATorchLearner,
        PPOTorchLearner as PPOTorchLearner,
    )
    from polyak.compat.rllib_face.learners.base import TorchLearner as TorchLearner
    from polyak.compat.rllib_face.learners.values import (
        DQNTorchLearner as DQNTorchLearner,
        SACTorchLearner as SACTorchLearner,
    )
    from polyak.compat.rllib_face.models.catalog import (
        Catalog as Catalog,
        DefaultModelConfig as DefaultModelConfig,
        DQNCatalog as DQNCatalog,
        DQNRainbowCatalog as DQNRainbowCatalog,
        PPOCatalog as PPOCatalog,
    )
    from polyak.compat.rllib_face.models.cloning import (
        BCCatalog as BCCatalog,
        DefaultBCTorchRLModule as DefaultBCTorchRLModule,
    )
    from polyak.compat.rllib_face.models.configs import (
        ActorCriticEncoderConfig as ActorCriticEncoderConfig,
        CNNEncoderConfig as CNNEncoderConfig,
        FreeLogStdMLPHeadConfig as FreeLogStdMLPHeadConfig,
        MLPEncoderConfig as MLPEncoderConfig,
        MLPHeadConfig as MLPHeadConfig,
        ModelConfig as ModelConfig,
        RecurrentEncoderConfig as RecurrentEncoderConfig,
    )
    from polyak.compat.rllib_face.models.default_modules import (
        DefaultDQNTorchRLModule as DefaultDQNTorchRLModule,
        DefaultPPOTorchRLModule as DefaultPPOTorchRLModule,
        DQNRainbowTorchRLModule as DQNRainbowTorchRLModule,
        PPORLModule as PPORLModule,
        PPOTorchRLModule as PPOTorchRLModule,
    )
    from polyak.compat.rllib_face.models.distributions import TorchMultiDistribution as TorchMultiDistribution
    from polyak.compat.rllib_face.models.encoders import Encoder as Encoder, TorchModel as TorchModel
    from polyak.compat.rllib_face.models.multi import (
        MultiRLModule as MultiRLModule,
        MultiRLModuleSpec as MultiRLModuleSpec,
    )
    from polyak.compat.rllib_face.models.rl_module import (
        InferenceOnlyAPI as InferenceOnlyAPI,
        QNetAPI as QNetAPI,
        RLModule as RLModule,
        RLModuleSpec as RLModuleSpec,
        SelfSupervisedLossAPI as SelfSupervisedLossAPI,
        TargetNetworkAPI as TargetNetworkAPI,
        TorchRLModule as TorchRLModule,
        ValueFunctionAPI as ValueFunctionAPI,
    )
    from polyak.compat.rllib_face.models.simplex import Simplex as Simplex
    from polyak.compat.rllib_face.models.torch_distributions import (
        Distribution as Distribution,
        TorchCategorical as TorchCategorical,
        TorchDeterministic as TorchDeterministic,
        TorchDiagGaussian as TorchDiagGaussian,
        TorchDistribution as TorchDistribution,
        TorchMultiCategorical as TorchMultiCategorical,
    )
    from polyak.compat.rllib_face.processes.players import RayCrew as RayCrew
    from polyak.compat.rllib_face.trainables import (
        get_algorithm_class as get_algorithm_class,
        get_trainable_cls as get_trainable_cls,
    )
    from polyak.compat.rllib_face.tuning import tune_trainable as tune_trainable

_PLACES = {
    "algorithm": "Algorithm",
    "callbacks": "DefaultCallbacks RLlibCallback",
    "columns": "ACTOR CRITIC DEFAULT_MODULE_ID ENCODER_OUT Columns",
    "config.base": "AlgorithmConfig",
    "config.cql": "CQLConfig",
    "config.dqn": "DQNConfig RainbowConfig",
    "config.impala": "APPOConfig IMPALAConfig",
    "config.marwil": "BCConfig MARWILConfig",
    "config.ppo": "PPOConfig",
    "config.sac": "SACConfig",
    "connectors.base": "ConnectorPipelineV2 ConnectorV2 EnvToModulePipeline ModuleToEnvPipeline",
    "connectors.batches": "AddColumnsFromEpisodesToTrainBatch AddNextObservationsFromEpisodesToTrainBatch "
    "AddObservationsFromEpisodesToBatch AddOneTsToEpisodesAndTruncate AddStatesFromEpisodesToBatch "
    "AddTimeDimToBatchAndZeroPad BatchIndividualItems GeneralAdvantageEstimation LearnerConnectorPipeline "
    "NumpyToTensor",
    "connectors.episodes": "SingleAgentEpisode",
    "connectors.pieces": "FlattenObservations FrameStacking FrameStackingEnvToModule FrameStackingLearner "
    "PrevActionsPrevRewards SingleAgentObservationPreprocessor",
    "environments": "EnvContext register_env",
    "errors": "NotThereYetError",
    "filters": "MeanStdFilter",
    "learners.actor_critic": "APPOTorchLearner IMPALATorchLearner PPOTorchLearner",
    "learners.base": "TorchLearner",
    "learners.values": "DQNTorchLearner SACTorchLearner",
    "models.catalog": "Catalog DefaultModelConfig DQNCatalog DQNRainbowCatalog PPOCatalog",
    "models.cloning": "BCCatalog DefaultBCTorchRLModule",
    "models.configs": "ActorCriticEncoderConfig CNNEncoderConfig FreeLogStdMLPHeadConfig MLPEncoderConfig "
    "MLPHeadConfig ModelConfig RecurrentEncoderConfig",
    "models.default_modules": "DefaultDQNTorchRLModule DefaultPPOTorchRLModule DQNRainbowTorchRLModule PPORLModule "
    "PPOTorchRLModule",
    "models.distributions": "TorchMultiDistribution",
    "models.encoders": "Encoder TorchModel",
    "models.multi": "MultiRLModule MultiRLModuleSpec",
    "models.rl_module": "InferenceOnlyAPI QNetAPI RLModule RLModuleSpec SelfSupervisedLossAPI "
    "TargetNetworkAPI TorchRLModule ValueFunctionAPI",
    "models.simplex": "Simplex",
    "models.torch_distributions": "Distribution TorchCategorical TorchDeterministic TorchDiagGaussian "
    "TorchDistribution TorchMultiCategorical",
    "processes.players": "RayCrew",
    "trainables": "get_algorithm_class get_trainable_cls",
    "tuning": "tune_trainable",
}
_HOME = {name: module for module, names in _PLACES.items() for name in names.split()}
_ALGORITHMS = ("PPO", "DQN", "Rainbow", "SAC", "IMPALA", "APPO", "BC", "MARWIL", "CQL")

__all__ = sorted([*_HOME, *_ALGORITHMS])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    if name in _ALGORITHMS:
        return importlib.import_module(f"{__name__}.trainables").get_trainable_cls(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
