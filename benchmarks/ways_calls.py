"""What `ways.py` times, in a worker's process: a plain training and one of the ways in which people train, by turns."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces

SIZES = {"PPO": (8192, 2048), "SAC": (2000, 1000)}
"""Steps of a piece with one model, and of the first that is not counted: a whole number of rollouts."""
TASKS = {"PPO": "CartPole-v1", "SAC": "Pendulum-v1"}


class Names(NamedTuple):
    """Modules of a library under one name each."""

    algorithms: Any
    more: Any
    callbacks: Any
    vec_env: Any
    layers: Any
    evaluation: Any


def load(library: str) -> Names:
    """The names of ``"polyak"``, or of Stable-Baselines3 with its contributions (``"contrib"``)."""
    ours = library == "polyak"
    root, more = ("polyak.compat.sb3", "polyak.compat.contrib") if ours else ("stable_baselines3", "sb3_contrib")
    rooms = ("callbacks", "vec_env", "torch_layers", "evaluation")
    found = [import_module(f"{root}.common.{room}") for room in rooms]
    return Names(import_module("polyak" if ours else root), import_module("polyak" if ours else more), *found)


class Way(NamedTuple):
    """A way of training, and the plain one that it is compared with."""

    title: str
    callback: Callable[[Names], Any] = lambda names: None
    env: Callable[[Names, str], Any] = lambda names, task: task
    options: dict[str, Any] | Callable[[Names], dict[str, Any]] = {}
    policy: str = "MlpPolicy"
    pieces: int = 1
    """Calls of ``learn`` for the same number of steps."""
    algorithms: tuple[str, ...] = ("PPO", "SAC")
    kind: str | None = None
    """An algorithm of the contributions instead."""
    plain_envs: int = 1
    more_work: str = ""
    """Why it may be slower than the plain way."""


class DictOf(gym.ObservationWrapper):
    """Observations in two entries."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        low, high = env.observation_space.low, env.observation_space.high
        halves = {"first": slice(0, 2), "rest": slice(2, None)}
        self.halves = halves
        self.observation_space = spaces.Dict({k: spaces.Box(low[h], high[h]) for k, h in halves.items()})

    def observation(self, observation: Any) -> Any:
        return {key: observation[half] for key, half in self.halves.items()}


class Telling(gym.Wrapper):
    """Infos of thirty entries, arrays among them."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        more: dict[str, Any] = {f"number_{i}": float(i) for i in range(25)}
        more |= {f"array_{i}": np.zeros(8) for i in range(5)}
        return observation, reward, terminated, truncated, {**info, **more}


class Masked(gym.Wrapper):
    """Choices that are all allowed but one, now and then."""

    def action_masks(self) -> np.ndarray:
        return np.array([True, abs(self.unwrapped.state[1]) < 1])


def reading(*wanted: str) -> Callable[[Names], Any]:
    """A callback that reads these of ``self.locals`` at each step."""

    def make(names: Names) -> Any:
        class Reading(names.callbacks.BaseCallback):
            def _on_step(self) -> bool:
                for name in wanted:
                    self.locals[name]
                return True

        return Reading()

    return make


def logging(names: Names) -> Any:
    """A callback that logs a number at each step."""

    class Logging(names.callbacks.BaseCallback):
        def _on_step(self) -> bool:
            self.logger.record("custom/steps", self.num_timesteps)
            return True

    return Logging()


def extractor(attention: bool) -> Callable[[Names], dict[str, Any]]:
    """Options with a features extractor of one's own."""

    def make(names: Names) -> dict[str, Any]:
        class Extractor(names.layers.BaseFeaturesExtractor):
            def __init__(self, observation_space: Any) -> None:
                super().__init__(observation_space, 32)
                self.n = observation_space.shape[0]
                self.enter = torch.nn.Linear(1 if attention else self.n, 32)
                self.attend = torch.nn.MultiheadAttention(32, 2, batch_first=True) if attention else None

            def forward(self, observations: torch.Tensor) -> torch.Tensor:
                if self.attend is None:
                    return torch.relu(self.enter(observations))
                tokens = self.enter(observations[..., None])
                return self.attend(tokens, tokens, tokens, need_weights=False)[0].mean(1)

        return {"policy_kwargs": {"features_extractor_class": Extractor}}

    return make


def made(wrapper: Any) -> Callable[[Names, str], Any]:
    """An environment in a wrapper."""
    return lambda names, task: wrapper(gym.make(task))


def several(kind: str) -> Callable[[Names, str], Any]:
    """Four environments."""
    return lambda names, task: getattr(names.vec_env, kind)([lambda: gym.make(task)] * 4)


def normalised(names: Names, task: str) -> Any:
    return names.vec_env.VecNormalize(names.vec_env.DummyVecEnv([lambda: gym.make(task)]))


def evaluating(names: Names) -> Any:
    return names.callbacks.EvalCallback(gym.make("CartPole-v1"), eval_freq=2048, n_eval_episodes=1, verbose=0)


WIDE = {"policy_kwargs": {"net_arch": [256, 256]}}
FORBIDS = "networks and distributions with masks, asked of the environment at each step"
WAYS: dict[str, Way] = {
    "infos": Way("a callback that reads infos", reading("infos")),
    "rewards": Way("a callback that reads rewards and dones", reading("rewards", "dones")),
    "values": Way(
        "a callback that reads values", reading("values"), algorithms=("PPO",), more_work="networks, at each step"
    ),
    "function": Way("a function as a callback", lambda names: lambda locals_, globals_: True),
    "logs": Way("a callback that logs", logging),
    "evaluates": Way("EvalCallback", evaluating, algorithms=("PPO",), more_work="episodes of evaluation"),
    "bar": Way("a progress bar", lambda names: names.callbacks.ProgressBarCallback()),
    "tensorboard": Way("TensorBoard", options={"tensorboard_log": tempfile.gettempdir()}),
    "extractor": Way("a features extractor of one's own", options=extractor(False), more_work="another layer"),
    "attention": Way("one with attention", options=extractor(True), more_work="attention"),
    "dict": Way("Dict observations", env=made(DictOf), policy="MultiInputPolicy", more_work="its wrapper"),
    "large_infos": Way("infos of 30 entries", env=made(Telling), more_work="the environment makes them"),
    "normalize": Way("VecNormalize", env=normalised, more_work="running means"),
    "four": Way("4 environments in turn", env=several("DummyVecEnv"), plain_envs=4, more_work="-"),
    "subproc": Way(
        "4 environments in SubprocVecEnv (CPU of the trainer alone)",
        env=several("SubprocVecEnv"),
        plain_envs=4,
        more_work="pipes",
    ),
    "short": Way("learn() in short pieces", pieces=4),
    "sde": Way("gSDE", options={"use_sde": True}, algorithms=("SAC",), more_work="a matrix of noise"),
    "wide": Way("networks of 256 x 256", options=WIDE, algorithms=("PPO",), more_work="products"),
    "masks": Way("masks", env=made(Masked), algorithms=("PPO",), kind="MaskablePPO", more_work=FORBIDS),
    "memory": Way("an LSTM", algorithms=("PPO",), kind="RecurrentPPO", policy="MlpLstmPolicy", more_work="the LSTM"),
}


def model_of(names: Names, algorithm: str, way: Way, compile_: Any, ours: bool) -> Any:
    """A model of the way."""
    kind = getattr(names.algorithms if way.kind is None else names.more, way.kind or algorithm)
    options = way.options(names) if callable(way.options) else way.options
    more = {"compile": compile_} if ours else {}
    if algorithm == "SAC":
        more |= {"learning_starts": 100}
    return kind(way.policy, way.env(names, TASKS[algorithm]), seed=0, device="cpu", **options, **more)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Steps a second of each piece, plain and in the way, by turns in one process."""
    names, ours, algorithm, way = load(job["library"]), job["library"] == "polyak", job["algorithm"], WAYS[job["way"]]
    steps, first = SIZES[algorithm]
    steps = max(first, int(steps * job["scale"]) // first * first)
    plain = Way("", env=several("DummyVecEnv")) if way.plain_envs > 1 else Way("")
    models = {"plain": (plain, model_of(names, algorithm, plain, job["compile"], ours))}
    models["way"] = way, model_of(names, algorithm, way, job["compile"], ours)

    def train(way: Way, model: Any, steps: int) -> None:
        for _ in range(way.pieces):
            model.learn(steps // way.pieces, callback=way.callback(names), reset_num_timesteps=False)

    for each, model in models.values():
        train(each, model, 2 * first)  # a build, and what the first iterations prepare
    speeds: dict[str, list[float]] = {"plain": [], "way": []}
    for _ in range(job["rounds"]):
        for name, (each, model) in models.items():
            before, began = model.num_timesteps, time.process_time()
            train(each, model, steps)
            speeds[name].append((model.num_timesteps - before) / (time.process_time() - began))
    for _, model in models.values():
        model.get_env().close()
    return {"speeds": speeds}


def measure_others(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of what is done with a model: ``predict`` one by one, an evaluation, saving and loading."""
    names, ours = load(job["library"]), job["library"] == "polyak"
    model = model_of(names, job["algorithm"], Way(""), job["compile"], ours)
    observation = model.observation_space.sample()

    def predict() -> None:
        for _ in range(200):
            model.predict(observation, deterministic=True)

    def evaluate() -> None:
        names.evaluation.evaluate_policy(model, model.get_env(), 2, warn=False)

    def keep() -> None:
        with tempfile.TemporaryDirectory() as folder:
            model.save(Path(folder, "model"))
            type(model).load(Path(folder, "model"), device="cpu")

    found = {}
    for call in (predict, evaluate, keep):
        call()
        took = []
        for _ in range(3 * job["rounds"]):
            began = time.process_time()
            call()
            took.append(time.process_time() - began)
        found[call.__name__] = min(took)
    return {"seconds": found}
