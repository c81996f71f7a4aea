"""A user's program, for type checkers: what it is given has types, and nothing that it does is an error."""

import gymnasium as gym
import numpy as np
from typing_extensions import assert_type

import polyak
from polyak import (
    IQL,
    PPO,
    SAC,
    BaseCallback,
    CheckpointCallback,
    CosineSchedule,
    Dataset,
    EvalCallback,
    LinearSchedule,
    Monitor,
    NormalActionNoise,
    VecNormalize,
    collect,
    evaluate,
    load,
    make_vec_env,
)
from polyak.algorithm import Algorithm
from polyak.callbacks import CallbackList
from polyak.callbacks.watched import Watched
from polyak.envs import SubprocVecEnv, VecEnv, check_env
from polyak.evaluation import EvaluationResult
from polyak.logging import Logger, configure
from polyak.nn.policies.base import Policy


class Ask(BaseCallback):
    """Uses what every model has, and what one kind has."""

    def _on_step(self) -> bool:
        assert_type(self.model, Watched)
        assert_type(self.model.num_timesteps, int)
        assert_type(self.logger, Logger)
        if isinstance(self.model, PPO):
            assert_type(self.model.policy, Policy)
        return bool(self.model.get_vec_normalize_env() is None)


def environments() -> VecEnv:
    """A vector in processes, normalised."""
    envs = make_vec_env("CartPole-v1", n_envs=2, vec_env_cls=SubprocVecEnv)
    assert_type(envs, VecEnv)
    check_env(gym.make("CartPole-v1"))
    return VecNormalize(envs)


def learn(envs: VecEnv) -> PPO:
    """With callbacks of every kind."""
    model = PPO("MlpPolicy", envs, learning_rate=LinearSchedule(1e-3, 0.0, 1.0))
    for other in ("CartPole-v1", Monitor(gym.make("CartPole-v1")), gym.make_vec("CartPole-v1"), None):
        PPO("MlpPolicy", other)
    model.set_logger(configure("logs", ["csv"]))
    callbacks = CallbackList([Ask(), CheckpointCallback(10, "models")])
    assert_type(model.learn(10, callback=callbacks), PPO)
    model.learn(10, callback=[Ask(), lambda locals_, globals_: True])
    return model


def act(model: PPO, envs: VecEnv) -> np.ndarray:
    """One step."""
    actions, state = model.predict(envs.reset(), deterministic=True)
    assert_type(actions.nbytes, int)  # whatever parameters this numpy's arrays have
    assert_type(state[0].nbytes if state is not None else 0, int)
    _, rewards, _, _ = envs.step(actions)
    assert_type(evaluate(model, "CartPole-v1"), EvaluationResult)
    return rewards


def from_data(envs: VecEnv) -> None:
    """Without an environment, and then with one."""
    assert_type(collect("CartPole-v1", None), Dataset)
    offline = IQL("MlpPolicy", Dataset.load("recorded.npz"))
    offline.learn(10, callback=EvalCallback(envs))
    offline.set_env(envs)
    noise = NormalActionNoise(np.zeros(1), np.ones(1))
    SAC("MlpPolicy", env="Pendulum-v1", action_noise=noise, learning_rate=CosineSchedule(1.0))


def from_files() -> None:
    """Of one algorithm, and of any."""
    assert_type(PPO.load("model"), PPO)
    assert_type(load("model"), Algorithm)
    assert_type(polyak.callbacks.EvalCallback("CartPole-v1"), EvalCallback)
