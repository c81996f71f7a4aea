"""Settings of RLlib that nothing here reads: what to write instead, and what they are by default.

RLlib's ``config.to_dict()`` has a hundred of them. At RLlib's own default such a one asks for nothing, and is left out;
at another value it is refused, with what to use instead where there is something.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.models.catalog import REPLACED, DefaultModelConfig
from polyak.warning import warn_user

METHODS = {
    "rollouts": "env_runners()",
    "exploration": "env_runners(explore=...), or the algorithm's own settings in training()",
    "resources": "learners(num_gpus_per_learner=...) and env_runners(...)",
    "multi_agent": "one agent: PettingZoo environments of several have no trainer here",
    "checkpointing": "save_to_path(path)",
    "python_environment": "the environment of the program itself",
}
"""Methods of the builder that RLlib has, or had -> what to use instead."""
_OF_ONE_NAME = """\
num_workers=num_env_runners num_rollout_workers=num_env_runners num_envs_per_worker=num_envs_per_env_runner
num_cpus_per_worker=num_cpus_per_env_runner num_gpus_per_worker=num_gpus_per_env_runner num_gpus=num_gpus_per_learner
num_gpus_per_learner_worker=num_gpus_per_learner num_cpus_per_learner_worker=num_cpus_per_learner
num_learner_workers=num_learners env_task_fn=on_environment_created lambda=lambda_ sgd_minibatch_size=minibatch_size
num_sgd_iter=num_epochs shuffle_sequences=shuffle_batch_per_epoch
learning_starts=num_steps_sampled_before_learning_starts replay_batch_size=train_batch_size_per_learner
evaluation_num_episodes=evaluation_duration evaluation_num_workers=evaluation_num_env_runners
enable_async_evaluation=evaluation_parallel_to_training custom_async_evaluation_function=custom_evaluation_function
custom_eval_function=custom_evaluation_function metrics_smoothing_episodes=metrics_num_episodes_for_smoothing
timesteps_per_iteration=min_sample_timesteps_per_iteration min_iter_time_s=min_time_s_per_iteration
min_time_s_per_reporting=min_time_s_per_iteration min_train_timesteps_per_reporting=min_train_timesteps_per_iteration
min_sample_timesteps_per_reporting=min_sample_timesteps_per_iteration collect_metrics_timeout=sample_timeout_s
recreate_failed_workers=restart_failed_env_runners recreate_failed_env_runners=restart_failed_env_runners
ignore_worker_failures=ignore_env_runner_failures max_num_worker_restarts=max_num_env_runner_restarts
delay_between_worker_restarts_s=delay_between_env_runner_restarts_s
num_consecutive_worker_failures_tolerance=num_consecutive_env_runner_failures_tolerance
worker_health_probe_timeout_s=env_runner_health_probe_timeout_s worker_restore_timeout_s=env_runner_restore_timeout_s
simple_queue_size=circular_buffer_num_batches target_update_frequency=target_network_update_freq
num_multi_gpu_tower_stacks=num_learners"""
_OTHERS = {
    "rl_module(model_config={...})": "model _model_config q_model_config policy_model_config",
    "rl_module(rl_module_spec=...)": "_rl_module_spec",
    "training(learner_class=...)": "_learner_class",
    "environment(is_atari=...)": "_is_atari",
    "training(epsilon=...)": "_prior_exploration_config",
    "training(epsilon=...) of DQN, or a module's own forward_exploration": "exploration_config",
    "framework('torch')": "framework",
    "gym_env_vectorize_mode='async'": "remote_worker_envs",
    "env_to_module_connector=MeanStdFilter()": "observation_filter",
    "polyak enjoy, or a wrapper of gymnasium.wrappers that records": "render_env",
    "rl_module(model_config={'vf_share_layers': ...})": "vf_share_layers",
    "lr=[[0, first], [step, value], ...]": "lr_schedule",
    "entropy_coeff=[[0, first], [step, value], ...]": "entropy_coeff_schedule",
    "replay_buffer_config={'capacity': ...}": "buffer_size",
    "replay_buffer_config={'type': 'PrioritizedEpisodeReplayBuffer'}": "prioritized_replay",
    "replay_buffer_config={'alpha': ...}": "prioritized_replay_alpha prioritized_replay_eps",
    "replay_buffer_config={'beta': ...}": "prioritized_replay_beta",
    "rl_module(model_config={'use_lstm': True, 'max_seq_len': ...})": "replay_sequence_length",
    "nothing: there is one agent": "replay_mode",
    "actor_lr, critic_lr and alpha_lr": "optimization optimization_config",
    "adam_epsilon of DQN, or the settings of training()": "optimizer",
    "num_env_runners: the runner is polyak's": "worker_cls env_runner_cls",
    "framework(torch_compile_learner=...)": (
        "eager_tracing eager_max_retraces torch_compile_learner_what_to_compile "
        "torch_compile_learner_dynamo_backend torch_compile_learner_dynamo_mode "
        "torch_compile_worker_dynamo_backend torch_compile_worker_dynamo_mode"
    ),
    "framework(torch_compile_learner=...): acting is quick without": "torch_compile_worker",
    "nothing: training stops at the first value that is not finite, and keeps the last": "torch_skip_nan_gradients",
    "logger_config={'logdir': path}, or on_train_result": "logger_creator",
    "nothing: the learner waits for as long as it takes": (
        "learner_queue_timeout timeout_s_sampler_manager timeout_s_aggregator_manager"
    ),
    "nothing: batches are put on the learner's device as they come": "num_gpu_loader_threads",
    "circular_buffer_num_batches of APPO": "minibatch_buffer_size replay_buffer_num_slots",
    "circular_buffer_iterations_per_batch of APPO": "replay_proportion",
    "gymnasium.wrappers.RecordVideo around the environment": "monitor",
    "BCConfig, MARWILConfig or CQLConfig, which learn from recorded data": (
        "input_read_method_kwargs input_read_schema input_read_episodes input_read_sample_batches "
        "input_read_batch_size input_filesystem input_filesystem_kwargs input_compress_columns materialize_data "
        "materialize_mapped_data map_batches_kwargs iter_batches_kwargs ignore_final_observation "
        "offline_data_class prelearner_class prelearner_buffer_class prelearner_buffer_kwargs "
        "prelearner_module_synch_period prelearner_use_recorded_module_states input_config input_evaluation "
        "actions_in_input_normalized postprocess_inputs shuffle_buffer_size offline_sampling"
    ),
    "polyak.experience.collect(env, algo.model, n).save(path), which records what a model does": (
        "output output_config output_compress_columns output_max_file_size output_filesystem "
        "output_max_rows_per_file output_write_method output_write_method_kwargs output_filesystem_kwargs "
        "output_write_episodes output_write_remaining_data"
    ),
    "FQE of polyak, or the estimators of its evaluation": "off_policy_estimation_methods ope_split_batch_by_episode",
    "env_to_module_connector, whose pieces change observations, or a wrapper of the environment": (
        "add_default_connectors_to_env_to_module_pipeline add_default_connectors_to_module_to_env_pipeline "
        "preprocessor_pref update_worker_filter_stats use_worker_filter_stats synchronize_filters "
        "episode_lookback_horizon observation_fn"
    ),
    "env_runners(num_cpus_per_env_runner=...) and learners(num_cpus_per_learner=...)": (
        "placement_strategy num_cpus_for_main_process"
    ),
    "ray.init(runtime_env={'env_vars': {...}})": "extra_python_environs_for_driver extra_python_environs_for_worker",
    "the settings themselves: there is no session of TensorFlow's": (
        "tf_session_args local_tf_session_args enable_tf1_exec_eagerly"
    ),
    "save_to_path(path), and get_module().save_to_path(path)": (
        "export_native_model_files checkpoint_trainable_policies_only"
    ),
    "polyak's algorithm itself, with precision='bfloat16'": "_torch_grad_scaler_class",
    "the key 'action_mask' in Dict observations": "action_mask_key",
    "replay_buffer_config={'optimize_memory_usage': True}": "compress_observations",
    "metrics_logger.log_value(name, value, reduce=..., window=...) in callbacks": "keep_per_episode_custom_metrics",
    "result.get('evaluation')": "always_attach_evaluation_results",
    "nothing: with one agent its steps are those of the environment": "count_steps_by",
    "one agent": "policies policy_mapping_fn policies_to_train",
    "nothing: with num_env_runners=0 there are none to be made again": "on_env_runners_recreated",
}
SETTINGS = dict(pair.split("=") for pair in _OF_ONE_NAME.split()) | {
    name: instead for instead, names in _OTHERS.items() for name in names.split()
}
"""Names that RLlib once had, or still accepts without reading -> what to use instead."""
_TEXTS = """\
placement_strategy=PACK torch_compile_learner_dynamo_backend=inductor torch_compile_worker_dynamo_backend=onnxrt
action_mask_key=action_mask preprocessor_pref=deepmind observation_filter=NoFilter count_steps_by=env_steps
output_write_method=write_parquet"""
_VALUES = """\
add_default_connectors_to_env_to_module_pipeline=true add_default_connectors_to_module_to_env_pipeline=true
eager_tracing=true input_spaces_jsonable=true materialize_mapped_data=true ope_split_batch_by_episode=true
output_write_episodes=true update_worker_filter_stats=true use_worker_filter_stats=true _is_frozen=true framestack=true
zero_mean=true eager_max_retraces=20 episode_lookback_horizon=1 num_cpus_for_main_process=1 policy_map_capacity=100
prelearner_module_synch_period=10 output_max_file_size=67108864 sync_filters_on_rollout_workers_timeout_s=10.0
metrics_episode_collection_timeout_s=60.0 dim=84 attention_num_transformer_units=1 attention_dim=64
attention_num_heads=1 attention_head_dim=32 attention_memory_inference=50 attention_memory_training=50
attention_position_wise_mlp_dim=32 attention_init_gru_gate_bias=2.0 input_compress_columns=["obs","new_obs"]
output_compress_columns=["obs","new_obs"]"""
DEFAULTS: dict[str, Any] = dict(pair.split("=") for pair in _TEXTS.split()) | {
    name: json.loads(value) for name, value in (pair.split("=") for pair in _VALUES.split())
}
"""What settings that nothing here reads are by default, where that is not nothing at all."""
_OFF = """\
_disable_action_flattening _disable_execution_plan_api _disable_initialize_loss_from_dummy_batch
_disable_preprocessor_api _dont_auto_sync_env_runner_states _enable_rl_module_api _env_to_module_connector
_evaluation_parallel_to_training_wo_thread _fake_gpus _is_atari _is_frozen _learner_connector _module_to_env_connector
_per_module_overrides _run_training_always_in_thread _tf_policy_handles_more_than_one_loss _time_major
_torch_grad_scaler_class _use_default_native_models actions_in_input_normalized algo_class
always_attach_evaluation_results always_check_shapes attention_use_n_prev_actions attention_use_n_prev_rewards
auto_wrap_old_gym_envs checkpoint_trainable_policies_only compress_observations conv_transpose_bias_initializer
conv_transpose_bias_initializer_config conv_transpose_kernel_initializer conv_transpose_kernel_initializer_config
custom_action_dist custom_model custom_model_config custom_preprocessor enable_connectors enable_tf1_exec_eagerly
encoder_latent_dim export_native_model_files extra_python_environs_for_driver extra_python_environs_for_worker
fake_sampler grayscale in_evaluation input_config input_evaluation input_filesystem input_filesystem_kwargs
input_read_batch_size input_read_episodes input_read_method_kwargs input_read_sample_batches input_read_schema
iter_batches_kwargs keep_per_episode_custom_metrics lstm_use_prev_action_reward map_batches_kwargs materialize_data
no_final_linear num_gpus observation_fn off_policy_estimation_methods offline_sampling output output_config
output_filesystem output_filesystem_kwargs output_max_rows_per_file output_write_method_kwargs policy_map_cache
policy_states_are_swappable post_fcnet_bias_initializer post_fcnet_bias_initializer_config
post_fcnet_weights_initializer post_fcnet_weights_initializer_config postprocess_inputs prelearner_buffer_class
prelearner_buffer_kwargs prelearner_class remote_env_batch_wait_ms remote_worker_envs render_env
sampler_perf_stats_ema_coef shuffle_buffer_size simple_optimizer synchronize_filters torch_compile_learner_dynamo_mode
torch_compile_worker torch_compile_worker_dynamo_mode torch_skip_nan_gradients use_attention"""
IDLE = frozenset(_OFF.split())
"""Settings that nothing here reads and that are off by default: ``None``, ``False``, 0, -1 or empty."""
RENAMED = {"lr_schedule": "lr", "entropy_coeff_schedule": "entropy_coeff"}
"""Old names of settings that still mean the same."""
NO_CALLBACKS = "ray.rllib.algorithms.callbacks.DefaultCallbacks"
"""How a dump calls the class whose methods do nothing."""
OF_THE_OLD_STACK = (
    *("_prior_exploration_config", "policy_mapping_fn", "sample_collector", "tf_session_args", "local_tf_session_args"),
    "torch_compile_learner_what_to_compile",
)
"""Those that RLlib itself does not read where there is one agent, learning by torch on its present stack."""


def asks_for_nothing(name: str, value: Any) -> bool:
    """Whether a setting that nothing here reads is at RLlib's default."""
    if name in DEFAULTS and DEFAULTS[name] == value:
        return True
    if name in OF_THE_OLD_STACK:
        return value is None or isinstance(value, str | Mapping)
    if name == "policies":
        return isinstance(value, Mapping) and list(value) == [DEFAULT_MODULE_ID]
    deprecated = value is None or value == -1 or value == {}
    return (name in IDLE and (deprecated or not value)) or (name in SETTINGS and deprecated)


def meant(settings: Mapping[str, Any], known: Mapping[str, Any], algorithm: str) -> dict[str, Any]:
    """Settings in today's names, without those that ask for nothing.

    Args:
        settings: as a program gives them.
        known: names that a config here has.
        algorithm: its own name.
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if name in RENAMED and RENAMED[name] in known:
            if value is not None:
                warn_user(f"{name} is an old name. Use {RENAMED[name]}=[[0, first], [step, value], ...].")
                found[RENAMED[name]] = value
        elif isinstance(value, str) and _is_default_class(name, value, algorithm):
            continue
        elif name in known or not asks_for_nothing(name, value):
            found[name] = value
    model = found.get("model")
    if isinstance(model, Mapping) and (options := options_of(model)) is not None:
        del found["model"]
        if options:
            found["model_config"] = {**options, **(found.get("model_config") or {})}
    return found


def _is_default_class(name: str, value: str, algorithm: str) -> bool:
    """Whether a dump names a class that is the default here."""
    return (name == "callbacks_class" and NO_CALLBACKS in value) or (
        name == "algo_class" and value.endswith(f".{algorithm}")
    )


def options_of(model: Mapping[str, Any]) -> dict[str, Any] | None:
    """What RLlib's old dict of a model asks for, as ``model_config``; ``None`` if that cannot be said."""
    default, options = DefaultModelConfig(), {}
    known = {one.name for one in fields(DefaultModelConfig)}
    for name, value in model.items():
        now = REPLACED.get(name, name)
        if now in known:
            if value != getattr(default, now):
                options[now] = value
        elif not asks_for_nothing(name, value):
            return None
    return options
