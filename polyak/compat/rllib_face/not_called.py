"""Methods that RLlib calls of a program's subclass and that nothing here would call: why, and what to do instead.

Each is refused where the subclass is given, before anything is trained: see
:func:`polyak.compat.sb3_face.overrides.refuse`.
"""

_LEARNERS = "the group is made by num_learners. Give a learner by training(learner_class=...)"
_OFFLINE = "there is no offline evaluation in a config. Use on_evaluate_start and on_evaluate_end"
_STATE = "weights are taken by torch's state_dict(). Register buffers for what else is to be kept"
_TUNE = "the loop around train() is the program's or the Tuner's. Use training_step(), or on_train_result"
_FILES = (
    "checkpoints are one file, written by save_to_path(). Use on_checkpoint_loaded, or get_extra_state() of a module"
)
_GREEDY = (
    "DQN takes the action of the largest value. Write _forward_inference() and _forward_exploration() of a module, "
    "which return 'actions'"
)
_SAC = "SAC's heads and critics are its own. Write build_encoder() alone, or use polyak.SAC with a policy class"
_LEARNER = "losses are those of polyak's learner. Write objective() or gradient_step() of its subclass"

CONFIG = {
    "build_learner": _LEARNERS,
    "get_config_for_module": "a module's settings are algorithm_config_overrides_per_module. Set those",
    "get_evaluation_config_object": "evaluation reads evaluation_config. Set that",
    "get_multi_agent_setup": "algorithms here train one agent",
    "validate_train_batch_size_vs_rollout_fragment_length": "batches and fragments are fitted. Write validate()",
}
"""Of a config."""

ALGORITHM = {
    "_remote_worker_ids_for_metrics": "the statistics of all runners are reported. Use on_train_result",
    "get_default_policy_class": "it belongs to RLlib's old stack. Write get_default_rl_module_spec() of a config",
    "restore_env_runners": "runners are put back as fault_tolerance(...) says",
    "restore_offline_eval_runners": _OFFLINE,
    "default_resource_request": "the settings of learners() and env_runners() say what is reserved",
    "evaluate_offline": _OFFLINE,
    "step": _TUNE,
    "log_result": _TUNE,
    "cleanup": "an algorithm ends by stop(). Write that, and call super().stop()",
    "save_checkpoint": _FILES,
    "load_checkpoint": _FILES,
    "get_checkpointable_components": _FILES,
}
"""Of an algorithm."""

CALLBACKS = {
    "on_evaluate_offline_start": _OFFLINE,
    "on_evaluate_offline_end": _OFFLINE,
    "on_offline_eval_runners_recreated": _OFFLINE,
    "on_sub_environment_created": "it belongs to RLlib's old stack. Use on_environment_created",
    "on_learn_on_batch": "it belongs to RLlib's old stack. Use on_train_result, or a learner_class",
    "on_postprocess_trajectory": "it belongs to RLlib's old stack. Wrap the environment",
    "on_create_policy": "it belongs to RLlib's old stack. Use on_algorithm_init",
}
"""Of callbacks."""

CONNECTOR = {
    "merge_states": "pieces run in one process. Write get_state() and set_state()",
    "reset_state": "pieces keep what they have learned. Write get_state() and set_state()",
    "save_to_path": "their state is in the algorithm's checkpoints. Write get_state() and set_state()",
    "restore_from_path": "their state is in the algorithm's checkpoints. Write get_state() and set_state()",
}
"""Of a connector piece."""

MODULE = {"get_state": _STATE, "set_state": _STATE}
"""Of a module."""

DQN_MODULE = {
    "get_train_action_dist_cls": "DQN's losses read no distribution. Write compute_q_values() or _forward_train()",
    "_qf_forward_helper": "values are made by compute_q_values(batch). Write that",
    "compute_advantage_distribution": "values are made by compute_q_values(batch). Write that",
}
"""Of a module that DQN trains, besides those of :data:`MODULE`."""

PREPROCESSOR = {"get_preprocessor": "modules read observations as they are. Wrap the environment"}
PPO_CATALOG = PREPROCESSOR | {"build_encoder": "PPO's encoders are built by build_actor_critic_encoder(). Write that"}
DQN_CATALOG = PREPROCESSOR | {"get_action_dist_cls": _GREEDY, "_get_dist_cls_from_action_space": _GREEDY}
SAC_CATALOG = PREPROCESSOR | dict.fromkeys(
    [
        *("get_action_dist_cls", "_get_dist_cls_from_action_space", "build_pi_head", "build_qf_head"),
        *("build_qf_encoder", "_build_qf_encoder_continuous", "_build_qf_encoder_discrete"),
    ],
    _SAC,
)
"""Of catalogs, by whose algorithm they serve."""

SPEC = {"build": "an algorithm builds the module itself. Write setup() of the module"}
"""Of a spec of modules."""

LEARNER = {
    **dict.fromkeys(
        [
            *("compute_losses", "compute_loss_for_module", "configure_optimizers", "configure_optimizers_for_module"),
            *("compute_gradients", "postprocess_gradients", "postprocess_gradients_for_module", "apply_gradients"),
            *("before_gradient_based_update", "after_gradient_based_update", "should_module_be_updated", "build"),
            *("shutdown", "add_module", "remove_module", "_update", "_make_modules_ddp_if_necessary"),
        ],
        _LEARNER,
    )
}
"""Of a learner."""

TORCH_LEARNER = {
    "__init__": "a learner is made by polyak. Write build(), and call super().build()",
    "update": "batches are dealt by polyak. Write before_gradient_based_update() or after_gradient_based_update()",
    "_update": "steps are made by compute_losses(), compute_gradients() and apply_gradients(). Write those",
    "add_module": "modules are made once. Set rl_module_spec",
    "remove_module": "modules are made once. Set rl_module_spec",
    "_make_modules_ddp_if_necessary": "a learner of one's own learns in one process",
}
"""Of a learner under RLlib's contract."""
