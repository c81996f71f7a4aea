"""An environment of your own: a thermostat that keeps a room at 20 degrees while the weather changes."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak import SAC, check_env, evaluate


class Room(gym.Env):
    """Observed: the distances of the room and of the weather from 20 degrees, in tens. Action: heating or cooling."""

    observation_space = spaces.Box(-5.0, 5.0, (2,), np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _observation(self) -> np.ndarray:
        return np.clip([self.room / 10, self.weather / 10], -5, 5).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)  # seeds self.np_random
        self.room, self.weather = self.np_random.uniform(-10, 10, 2)
        return self._observation(), {}

    def step(self, action):
        self.weather += self.np_random.normal(0, 0.5)
        self.room += 0.1 * (self.weather - self.room) + 3.0 * float(action[0])
        reward = -abs(self.room) - 0.1 * abs(float(action[0]))
        return self._observation(), reward, False, False, {}


gym.register("Room-v0", entry_point=Room, max_episode_steps=100)


def main(steps: int = 3_000) -> float:
    check_env(gym.make("Room-v0"))  # raises an error that says what is wrong, if anything is
    model = SAC("MlpPolicy", "Room-v0", learning_rate=1e-3, policy_kwargs={"net_arch": [64, 64]}, seed=0).learn(steps)
    result = evaluate(model, "Room-v0", n_episodes=20, seed=1)
    print(f"mean distance from 20 degrees and cost, per step: {-result.mean / 100:.2f}")
    return result.mean


if __name__ == "__main__":
    main()
