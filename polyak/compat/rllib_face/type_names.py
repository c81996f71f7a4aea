"""Names of types that programs written for RLlib import for their annotations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

TensorType = TensorStructType = SpaceStruct = NetworkType = DeviceType = Param = ParamRef = Any
Optimizer = LocalOptimizer = torch.optim.Optimizer
ParamDict = NamedParamDict = ModelGradients = ModelWeights = dict[Any, Any]
ParamList = list[Any]
LearningRateOrSchedule = float | list[list[float]]

AgentID = EpisodeID = EnvID = EpisodeType = EnvType = EnvObsType = EnvActionType = RLModuleSpecType = Any
ModuleID = PolicyID = str
EnvCreator = IsPolicyToTrain = ShouldModuleBeUpdatedFn = AgentToModuleMappingFn = Callable[..., Any]
AlgorithmConfigDict = PartialAlgorithmConfigDict = ModelConfigDict = EnvConfigDict = EnvInfoDict = dict[str, Any]
StateDict = ResultDict = MultiAgentDict = GradInfoDict = LearnerStatsDict = dict[Any, Any]
FromConfigSpec = Mapping[str, Any] | str | Any
