"""The public names of Stable-Baselines3 2.9 and sb3-contrib 2.9, and where polyak has them.

Each line of a module reads ``"home: Name Other=attribute"``: ``Name`` is ``home.Name`` and ``Other`` is
``home.attribute``. The list of names is the peers' public API as their ``inspect`` shows it.
"""

_POLICIES, _ALGORITHMS, _FUNCTIONS = (
    "polyak.compat.sb3_face.policies",
    "polyak.compat.sb3_face.algorithms",
    "polyak.compat.sb3_face.functions",
)
_ON_POLICY_POLICIES = (
    f"{_POLICIES}: ActorCriticPolicy ActorCriticCnnPolicy MultiInputActorCriticPolicy MlpPolicy=ActorCriticPolicy "
    "CnnPolicy=ActorCriticCnnPolicy MultiInputPolicy=MultiInputActorCriticPolicy",
)


def _three(kind: str, more: str) -> tuple[str]:
    """Policies of one kind for vectors, for images and for Dicts, by their short names too, and further classes."""
    short = f"MlpPolicy={kind}Policy CnnPolicy={kind}CnnPolicy MultiInputPolicy={kind}MultiInputPolicy"
    return (f"{_POLICIES}: {more} {kind}Policy {short}",)


_DQN_POLICIES = _three("DQN", "QNetwork")
_SAC_POLICIES = _three("SAC", "Actor=SACActor")
_TD3_POLICIES = _three("TD3", "Actor=TD3Actor")
_DDPG_POLICIES = _three("TD3", "")
_TQC_POLICIES = _three("TQC", "Actor=SACActor Critic=QuantileCritic")
_QRDQN_POLICIES = _three("QRDQN", "QuantileNetwork")
_CROSSQ_POLICIES = (f"{_POLICIES}: Actor=CrossQActor CrossQCritic CrossQPolicy MlpPolicy=CrossQPolicy",)
_MASKABLE = "polyak.compat.sb3_face.maskable"
_MASKABLE_POLICIES = (
    f"{_MASKABLE}.policies: MaskableActorCriticPolicy MaskableActorCriticCnnPolicy MaskableMultiInputActorCriticPolicy"
)
_MASKABLE_SHORT = (
    f"{_MASKABLE}.policies: MlpPolicy=MaskableActorCriticPolicy CnnPolicy=MaskableActorCriticCnnPolicy "
    "MultiInputPolicy=MaskableMultiInputActorCriticPolicy"
)
_ARS_POLICIES = (f"{_POLICIES}: ARSPolicy ARSLinearPolicy MlpPolicy=ARSPolicy LinearPolicy=ARSLinearPolicy",)
_RECURRENT = "polyak.compat.sb3_face.recurrent"
_RECURRENT_POLICIES = (
    f"{_RECURRENT}.policies: RecurrentActorCriticPolicy RecurrentActorCriticCnnPolicy "
    "RecurrentMultiInputActorCriticPolicy"
)
_RECURRENT_SHORT = (
    f"{_RECURRENT}.policies: MlpLstmPolicy=RecurrentActorCriticPolicy CnnLstmPolicy=RecurrentActorCriticCnnPolicy "
    "MultiInputLstmPolicy=RecurrentMultiInputActorCriticPolicy"
)
_BASE_POLICY = (f"{_POLICIES}: BasePolicy BaseModel ContinuousCritic",)
_INVALID_ACTIONS = (
    "polyak.envs.testing: InvalidActionEnvDiscrete InvalidActionEnvMultiDiscrete InvalidActionEnvMultiBinary"
)
_LSTD = ("polyak.nn.policies.continuous: LOG_STD_MAX LOG_STD_MIN",)
_BUFFERS = "BaseBuffer ReplayBuffer RolloutBuffer DictReplayBuffer DictRolloutBuffer NStepReplayBuffer"
_VEC_ENV = (
    "polyak.envs: CloudpickleWrapper VecEnv VecEnvWrapper DummyVecEnv SubprocVecEnv StackedObservations VecCheckNan "
    "VecExtractDictObs VecFrameStack VecMonitor VecNormalize VecTransposeImage VecVideoRecorder unwrap_vec_wrapper "
    "unwrap_vec_normalize is_vecenv_wrapped sync_envs_normalization",
)


def _algorithm(name: str, policies: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """The package of one algorithm: itself, its module and its policies."""
    folder, face = name.lower(), f"{_ALGORITHMS}: {name}"
    named = {"MlpPolicy", "LinearPolicy", "CnnPolicy", "MultiInputPolicy"}
    short = " ".join(entry for line in policies for entry in line.split()[1:] if entry.partition("=")[0] in named)
    return {
        folder: (face, f"{_POLICIES}: {short}"),
        f"{folder}.{folder}": (face, f"{_POLICIES}: {short}"),
        f"{folder}.policies": (*policies, *_BASE_POLICY),
    }


SB3: dict[str, tuple[str, ...]] = {
    "": (
        f"{_ALGORITHMS}: A2C DDPG DQN PPO SAC TD3",
        f"{_FUNCTIONS}: HER get_system_info __version__=SB3_VERSION",
        "polyak.experience: HerReplayBuffer",
    ),
    **_algorithm("A2C", _ON_POLICY_POLICIES),
    **_algorithm("PPO", _ON_POLICY_POLICIES),
    **_algorithm("DQN", _DQN_POLICIES),
    **_algorithm("SAC", (*_SAC_POLICIES, *_LSTD)),
    **_algorithm("TD3", _TD3_POLICIES),
    **_algorithm("DDPG", _DDPG_POLICIES),
    "her": ("polyak.experience: GoalSelectionStrategy HerReplayBuffer",),
    "her.goal_selection_strategy": (
        "polyak.experience: GoalSelectionStrategy",
        f"{_FUNCTIONS}: KEY_TO_GOAL_STRATEGY",
    ),
    "her.her_replay_buffer": ("polyak.experience: HerReplayBuffer GoalSelectionStrategy",),
    "common": (),
    "common.atari_wrappers": (
        "polyak.envs.wrappers.atari: StickyActionEnv NoopResetEnv FireResetEnv EpisodicLifeEnv MaxAndSkipEnv "
        "ClipRewardEnv WarpFrame AtariWrapper",
    ),
    "common.base_class": (f"{_ALGORITHMS}: BaseAlgorithm maybe_make_env",),
    "common.buffers": ("polyak.compat.sb3_face.buffers: ReplayBuffer", f"polyak.experience: {_BUFFERS}"),
    "common.callbacks": (
        "polyak.callbacks: BaseCallback EventCallback CallbackList CheckpointCallback ConvertCallback "
        "EvalCallback StopTrainingOnRewardThreshold EveryNTimesteps LogEveryNTimesteps StopTrainingOnMaxEpisodes "
        "StopTrainingOnNoModelImprovement ProgressBarCallback",
    ),
    "common.distributions": (
        "polyak.compat.sb3_face.distributions: Distribution sum_independent_dims DiagGaussianDistribution "
        "SquashedDiagGaussianDistribution CategoricalDistribution MultiCategoricalDistribution BernoulliDistribution "
        "StateDependentNoiseDistribution TanhBijector make_proba_distribution kl_divergence",
    ),
    "common.env_checker": (f"{_FUNCTIONS}: check_env",),
    "common.env_util": (
        "polyak.envs: unwrap_wrapper is_wrapped make_vec_env make_atari_env DummyVecEnv SubprocVecEnv Monitor",
    ),
    "common.envs": (
        "polyak.envs.testing: BitFlippingEnv FakeImageEnv IdentityEnv IdentityEnvBox IdentityEnvMultiBinary "
        "IdentityEnvMultiDiscrete SimpleMultiObsEnv",
    ),
    "common.envs.bit_flipping_env": ("polyak.envs.testing: BitFlippingEnv",),
    "common.envs.identity_env": (
        "polyak.envs.testing: IdentityEnv IdentityEnvBox IdentityEnvMultiDiscrete IdentityEnvMultiBinary FakeImageEnv",
    ),
    "common.envs.multi_input_envs": ("polyak.envs.testing: SimpleMultiObsEnv",),
    "common.evaluation": ("polyak.evaluation.in_environments: evaluate_policy",),
    "common.logger": (
        "polyak.logging.logger: Video Figure Image HParam FormatUnsupportedError KVWriter SeqWriter "
        "HumanOutputFormat filter_excluded_keys JSONOutputFormat CSVOutputFormat TensorBoardOutputFormat "
        "make_output_format Logger configure DEBUG INFO WARN ERROR DISABLED",
    ),
    "common.monitor": (
        "polyak.envs.wrappers.monitor: Monitor LoadMonitorResultsError ResultsWriter get_monitor_files load_results",
    ),
    "common.noise": ("polyak.noise: ActionNoise NormalActionNoise OrnsteinUhlenbeckActionNoise VectorizedActionNoise",),
    "common.off_policy_algorithm": (f"{_ALGORITHMS}: OffPolicyAlgorithm",),
    "common.on_policy_algorithm": (f"{_ALGORITHMS}: OnPolicyAlgorithm",),
    "common.policies": (
        f"{_POLICIES}: BaseModel BasePolicy ActorCriticPolicy ActorCriticCnnPolicy MultiInputActorCriticPolicy "
        "ContinuousCritic",
    ),
    "common.preprocessing": (
        "polyak.envs.spaces: is_image_space_channels_first is_image_space maybe_transpose get_obs_shape "
        "get_flattened_obs_dim get_action_dim check_for_nested_spaces",
        "polyak.nn.networks.encoders: preprocess_obs",
    ),
    "common.results_plotter": (
        "polyak.compat.sb3_face.results_plotter: X_TIMESTEPS X_EPISODES X_WALLTIME POSSIBLE_X_AXES EPISODES_WINDOW "
        "rolling_window window_func ts2xy plot_curves plot_results load_results",
    ),
    "common.running_mean_std": ("polyak.envs.wrappers.running: RunningMeanStd",),
    "common.save_util": (
        f"{_FUNCTIONS}: recursive_getattr recursive_setattr",
        "polyak.compat.sb3_face.save_util: is_json_serializable data_to_json json_to_data "
        "open_path open_path_str open_path_pathlib save_to_zip_file save_to_pkl load_from_pkl load_from_zip_file",
    ),
    "common.sb2_compat": (),
    "common.sb2_compat.rmsprop_tf_like": ("polyak.nn: RMSpropTFLike",),
    "common.torch_layers": (
        "polyak.nn: BaseFeaturesExtractor FlattenExtractor NatureCNN create_mlp MlpExtractor CombinedExtractor "
        "get_actor_critic_arch",
    ),
    "common.type_aliases": (
        "polyak.experience: RolloutBufferSamples DictRolloutBufferSamples ReplayBufferSamples DictReplayBufferSamples",
        "polyak.collecting.train_freq: RolloutReturn TrainFrequencyUnit TrainFreq",
        f"{_FUNCTIONS}: PolicyPredictor GymEnv GymObs GymResetReturn AtariResetReturn GymStepReturn AtariStepReturn "
        "TensorDict OptimizerStateDict MaybeCallback PyTorchObs Schedule",
    ),
    "common.utils": (
        "polyak.seeding: set_random_seed",
        "polyak.ops.returns: explained_variance",
        "polyak.schedules: FloatSchedule LinearSchedule ConstantSchedule",
        "polyak.learning.engine.device: get_device",
        "polyak.logging.logger: get_latest_run_id configure_logger",
        "polyak.envs.spaces: check_for_correct_spaces check_shape_equal is_vectorized_dict_observation "
        "is_vectorized_observation",
        f"{_FUNCTIONS}: is_vectorized_box_observation is_vectorized_discrete_observation "
        "is_vectorized_multidiscrete_observation is_vectorized_multibinary_observation get_schedule_fn "
        "update_learning_rate get_linear_fn constant_fn safe_mean "
        "get_parameters_by_name zip_strict polyak_update obs_as_tensor should_collect_more_steps get_system_info",
    ),
    "common.vec_env": _VEC_ENV,
    "common.vec_env.base_vec_env": (
        "polyak.envs.vec.vec_env: VecEnv VecEnvWrapper CloudpickleWrapper VecEnvStepReturn VecEnvObs VecEnvIndices "
        "tile_images",
    ),
    "common.vec_env.dummy_vec_env": ("polyak.envs: DummyVecEnv",),
    "common.vec_env.patch_gym": (),
    "common.vec_env.stacked_observations": ("polyak.envs: StackedObservations",),
    "common.vec_env.subproc_vec_env": ("polyak.envs: SubprocVecEnv CloudpickleWrapper",),
    "common.vec_env.util": ("polyak.envs.spaces: dict_to_obs obs_space_info",),
    "common.vec_env.vec_check_nan": ("polyak.envs: VecCheckNan",),
    "common.vec_env.vec_extract_dict_obs": ("polyak.envs: VecExtractDictObs",),
    "common.vec_env.vec_frame_stack": ("polyak.envs: VecFrameStack",),
    "common.vec_env.vec_monitor": ("polyak.envs: VecMonitor",),
    "common.vec_env.vec_normalize": ("polyak.envs: VecNormalize",),
    "common.vec_env.vec_transpose": ("polyak.envs: VecTransposeImage",),
    "common.vec_env.vec_video_recorder": ("polyak.envs: VecVideoRecorder",),
}

CONTRIB: dict[str, tuple[str, ...]] = {
    "": (
        f"{_ALGORITHMS}: ARS CrossQ MaskablePPO QRDQN RecurrentPPO TQC TRPO",
        f"{_FUNCTIONS}: __version__=SB3_VERSION",
    ),
    **_algorithm("ARS", _ARS_POLICIES),
    **_algorithm("CrossQ", (*_CROSSQ_POLICIES, *_LSTD)),
    **_algorithm("QRDQN", _QRDQN_POLICIES),
    **_algorithm("TQC", (*_TQC_POLICIES, *_LSTD)),
    **_algorithm("TRPO", _ON_POLICY_POLICIES),
    "ppo_mask": (f"{_ALGORITHMS}: MaskablePPO", _MASKABLE_SHORT),
    "ppo_mask.ppo_mask": (f"{_ALGORITHMS}: MaskablePPO", _MASKABLE_SHORT),
    "ppo_mask.policies": (_MASKABLE_SHORT, _MASKABLE_POLICIES),
    "common": (),
    "common.envs": (_INVALID_ACTIONS,),
    "common.envs.invalid_actions_env": (_INVALID_ACTIONS,),
    "common.maskable": (),
    "common.maskable.buffers": (
        f"{_MASKABLE}.buffers: MaskableRolloutBuffer MaskableRolloutBufferSamples MaskableDictRolloutBuffer "
        "MaskableDictRolloutBufferSamples",
    ),
    "common.maskable.callbacks": (f"{_MASKABLE}.evaluation: MaskableEvalCallback evaluate_policy",),
    "common.maskable.distributions": (
        f"{_MASKABLE}.distributions: MaskableBernoulliDistribution MaskableCategorical MaskableCategoricalDistribution "
        "MaskableDistribution MaskableMultiCategoricalDistribution make_masked_proba_distribution",
    ),
    "common.maskable.evaluation": (f"{_MASKABLE}.evaluation: evaluate_policy get_action_masks is_masking_supported",),
    "common.maskable.policies": (_MASKABLE_POLICIES,),
    "common.maskable.utils": (f"{_MASKABLE}.evaluation: EXPECTED_METHOD_NAME get_action_masks is_masking_supported",),
    "common.wrappers": ("polyak.envs: ActionMasker TimeFeatureWrapper",),
    "common.wrappers.action_masker": ("polyak.envs: ActionMasker",),
    "common.wrappers.time_feature": ("polyak.envs: TimeFeatureWrapper",),
    "ppo_recurrent": (f"{_ALGORITHMS}: RecurrentPPO", _RECURRENT_SHORT),
    "ppo_recurrent.ppo_recurrent": (f"{_ALGORITHMS}: RecurrentPPO", _RECURRENT_SHORT),
    "ppo_recurrent.policies": (_RECURRENT_SHORT, _RECURRENT_POLICIES),
    "common.recurrent": (),
    "common.recurrent.buffers": (
        f"{_RECURRENT}.buffers: RecurrentRolloutBuffer RecurrentDictRolloutBuffer create_sequencers pad "
        "pad_and_flatten",
        f"{_RECURRENT}.type_aliases: RNNStates RecurrentRolloutBufferSamples RecurrentDictRolloutBufferSamples",
    ),
    "common.recurrent.policies": (_RECURRENT_POLICIES, f"{_RECURRENT}.type_aliases: RNNStates"),
    "common.recurrent.type_aliases": (
        f"{_RECURRENT}.type_aliases: RNNStates RecurrentRolloutBufferSamples RecurrentDictRolloutBufferSamples",
        f"{_FUNCTIONS}: TensorDict",
    ),
    "common.torch_layers": ("polyak.nn: BatchRenorm=BatchRenorm1d BatchRenorm1d",),
    "common.vec_env": (f"{_FUNCTIONS}: AsyncEval",),
    "common.vec_env.async_eval": (f"{_FUNCTIONS}: AsyncEval",),
    "common.utils": (f"{_FUNCTIONS}: quantile_huber_loss conjugate_gradient_solver flat_grad",),
}

NEEDS = {
    "common.results_plotter": {
        "pandas": "pandas is required for plotting: pip install 'polyak[extra]'",
        "matplotlib": "matplotlib is required for plotting: pip install 'polyak[extra]'",
    }
}
"""Libraries without which a module cannot be imported, and the error then."""
