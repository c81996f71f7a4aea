"""What the programs share: a config that learns from little, and how RLlib's own examples are run."""

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.examples.utils import add_rllib_example_script_args as arguments
from ray.rllib.examples.utils import run_rllib_example_script_experiment as run

__all__ = ["arguments", "ppo", "run"]


def ppo(env, rows=200, minibatch=100, config=None, **training):
    """A config of PPO, with so many rows in an iteration and in a minibatch."""
    sizes = {"train_batch_size_per_learner": rows, "minibatch_size": minibatch, "num_epochs": 2}
    return (config or PPOConfig()).environment(env).training(**sizes, **training).debugging(seed=0)
