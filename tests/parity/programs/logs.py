"""What is logged while learning, and how a table looks."""

import contextlib
import io
from typing import Any

import numpy as np
import worlds
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import HumanOutputFormat, KVWriter, Logger, configure
from stable_baselines3.common.monitor import Monitor


class Keep(KVWriter):
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def write(self, key_values: dict, key_excluded: dict, step: int = 0) -> None:
        """One dump."""
        self.written.append((step, dict(key_values)))

    def close(self) -> None:
        """Nothing to close."""


def _logged(model: Any, steps: int, **options: Any) -> list[Any]:
    keep = Keep()
    model.set_logger(Logger(folder=None, output_formats=[keep]))
    model.learn(steps, **options)
    return keep.written


def _models() -> dict[str, Any]:
    box = worlds.Counting(action_space=spaces.Box(-1.0, 1.0, (1,), np.float32))
    small: dict[str, Any] = {"learning_starts": 5, "buffer_size": 50, "batch_size": 4, "device": "cpu", "seed": 0}
    return {
        "A2C": A2C("MlpPolicy", worlds.Counting(), device="cpu", seed=0),
        "A2C box": A2C("MlpPolicy", box, device="cpu", seed=0),
        "PPO": PPO("MlpPolicy", worlds.Counting(), n_steps=16, batch_size=8, device="cpu", seed=0),
        "PPO value clip": PPO(
            "MlpPolicy", worlds.Counting(), n_steps=16, batch_size=8, clip_range_vf=0.2, device="cpu"
        ),
        "PPO box": PPO("MlpPolicy", box, n_steps=16, batch_size=8, device="cpu", seed=0),
        "DQN": DQN("MlpPolicy", worlds.Counting(), **small),
        "SAC": SAC("MlpPolicy", box, **small),
        "SAC fixed": SAC("MlpPolicy", box, ent_coef=0.1, **small),
        "TD3": TD3("MlpPolicy", box, **small),
        "DDPG": DDPG("MlpPolicy", box, **small),
    }


def keys() -> Any:
    """Names of logged values at the last dump, but for the split of the time, which one of the libraries has."""
    split = {f"time/{part}" for part in ("env", "inference", "copy", "sample", "update", "other")}
    return {name: sorted({*_logged(model, 64, log_interval=2)[-1][1]} - split) for name, model in _models().items()}


def types() -> Any:
    """Python types of logged values."""
    found = {}
    for name in ("PPO box", "SAC", "DQN"):
        last = _logged(_models()[name], 64, log_interval=2)[-1][1]
        found[name] = {key: isinstance(value, float | np.floating) for key, value in last.items()}
    return found


def counters() -> Any:
    """Values that do not depend on chance or time, at every dump."""
    found = {}
    fixed = ("rollout/ep_rew_mean", "rollout/ep_len_mean", "rollout/success_rate", "time/total_timesteps")
    fixed += ("time/iterations", "time/episodes", "train/n_updates", "train/learning_rate", "rollout/exploration_rate")
    for name, model in _models().items():
        written = _logged(model, 40, log_interval=2)
        found[name] = [[step, {key: values[key] for key in fixed if key in values}] for step, values in written]
    return found


def evaluation_keys() -> Any:
    """Keys that an EvalCallback adds."""
    callback = EvalCallback(Monitor(worlds.Counting()), eval_freq=20, n_eval_episodes=2, verbose=0)
    written = _logged(_models()["A2C"], 40, log_interval=1000, callback=callback)
    return [
        [step, {key: value for key, value in values.items() if "eval" in key or "total" in key}]
        for step, values in written
    ]


def table() -> Any:
    """Fixed values as a table."""
    text = io.StringIO()
    output = HumanOutputFormat(text)
    values = {
        "rollout/ep_rew_mean": 12.345678,
        "rollout/ep_len_mean": 200,
        "time/fps": 1234,
        "train/loss": 1.23456e-7,
        "train/large": 123456789.0,
        "train/learning_rate": 0.0003,
        "train/name": "text",
        "a very long name of a section/and a very long name of a value": 1.0,
        "alone": -0.5,
    }
    output.write(values, dict.fromkeys(values, ()), 7)
    return text.getvalue().split("\n")


def colliding_names() -> Any:
    """Names that are equal once they are cut."""
    text = io.StringIO()
    values = {"x" * 40 + "a": 1.0, "x" * 40 + "b": 2.0}
    HumanOutputFormat(text).write(values, dict.fromkeys(values, ()), 0)
    return text.getvalue()


def tables_while_learning() -> Any:
    """Rows of the printed table, without values."""
    found = {}
    for name, model in {
        "A2C": A2C("MlpPolicy", worlds.Counting(), verbose=1, device="cpu"),
        "DQN": DQN("MlpPolicy", worlds.Counting(), verbose=1, learning_starts=5, batch_size=4, device="cpu"),
    }.items():
        text = io.StringIO()
        model.set_logger(Logger(folder=None, output_formats=[HumanOutputFormat(text)]))
        model.learn(60, log_interval=10)
        rows = [line.split("|")[1].strip() for line in text.getvalue().splitlines() if line.startswith("|")]
        found[name] = rows[: len(set(rows))]
    return found


def printed() -> Any:
    """How many lines are printed at each verbosity."""
    found = []
    for verbose in (0, 1):
        text = io.StringIO()
        with contextlib.redirect_stdout(text):
            A2C("MlpPolicy", "CartPole-v1", verbose=verbose, device="cpu").learn(20, log_interval=1000)
        found.append(bool(text.getvalue()))
    return found


def levels() -> Any:
    """Levels of text, means and what is kept between dumps."""
    logger = configure(None, ["stdout"])
    logger.record_mean("mean", 1.0)
    logger.record_mean("mean", 4.0)
    logger.record("last", 1)
    logger.record("last", 2)
    values = dict(logger.name_to_value)
    logger.dump(0)
    logger.set_level(50)
    return [values, dict(logger.name_to_value), logger.level]


def verbose_intervals() -> Any:
    """``log_interval``: iterations for A2C, episodes for DQN."""
    found = {}
    for name in ("A2C", "DQN"):
        for interval in (1, 3, None):
            options = {} if interval is None else {"log_interval": interval}
            found[f"{name} {interval}"] = [step for step, _ in _logged(_models()[name], 45, **options)]
    return found


def window() -> Any:
    """``stats_window_size`` episodes are averaged."""
    model = A2C("MlpPolicy", make_vec_env(worlds.Counting, 1), stats_window_size=3, device="cpu").learn(40)
    return [model.ep_info_buffer.maxlen, len(model.ep_info_buffer), sorted(model.ep_info_buffer[0])]
