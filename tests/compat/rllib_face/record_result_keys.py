"""Writes the keys of RLlib's own results to ``result_keys.json``.

An interpreter that has ``ray[rllib]`` runs this: ``python tests/compat/rllib_face/record_result_keys.py``, followed by
names of algorithms where only theirs are written again. Nothing of polyak is imported. Three iterations of each
algorithm, with an evaluation; BC, MARWIL, CQL and IQL learn from what PPO recorded before.
"""

import json
import sys
from pathlib import Path
from tempfile import mkdtemp

import ray
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.algorithms.bc import BCConfig
from ray.rllib.algorithms.cql import CQLConfig
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.impala import IMPALAConfig
from ray.rllib.algorithms.iql import IQLConfig
from ray.rllib.algorithms.marwil import MARWILConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig

FILE = Path(__file__).with_name("result_keys.json")
OFFLINE = (BCConfig, MARWILConfig, CQLConfig, IQLConfig)


def flat(values, above=""):
    """Keys of a nested dict, joined by slashes."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{name}/")
        else:
            yield f"{above}{name}"


def recorded(env):
    """Path of a folder with episodes of an environment, as RLlib writes them."""
    folder = mkdtemp()
    config = PPOConfig().environment(env).env_runners(num_env_runners=0, batch_mode="complete_episodes")
    config.training(train_batch_size_per_learner=1000, num_epochs=1)
    algo = config.offline_data(output=folder, output_write_episodes=True, output_max_rows_per_file=5).build_algo()
    algo.train()
    algo.stop()
    return folder


def configs(names):
    """A small config of each algorithm."""
    small = {"min_time_s_per_iteration": 0, "min_sample_timesteps_per_iteration": 200}
    for kind in (PPOConfig, DQNConfig, SACConfig, IMPALAConfig, APPOConfig, *OFFLINE):
        if names and kind.__name__.removesuffix("Config") not in names:
            continue
        env = "Pendulum-v1" if kind in (SACConfig, CQLConfig, IQLConfig) else "CartPole-v1"
        config = kind().environment(env).reporting(**small)
        config.env_runners(num_env_runners=0).evaluation(evaluation_interval=1, evaluation_duration=1)
        if kind is PPOConfig:
            config.training(train_batch_size_per_learner=256, minibatch_size=64, num_epochs=2)
        elif kind in (DQNConfig, SACConfig):
            config.training(num_steps_sampled_before_learning_starts=20, train_batch_size_per_learner=16)
        elif kind in OFFLINE:
            config.offline_data(input_=[recorded(env)], input_read_episodes=True, dataset_num_iters_per_learner=5)
            config.training(train_batch_size_per_learner=64).reporting(min_sample_timesteps_per_iteration=0)
        else:
            config.env_runners(num_env_runners=1, rollout_fragment_length=20)
            config.training(train_batch_size_per_learner=100)
            config.reporting(min_time_s_per_iteration=2, min_sample_timesteps_per_iteration=2000)
        if kind in (CQLConfig, IQLConfig):
            config.training(lr=None)  # of which its three optimizers have their own
        yield config


if __name__ == "__main__":
    ray.init(num_cpus=6, include_dashboard=False)
    known = json.loads(FILE.read_text()) if sys.argv[1:] else {}
    for config in configs(sys.argv[1:]):
        algo = config.build_algo()
        result = [algo.train() for _ in range(3)][-1]
        algo.stop()
        del result["config"]
        known[type(config).__name__.removesuffix("Config")] = sorted(flat(result))
        FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
