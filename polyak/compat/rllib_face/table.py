"""Names of RLlib 2.60, some of earlier versions among them, and where polyak has them; written as in
:mod:`polyak.compat.sb3_face.table`.
"""

from polyak.compat.rllib_face import columns, result_keys

_FACE = "polyak.compat.rllib_face"
_CONFIGS = """\
CNNEncoderConfig MLPEncoderConfig RecurrentEncoderConfig ActorCriticEncoderConfig MLPHeadConfig
FreeLogStdMLPHeadConfig ModelConfig"""
_DISTRIBUTIONS = """\
Distribution TorchDistribution TorchCategorical TorchDiagGaussian TorchMultiCategorical TorchMultiDistribution
TorchDeterministic"""
_FRAMEWORKS = "tensors: try_import_torch try_import_tf get_activation_fn"
_MARKS = "annotations: override PublicAPI DeveloperAPI"
_TYPES = """type_names: \
TensorType TensorStructType SpaceStruct NetworkType DeviceType Param ParamRef Optimizer LocalOptimizer ParamDict
NamedParamDict ModelGradients ModelWeights ParamList LearningRateOrSchedule AgentID EpisodeID EnvID EpisodeType EnvType
EnvObsType EnvActionType RLModuleSpecType ModuleID PolicyID EnvCreator IsPolicyToTrain ShouldModuleBeUpdatedFn
AgentToModuleMappingFn AlgorithmConfigDict PartialAlgorithmConfigDict ModelConfigDict EnvConfigDict EnvInfoDict
StateDict ResultDict MultiAgentDict GradInfoDict LearnerStatsDict FromConfigSpec"""
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
_ALGORITHMS = ("PPO", "DQN", "SAC", "IMPALA", "APPO", "BC", "MARWIL", "CQL", "TQC", "IQL")
_APIS = {
    "inference_only_api": "InferenceOnlyAPI",
    "q_net_api": "QNetAPI",
    "self_supervised_loss_api": "SelfSupervisedLossAPI",
    "target_network_api": "TargetNetworkAPI",
    "value_function_api": "ValueFunctionAPI",
}
"""Module -> RLlib's interface in it."""
_COMPONENTS = sorted(name for name in vars(columns) if name.startswith("COMPONENT_"))
_NAMES = {
    "algorithms": f"Algorithm AlgorithmConfig {' '.join(f'{name} {name}Config' for name in _ALGORITHMS)}",
    **{
        f"algorithms.{name.lower()} algorithms.{name.lower()}.{name.lower()}": f"{name} {name}Config"
        for name in _ALGORITHMS
    },
    "algorithms.algorithm": "Algorithm",
    "algorithms.algorithm_config": "AlgorithmConfig;config.unread: NotProvided",
    "utils.from_config": "config.unread: NotProvided",
    "algorithms.registry": "get_algorithm_class",
    "algorithms.ppo.ppo_catalog": "PPOCatalog;models.catalog: _check_if_diag_gaussian",
    "algorithms.ppo.ppo_rl_module": "PPORLModule",
    "algorithms.ppo.default_ppo_rl_module": "DefaultPPORLModule=PPORLModule",
    "algorithms.ppo.torch algorithms.ppo.torch.ppo_torch_rl_module algorithms.ppo.torch.default_ppo_torch_rl_module": (
        "PPOTorchRLModule DefaultPPOTorchRLModule"
    ),
    "algorithms.dqn.dqn_catalog": "DQNCatalog",
    "algorithms.dqn.dqn_rainbow_catalog": "DQNRainbowCatalog",
    "algorithms.dqn.torch algorithms.dqn.torch.dqn_rainbow_torch_rl_module "
    "algorithms.dqn.torch.default_dqn_torch_rl_module": "DQNRainbowTorchRLModule DefaultDQNTorchRLModule",
    "algorithms.bc.bc_catalog": "BCCatalog",
    "algorithms.bc.torch.default_bc_torch_rl_module": "DefaultBCTorchRLModule",
    **{
        f"algorithms.{name}.torch.{name}_torch_learner": f"{name.upper()}TorchLearner"
        for name in map(str.lower, _ALGORITHMS[:5])
    },
    **{
        f"algorithms.{name}.{name}_learner": f"{name.upper()}Learner={name.upper()}TorchLearner"
        for name in ("ppo", "dqn")
    },
    "core.learner": "Learner=TorchLearner;learner_groups: LearnerGroup",
    "core.learner.learner_group": "learner_groups: LearnerGroup",
    "execution execution.rollout_ops": "groups: synchronous_parallel_sample",
    "core.learner.torch.torch_learner": "TorchLearner",
    "core.learner.learner": "Learner=TorchLearner;columns: DEFAULT_OPTIMIZER",
    "algorithms.callbacks callbacks callbacks.callbacks": "RLlibCallback DefaultCallbacks",
    "connectors.connector_v2": "ConnectorV2",
    "connectors.connector_pipeline_v2": "ConnectorPipelineV2",
    "connectors.common.flatten_observations connectors.env_to_module.flatten_observations": "FlattenObservations",
    "connectors.common.frame_stacking": "FrameStacking",
    "connectors.env_to_module": (
        "EnvToModulePipeline FlattenObservations FrameStackingEnvToModule MeanStdFilter PrevActionsPrevRewards"
    ),
    "connectors.env_to_module.env_to_module_pipeline": "EnvToModulePipeline",
    "connectors.env_to_module.frame_stacking": "FrameStackingEnvToModule",
    "connectors.env_to_module.observation_preprocessor": "SingleAgentObservationPreprocessor",
    "connectors.env_to_module.prev_actions_prev_rewards": "PrevActionsPrevRewards",
    "connectors.env_to_module.mean_std_filter": "MeanStdFilter",
    **{f"connectors.common.{module}": name for module, name in _COMMON.items()},
    "connectors.learner": " ".join(["LearnerConnectorPipeline", *_COMMON.values(), *_OF_LEARNERS.values()]),
    **{f"connectors.learner.{module}": name for module, name in _OF_LEARNERS.items()},
    "connectors.learner.frame_stacking": "FrameStackingLearner",
    "connectors.learner.learner_connector_pipeline": "LearnerConnectorPipeline",
    "connectors.module_to_env connectors.module_to_env.module_to_env_pipeline": "ModuleToEnvPipeline",
    "env.single_agent_episode": "SingleAgentEpisode",
    "env.env_context": "EnvContext",
    "env": "EnvContext;foreign_envs: MultiAgentEnv",
    "env.multi_agent_env": "foreign_envs: MultiAgentEnv make_multi_agent",
    "env.wrappers": "",
    "env.wrappers.atari_wrappers": "foreign_envs: is_atari wrap_atari_for_new_api_stack",
    "examples examples.utils utils.test_utils": (
        "example_runs: add_rllib_example_script_args should_stop run_rllib_example_script_experiment"
    ),
    "utils.error": "errors: EnvError UnsupportedSpaceException",
    "core": f"columns: Columns {' '.join(_COMPONENTS)} DEFAULT_POLICY_ID DEFAULT_AGENT_ID DEFAULT_MODULE_ID",
    "core.columns": "Columns",
    "core.distribution.distribution models.distributions": "Distribution",
    "core.distribution.torch.torch_distribution models.torch.torch_distributions": _DISTRIBUTIONS,
    "core.models.base": "ACTOR CRITIC ENCODER_OUT Encoder;models.encoders: ActorCriticEncoder Model=TorchModel",
    "core.models.catalog": "Catalog",
    "core.models.configs": _CONFIGS,
    "core.models.torch.encoder": "Encoder TorchModel",
    "core.models.torch.base": "TorchModel",
    "core.rl_module": "RLModule RLModuleSpec DefaultModelConfig MultiRLModule MultiRLModuleSpec",
    "core.rl_module.rl_module": "RLModule RLModuleSpec",
    "core.rl_module.multi_rl_module": "MultiRLModule MultiRLModuleSpec",
    "core.rl_module.default_model_config": "DefaultModelConfig",
    "core.rl_module.apis": f"{' '.join(_APIS.values())};columns: TARGET_NETWORK_ACTION_DIST_INPUTS",
    **{f"core.rl_module.apis.{module}": name for module, name in _APIS.items()},
    "core.rl_module.apis.target_network_api": "TargetNetworkAPI;columns: TARGET_NETWORK_ACTION_DIST_INPUTS",
    "core.rl_module.torch.torch_compile_config": "models.rl_module: TorchCompileConfig",
    "core.rl_module.torch core.rl_module.torch.torch_rl_module": "TorchRLModule",
    "utils.spaces.simplex": "Simplex",
    "": "tuning: _register_all=register_all",
    "models.preprocessors": (
        "models.preprocessors: Preprocessor NoPreprocessor OneHotPreprocessor TupleFlatteningPreprocessor "
        "DictFlatteningPreprocessor get_preprocessor"
    ),
    "models.utils": "tensors: get_activation_fn",
    "models.torch.misc": "tensors: normc_initializer",
    "core.learner.utils": "tensors: make_target_network",
    "utils": f"{_MARKS}; {_FRAMEWORKS}",
    "utils.annotations": f"{_MARKS} ExperimentalAPI OldAPIStack OverrideToImplementCustomLogic "
    "OverrideToImplementCustomLogic_CallToSuperRecommended",
    "utils.framework": _FRAMEWORKS,
    "utils.numpy": "tensors: convert_to_numpy",
    "utils.torch_utils": "tensors: convert_to_torch_tensor explained_variance one_hot FLOAT_MIN FLOAT_MAX",
    "utils.metrics": f"result_keys: {' '.join(name for name in vars(result_keys) if name.isupper())}",
    "utils.typing": _TYPES,
    "tune tune.registry": "tuning: register_env get_trainable_cls",
}
"""Modules below ``ray.rllib`` -> names of this package, or, after ``file:``, of one of its files."""


def _placed(names: str) -> str:
    """Names with the module that they are in."""
    file, colon, names_of_file = names.strip().partition(": ")
    return f"{_FACE}.{file}: {names_of_file}" if colon else f"{_FACE}: {names}"


_ONE_AGENT = "algorithms here train one agent"
_DEFAULT = "polyak does the work of RLlib's default pieces around a module itself"
_INFOS = "a piece reads them: episode.get_infos()"
_RUNNER = "the runner is polyak's: env_runners(num_env_runners=...) says how many there are"
_LEARNER = "subclass the learner of the algorithm, and name it by training(learner_class=...)"
_META = "there is no learner here that others learn through"
_EXTERNAL = "environments elsewhere are stepped from here: write a gymnasium.Env that speaks to them"
_OLD = "it belongs to RLlib's old stack: write a TorchRLModule"

REFUSED: dict[str, dict[str, str]] = {
    "algorithms.dreamerv3": dict.fromkeys(["DreamerV3", "DreamerV3Config"], "there is no DreamerV3 here"),
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
    **{
        f"env.wrappers.{module}": dict.fromkeys(names.split(), f"{_ONE_AGENT}, and games are polyak.envs' own")
        for module, names in {
            "group_agents_wrapper": "GroupAgentsWrapper",
            "multi_agent_env_compatibility": "MultiAgentEnvCompatibility",
            "open_spiel": "OpenSpielEnv",
            "pettingzoo_env": "PettingZooEnv ParallelPettingZooEnv",
        }.items()
    },
    "env.wrappers.atari_wrappers": {"wrap_deepmind": "use polyak.envs.AtariWrapper, and polyak.envs.VecFrameStack"},
    "env.wrappers.dm_control_wrapper": {"DMCEnv": "use shimmy's environments of dm_control by their names"},
    "env.external": dict.fromkeys(["EnvRunnerServerForExternalInference", "RLlink"], _EXTERNAL),
    "env.external.env_runner_server_for_external_inference": {"EnvRunnerServerForExternalInference": _EXTERNAL},
    "env.external.rllink": {"RLlink": _EXTERNAL},
    "env.env_runner": {"EnvRunner": _RUNNER},
    "env.env_runner_group": {"EnvRunnerGroup": _RUNNER},
    "env.single_agent_env_runner": {"SingleAgentEnvRunner": _RUNNER},
    "models": {"ModelCatalog": _OLD},
    "models.torch.torch_modelv2": {"TorchModelV2": _OLD},
    "policy.policy": {"Policy": _OLD, "PolicySpec": _ONE_AGENT},
    "policy.torch_policy_v2": {"TorchPolicyV2": _OLD},
    "policy.sample_batch": dict.fromkeys(
        ["SampleBatch", "MultiAgentBatch"], "batches are dicts by polyak.compat.rllib_face.Columns"
    ),
    "core.learner.training_data": {"TrainingData": "learner_group.update(episodes=...) takes episodes"},
    "core.learner.torch.torch_meta_learner": {"TorchMetaLearner": _META},
    "core.learner.torch.torch_differentiable_learner": {"TorchDifferentiableLearner": _META},
    "core.learner.differentiable_learner_config": {"DifferentiableLearnerConfig": _META},
    "algorithms.algorithm_config": {"DifferentiableAlgorithmConfig": _META},
    "env.vector_env": {"VectorEnv": "env_runners(num_envs_per_env_runner=...) makes vectors of gymnasium.Env"},
    "utils.spaces.repeated": {"Repeated": "no network here reads lists of any length: pad them to a Box"},
    "utils.metrics.metrics_logger": {"MetricsLogger": "callbacks are given one: metrics_logger"},
}
"""Module path below ``ray.rllib`` -> name -> why it is not here, and what to do instead."""

RLLIB: dict[str, tuple[str, ...]] = {
    path: tuple(_placed(part) for part in names.split(";"))
    for paths, names in _NAMES.items()
    for path in (paths.split() or [""])
}
"""Module path below ``ray.rllib``; ``tune`` stands for ``ray.tune``."""
for _path in [*RLLIB, *REFUSED]:
    for _end in range(_path.count(".") + 1):  # the module, and the packages that it is in
        RLLIB.setdefault(".".join(_path.split(".")[: _end + 1]), ())

TUNE: dict[str, tuple[str, ...]] = {
    path.removeprefix("tune").removeprefix("."): lines for path, lines in RLLIB.items() if path.startswith("tune")
}
"""Module path below ``ray.tune``, of which there is no more than this."""

RAY = ("polyak.compat.rllib_face.ray_names: __version__ init shutdown is_initialized",)
"""Names of ``ray`` itself, where it is not installed."""

PREPARES = {"": f"{_FACE}.tuning:prepare"}
"""Module path below ``ray.tune`` -> what is called when the installed one has been run."""
