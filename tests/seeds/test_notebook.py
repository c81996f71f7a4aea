"""The notebook that trains and customises RLlib's algorithms, from its imports to its checkpoints, by `polyak run`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from polyak.compat.run import MARK
from tests.warm import python

BREAKOUT = """
import gymnasium as gym
import numpy as np

class BreakoutEnv(gym.Env):
    observation_space, action_space = gym.spaces.Box(0, 255, (84, 84, 3), np.uint8), gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros((84, 84, 3), np.uint8), {}

    def step(self, action):
        self.steps += 1
        seen = np.full((84, 84, 3), 25 * self.steps, np.uint8)
        return seen, float(action == 1), self.steps == 8, False, {}
"""
"""A stand-in for the notebook's own environment."""
METRICS = """
def simplify_rllib_metrics(result):
    evaluated = result.get("evaluation", {"env_runners": {"num_episodes": 0}})["env_runners"]["num_episodes"]
    print("result", result["env_runners"]["episode_return_mean"] >= 0, bool(result["learners"]), evaluated)
"""
"""A stand-in for the function that prints what `train()` returns."""
CELLS = [
    "# !pip install something\nfrom pprint import pprint\nimport numpy as np\nimport gymnasium as gym\n"
    'import ale_py\ngym.register_envs(ale_py)\nimport ray\nprint("ray", ray.__version__)',
    """
class algo_base:
    def __init__(self, **kwargs):
        self._training_kwargs = kwargs

    @property
    def training_kwargs(self):
        return self._training_kwargs

class PPO(algo_base):
    algo = "PPO"

class APPO(algo_base):
    algo = "APPO"

    def __init__(self, **kwargs):
        self._training_kwargs = {"grad_clip": 30.0, **kwargs}

class Rainbow_DQN(algo_base):
    algo = "DQN"

    def __init__(self, **kwargs):
        self._training_kwargs = {
            "target_network_update_freq": 500,
            "replay_buffer_config": {
                "type": "PrioritizedEpisodeReplayBuffer", "capacity": 60000, "alpha": 0.5, "beta": 0.5
            },
            "epsilon": [[0, 1.0], [1000000, 0.1]], "adam_epsilon": 1e-8, "grad_clip": 40.0,
            "num_steps_sampled_before_learning_starts": 10000, "tau": 1, "num_atoms": 51, "v_min": -10.0,
            "v_max": 10.0, "noisy": True, "sigma0": 0.5, "dueling": True, "hiddens": [512], "double_q": True,
            "n_step": 3, **kwargs,
        }
""",
    """
from ray.tune.registry import get_trainable_cls
from dl_helper.rl.rl_env.breakout_env import BreakoutEnv
from ray.tune.registry import register_env

register_env("breakout", lambda config: BreakoutEnv())
simple_algo = globals()[algo](**small)
config = (
    get_trainable_cls(simple_algo.algo)
    .get_default_config()
    .api_stack(enable_rl_module_and_learner=True, enable_env_runner_and_connector_v2=True)
    .environment("breakout")
    .env_runners(num_env_runners=0)
    .evaluation(evaluation_interval=2, evaluation_duration=3)
    .rl_module(model_config={"conv_filters": [[32, [8, 8], 4], [64, [4, 4], 2], [64, [3, 3], 1]]})
    .training(**simple_algo.training_kwargs)
    .reporting(min_sample_timesteps_per_iteration=40, min_time_s_per_iteration=None)
)
""",
    """
import os
from dl_helper.rl.rl_utils import simplify_rllib_metrics

checkpoint_base_dir = "checkpoints"
os.makedirs(checkpoint_base_dir, exist_ok=True)
algo = config.build()
algo.get_module()
""",
    """
for i in range(2):
    result = algo.train()
    simplify_rllib_metrics(result)
    if (i + 1) % 2 == 0:
        checkpoint_dir = algo.save_to_path(
            os.path.join(os.path.abspath(checkpoint_base_dir), f"checkpoint_{i + 1}")
        )
final_checkpoint = algo.save_to_path(os.path.join(os.path.abspath(checkpoint_base_dir), "final"))
print("saved", os.path.basename(checkpoint_dir), os.path.basename(final_checkpoint))
algo.stop()
""",
    """
from ray.rllib.core.models.configs import CNNEncoderConfig
import torch

config = CNNEncoderConfig(
    input_dims=[84, 84, 3], cnn_filter_specifiers=[[16, [8, 8], 4], [32, [4, 4], 2]], cnn_activation="relu",
    cnn_use_layernorm=False, cnn_use_bias=True,
)
model = config.build(framework="torch")
print("encoder", tuple(model({"obs": torch.randn(3, 84, 84, 3)})["encoder_out"].shape))
""",
    """
from ray.rllib.core.models.configs import ModelConfig
from ray.rllib.core.models.torch.encoder import TorchModel, Encoder
from dataclasses import dataclass
from ray.rllib.core.models.base import ENCODER_OUT
from ray.rllib.core.columns import Columns
import torch.nn as nn
import torch.nn.functional as F

class ConvFCNet(TorchModel, Encoder):
    def __init__(self, config) -> None:
        TorchModel.__init__(self, config)
        Encoder.__init__(self, config)
        self.conv1 = nn.Conv2d(config.input_dims[0], 16, kernel_size=3, stride=1, padding=1)
        self.fc = nn.Linear(config.input_dims[1] * config.input_dims[2] * 16, config.out_dim)

    def _forward(self, inputs: dict, **kwargs) -> dict:
        x = F.relu(self.conv1(inputs[Columns.OBS]))
        return {ENCODER_OUT: self.fc(x.view(x.size(0), -1))}

@dataclass
class test_EncoderConfig(ModelConfig):
    input_dims = None
    out_dim = 10

    def build(self, framework: str = "torch"):
        if framework == "torch":
            return ConvFCNet(self)
        raise ValueError("only torch ModelConfig")

    @property
    def output_dims(self):
        return self.out_dim

net = test_EncoderConfig([3, 64, 64], 10).build()
print("own", tuple(net({Columns.OBS: torch.randn(2, 3, 64, 64)})[ENCODER_OUT].shape))
""",
]
SMALL = {
    "PPO": {"train_batch_size_per_learner": 32, "minibatch_size": 16, "num_epochs": 1},
    "APPO": {"train_batch_size_per_learner": 50},
    "Rainbow_DQN": {"num_steps_sampled_before_learning_starts": 20},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_notebook_runs_from_imports_to_checkpoints(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ale_py")
    for path, text in {"rl_env/breakout_env.py": BREAKOUT, "rl_utils.py": METRICS}.items():
        file = tmp_path / "dl_helper" / "rl" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    chosen = f"algo, small = {name!r}, {SMALL[name]!r}"
    cells = [{"cell_type": "code", "source": source} for source in (CELLS[0], chosen, *CELLS[1:])]
    (tmp_path / "nb.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}))
    environment = {name: value for name, value in os.environ.items() if name != MARK}
    environment |= {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), str(tmp_path)])
    result = python(["-m", "polyak", "run", "--only", "ray", "nb.ipynb"], tmp_path, environment)
    assert result.returncode == 0, result.stderr
    said = [line for line in result.stdout.splitlines() if line.split()[0] in ("result", "saved", "encoder", "own")]
    expected = ["result True True 0", "result True True 3", "saved checkpoint_2 final", "encoder (3, 3872)"]
    assert said == [*expected, "own (2, 10)"]
    assert (tmp_path / "checkpoints" / "final").is_dir()
