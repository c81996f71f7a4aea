"""An environment of one's own with a config, by its class and by a name; the trained module acts in it."""

import gymnasium as gym
import numpy as np
import torch
from ray.rllib.core.columns import Columns
from ray.tune.registry import get_trainable_cls, register_env
from shared import arguments, ppo, run

SAID = {}


class SimpleCorridor(gym.Env):
    """Forward (1) and back (0) to the end of a corridor; a step costs 0.1."""

    def __init__(self, config=None):
        config = config or {}
        self.end_pos = config.get("corridor_length", 7)
        self.cur_pos = 0.0
        self.action_space = gym.spaces.Discrete(2)
        self.observation_space = gym.spaces.Box(0.0, self.end_pos, shape=(1,), dtype=np.float32)

    def reset(self, *, seed=None, options=None):
        self.cur_pos = 0.0
        return np.array([self.cur_pos], np.float32), {"at": 0.0}

    def step(self, action):
        assert action in [0, 1], action
        self.cur_pos = self.cur_pos + 1.0 if action == 1 else max(self.cur_pos - 1.0, 0.0)
        terminated = self.cur_pos >= self.end_pos
        return np.array([self.cur_pos], np.float32), 1.0 if terminated else -0.1, terminated, False, {}


parser = arguments(default_reward=0.9, default_iters=50, default_timesteps=100000)
parser.add_argument("--corridor-length", type=int, default=4)

if __name__ == "__main__":
    args = parser.parse_args()
    register_env("corridor-env", lambda config: SimpleCorridor(config=config))
    config = ppo("corridor-env", config=get_trainable_cls(args.algo).get_default_config(), lr=0.0003)
    config.environment(env_config={"corridor_length": args.corridor_length})
    results = run(config, args)

    config.env_runners(num_env_runners=0)
    algo = config.build_algo()
    module, env = algo.get_module(), SimpleCorridor({"corridor_length": 4})
    observation, _ = env.reset()
    out = module.forward_inference({Columns.OBS: torch.from_numpy(observation).unsqueeze(0)})
    SAID["out"] = list(out[Columns.ACTION_DIST_INPUTS].shape)
    chosen = module.get_inference_action_dist_cls().from_logits(out[Columns.ACTION_DIST_INPUTS]).to_deterministic()
    SAID["action"] = int(chosen.sample()[0]) in (0, 1)
    algo.stop()
