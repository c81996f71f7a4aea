"""Small environments of which everything that was done in them is known, configs, and what the parts note."""

from contextlib import contextmanager

import gymnasium as gym
import numpy as np
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig

CALLS, SEEN, TAKEN = {}, {}, {}


def count(name):
    """Notes in ``CALLS`` how often each name was called, in the order in which each was called first."""
    CALLS[name] = CALLS.get(name, 0) + 1


class Counting(gym.Env):
    """Episodes of ten steps. Actions are counted in ``TAKEN``, under the name that ``config`` gives."""

    length = 10

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
        return self._look(), float(action == 1), self.steps == self.length, False, {}

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


def small(kind=PPOConfig, env=Counting, *, spec=None, model=None, **training):
    """A config of small networks, trained in this process."""
    config = kind().environment(env, disable_env_checking=True).env_runners(num_env_runners=0)
    networks = {} if spec is None else {"rl_module_spec": spec}
    if spec is None or model is not None:
        networks["model_config"] = {"fcnet_hiddens": [8]} if model is None else model
    return config.training(**training).rl_module(**networks)


def ppo(env=Counting, rows=60, minibatch=30, epochs=2, kind=PPOConfig, **options):
    """A config of PPO with so many rows in an iteration and in a minibatch."""
    sizes = {"train_batch_size_per_learner": rows, "minibatch_size": minibatch, "num_epochs": epochs}
    return small(kind, env, **sizes, **options)


def dqn(env=Counting, steps=100, kind=DQNConfig, **options):
    """A config of DQN, or of another ``kind``, with so many steps in an iteration."""
    config = small(kind, env, **options)
    return config.reporting(min_sample_timesteps_per_iteration=steps, min_time_s_per_iteration=0)


def evaluated(config, episodes=5):
    """The same with episodes of evaluation without exploration, whose actions ``TAKEN`` has by themselves."""
    apart = {"explore": False, "env_config": {"name": "evaluation"}}
    return config.evaluation(evaluation_interval=1, evaluation_duration=episodes, evaluation_config=apart)


@contextmanager
def trained(config, iterations=1):
    """The algorithm after so many iterations, and the results of each."""
    algo = config.build_algo()
    yield algo, [algo.train() for _ in range(iterations)]
    algo.stop()


def learned(config, iterations=1):
    """What the learner reports in each of so many iterations."""
    with trained(config, iterations) as (_, results):
        return [result["learners"]["default_policy"] for result in results]


def learns(algo):
    """The module that learns."""
    return algo.learner_group._learner.module["default_policy"].unwrapped()


def moved(before, after):
    """Whether all weights have changed."""
    return all(bool((before[name] != after[name]).any()) for name in before if name.endswith("weight"))


def shapes(module):
    """The shapes of a module's entries, by their names."""
    return {name: list(value.shape) for name, value in module.state_dict().items()}


def refusal(call):
    """The name of the error that a call ends in."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return ""
