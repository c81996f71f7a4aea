"""Masks: the environment says which actions are allowed, and algorithms that support masks never take another."""

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak import DQN, evaluate


class Knapsack(gym.Env):
    """Six things of random weight and value are put into a bag that holds 1.0; what is in, or too heavy, is masked."""

    observation_space = spaces.Box(0.0, 1.0, (19,), np.float32)
    action_space = spaces.Discrete(6)

    def _observation(self) -> np.ndarray:
        return np.concatenate([self.weights, self.values, self.free, [self.room]]).astype(np.float32)

    def action_masks(self) -> np.ndarray:
        allowed = self.free & (self.weights <= self.room)
        return allowed if allowed.any() else np.ones(6, bool)  # the episode is over then

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.weights, self.values = self.np_random.uniform(0.1, 0.6, 6), self.np_random.uniform(0, 1, 6)
        self.free, self.room = np.ones(6, bool), 1.0
        return self._observation(), {}

    def step(self, action):
        self.free[action] = False
        self.room -= self.weights[action]
        done = not (self.free & (self.weights <= self.room)).any()
        return self._observation(), float(self.values[action]), done, False, {}


def main(steps: int = 20_000) -> float:
    model = DQN("MlpPolicy", Knapsack(), learning_rate=1e-3, target_update_interval=500, gamma=1.0, seed=0).learn(steps)
    env = Knapsack()
    observation, _ = env.reset(seed=1)
    action, _ = model.predict(observation, action_masks=env.action_masks(), deterministic=True)
    print("first of all:", action, "of values", env.values.round(2), "and weights", env.weights.round(2))
    result = evaluate(model, Knapsack(), n_episodes=200, seed=1)
    print(f"mean value in the bag: {result.mean:.2f}")
    return result.mean


if __name__ == "__main__":
    main()
