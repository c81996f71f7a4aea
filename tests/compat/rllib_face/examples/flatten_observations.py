"""Observations that are dicts are flattened before they reach the module."""

import gymnasium as gym
import numpy as np
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.tune.registry import get_trainable_cls, register_env
from shared import arguments, ppo, run

SAID = {}


class PoleInParts(gym.ObservationWrapper):
    """The cart and the pole apart."""

    def __init__(self, env):
        super().__init__(env)
        low, high = env.observation_space.low, env.observation_space.high
        cart, pole = (gym.spaces.Box(low[part], high[part], (2,), np.float32) for part in (slice(0, 2), slice(2, 4)))
        self.observation_space = gym.spaces.Dict({"cart": cart, "pole": pole})

    def observation(self, observation):
        return {"cart": observation[:2], "pole": observation[2:]}


def pieces(env, spaces, device):
    return FlattenObservations()


parser = arguments(default_reward=450.0, default_timesteps=200000)
parser.set_defaults(env="cart-in-parts")

if __name__ == "__main__":
    args = parser.parse_args()
    register_env("cart-in-parts", lambda config: PoleInParts(gym.make("CartPole-v1")))
    config = ppo(args.env, 256, 64, get_trainable_cls(args.algo).get_default_config(), lr=0.0003, vf_loss_coeff=0.01)
    config.env_runners(env_to_module_connector=pieces)
    results = run(config, args)
    SAID["args"] = [args.stop_reward, args.stop_timesteps, args.num_agents, args.verbose, args.evaluation_duration]
