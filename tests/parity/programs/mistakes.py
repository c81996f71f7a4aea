"""Usual mistakes: which are errors, which are warnings."""

import warnings
from typing import Any

import gymnasium as gym
import numpy as np
import worlds
from gymnasium import spaces
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3, HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.utils import get_device
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

BOX = spaces.Box(-1.0, 1.0, (2,), np.float32)


def _outcome(action: Any) -> str:
    """``fine``, ``warns UserWarning`` or the built-in error that comes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            action()
        except Exception as error:
            return next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == "builtins")
    kinds = sorted({item.category.__name__ for item in caught if item.category is not DeprecationWarning})
    return f"warns {' '.join(kinds)}" if kinds else "fine"


def _all(actions: dict[str, Any]) -> dict[str, str]:
    return {name: _outcome(action) for name, action in actions.items()}


def constructors() -> Any:
    """Arguments that do not fit."""
    box = worlds.Counting(action_space=BOX)
    unbounded = worlds.Counting(action_space=spaces.Box(-np.inf, np.inf, (1,), np.float32))
    odd = worlds.Counting(action_space=spaces.Tuple((spaces.Discrete(2), spaces.Discrete(3))))
    grid = worlds.Counting(action_space=spaces.MultiBinary([2, 3]))
    nested = worlds.Several()
    nested.observation_space = spaces.Dict({"a": spaces.Dict({"b": BOX})})
    cpu: dict[str, Any] = {"device": "cpu"}
    return _all(
        {
            "unknown argument": lambda: PPO("MlpPolicy", box, no_such_argument=1),
            "unknown policy": lambda: PPO("NoSuchPolicy", box),
            "unknown policy argument": lambda: PPO("MlpPolicy", box, policy_kwargs={"no_such": 1}),
            "twice": lambda: DDPG("MlpPolicy", box, policy_kwargs={"n_critics": 1}, **cpu),
            "DQN in a box": lambda: DQN("MlpPolicy", box),
            "SAC with numbers": lambda: SAC("MlpPolicy", worlds.Counting()),
            "unbounded": lambda: SAC("MlpPolicy", unbounded),
            "tuple of actions": lambda: PPO("MlpPolicy", odd),
            "grid of switches": lambda: PPO("MlpPolicy", grid),
            "nested": lambda: PPO("MultiInputPolicy", nested),
            "Dict for MlpPolicy": lambda: PPO("MlpPolicy", worlds.Several()),
            "vector for MultiInputPolicy": lambda: PPO("MultiInputPolicy", worlds.Counting(), **cpu),
            "vector for CnnPolicy": lambda: PPO("CnnPolicy", worlds.Counting(), **cpu),
            "gSDE with numbers": lambda: PPO("MlpPolicy", worlds.Counting(), use_sde=True),
            "one sample": lambda: PPO("MlpPolicy", box, n_steps=1, batch_size=1, **cpu),
            "batch of one": lambda: PPO("MlpPolicy", box, n_steps=8, batch_size=1, **cpu),
            "last batch of one": lambda: PPO("MlpPolicy", box, n_steps=9, batch_size=4, **cpu),
            "small last batch": lambda: PPO("MlpPolicy", box, n_steps=10, batch_size=4, **cpu),
            "clip_range_vf": lambda: PPO("MlpPolicy", box, clip_range_vf=-0.1, **cpu),
            "train_freq": lambda: SAC("MlpPolicy", box, train_freq=(1, "hour")),
            "train_freq text": lambda: SAC("MlpPolicy", box, train_freq="step"),
            "saved memory with timeouts": lambda: SAC(
                "MlpPolicy", box, optimize_memory_usage=True, buffer_size=9, **cpu
            ),
            "ent_coef": lambda: SAC("MlpPolicy", box, ent_coef="automatic", **cpu),
            "ent_coef start": lambda: SAC("MlpPolicy", box, ent_coef="auto_0.0", **cpu),
            "device": lambda: PPO("MlpPolicy", box, device="no_such_device"),
            "her with vectors": lambda: SAC("MlpPolicy", box, replay_buffer_class=HerReplayBuffer, **cpu),
            "environment": lambda: PPO("MlpPolicy", "NoSuchEnvironment-v0"),
            "no environment": lambda: PPO("MlpPolicy", None, _init_setup_model=False),
            "gym.make": lambda: PPO("MlpPolicy", gym.make("CartPole-v1"), **cpu),
            "float for steps": lambda: TD3("MlpPolicy", box, gradient_steps=2, **cpu),
        }
    )


def learning() -> Any:
    """Mistakes that show while learning."""
    box = worlds.Counting(action_space=BOX)
    two = make_vec_env(worlds.Target, 2)

    def model(cls: Any = SAC, env: Any = box, **options: Any) -> Any:
        return cls("MlpPolicy", env, device="cpu", **({"buffer_size": 50} if cls not in (A2C, PPO) else {}), **options)

    return _all(
        {
            "episodes of two": lambda: model(env=two, train_freq=(1, "episode")).learn(5),
            "noise of another shape": lambda: model(
                TD3, action_noise=NormalActionNoise(np.zeros(5), np.ones(5)), learning_starts=1
            ).learn(5),
            "callback without step": lambda: model(A2C).learn(5, callback=3),
            "no environment": lambda: _loaded_without(A2C),
            "other space": lambda: model(A2C).set_env(DummyVecEnv([worlds.Goals])),
            "other number": lambda: model(A2C).set_env(make_vec_env(lambda: worlds.Counting(action_space=BOX), 2)),
            "unknown parameters": lambda: model(A2C).set_parameters({"nothing": {}}),
            "missing parameters": lambda: model(A2C).set_parameters({"policy": model(A2C).policy.state_dict()}),
            "wrong sizes": lambda: model(A2C).set_parameters(
                {"policy": model(A2C, worlds.Counting()).policy.state_dict()}, exact_match=False
            ),
            "missing tensors": lambda: model(A2C).set_parameters({"policy": {}}, exact_match=False),
            "another file": lambda: A2C.load("no_such_file"),
            "zero steps": lambda: model(A2C).learn(0),
            "log interval": lambda: model(A2C).learn(10, log_interval=0),
        }
    )


def _loaded_without(cls: Any) -> None:
    import io

    model = cls("MlpPolicy", worlds.Counting(), device="cpu")
    file = io.BytesIO()
    model.save(file)
    file.seek(0)
    cls.load(file, device="cpu").learn(5)


def environments() -> Any:
    """What check_env says."""

    class NoInfo(worlds.Counting):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return super().reset(seed=seed, options=options)[0]

    class FourTuple(worlds.Counting):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, info

    class NoSeed(worlds.Counting):
        def reset(self) -> Any:  # type: ignore[override]
            return super().reset()

    class TextReward(worlds.Counting):
        def step(self, action: Any) -> Any:
            observation, _, *rest = super().step(action)
            return observation, "much", *rest

    class Wide(worlds.Counting):
        def _observe(self) -> Any:
            return super()._observe().astype(np.float64)

    class Outside(worlds.Counting):
        def _observe(self) -> Any:
            return super()._observe() + 1000

    def spaced(**given: Any) -> Any:
        env = worlds.Counting()
        for name, value in given.items():
            setattr(env, name, value)
        return env

    big = spaces.Box(-5.0, 9.0, (1,), np.float32)
    return _all(
        {
            "good": lambda: check_env(worlds.Counting()),
            "no info": lambda: check_env(NoInfo()),
            "four values": lambda: check_env(FourTuple()),
            "no seed": lambda: check_env(NoSeed()),
            "text reward": lambda: check_env(TextReward()),
            "dtype": lambda: check_env(Wide()),
            "outside": lambda: check_env(Outside()),
            "uneven actions": lambda: check_env(worlds.Counting(action_space=big)),
            "uneven actions, quietly": lambda: check_env(worlds.Counting(action_space=big), warn=False),
            "wide actions": lambda: check_env(worlds.Counting(action_space=spaces.Box(-1.0, 1.0, (1,), np.float64))),
            "started": lambda: check_env(worlds.Counting(action_space=spaces.Discrete(3, start=1))),
            "tuple": lambda: check_env(spaced(observation_space=spaces.Tuple((BOX, BOX)))),
            "graph": lambda: check_env(spaced(observation_space=spaces.Graph(BOX, BOX))),
            "small pictures": lambda: check_env(worlds.Pictures((10, 10, 3))),
            "no space": lambda: check_env(spaced(observation_space=None)),
            "not an environment": lambda: check_env(object()),
            "skip rendering": lambda: check_env(worlds.Counting(), skip_render_check=True),
        }
    )


def pieces() -> Any:
    """Buffers, wrappers, evaluation, devices."""
    dictionary = spaces.Dict({"a": BOX})

    def unwrapped() -> Any:
        return evaluate_policy(A2C("MlpPolicy", worlds.Counting(), device="cpu"), worlds.Counting(), n_eval_episodes=1)

    def monitor_steps() -> None:
        env = Monitor(worlds.Counting(1))
        env.reset()
        env.step(0)
        env.step(0)

    def early_reset() -> None:
        env = Monitor(worlds.Counting(3), allow_early_resets=False)
        env.reset()
        env.step(0)
        env.reset()

    shared = worlds.Counting()
    return _all(
        {
            "evaluation without monitor": unwrapped,
            "step after the end": monitor_steps,
            "early reset": early_reset,
            "evaluation of another kind": lambda: EvalCallback(DummyVecEnv([worlds.Counting] * 2), verbose=0),
            "Dict in ReplayBuffer": lambda: ReplayBuffer(5, dictionary, BOX),
            "vector in DictReplayBuffer": lambda: DictReplayBuffer(5, BOX, BOX),
            "Dict in RolloutBuffer": lambda: RolloutBuffer(5, dictionary, BOX).reset(),
            "empty buffer": lambda: ReplayBuffer(5, BOX, BOX).sample(2),
            "same environment twice": lambda: DummyVecEnv([lambda: shared, lambda: shared]),
            "no environments": lambda: DummyVecEnv([]),
            "frame stack order": lambda: VecFrameStack(DummyVecEnv([worlds.Counting]), 2, channels_order="middle"),
            "unknown keys": lambda: VecNormalize(DummyVecEnv([worlds.Several]), norm_obs_keys=["none"]),
            "keys without Dict": lambda: VecNormalize(DummyVecEnv([worlds.Counting]), norm_obs_keys=["a"]),
            "number among keys": lambda: VecNormalize(DummyVecEnv([worlds.Several])),
            "device": lambda: get_device("no such device"),
        }
    )


def warnings_while_learning() -> Any:
    """Warnings that users count on."""
    return _all(
        {
            "eval env": lambda: A2C("MlpPolicy", make_vec_env(worlds.Counting, 1), device="cpu").learn(
                5, callback=EvalCallback(make_vec_env(worlds.Counting, 1), verbose=0)
            ),
            "eval env of another type": lambda: A2C(
                "MlpPolicy", VecNormalize(make_vec_env(worlds.Counting, 1)), device="cpu"
            ).learn(
                5,
                callback=EvalCallback(
                    DummyVecEnv([lambda: Monitor(worlds.Counting())]), eval_freq=2, n_eval_episodes=1, verbose=0
                ),
            ),
            "early stop": lambda: PPO(
                "MlpPolicy", worlds.Counting(), n_steps=8, batch_size=8, target_kl=1e-9, device="cpu"
            ).learn(8),
        }
    )
