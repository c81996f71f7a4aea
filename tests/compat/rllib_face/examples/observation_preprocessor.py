"""A preprocessor of one's own turns the number of a field into its row and column."""

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.env_to_module.observation_preprocessor import SingleAgentObservationPreprocessor
from shared import arguments, ppo, run


class RowAndColumn(SingleAgentObservationPreprocessor):
    def recompute_output_observation_space(self, input_observation_space, input_action_space):
        return gym.spaces.Box(0.0, 3.0, (2,), np.float32)

    def preprocess(self, observation, episode):
        return np.array(divmod(int(observation), 4), np.float32)


def pieces(env, spaces, device):
    return RowAndColumn()


parser = arguments(default_iters=200, default_timesteps=100000)
parser.set_defaults(env="FrozenLake-v1")

if __name__ == "__main__":
    args = parser.parse_args()
    config = ppo(args.env, lr=0.0009)
    config.environment(env_config={"is_slippery": False, "max_episode_steps": 20})
    config.env_runners(env_to_module_connector=pieces)
    results = run(config, args)
