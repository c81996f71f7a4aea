"""Vectorised environments and their wrappers."""

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import worlds
from gymnasium import spaces
from stable_baselines3.common.atari_wrappers import ClipRewardEnv, MaxAndSkipEnv, WarpFrame
from stable_baselines3.common.env_util import is_wrapped, make_vec_env, unwrap_wrapper
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    SubprocVecEnv,
    VecCheckNan,
    VecExtractDictObs,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    is_vecenv_wrapped,
    unwrap_vec_normalize,
)


def _info(info: dict[str, Any]) -> dict[str, Any]:
    """What is the same in every run."""
    episode = info.get("episode")
    return {key: value for key, value in info.items() if key != "episode"} | (
        {"episode": {key: value for key, value in episode.items() if key != "t"}} if episode else {}
    )


def _steps(env: Any, actions: list[Any]) -> list[Any]:
    found: list[Any] = [env.reset(), [_info(info) for info in env.reset_infos]]
    for action in actions:
        observations, rewards, dones, infos = env.step(np.array([action] * env.num_envs))
        found.append([observations, rewards, dones, [_info(info) for info in infos]])
    return found


def ends() -> dict[str, Any]:
    """Steps across the end of an episode: 4-tuples, last observations, what truncated."""
    return {
        end: _steps(DummyVecEnv([partial(worlds.Counting, 2, end), partial(worlds.Counting, 3, end)]), [0, 1, 2, 0])
        for end in ("terminated", "truncated", "both")
    }


def ends_in_processes() -> Any:
    """The same in worker processes."""
    env = SubprocVecEnv([partial(worlds.Counting, 2, "truncated")] * 2, start_method="fork")
    found = _steps(env, [0, 1, 2])
    attributes = [
        env.get_attr("length"),
        env.env_method("double", 4, plus=1.0, indices=[1]),
        env.env_is_wrapped(Monitor),
    ]
    env.set_attr("length", 9, indices=0)
    attributes += [env.get_attr("length", 0), env.closed]
    env.close()
    return [found, attributes, env.closed]


def access() -> Any:
    """Attributes, methods, wrappers, pictures."""
    env = DummyVecEnv([lambda: Monitor(worlds.Counting()), worlds.Counting])
    env.set_attr("length", 7, indices=[1])
    return {
        "attributes": [env.get_attr("length"), env.get_attr("length", 0), env.get_attr("length", [1])],
        "methods": [env.env_method("double", 2.0), env.env_method("double", 2.0, plus=0.5, indices=0)],
        "wrapped": [env.env_is_wrapped(Monitor), env.env_is_wrapped(Monitor, indices=1)],
        "vec": [is_vecenv_wrapped(env, VecMonitor), is_vecenv_wrapped(VecMonitor(env), VecMonitor)],
        "normalize": [unwrap_vec_normalize(env) is None, type(unwrap_vec_normalize(VecNormalize(env))).__name__],
        "single": [is_wrapped(env.envs[0], Monitor), type(unwrap_wrapper(env.envs[0], Monitor)).__name__],
        "pictures": [env.render_mode, [image.shape for image in env.get_images()]],
        "tiled": env.render(mode="rgb_array"),
        "spaces": [str(env.observation_space), str(env.action_space), env.num_envs],
        "has": env.has_attr("length"),
        "has not": env.has_attr("no_such_thing"),
    }


def seeds_and_options() -> Any:
    """``seed`` and ``set_options`` hold for the next reset, and for that one only."""
    env = DummyVecEnv([worlds.Counting, worlds.Counting])
    given = env.seed(7)
    env.set_options({"a": 1})
    env.reset()
    env.set_options([{"b": 1}, {"b": 2}])
    env.reset()
    env.reset()
    return [list(given), env.get_attr("seeds"), env.get_attr("given_options")]


def same_seed_same_start() -> Any:
    """First observations of seeded environments."""
    env = make_vec_env("CartPole-v1", n_envs=3, seed=11)
    first = env.reset()
    following = [env.step(np.array([0, 1, 0]))[0] for _ in range(2)]
    again = make_vec_env("CartPole-v1", n_envs=3, seed=11)
    env.seed(11)
    return [first, following, bool((again.reset() == first).all()), bool((env.reset() == first).all())]


def action_space_seeds() -> Any:
    """Random actions of seeded environments."""
    env = make_vec_env("Pendulum-v1", n_envs=2, seed=4)
    return [[space.sample() for space in env.get_attr("action_space")], env.action_space.sample().shape]


def made(folder: Any) -> Any:
    """What make_vec_env puts around an environment, and where it writes."""
    env = make_vec_env(
        "CartPole-v1",
        2,
        seed=0,
        monitor_dir=str(folder / "logs"),
        wrapper_class=gym.wrappers.TransformReward,
        wrapper_kwargs={"func": lambda reward: 2 * reward},
        monitor_kwargs={"info_keywords": ()},
    )
    chain, layer = [], env.envs[0]
    while hasattr(layer, "env"):
        chain.append(type(layer).__name__)
        layer = layer.env
    env.reset()
    rewards = env.step(np.array([0, 1]))[1]
    env.close()
    return [type(env).__name__, chain, rewards, sorted(path.name for path in (folder / "logs").iterdir())]


def start_index(folder: Any) -> Any:
    """Monitor files are numbered from ``start_index``."""
    make_vec_env(worlds.Counting, 2, start_index=5, monitor_dir=str(folder), env_kwargs={"length": 2}).close()
    return sorted(path.name for path in folder.iterdir())


def frame_stack() -> Any:
    """Stacked vectors and pictures, with the last observation stacked, too."""
    vectors = _steps(VecFrameStack(DummyVecEnv([partial(worlds.Counting, 3)] * 2), 3), [0, 0, 0, 0])
    found: dict[str, Any] = {"vectors": vectors}
    for order in ("first", "last"):
        env = VecFrameStack(DummyVecEnv([worlds.Pictures]), 2, channels_order=order)
        env.reset()
        seen = [env.step(np.array([0]))[0] for _ in range(5)]
        found[order] = [env.observation_space.shape, [np.unique(item) for item in seen], seen[1].shape]
    return found


def transpose() -> Any:
    """Channels first."""
    env = VecTransposeImage(DummyVecEnv([partial(worlds.Pictures, (8, 6, 3), 2)]))
    env.reset()
    steps = [env.step(np.array([0])) for _ in range(2)]
    several = VecTransposeImage(DummyVecEnv([worlds.Several]))
    seen = several.reset()
    return {
        "space": env.observation_space.shape,
        "step": [list(step[0].shape) for step in steps],
        "last": steps[1][3][0]["terminal_observation"].shape,
        "transposed": VecTransposeImage.transpose_image(np.arange(24).reshape(2, 3, 4)),
        "dict": {key: list(value.shape) for key, value in seen.items()},
    }


def extract() -> Any:
    """One entry of a Dict."""
    env = VecExtractDictObs(DummyVecEnv([worlds.Several]), "vector")
    env.reset()
    steps = [env.step(np.array([0])) for _ in range(5)]
    return [str(env.observation_space), steps[0][0], steps[4][3][0]["terminal_observation"]]


def monitor_around_all(folder: Any) -> Any:
    """VecMonitor: infos and file."""
    env = VecMonitor(DummyVecEnv([partial(worlds.Counting, 2)] * 2), str(folder / "file"), info_keywords=("time",))
    found = _steps(env, [0, 0, 0, 0])
    env.close()
    lines = (folder / "file.monitor.csv").read_text().splitlines()
    return [found, lines[0][:1], lines[1], [line.split(",")[:2] + line.split(",")[3:] for line in lines[2:]]]


def not_a_number() -> Any:
    """VecCheckNan stops at the first."""

    class Broken(worlds.Counting):
        def step(self, action: Any) -> Any:
            return np.array([np.nan, 0], np.float32), 0.0, False, False, {}

    env = VecCheckNan(DummyVecEnv([Broken]), raise_exception=True)
    env.reset()
    return env.step(np.array([0]))


def dict_observations() -> Any:
    """Arrays for each entry, also of the last observation."""
    env = DummyVecEnv([worlds.Several] * 2)
    first = env.reset()
    for _ in range(5):
        observations, _, _, infos = env.step(np.array([0, 1]))
    return [
        {key: [list(value.shape), str(value.dtype)] for key, value in first.items()},
        {key: np.unique(value) for key, value in observations.items()},
        {key: np.unique(value) for key, value in infos[0]["terminal_observation"].items()},
    ]


def tuple_observations() -> Any:
    """Tuples of arrays."""

    class Pair(worlds.Counting):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Tuple((spaces.Discrete(5), spaces.Box(-1, 1, (2,), np.float32)))

        def _observe(self) -> Any:
            return (self.time, np.zeros(2, np.float32))

    seen = DummyVecEnv([Pair] * 2).reset()
    return [type(seen).__name__, [[list(item.shape), str(item.dtype)] for item in seen]]


def atari_wrappers() -> Any:
    """Those that need no game: skipping, grey pictures, signs of rewards."""
    skip = MaxAndSkipEnv(worlds.Pictures((10, 10, 3), 20), skip=4)
    skip.reset()
    warp = WarpFrame(worlds.Pictures((50, 40, 3), 5), width=20, height=24)
    clip = ClipRewardEnv(worlds.Target())
    clip.reset()
    observation, reward, *_ = skip.step(0)
    return {
        "skip": [int(observation.max()), float(reward)],
        "warp": [warp.observation_space.shape, warp.reset()[0].shape],
        "clip": [float(clip.step(np.array([1.0]))[1])],
    }


def after_closing() -> Any:
    """A second close does nothing."""
    env = SubprocVecEnv([worlds.Counting], start_method="fork")
    env.close()
    env.close()
    return env.closed
