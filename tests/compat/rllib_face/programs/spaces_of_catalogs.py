"""What a catalog says of spaces: numbers that distributions read, and preprocessors."""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.models.catalog import Catalog
from ray.rllib.utils.spaces.simplex import Simplex

BOX = Box(-1.0, 1.0, (3,), np.float32)
ACTIONS = {
    "Discrete": Discrete(4),
    "Box": BOX,
    "MultiDiscrete": MultiDiscrete([2, 3]),
    "Tuple": Tuple([Discrete(3), Box(-1.0, 1.0, (2,), np.float32)]),
    "Dict": Dict(a=Discrete(3), b=MultiDiscrete([2, 4])),
}
OBSERVATIONS = {
    "Box": BOX,
    "Discrete": Discrete(3),
    "MultiDiscrete": MultiDiscrete([2, 3]),
    "Tuple": Tuple([Discrete(3), BOX]),
    "Dict": Dict(a=BOX, b=Discrete(2)),
    "pixels": Box(0, 255, (8, 8, 3), np.uint8),
}


class Mixed(gym.Env):
    """Episodes of ten steps, with a choice and two numbers in each."""

    def __init__(self, config=None):
        self.observation_space, self.action_space = BOX, ACTIONS["Tuple"]
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(3, np.float32), float(action[0] == 1), self.steps == 10, False, {}


def wanted(space):
    catalog = Catalog(BOX, Discrete(2), {})
    kind = catalog._get_dist_cls_from_action_space(space, framework="torch")
    return int(kind.required_input_dim(space=space))


def made(space):
    preprocessor = Catalog.get_preprocessor(space)
    space.seed(0)
    array = np.asarray(preprocessor.transform(space.sample()))
    assert preprocessor.observation_space.shape == array.shape
    return [type(preprocessor).__name__, list(map(int, preprocessor.shape)), list(array.shape), int(preprocessor.size)]


def refuses_shares():
    try:
        wanted(Simplex((3,)))
    except NotImplementedError:
        return True
    return False


def outputs():
    config = PPOConfig().environment(Mixed, disable_env_checking=True).env_runners(num_env_runners=0)
    config = config.training(train_batch_size_per_learner=40, minibatch_size=20, num_epochs=1)
    algo = config.rl_module(model_config={"fcnet_hiddens": [5]}).build_algo()
    algo.train()
    module = algo.learner_group._learner.module["default_policy"].unwrapped()
    found = [list(parameter.shape) for parameter in module.pi.parameters()]
    algo.stop()
    return found


def outcome():
    space = Simplex((3,))
    return {
        "equal": {
            "wanted": {name: wanted(space) for name, space in ACTIONS.items()},
            "made": {name: made(space) for name, space in OBSERVATIONS.items()},
            "shares are refused": refuses_shares(),
            "shares": [abs(float(space.sample().sum()) - 1) < 1e-6, space.contains(np.array([0.5, 0.4, 0.3], "f4"))],
            "heads of a Tuple": outputs(),
        },
        "called": {},
    }
