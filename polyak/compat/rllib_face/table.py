"""Names of RLlib 2.60, some of earlier versions among them, and where polyak has them; written as in
:mod:`polyak.compat.sb3_face.table`.
"""

_SCALE = "polyak.compat.rllib_face"
_CONFIGS = (
    f"{_SCALE}: CNNEncoderConfig MLPEncoderConfig RecurrentEncoderConfig ActorCriticEncoderConfig MLPHeadConfig "
    "FreeLogStdMLPHeadConfig ModelConfig"
)
_APIS = f"{_SCALE}: InferenceOnlyAPI QNetAPI SelfSupervisedLossAPI TargetNetworkAPI ValueFunctionAPI"
_COMMON = {
    "add_observations_from_episodes_to_batch": "AddObservationsFromEpisodesToBatch",
    "add_states_from_episodes_to_batch": "AddStatesFromEpisodesToBatch",
    "add_time_dim_to_batch_and_zero_pad": "AddTimeDimToBatchAndZeroPad",
    "batch_individual_items": "BatchIndividualItems",
    "numpy_to_tensor": "NumpyToTensor",
}
_OF_LEARNERS = {
    "add_columns_from_episodes_to_train_batch": "AddColumnsFromEpisodesToTrainBatch",
    "add_next_observations_from_episodes_to_train_batch": "AddNextObservationsFromEpisodesToTrainBatch",
    "add_one_ts_to_episodes_and_truncate": "AddOneTsToEpisodesAndTruncate",
    "general_advantage_estimation": "GeneralAdvantageEstimation",
}
"""Module -> RLlib's default piece in it."""
_FRAMEWORKS = "try_import_torch try_import_tf get_activation_fn"
_RESULT_KEYS = (
    f"{_SCALE}.result_keys: "
    "ENV_RUNNER_RESULTS EVALUATION_RESULTS LEARNER_RESULTS FAULT_TOLERANCE_STATS TIMERS ALL_MODULES "
    "EPISODE_RETURN_MEAN EPISODE_RETURN_MIN EPISODE_RETURN_MAX EPISODE_LEN_MEAN EPISODE_LEN_MIN "
    "EPISODE_LEN_MAX EPISODE_DURATION_SEC_MEAN NUM_EPISODES NUM_EPISODES_LIFETIME NUM_ENV_STEPS_SAMPLED "
    "NUM_ENV_STEPS_SAMPLED_LIFETIME NUM_AGENT_STEPS_SAMPLED NUM_AGENT_STEPS_SAMPLED_LIFETIME "
    "NUM_MODULE_STEPS_SAMPLED NUM_MODULE_STEPS_SAMPLED_LIFETIME NUM_ENV_STEPS_TRAINED "
    "NUM_ENV_STEPS_TRAINED_LIFETIME NUM_MODULE_STEPS_TRAINED NUM_MODULE_STEPS_TRAINED_LIFETIME "
    "NUM_TRAINING_STEP_CALLS_PER_ITERATION NUM_TRAINABLE_PARAMETERS WEIGHTS_SEQ_NO "
    "TRAINING_ITERATION_TIMER EVALUATION_ITERATION_TIMER TRAINING_STEP_TIMER ENV_RUNNER_SAMPLING_TIMER "
    "LEARNER_UPDATE_TIMER SYNCH_WORKER_WEIGHTS_TIMER"
)
_TYPE_NAMES = (
    f"{_SCALE}.type_names: "
    "TensorType TensorStructType SpaceStruct NetworkType DeviceType Param ParamRef Optimizer "
    "LocalOptimizer ParamDict NamedParamDict ModelGradients ModelWeights ParamList LearningRateOrSchedule "
    "AgentID EpisodeID EnvID EpisodeType EnvType EnvObsType EnvActionType RLModuleSpecType ModuleID "
    "PolicyID EnvCreator IsPolicyToTrain ShouldModuleBeUpdatedFn AgentToModuleMappingFn "
    "AlgorithmConfigDict PartialAlgorithmConfigDict ModelConfigDict EnvConfigDict EnvInfoDict StateDict "
    "ResultDict MultiAgentDict GradInfoDict LearnerStatsDict FromConfigSpec"
)
_SPEC = f"{_SCALE}: RLModule RLModuleSpec"
_PPO_MODULE = f"{_SCALE}: PPOTorchRLModule DefaultPPOTorchRLModule"
_DQN_MODULE = f"{_SCALE}: DQNRainbowTorchRLModule DefaultDQNTorchRLModule"
_REGISTRY = f"{_SCALE}.tuning: register_env get_trainable_cls"
_CALLBACKS = f"{_SCALE}: RLlibCallback DefaultCallbacks"

_DISTRIBUTIONS = (
    f"{_SCALE}: Distribution TorchDistribution TorchCategorical TorchDiagGaussian TorchMultiCategorical "
    "TorchMultiDistribution TorchDeterministic"
)

RLLIB: dict[str, tuple[str, ...]] = {
    "": (f"{_SCALE}.tuning: _register_all=register_all",),
    "algorithms": (
        f"{_SCALE}: Algorithm AlgorithmConfig PPO PPOConfig DQN DQNConfig SAC SACConfig IMPALA IMPALAConfig APPO "
        "APPOConfig BC BCConfig MARWIL MARWILConfig CQL CQLConfig",
    ),
    "algorithms.algorithm": (f"{_SCALE}: Algorithm",),
    "algorithms.algorithm_config": (f"{_SCALE}: AlgorithmConfig",),
    "algorithms.registry": (f"{_SCALE}: get_algorithm_class",),
    "algorithms.ppo": (f"{_SCALE}: PPO PPOConfig",),
    "algorithms.ppo.ppo": (f"{_SCALE}: PPO PPOConfig",),
    "algorithms.ppo.ppo_catalog": (f"{_SCALE}: PPOCatalog",),
    "algorithms.ppo.ppo_rl_module": (f"{_SCALE}: PPORLModule",),
    "algorithms.ppo.default_ppo_rl_module": (f"{_SCALE}: DefaultPPORLModule=PPORLModule",),
    "algorithms.ppo.torch": (_PPO_MODULE,),
    "algorithms.ppo.torch.ppo_torch_rl_module": (_PPO_MODULE,),
    "algorithms.ppo.torch.default_ppo_torch_rl_module": (_PPO_MODULE,),
    "algorithms.dqn": (f"{_SCALE}: DQN DQNConfig",),
    "algorithms.dqn.dqn": (f"{_SCALE}: DQN DQNConfig",),
    "algorithms.dqn.dqn_catalog": (f"{_SCALE}: DQNCatalog",),
    "algorithms.dqn.dqn_rainbow_catalog": (f"{_SCALE}: DQNRainbowCatalog",),
    "algorithms.dqn.torch": (_DQN_MODULE,),
    "algorithms.dqn.torch.dqn_rainbow_torch_rl_module": (_DQN_MODULE,),
    "algorithms.dqn.torch.default_dqn_torch_rl_module": (_DQN_MODULE,),
    "algorithms.sac": (f"{_SCALE}: SAC SACConfig",),
    "algorithms.sac.sac": (f"{_SCALE}: SAC SACConfig",),
    "algorithms.impala": (f"{_SCALE}: IMPALA IMPALAConfig",),
    "algorithms.impala.impala": (f"{_SCALE}: IMPALA IMPALAConfig",),
    "algorithms.appo": (f"{_SCALE}: APPO APPOConfig",),
    "algorithms.appo.appo": (f"{_SCALE}: APPO APPOConfig",),
    "algorithms.bc": (f"{_SCALE}: BC BCConfig",),
    "algorithms.bc.bc": (f"{_SCALE}: BC BCConfig",),
    "algorithms.bc.bc_catalog": (f"{_SCALE}: BCCatalog",),
    "algorithms.bc.torch": (),
    "algorithms.bc.torch.default_bc_torch_rl_module": (f"{_SCALE}: DefaultBCTorchRLModule",),
    "algorithms.marwil": (f"{_SCALE}: MARWIL MARWILConfig",),
    "algorithms.marwil.marwil": (f"{_SCALE}: MARWIL MARWILConfig",),
    "algorithms.cql": (f"{_SCALE}: CQL CQLConfig",),
    "algorithms.cql.cql": (f"{_SCALE}: CQL CQLConfig",),
    "algorithms.ppo.torch.ppo_torch_learner": (f"{_SCALE}: PPOTorchLearner",),
    "algorithms.ppo.ppo_learner": (f"{_SCALE}: PPOLearner=PPOTorchLearner",),
    "algorithms.dqn.torch.dqn_torch_learner": (f"{_SCALE}: DQNTorchLearner",),
    "algorithms.dqn.dqn_learner": (f"{_SCALE}: DQNLearner=DQNTorchLearner",),
    "algorithms.sac.torch": (),
    "algorithms.sac.torch.sac_torch_learner": (f"{_SCALE}: SACTorchLearner",),
    "algorithms.impala.torch": (),
    "algorithms.impala.torch.impala_torch_learner": (f"{_SCALE}: IMPALATorchLearner",),
    "algorithms.appo.torch": (),
    "algorithms.appo.torch.appo_torch_learner": (f"{_SCALE}: APPOTorchLearner",),
    "core.learner": (f"{_SCALE}: Learner=TorchLearner",),
    "core.learner.learner": (f"{_SCALE}: Learner=TorchLearner",),
    "core.learner.torch": (),
    "core.learner.torch.torch_learner": (f"{_SCALE}: TorchLearner",),
    "algorithms.callbacks": (_CALLBACKS,),
    "callbacks": (_CALLBACKS,),
    "callbacks.callbacks": (_CALLBACKS,),
    "connectors": (),
    "connectors.connector_v2": (f"{_SCALE}: ConnectorV2",),
    "connectors.connector_pipeline_v2": (f"{_SCALE}: ConnectorPipelineV2",),
    "connectors.common": (),
    "connectors.common.flatten_observations": (f"{_SCALE}: FlattenObservations",),
    "connectors.common.frame_stacking": (f"{_SCALE}: FrameStacking",),
    "connectors.env_to_module": (
        f"{_SCALE}: EnvToModulePipeline FlattenObservations FrameStackingEnvToModule MeanStdFilter "
        "PrevActionsPrevRewards",
    ),
    "connectors.env_to_module.env_to_module_pipeline": (f"{_SCALE}: EnvToModulePipeline",),
    "connectors.env_to_module.flatten_observations": (f"{_SCALE}: FlattenObservations",),
    "connectors.env_to_module.frame_stacking": (f"{_SCALE}: FrameStackingEnvToModule",),
    "connectors.env_to_module.observation_preprocessor": (f"{_SCALE}: SingleAgentObservationPreprocessor",),
    "connectors.env_to_module.prev_actions_prev_rewards": (f"{_SCALE}: PrevActionsPrevRewards",),
    **{f"connectors.common.{module}": (f"{_SCALE}: {name}",) for module, name in _COMMON.items()},
    "connectors.learner": (
        f"{_SCALE}: LearnerConnectorPipeline",
        f"{_SCALE}: {' '.join([*_COMMON.values(), *_OF_LEARNERS.values()])}",
    ),
    **{f"connectors.learner.{module}": (f"{_SCALE}: {name}",) for module, name in _OF_LEARNERS.items()},
    "connectors.learner.frame_stacking": (f"{_SCALE}: FrameStackingLearner",),
    "connectors.learner.learner_connector_pipeline": (f"{_SCALE}: LearnerConnectorPipeline",),
    "connectors.module_to_env": (f"{_SCALE}: ModuleToEnvPipeline",),
    "connectors.module_to_env.module_to_env_pipeline": (f"{_SCALE}: ModuleToEnvPipeline",),
    "env.single_agent_episode": (f"{_SCALE}: SingleAgentEpisode",),
    "connectors.env_to_module.mean_std_filter": (f"{_SCALE}: MeanStdFilter",),
    "core": (f"{_SCALE}: Columns DEFAULT_MODULE_ID",),
    "core.columns": (f"{_SCALE}: Columns",),
    "core.distribution": (),
    "core.distribution.distribution": (f"{_SCALE}: Distribution",),
    "core.distribution.torch": (),
    "core.distribution.torch.torch_distribution": (_DISTRIBUTIONS,),
    "models.distributions": (f"{_SCALE}: Distribution",),
    "models.torch": (),
    "models.torch.torch_distributions": (_DISTRIBUTIONS,),
    "core.models": (),
    "core.models.base": (f"{_SCALE}: ACTOR CRITIC ENCODER_OUT",),
    "core.models.catalog": (f"{_SCALE}: Catalog",),
    "core.models.configs": (_CONFIGS,),
    "core.models.torch": (),
    "core.models.torch.encoder": (f"{_SCALE}: Encoder TorchModel",),
    "core.models.torch.base": (f"{_SCALE}: TorchModel",),
    "core.rl_module": (_SPEC, f"{_SCALE}: DefaultModelConfig MultiRLModule MultiRLModuleSpec"),
    "core.rl_module.multi_rl_module": (f"{_SCALE}: MultiRLModule MultiRLModuleSpec",),
    "core.rl_module.rl_module": (_SPEC,),
    "core.rl_module.default_model_config": (f"{_SCALE}: DefaultModelConfig",),
    "core.rl_module.apis": (_APIS,),
    "core.rl_module.torch": (f"{_SCALE}: TorchRLModule",),
    "core.rl_module.torch.torch_rl_module": (f"{_SCALE}: TorchRLModule",),
    "env": (),
    "env.env_context": (f"{_SCALE}: EnvContext",),
    "models.preprocessors": (
        f"{_SCALE}.models.preprocessors: Preprocessor NoPreprocessor OneHotPreprocessor TupleFlatteningPreprocessor "
        "DictFlatteningPreprocessor get_preprocessor",
    ),
    "models": (),
    "models.utils": (f"{_SCALE}.tensors: get_activation_fn",),
    "utils": (f"{_SCALE}.annotations: override PublicAPI DeveloperAPI", f"{_SCALE}.tensors: {_FRAMEWORKS}"),
    "utils.annotations": (
        f"{_SCALE}.annotations: override PublicAPI DeveloperAPI ExperimentalAPI OldAPIStack "
        "OverrideToImplementCustomLogic OverrideToImplementCustomLogic_CallToSuperRecommended",
    ),
    "utils.framework": (f"{_SCALE}.tensors: {_FRAMEWORKS}",),
    "utils.metrics": (_RESULT_KEYS,),
    "utils.numpy": (f"{_SCALE}.tensors: convert_to_numpy",),
    "utils.spaces": (),
    "utils.torch_utils": (f"{_SCALE}.tensors: convert_to_torch_tensor explained_variance one_hot FLOAT_MIN FLOAT_MAX",),
    "utils.typing": (_TYPE_NAMES,),
    "utils.spaces.simplex": (f"{_SCALE}: Simplex",),
    "tune": (_REGISTRY,),
    "tune.registry": (_REGISTRY,),
}
"""Module path below ``ray.rllib``; ``tune`` stands for ``ray.tune``."""

_ONE_AGENT = "algorithms here train one agent"
_DEFAULT = "polyak does the work of RLlib's default pieces around a module itself"
_INFOS = "a piece reads them: episode.get_infos()"
_OFFLINE = "polyak learns from recorded data without a config: polyak.{}('MlpPolicy', dataset)"
_RUNNER = "the runner is polyak's: env_runners(num_env_runners=...) says how many there are"
_LEARNER = "subclass the learner of the algorithm, and name it by training(learner_class=...)"
_OLD = "it belongs to RLlib's old stack: write a TorchRLModule"

REFUSED: dict[str, dict[str, str]] = {
    "algorithms": dict.fromkeys(["IQL", "IQLConfig"], _OFFLINE.format("IQL")),
    "algorithms.iql": dict.fromkeys(["IQL", "IQLConfig"], _OFFLINE.format("IQL")),
    "algorithms.dreamerv3": dict.fromkeys(["DreamerV3", "DreamerV3Config"], "there is no DreamerV3 here"),
    "algorithms.tqc": dict.fromkeys(["TQC", "TQCConfig"], "use polyak.TQC('MlpPolicy', env)"),
    "connectors.env_to_module": dict.fromkeys([*_COMMON.values(), "AgentToModuleMapping"], _DEFAULT),
    "connectors.common.agent_to_module_mapping": {"AgentToModuleMapping": _ONE_AGENT},
    "connectors.module_to_env": dict.fromkeys(
        [
            *("GetActions", "ListifyDataForVectorEnv", "ModuleToAgentUnmapping", "NormalizeAndClipActions"),
            *("RemoveSingleTsTimeRankFromBatch", "TensorToNumpy", "UnBatchToIndividualItems"),
        ],
        _DEFAULT,
    ),
    "connectors.learner": {"AddInfosFromEpisodesToTrainBatch": _INFOS, "AgentToModuleMapping": _ONE_AGENT},
    "core.learner": {"LearnerGroup": "algo.learner_group is one"},
    "core.learner.learner_group": {"LearnerGroup": "algo.learner_group is one"},
    "core.rl_module.torch.torch_compile_config": {
        "TorchCompileConfig": "framework(torch_compile_learner=...) compiles gradient steps"
    },
    "env.multi_agent_env": {"MultiAgentEnv": _ONE_AGENT},
    "env.env_runner": {"EnvRunner": _RUNNER},
    "env.env_runner_group": {"EnvRunnerGroup": _RUNNER},
    "env.single_agent_env_runner": {"SingleAgentEnvRunner": _RUNNER},
    "models": {"ModelCatalog": _OLD},
    "models.torch.torch_modelv2": {"TorchModelV2": _OLD},
    "policy.policy": {"Policy": _OLD},
    "policy.sample_batch": {"SampleBatch": "batches are dicts by polyak.compat.rllib_face.Columns"},
    "utils.metrics.metrics_logger": {"MetricsLogger": "callbacks are given one: metrics_logger"},
}
"""Module path below ``ray.rllib`` -> name -> why it is not here, and what to do instead."""

for _path in REFUSED:
    for _end in range(_path.count(".") + 1):  # the module, and the packages that it is in
        RLLIB.setdefault(".".join(_path.split(".")[: _end + 1]), ())

TUNE: dict[str, tuple[str, ...]] = {
    path.removeprefix("tune").removeprefix("."): lines for path, lines in RLLIB.items() if path.startswith("tune")
}
"""Module path below ``ray.tune``, of which there is no more than this."""

RAY = ("polyak.compat.rllib_face.ray_names: __version__ init shutdown is_initialized",)
"""Names of ``ray`` itself, where it is not installed."""

PREPARES = {"": f"{_SCALE}.tuning:prepare"}
"""Module path below ``ray.tune`` -> what is called when the installed one has been run."""
