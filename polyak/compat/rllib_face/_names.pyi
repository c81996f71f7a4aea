# The names of the package and their files: read by type checkers, and by the package itself.

from polyak.algorithms.search.ray_crew import RayCrew as RayCrew
from polyak.compat.rllib_face.algorithm import Algorithm as Algorithm
from polyak.compat.rllib_face.callbacks import DefaultCallbacks as DefaultCallbacks
from polyak.compat.rllib_face.callbacks import RLlibCallback as RLlibCallback
from polyak.compat.rllib_face.columns import ACTOR as ACTOR
from polyak.compat.rllib_face.columns import CRITIC as CRITIC
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID as DEFAULT_MODULE_ID
from polyak.compat.rllib_face.columns import ENCODER_OUT as ENCODER_OUT
from polyak.compat.rllib_face.columns import Columns as Columns
from polyak.compat.rllib_face.config.base import AlgorithmConfig as AlgorithmConfig
from polyak.compat.rllib_face.config.cql import CQLConfig as CQLConfig
from polyak.compat.rllib_face.config.dqn import DQNConfig as DQNConfig
from polyak.compat.rllib_face.config.dqn import RainbowConfig as RainbowConfig
from polyak.compat.rllib_face.config.impala import APPOConfig as APPOConfig
from polyak.compat.rllib_face.config.impala import IMPALAConfig as IMPALAConfig
from polyak.compat.rllib_face.config.iql import IQLConfig as IQLConfig
from polyak.compat.rllib_face.config.marwil import BCConfig as BCConfig
from polyak.compat.rllib_face.config.marwil import MARWILConfig as MARWILConfig
from polyak.compat.rllib_face.config.ppo import PPOConfig as PPOConfig
from polyak.compat.rllib_face.config.sac import SACConfig as SACConfig
from polyak.compat.rllib_face.config.sac import TQCConfig as TQCConfig
from polyak.compat.rllib_face.connectors.base import ConnectorPipelineV2 as ConnectorPipelineV2
from polyak.compat.rllib_face.connectors.base import ConnectorV2 as ConnectorV2
from polyak.compat.rllib_face.connectors.base import EnvToModulePipeline as EnvToModulePipeline
from polyak.compat.rllib_face.connectors.base import ModuleToEnvPipeline as ModuleToEnvPipeline
from polyak.compat.rllib_face.connectors.batches import (
    AddColumnsFromEpisodesToTrainBatch as AddColumnsFromEpisodesToTrainBatch,
)
from polyak.compat.rllib_face.connectors.batches import (
    AddNextObservationsFromEpisodesToTrainBatch as AddNextObservationsFromEpisodesToTrainBatch,
)
from polyak.compat.rllib_face.connectors.batches import (
    AddObservationsFromEpisodesToBatch as AddObservationsFromEpisodesToBatch,
)
from polyak.compat.rllib_face.connectors.batches import AddOneTsToEpisodesAndTruncate as AddOneTsToEpisodesAndTruncate
from polyak.compat.rllib_face.connectors.batches import AddStatesFromEpisodesToBatch as AddStatesFromEpisodesToBatch
from polyak.compat.rllib_face.connectors.batches import AddTimeDimToBatchAndZeroPad as AddTimeDimToBatchAndZeroPad
from polyak.compat.rllib_face.connectors.batches import BatchIndividualItems as BatchIndividualItems
from polyak.compat.rllib_face.connectors.batches import GeneralAdvantageEstimation as GeneralAdvantageEstimation
from polyak.compat.rllib_face.connectors.batches import LearnerConnectorPipeline as LearnerConnectorPipeline
from polyak.compat.rllib_face.connectors.batches import NumpyToTensor as NumpyToTensor
from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode as SingleAgentEpisode
from polyak.compat.rllib_face.connectors.pieces import FlattenObservations as FlattenObservations
from polyak.compat.rllib_face.connectors.pieces import FrameStacking as FrameStacking
from polyak.compat.rllib_face.connectors.pieces import FrameStackingEnvToModule as FrameStackingEnvToModule
from polyak.compat.rllib_face.connectors.pieces import FrameStackingLearner as FrameStackingLearner
from polyak.compat.rllib_face.connectors.pieces import PrevActionsPrevRewards as PrevActionsPrevRewards
from polyak.compat.rllib_face.connectors.pieces import (
    SingleAgentObservationPreprocessor as SingleAgentObservationPreprocessor,
)
from polyak.compat.rllib_face.environments import EnvContext as EnvContext
from polyak.compat.rllib_face.environments import register_env as register_env
from polyak.compat.rllib_face.errors import NotThereYetError as NotThereYetError
from polyak.compat.rllib_face.filters import MeanStdFilter as MeanStdFilter
from polyak.compat.rllib_face.learner_groups import LearnerGroup as LearnerGroup
from polyak.compat.rllib_face.learners.actor_critic import APPOTorchLearner as APPOTorchLearner
from polyak.compat.rllib_face.learners.actor_critic import IMPALATorchLearner as IMPALATorchLearner
from polyak.compat.rllib_face.learners.actor_critic import PPOTorchLearner as PPOTorchLearner
from polyak.compat.rllib_face.learners.base import TorchLearner as TorchLearner
from polyak.compat.rllib_face.learners.values import DQNTorchLearner as DQNTorchLearner
from polyak.compat.rllib_face.learners.values import SACTorchLearner as SACTorchLearner
from polyak.compat.rllib_face.models.catalog import Catalog as Catalog
from polyak.compat.rllib_face.models.catalog import DefaultModelConfig as DefaultModelConfig
from polyak.compat.rllib_face.models.catalog import DQNCatalog as DQNCatalog
from polyak.compat.rllib_face.models.catalog import DQNRainbowCatalog as DQNRainbowCatalog
from polyak.compat.rllib_face.models.catalog import PPOCatalog as PPOCatalog
from polyak.compat.rllib_face.models.cloning import BCCatalog as BCCatalog
from polyak.compat.rllib_face.models.cloning import DefaultBCTorchRLModule as DefaultBCTorchRLModule
from polyak.compat.rllib_face.models.configs import ActorCriticEncoderConfig as ActorCriticEncoderConfig
from polyak.compat.rllib_face.models.configs import CNNEncoderConfig as CNNEncoderConfig
from polyak.compat.rllib_face.models.configs import FreeLogStdMLPHeadConfig as FreeLogStdMLPHeadConfig
from polyak.compat.rllib_face.models.configs import MLPEncoderConfig as MLPEncoderConfig
from polyak.compat.rllib_face.models.configs import MLPHeadConfig as MLPHeadConfig
from polyak.compat.rllib_face.models.configs import ModelConfig as ModelConfig
from polyak.compat.rllib_face.models.configs import RecurrentEncoderConfig as RecurrentEncoderConfig
from polyak.compat.rllib_face.models.default_modules import DefaultDQNTorchRLModule as DefaultDQNTorchRLModule
from polyak.compat.rllib_face.models.default_modules import DefaultPPOTorchRLModule as DefaultPPOTorchRLModule
from polyak.compat.rllib_face.models.default_modules import DQNRainbowTorchRLModule as DQNRainbowTorchRLModule
from polyak.compat.rllib_face.models.default_modules import PPORLModule as PPORLModule
from polyak.compat.rllib_face.models.default_modules import PPOTorchRLModule as PPOTorchRLModule
from polyak.compat.rllib_face.models.distributions import TorchMultiDistribution as TorchMultiDistribution
from polyak.compat.rllib_face.models.encoders import Encoder as Encoder
from polyak.compat.rllib_face.models.encoders import TorchModel as TorchModel
from polyak.compat.rllib_face.models.multi import MultiRLModule as MultiRLModule
from polyak.compat.rllib_face.models.multi import MultiRLModuleSpec as MultiRLModuleSpec
from polyak.compat.rllib_face.models.rl_module import InferenceOnlyAPI as InferenceOnlyAPI
from polyak.compat.rllib_face.models.rl_module import QNetAPI as QNetAPI
from polyak.compat.rllib_face.models.rl_module import RLModule as RLModule
from polyak.compat.rllib_face.models.rl_module import RLModuleSpec as RLModuleSpec
from polyak.compat.rllib_face.models.rl_module import SelfSupervisedLossAPI as SelfSupervisedLossAPI
from polyak.compat.rllib_face.models.rl_module import TargetNetworkAPI as TargetNetworkAPI
from polyak.compat.rllib_face.models.rl_module import TorchRLModule as TorchRLModule
from polyak.compat.rllib_face.models.rl_module import ValueFunctionAPI as ValueFunctionAPI
from polyak.compat.rllib_face.models.simplex import Simplex as Simplex
from polyak.compat.rllib_face.models.torch_distributions import Distribution as Distribution
from polyak.compat.rllib_face.models.torch_distributions import TorchCategorical as TorchCategorical
from polyak.compat.rllib_face.models.torch_distributions import TorchDeterministic as TorchDeterministic
from polyak.compat.rllib_face.models.torch_distributions import TorchDiagGaussian as TorchDiagGaussian
from polyak.compat.rllib_face.models.torch_distributions import TorchDistribution as TorchDistribution
from polyak.compat.rllib_face.models.torch_distributions import TorchMultiCategorical as TorchMultiCategorical
from polyak.compat.rllib_face.trainables import get_algorithm_class as get_algorithm_class
from polyak.compat.rllib_face.trainables import get_trainable_cls as get_trainable_cls
from polyak.compat.rllib_face.tuning import tune_trainable as tune_trainable
