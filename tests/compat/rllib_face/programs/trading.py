"""A trading agent: an encoder with an LSTM over the ticks of an order book, metrics of trading, checkpoints."""

import dataclasses
import functools
import tempfile

import gymnasium as gym
import numpy as np
import torch
from games import count, evaluated, learns, ppo, shapes, trained
from ray.rllib.algorithms.ppo.ppo_catalog import PPOCatalog
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.core.columns import Columns
from ray.rllib.core.models.base import ENCODER_OUT, Encoder
from ray.rllib.core.models.configs import ModelConfig
from ray.rllib.core.models.torch.base import TorchModel
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from torch import nn

TICKS, COLUMNS, ACCOUNT = 10, 20, 4


class Book(gym.Env):
    """Prices that wander; long, flat or short for a tick. Seen: the last ticks of the book, flat, and the account."""

    def __init__(self, config=None):
        self.observation_space = gym.spaces.Box(-10.0, 10.0, (TICKS * COLUMNS + ACCOUNT,), np.float32)
        self.action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.book = self.np_random.normal(size=(TICKS, COLUMNS)).clip(-9, 9)
        self.steps, self.wealth, self.position = 0, 0.0, 0
        return self._look(), {"wealth": 0.0}

    def step(self, action):
        move = float(self.np_random.normal())
        self.position = int(action) - 1
        self.wealth += self.position * move
        self.book = np.concatenate([self.book[1:], self.np_random.normal(size=(1, COLUMNS)).clip(-9, 9)])
        self.steps += 1
        info = {"wealth": self.wealth, "traded": self.position != 0}
        return self._look(), self.position * move, False, self.steps == 8, info

    def _look(self):
        account = [self.position, np.clip(self.wealth, -9, 9), self.steps / 8, 1.0]
        return np.concatenate([self.book.ravel(), account]).astype(np.float32)


class BookEncoder(TorchModel, Encoder):
    def __init__(self, config):
        TorchModel.__init__(self, config)
        Encoder.__init__(self, config)
        self.lstm = nn.LSTM(COLUMNS, config.lstm_width, batch_first=True)
        self.dense = nn.Linear(ACCOUNT, config.dense_width)
        self.mix = nn.Linear(config.lstm_width + config.dense_width, config.out_width)

    def _forward(self, inputs, **kwargs):
        count("encoder")
        seen = inputs[Columns.OBS]
        book, account = seen[:, : TICKS * COLUMNS], seen[:, TICKS * COLUMNS :]
        ticks, _ = self.lstm(book.reshape(-1, TICKS, COLUMNS))
        both = torch.cat([ticks[:, -1], torch.relu(self.dense(account))], -1)
        return {ENCODER_OUT: torch.relu(self.mix(both))}


@dataclasses.dataclass
class BookConfig(ModelConfig):
    lstm_width: int = 8
    dense_width: int = 4
    out_width: int = 6

    def build(self, framework="torch"):
        return BookEncoder(self)

    @property
    def output_dims(self):
        return (self.out_width,)


class BookCatalog(PPOCatalog):
    def _determine_components_hook(self):
        count("hook")
        options = self._model_config_dict
        self._encoder_config = BookConfig(
            input_dims=self.observation_space.shape, lstm_width=options["book_lstm"], out_width=options["book_out"]
        )
        self._action_dist_class_fn = functools.partial(
            self._get_dist_cls_from_action_space, action_space=self.action_space
        )
        self.latent_dims = self._encoder_config.output_dims


class Trading(RLlibCallback):
    """The share of steps with a position, and what an episode has won, in training and in evaluation."""

    def on_episode_start(self, *, episode, env_runner, metrics_logger, env, env_index, rl_module, **kwargs):
        count("start")
        episode.custom_data["traded"] = []

    def on_episode_step(self, *, episode, env_runner, metrics_logger, env, env_index, rl_module, **kwargs):
        count("step in evaluation" if env_runner.config.in_evaluation else "step")
        episode.custom_data["traded"].append(bool(episode.get_infos(-1)["traded"]))

    def on_episode_end(self, *, episode, env_runner, metrics_logger, env, env_index, rl_module, **kwargs):
        count("end")
        assert len(episode.custom_data["traded"]) == len(episode) == 8
        assert abs(episode.get_return() - episode.get_infos(-1)["wealth"]) < 1e-4
        metrics_logger.log_value(("trading", "share"), float(np.mean(episode.custom_data["traded"])), window=50)
        metrics_logger.log_value("episode_steps", len(episode), reduce="max")


def order_book():
    spec = RLModuleSpec(catalog_class=BookCatalog, model_config={"book_lstm": 5, "book_out": 7})
    config = ppo(Book, rows=160, minibatch=40, spec=spec, lr=1e-3).callbacks(Trading)
    config = evaluated(config, 24).evaluation(evaluation_duration_unit="timesteps")
    with trained(config) as (algo, [result]):
        module = learns(algo)
        weights = {name: shape for name, shape in shapes(module).items() if "lstm" in name}
        folder = algo.save_to_path(tempfile.mkdtemp())
        state = {name: torch.as_tensor(value) for name, value in module.get_state().items()}
    again = config.copy(copy_frozen=False).build_algo()
    again.restore_from_path(folder)
    restored = learns(again)
    same = all(torch.equal(torch.as_tensor(value), state[name]) for name, value in restored.get_state().items())
    outputs = restored.forward_inference({Columns.OBS: torch.as_tensor(Book().reset(seed=0)[0])[None]})
    further = again.train()["training_iteration"]
    again.stop()
    training, evaluation = result["env_runners"], result["evaluation"]["env_runners"]
    return {
        "lstm weights of each encoder": sorted({tuple(shape) for shape in weights.values()}),
        "encoders": len(weights) // 4,
        "latent_dims": list(module.catalog.latent_dims),
        "head": [list(value.shape) for value in module.pi.parameters()],
        "same weights": same,
        "outputs": list(outputs[Columns.ACTION_DIST_INPUTS].shape),
        "iteration after restoring": further,
        "trading in training": 0.3 < training["trading"]["share"] < 0.95,
        "trading in evaluation": 0.0 <= evaluation["trading"]["share"] <= 1.0,
        "longest": [int(training["episode_steps"]), int(evaluation["episode_steps"])],
        "steps trained": int(training["num_env_steps_sampled"]),
        "enough evaluated": int(evaluation["num_env_steps_sampled"]) >= 24,
    }
