"""Settings as RLlib writes them out, ``config.to_dict()``: what they ask for, in the names of this package.

A whole config of RLlib has a hundred settings that nothing here reads. At RLlib's own default such a one asks for
nothing, and is left out; at another value it is refused, with what to use instead where there is something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.config import replaced
from polyak.compat.rllib_face.models.catalog import REPLACED, DefaultModelConfig
from polyak.warning import warn_user

RENAMED = {"lr_schedule": "lr", "entropy_coeff_schedule": "entropy_coeff"}
"""Old names of settings that still mean the same."""
_NAMED = {
    "PACK": "placement_strategy",
    "inductor": "torch_compile_learner_dynamo_backend",
    "onnxrt": "torch_compile_worker_dynamo_backend",
    "action_mask": "action_mask_key",
    "deepmind": "preprocessor_pref",
    "NoFilter": "observation_filter",
    "env_steps": "count_steps_by",
    "write_parquet": "output_write_method",
}
_TRUE = (
    "add_default_connectors_to_env_to_module_pipeline "
    "add_default_connectors_to_module_to_env_pipeline eager_tracing input_spaces_jsonable materialize_mapped_data "
    "ope_split_batch_by_episode output_write_episodes update_worker_filter_stats use_worker_filter_stats _is_frozen "
    "framestack zero_mean"
)
_NUMBERS = {
    "eager_max_retraces": 20,
    "episode_lookback_horizon": 1,
    "num_cpus_for_main_process": 1,
    "policy_map_capacity": 100,
    "prelearner_module_synch_period": 10,
    "output_max_file_size": 67108864,
    "sync_filters_on_rollout_workers_timeout_s": 10.0,
    "metrics_episode_collection_timeout_s": 60.0,
    "dim": 84,
    "attention_num_transformer_units": 1,
    "attention_dim": 64,
    "attention_num_heads": 1,
    "attention_head_dim": 32,
    "attention_memory_inference": 50,
    "attention_memory_training": 50,
    "attention_position_wise_mlp_dim": 32,
    "attention_init_gru_gate_bias": 2.0,
}
DEFAULTS: dict[str, Any] = (
    {name: value for value, name in _NAMED.items()}
    | dict.fromkeys(_TRUE.split(), True)
    | _NUMBERS
    | {name: ["obs", "new_obs"] for name in ("input_compress_columns", "output_compress_columns")}
)
"""What settings that nothing here reads are by default, where that is not nothing at all."""
_OFF = (
    "_disable_action_flattening _disable_execution_plan_api _disable_initialize_loss_from_dummy_batch "
    "_disable_preprocessor_api _dont_auto_sync_env_runner_states _enable_rl_module_api _env_to_module_connector "
    "_evaluation_parallel_to_training_wo_thread _fake_gpus _is_atari _learner_connector _module_to_env_connector "
    "_per_module_overrides _run_training_always_in_thread _tf_policy_handles_more_than_one_loss _time_major "
    "_torch_grad_scaler_class _torch_lr_scheduler_classes _use_default_native_models actions_in_input_normalized "
    "algo_class always_attach_evaluation_results always_check_shapes attention_use_n_prev_actions "
    "attention_use_n_prev_rewards auto_wrap_old_gym_envs checkpoint_trainable_policies_only compress_observations "
    "conv_transpose_bias_initializer conv_transpose_bias_initializer_config conv_transpose_kernel_initializer "
    "conv_transpose_kernel_initializer_config custom_action_dist custom_preprocessor enable_connectors "
    "enable_tf1_exec_eagerly encoder_latent_dim export_native_model_files extra_python_environs_for_driver "
    "extra_python_environs_for_worker fake_sampler grayscale in_evaluation input_config input_evaluation "
    "input_filesystem input_filesystem_kwargs input_read_batch_size input_read_episodes input_read_method_kwargs "
    "input_read_sample_batches input_read_schema iter_batches_kwargs keep_per_episode_custom_metrics "
    "map_batches_kwargs materialize_data no_final_linear num_gpus observation_fn off_policy_estimation_methods "
    "offline_sampling output output_config output_filesystem output_filesystem_kwargs output_max_rows_per_file "
    "output_write_method_kwargs policy_map_cache policy_states_are_swappable post_fcnet_bias_initializer "
    "post_fcnet_bias_initializer_config post_fcnet_weights_initializer post_fcnet_weights_initializer_config "
    "postprocess_inputs prelearner_buffer_class prelearner_buffer_kwargs prelearner_class remote_env_batch_wait_ms "
    "remote_worker_envs render_env sampler_perf_stats_ema_coef shuffle_buffer_size simple_optimizer "
    "synchronize_filters torch_compile_learner_dynamo_mode torch_compile_worker torch_compile_worker_dynamo_mode "
    "torch_skip_nan_gradients use_attention "
    "_is_frozen custom_model custom_model_config lstm_use_prev_action_reward"
)
IDLE = frozenset(_OFF.split())
"""Settings that nothing here reads and that are off by default: ``None``, ``False``, 0, -1 or empty."""
NO_CALLBACKS = "ray.rllib.algorithms.callbacks.DefaultCallbacks"
"""How a dump calls the class whose methods do nothing."""
OF_THE_OLD_STACK = (
    "_prior_exploration_config",
    "policy_mapping_fn",
    "sample_collector",
    "tf_session_args",
    "local_tf_session_args",
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
    return (name in IDLE and (deprecated or not value)) or (name in replaced.SETTINGS and deprecated)


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
