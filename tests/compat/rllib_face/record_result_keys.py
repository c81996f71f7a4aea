"""Writes the keys of RLlib's own results to ``result_keys.json``.

An interpreter that has ``ray[rllib]`` runs this: ``python tests/compat/rllib_face/record_result_keys.py``. Nothing of
polyak is imported. Three iterations of each algorithm, with an evaluation.
"""

import json
from pathlib import Path

import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig

FILE = Path(__file__).with_name("result_keys.json")


def flat(values, above=""):
    """Keys of a nested dict, joined by slashes."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{above}{name}/")
        else:
            yield f"{above}{name}"


def configs():
    """A small config of each algorithm."""
    small = {"min_time_s_per_iteration": 0, "min_sample_timesteps_per_iteration": 200}
    for kind in (PPOConfig, DQNConfig, SACConfig, IMPALAConfig, APPOConfig):
        config = kind().environment("Pendulum-v1" if kind is SACConfig else "CartPole-v1").reporting(**small)
        config.env_runners(num_env_runners=0).evaluation(evaluation_interval=1, evaluation_duration=1)
        if kind is PPOConfig:
            config.training(train_batch_size_per_learner=256, minibatch_size=64, num_epochs=2)
        elif kind in (DQNConfig, SACConfig):
            config.training(num_steps_sampled_before_learning_starts=20, train_batch_size_per_learner=16)
        else:
            config.env_runners(num_env_runners=1, rollout_fragment_length=20)
            config.training(train_batch_size_per_learner=100)
            config.reporting(min_time_s_per_iteration=2, min_sample_timesteps_per_iteration=2000)
        yield config


if __name__ == "__main__":
    ray.init(num_cpus=6, include_dashboard=False)
    known = {}
    for config in configs():
        algo = config.build_algo()
        result = [algo.train() for _ in range(3)][-1]
        algo.stop()
        del result["config"]
        known[type(config).__name__.removesuffix("Config")] = sorted(flat(result))
    FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
