"""What ``train()`` returns has the keys that RLlib's has, as ``record_result_keys.py`` wrote them down."""

import fnmatch
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from polyak.compat.rllib_face import APPOConfig, BCConfig, CQLConfig, IMPALAConfig, IQLConfig, MARWILConfig
from polyak.compat.rllib_face.result_files import flattened
from polyak.experience import collect
from tests.compat.rllib_face.test_algorithm import dqn, ppo, sac

KEYS: dict[str, list[str]] = json.loads((Path(__file__).parent / "result_keys.json").read_text())
ABSENT = {
    "*_connector/*": "times of RLlib's own pieces between environment, module and learner, which are others here",
    "*_sum_episodes_length_*": "the same pieces count what they are given",
    "*/env_reset_timer": "environments reset themselves within a step",
    "timers/synch_*": "pieces of runners are brought together with the weights",
    "timers/restore_*": "runners that died are replaced while experience is collected",
    "*num_outstanding_async_reqs": "each runner has one request in hand",
    "*num_env_runners_dropped_lifetime": "none is dropped: one that cannot be replaced ends the training",
    "*/weights_seq_no": "only what the runners act with is numbered, under env_runners",
    "*/diff_num_grad_updates_vs_sampler_policy": "it is the algorithms' policy_lag here, where there is one",
    "evaluation/*timer": "evaluators do not tell acting and stepping apart",
    "evaluation/env_runners/sample": "evaluators do not tell acting and stepping apart",
    "evaluation/env_runners/time_between_sampling": "evaluators do not tell acting and stepping apart",
    "*/episode_duration_sec_mean": "it takes two episodes; those of an evaluation are not timed",
    "replay_buffer/*_per_sample*": "it is batch_size",
    "replay_buffer/*resamples*": "rows are not numbered by how often they were drawn",
    "replay_buffer/*utilization*": "rows are not numbered by how often they were drawn",
    "replay_buffer/*actual_n_step*": "it is n_step",
    "replay_buffer/*episodes*": "the buffer holds steps, and no episodes",
    "*/gradients_default_optimizer_global_norm": "norms of gradients are not reported: log_gradients=True says so",
    "*/last_target_update_ts": "updates of targets follow from num_gradient_passes_lifetime",
    "*/num_target_updates": "updates of targets follow from num_gradient_passes_lifetime",
    "*/alpha_learning_rate": "SAC's own optimizers are reported as default_optimizer_learning_rate",
    "*/policy_learning_rate": "SAC's own optimizers are reported as default_optimizer_learning_rate",
    "*/qf*_learning_rate": "SAC's own optimizers are reported as default_optimizer_learning_rate",
    "*/value_learning_rate": "IQL's own optimizers are reported as default_optimizer_learning_rate",
    "*/logps": "log-probabilities of SAC's actions are not reported",
    "learners/default_policy/total_loss": "SAC's networks have a loss each, which have no meaning as a sum",
    "*/*pi_loss": "it is policy_loss",
    "*/mean_vf_loss": "it is vf_loss, which is a mean",
    "*/mean_IS": "ratios of importance are clipped, and not reported",
    "*/var_IS": "ratios of importance are clipped, and not reported",
    "*/curr_kl_coeff": "APPO's penalty has one coefficient, kl_coeff",
    "*/mean_kl_loss": "APPO measures the divergence only where use_kl_loss=True",
    "*/learner_thread_*": "the learner has no thread of its own",
    "learner_group/*": "results of learners are taken as they come, and none is dropped",
    "mean_num_*": "calls are counted by num_training_step_calls_per_iteration",
    "*/mean_num_episode_lists_received": "calls are counted by num_training_step_calls_per_iteration",
    "num_weight_broadcasts": "weights travel with requests, numbered by weights_seq_no",
    "*/env_runner_state_server_pull": "weights travel with requests, numbered by weights_seq_no",
    "timers/sample": "it is env_runner_sampling_timer",
    "timers/offline_sampling_timer": "drawing is part of learner_update_timer",
    "learners/__all_modules__/training_iteration": "it is training_iteration, at the top",
    "timers/replay_buffer_*": "drawing is part of learner_update_timer, adding of env_runner_sampling_timer",
}
"""What RLlib reports and we do not, and why."""


def missing(name: str, result: dict[str, Any]) -> set[str]:
    found = {key for key, _ in flattened({k: v for k, v in result.items() if k != "config"})}
    return {key for key in KEYS[name] if key not in found and not any(fnmatch.fnmatch(key, p) for p in ABSENT)}


def asynchronous(kind: Any) -> Any:
    config = kind().environment("CartPole-v1").env_runners(rollout_fragment_length=20).debugging(seed=3)
    config.training(train_batch_size_per_learner=100).reporting(min_time_s_per_iteration=0)
    return config.reporting(min_sample_timesteps_per_iteration=200).rl_module(model_config={"fcnet_hiddens": [16]})


def offline(kind: Any) -> Any:
    env = "Pendulum-v1" if kind in (CQLConfig, IQLConfig) else "CartPole-v1"
    config = kind().environment(env).debugging(seed=3).rl_module(model_config={"fcnet_hiddens": [16]})
    config.offline_data(input_=collect(env, None, 300, seed=0), dataset_num_iters_per_learner=2)
    return config.training(train_batch_size_per_learner=64).reporting(min_train_timesteps_per_iteration=0)


MADE: dict[str, Callable[[], Any]] = {
    "PPO": ppo,
    "DQN": dqn,
    "SAC": sac,
    "IMPALA": lambda: asynchronous(IMPALAConfig),
    "APPO": lambda: asynchronous(APPOConfig),
    "BC": lambda: offline(BCConfig),
    "MARWIL": lambda: offline(MARWILConfig),
    "CQL": lambda: offline(CQLConfig),
    "IQL": lambda: offline(IQLConfig),
}


@pytest.mark.parametrize("name", KEYS)
def test_results_have_the_keys_of_the_peer(name: str) -> None:
    config = MADE[name]().evaluation(evaluation_interval=3, evaluation_duration=1)
    with config.build_algo() as algo:
        result = [algo.train() for _ in range(3)][-1]
    assert missing(name, result) == set()


def test_what_is_absent_is_so() -> None:
    """A reason for which there is no key has gone stale."""
    everything = {key for keys in KEYS.values() for key in keys}
    assert [pattern for pattern in ABSENT if not fnmatch.filter(everything, pattern)] == []
