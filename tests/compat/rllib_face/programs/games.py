"""Small environments of which everything that was done in them is known."""

import gymnasium as gym
import numpy as np

TAKEN = {}


class Counting(gym.Env):
    """Episodes of ten steps. Actions are counted in ``TAKEN``, under the name that ``config`` gives."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(3)
        self.taken = TAKEN.setdefault((config or {}).get("name", "training"), [0, 0, 0])
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._look(), {}

    def step(self, action):
        self.taken[int(action)] += 1
        self.steps += 1
        return self._look(), float(action == 1), self.steps == 10, False, {}

    def _look(self):
        return self.np_random.uniform(-1, 1, 4).astype(np.float32)


class Doors(Counting):
    """Observations name the doors that are open; others must not be taken."""

    def __init__(self, config=None):
        super().__init__(config)
        self.observation_space = gym.spaces.Dict(
            {
                "action_mask": gym.spaces.Box(0.0, 1.0, (3,), np.float32),
                "observations": gym.spaces.Box(-1.0, 1.0, (4,), np.float32),
            }
        )

    def step(self, action):
        if not self.open[int(action)]:
            raise ValueError(f"door {action} is shut")
        return super().step(action)

    def _look(self):
        self.open = np.ones(3, np.float32)
        self.open[self.np_random.integers(3)] = 0.0
        return {"action_mask": self.open, "observations": super()._look()}


class Echo(gym.Env):
    """What was shown in the first of five steps is to be done in the last."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(0.0, 1.0, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.wanted = 0, int(self.np_random.integers(2))
        return self._look(), {}

    def step(self, action):
        self.steps += 1
        return self._look(), float(self.steps == 5 and action == self.wanted), self.steps == 5, False, {}

    def _look(self):
        shown = np.zeros(3, np.float32)
        shown[2] = self.steps / 5
        if self.steps == 0:
            shown[self.wanted] = 1.0
        return shown


class Calls(dict):
    """How often each name was noted, in the order in which each was noted first."""

    def note(self, name):
        self[name] = self.get(name, 0) + 1

    def order(self):
        return list(self)
