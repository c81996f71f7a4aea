"""The environments of a runner are stepped in processes of their own."""

import gymnasium as gym
from shared import arguments, ppo, run

parser = arguments(default_reward=60.0)
parser.set_defaults(env="CartPole-v1", num_envs_per_env_runner=2)

if __name__ == "__main__":
    args = parser.parse_args()
    config = ppo(args.env)
    config.env_runners(gym_env_vectorize_mode=gym.envs.registration.VectorizeMode.ASYNC)
    results = run(config, args)
    SAID = {"environments": config.num_envs_per_env_runner, "runners": config.num_env_runners}
