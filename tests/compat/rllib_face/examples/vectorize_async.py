"""The environments of a runner are stepped in processes of their own."""

import gymnasium as gym
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.examples.utils import add_rllib_example_script_args, run_rllib_example_script_experiment

parser = add_rllib_example_script_args(default_reward=60.0)
parser.set_defaults(env="CartPole-v1", num_envs_per_env_runner=2)

if __name__ == "__main__":
    args = parser.parse_args()
    config = (
        PPOConfig()
        .environment(args.env)
        .env_runners(gym_env_vectorize_mode=gym.envs.registration.VectorizeMode.ASYNC)
        .training(train_batch_size_per_learner=200, minibatch_size=100, num_epochs=2)
    )
    config.debugging(seed=0)
    results = run_rllib_example_script_experiment(config, args)
    SAID = {"environments": config.num_envs_per_env_runner, "runners": config.num_env_runners}
