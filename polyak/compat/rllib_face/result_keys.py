"""Keys of results, under the names that programs written for RLlib import."""

ENV_RUNNER_RESULTS = "env_runners"
EVALUATION_RESULTS = "evaluation"
LEARNER_RESULTS = "learners"
FAULT_TOLERANCE_STATS = "fault_tolerance"
TIMERS = "timers"
ALL_MODULES = "__all_modules__"

EPISODE_RETURN_MEAN, EPISODE_RETURN_MIN, EPISODE_RETURN_MAX = (
    f"episode_return_{one}" for one in ("mean", "min", "max")
)
EPISODE_LEN_MEAN, EPISODE_LEN_MIN, EPISODE_LEN_MAX = (f"episode_len_{one}" for one in ("mean", "min", "max"))
EPISODE_DURATION_SEC_MEAN = "episode_duration_sec_mean"
NUM_EPISODES, NUM_EPISODES_LIFETIME = "num_episodes", "num_episodes_lifetime"

NUM_ENV_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED_LIFETIME = "num_env_steps_sampled", "num_env_steps_sampled_lifetime"
NUM_AGENT_STEPS_SAMPLED = "num_agent_steps_sampled"
NUM_AGENT_STEPS_SAMPLED_LIFETIME = "num_agent_steps_sampled_lifetime"
NUM_MODULE_STEPS_SAMPLED = "num_module_steps_sampled"
NUM_MODULE_STEPS_SAMPLED_LIFETIME = "num_module_steps_sampled_lifetime"
NUM_ENV_STEPS_TRAINED, NUM_ENV_STEPS_TRAINED_LIFETIME = "num_env_steps_trained", "num_env_steps_trained_lifetime"
NUM_MODULE_STEPS_TRAINED = "num_module_steps_trained"
NUM_MODULE_STEPS_TRAINED_LIFETIME = "num_module_steps_trained_lifetime"
NUM_TRAINING_STEP_CALLS_PER_ITERATION = "num_training_step_calls_per_iteration"
NUM_TRAINABLE_PARAMETERS = "num_trainable_parameters"
WEIGHTS_SEQ_NO = "weights_seq_no"

TRAINING_ITERATION_TIMER, EVALUATION_ITERATION_TIMER = "training_iteration", "evaluation_iteration"
TRAINING_STEP_TIMER = "training_step"
ENV_RUNNER_SAMPLING_TIMER = "env_runner_sampling_timer"
LEARNER_UPDATE_TIMER = "learner_update_timer"
SYNCH_WORKER_WEIGHTS_TIMER = "synch_weights"
