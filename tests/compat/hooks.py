"""Trainings with subclasses of Stable-Baselines3's classes all of whose methods count their calls.

The same lines run under Stable-Baselines3, where ``record_hooks.py`` notes which methods it calls in which phase of a
model's life, and under polyak, where ``test_hooks.py`` compares.
"""

from __future__ import annotations

import importlib
import inspect
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

PEERS = ("stable_baselines3", "sb3_contrib")
ROOT = PEERS[0]
"""Where Stable-Baselines3's modules are imported from."""
REPLAY = {"learning_starts": 10, "buffer_size": 100}
GREEDY = {**REPLAY, "target_update_interval": 10}
ROLLOUT = {"n_steps": 16, "batch_size": 16}
ALGORITHMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "A2C": ("MlpPolicy", "CartPole-v1", {"n_steps": 8}),
    "PPO": ("MlpPolicy", "CartPole-v1", {**ROLLOUT, "n_epochs": 1}),
    "DQN": ("MlpPolicy", "CartPole-v1", GREEDY),
    "SAC": ("MlpPolicy", "Pendulum-v1", REPLAY),
    "TD3": ("MlpPolicy", "Pendulum-v1", REPLAY),
    "DDPG": ("MlpPolicy", "Pendulum-v1", REPLAY),
    "TRPO": ("MlpPolicy", "CartPole-v1", ROLLOUT),
    "RecurrentPPO": ("MlpLstmPolicy", "CartPole-v1", {**ROLLOUT, "n_epochs": 1}),
    "QRDQN": ("MlpPolicy", "CartPole-v1", GREEDY),
    "TQC": ("MlpPolicy", "Pendulum-v1", REPLAY),
    "CrossQ": ("MlpPolicy", "Pendulum-v1", REPLAY),
    "ARS": ("MlpPolicy", "CartPole-v1", {"n_delta": 1}),
}
"""Algorithm -> policy, environment, settings."""
STEPS = 48


def module(path: str) -> Any:
    """A module of Stable-Baselines3."""
    return importlib.import_module(f"{ROOT}.{path}".rstrip("."))


def methods_of(base: type) -> list[str]:
    """Names of the methods of a class, as the peer has them, but for double underscores."""
    names = []
    for owner in base.__mro__:
        if owner.__module__.partition(".")[0] in PEERS:
            for name, value in vars(owner).items():
                is_method = inspect.isfunction(value) or isinstance(value, classmethod | staticmethod)
                if is_method and not name.startswith("__") and name not in names:
                    names.append(name)
    return names


def spied(base: type, names: Iterable[str], calls: Counter[str]) -> type:
    """A subclass whose methods of these names, as far as ``base`` has them, count their calls."""
    made: list[type] = []

    def counting(name: str, kind: Any) -> Any:
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return getattr(super(made[0], self), name)(*args, **kwargs)

        def static(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return kind.__func__(*args, **kwargs)

        if isinstance(kind, staticmethod):
            return staticmethod(static)
        return classmethod(method) if isinstance(kind, classmethod) else method

    found = {name: inspect.getattr_static(base, name, None) for name in names}
    own = {name: counting(name, kind) for name, kind in found.items() if kind is not None}
    made.append(type(f"Own{base.__name__}", (base,), {**own, "__module__": __name__}))
    globals()[made[0].__name__] = made[0]  # so that files find it
    return made[0]


def environments(name: str) -> Any:
    """One environment of that name, with episodes of ten steps."""
    return module("common.env_util").make_vec_env(name, 1, seed=0, env_kwargs={"max_episode_steps": 10})


def phases(cls: type, name: str, calls: Counter[str]) -> dict[str, list[str]]:
    """Phase of the life of a model of a spied class -> the methods that were called in it."""
    found: dict[str, list[str]] = {}

    def phase(what: str, happens: Callable[[], Any]) -> Any:
        calls.clear()
        result = happens()
        found[what] = sorted(calls)
        return result

    policy, env_name, settings = ALGORITHMS[name]
    env, path = environments(env_name), str(Path(tempfile.mkdtemp()) / "model.zip")
    settings = {**settings, "policy_kwargs": {"net_arch": [8]}, "seed": 0}
    model: Any = phase("constructor", lambda: cls(policy, env, **settings))  # type: ignore[call-arg]
    phase(
        "learn",
        lambda: model.learn(
            STEPS, callback=module("common.callbacks").ConvertCallback(lambda *_: True), log_interval=1
        ),
    )
    phase("predict", lambda: model.predict(env.observation_space.sample()))
    phase("save", lambda: model.save(path))
    phase("load", lambda: cls.load(path))  # type: ignore[attr-defined]
    model = phase("load with an environment", lambda: cls.load(path, env=env))  # type: ignore[attr-defined]
    phase("learn on", lambda: model.learn(STEPS, reset_num_timesteps=False, log_interval=1))
    phase("set_env", lambda: model.set_env(environments(env_name)))
    phase("set_parameters", lambda: model.set_parameters(path))
    return found


def part_cases() -> dict[str, tuple[type, Callable[[type], Any]]]:
    """What is spied on -> its class, and a training that takes a subclass of it."""
    names = ("buffers", "callbacks", "policies", "torch_layers", "vec_env")
    buffers, callbacks, policies, torch_layers, vec_env = (module(f"common.{name}") for name in names)
    dqn, sac, td3 = (module(f"{name}.policies") for name in ("dqn", "sac", "td3"))

    def trained(name: str, policy: Any = "MlpPolicy", env: Any = None, callback: Any = None, **options: Any) -> None:
        _, env_name, settings = ALGORITHMS[name]
        env = environments(env_name) if env is None else env
        settings = {**settings, "policy_kwargs": {"net_arch": [8]}, **options}
        getattr(module(""), name)(policy, env, seed=0, **settings).learn(STEPS, callback=callback, log_interval=1)

    def with_actor(cls: type) -> type:
        def make_actor(self: Any, features_extractor: Any = None) -> Any:
            return cls(**self._update_features_extractor(self.actor_kwargs, features_extractor)).to(self.device)

        return type("WithActor", (sac.SACPolicy,), {"make_actor": make_actor})

    def noisy(cls: Any) -> None:
        trained("TD3", action_noise=cls(np.zeros(1), np.ones(1)))

    class Plain(callbacks.BaseCallback):
        def _on_step(self) -> bool:
            return True

    Plain.__module__ = PEERS[0]
    normalised = vec_env.VecNormalize
    return {
        "ActorCriticPolicy": (policies.ActorCriticPolicy, lambda cls: trained("A2C", cls)),
        "DQNPolicy": (dqn.DQNPolicy, lambda cls: trained("DQN", cls)),
        "SACPolicy": (sac.SACPolicy, lambda cls: trained("SAC", cls)),
        "TD3Policy": (td3.TD3Policy, lambda cls: trained("TD3", cls)),
        "Actor": (sac.Actor, lambda cls: trained("SAC", with_actor(cls))),
        "FlattenExtractor": (
            torch_layers.FlattenExtractor,
            lambda cls: trained("A2C", policy_kwargs={"net_arch": [8], "features_extractor_class": cls}),
        ),
        "RolloutBuffer": (buffers.RolloutBuffer, lambda cls: trained("A2C", rollout_buffer_class=cls)),
        "ReplayBuffer": (buffers.ReplayBuffer, lambda cls: trained("SAC", replay_buffer_class=cls)),
        "NStepReplayBuffer": (
            buffers.NStepReplayBuffer,
            lambda cls: trained("DQN", replay_buffer_class=cls, replay_buffer_kwargs={"n_steps": 2, "gamma": 0.9}),
        ),
        "NormalActionNoise": (module("common.noise").NormalActionNoise, noisy),
        "BaseCallback": (Plain, lambda cls: trained("A2C", callback=cls())),
        "BaseCallback in a list": (Plain, lambda cls: trained("A2C", callback=[cls(), Plain()])),
        "VecNormalize on-policy": (normalised, lambda cls: trained("A2C", env=cls(environments("CartPole-v1")))),
        "VecNormalize off-policy": (normalised, lambda cls: trained("SAC", env=cls(environments("Pendulum-v1")))),
        "VecFrameStack": (vec_env.VecFrameStack, lambda cls: trained("A2C", env=cls(environments("CartPole-v1"), 2))),
        "VecMonitor": (vec_env.VecMonitor, lambda cls: trained("A2C", env=cls(environments("CartPole-v1")))),
        "Monitor": (
            module("common.monitor").Monitor,
            lambda cls: trained("A2C", env=vec_env.DummyVecEnv([lambda: cls(environments("CartPole-v1").envs[0].env)])),
        ),
    }
