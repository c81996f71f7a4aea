"""VecNormalize: statistics, numbers, options, files."""

from functools import partial
from typing import Any

import numpy as np
import worlds
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize, sync_envs_normalization


def _env(n_envs: int = 2, end: str = "terminated") -> Any:
    return DummyVecEnv([partial(worlds.Counting, 3 + index, end) for index in range(n_envs)])


def _statistics(env: Any) -> Any:
    return [env.obs_rms.mean, env.obs_rms.var, env.obs_rms.count, env.ret_rms.mean, env.ret_rms.var, env.returns]


def numbers() -> Any:
    """Observations, rewards and statistics over some steps."""
    env = VecNormalize(_env(), gamma=0.9)
    found: list[Any] = [env.reset()]
    for step in range(6):
        observations, rewards, dones, infos = env.step(np.array([0, 1]))
        last = [info["terminal_observation"] for info in infos if "terminal_observation" in info]
        found.append([observations, rewards, dones, last, env.get_original_obs(), env.get_original_reward()])
        if step == 3:
            env.training = False
    return [found, _statistics(env)]


def options() -> Any:
    """Clipping, only observations, only rewards."""
    found = {}
    for name, given in {
        "clipped": {"clip_obs": 0.5, "clip_reward": 0.1},
        "observations": {"norm_reward": False},
        "rewards": {"norm_obs": False},
        "neither": {"norm_obs": False, "norm_reward": False},
    }.items():
        env = VecNormalize(_env(), **given)
        env.reset()
        for _ in range(4):
            observations, rewards, _, _ = env.step(np.array([0, 1]))
        found[name] = [observations, rewards]
    return found


def dict_observations() -> Any:
    """Some entries of a Dict."""
    env = VecNormalize(DummyVecEnv([worlds.Several] * 2), norm_obs_keys=["vector"])
    env.reset()
    for _ in range(6):
        observations = env.step(np.array([0, 1]))[0]
    back = env.unnormalize_obs(observations)
    return [sorted(env.obs_rms), observations["vector"], observations["number"], back["vector"], env.norm_obs_keys]


def there_and_back() -> Any:
    """normalize and unnormalize."""
    env = VecNormalize(_env())
    env.reset()
    for _ in range(5):
        env.step(np.array([0, 1]))
    raw = np.array([[1.0, 2.0]], np.float32)
    return [
        env.normalize_obs(raw),
        env.unnormalize_obs(env.normalize_obs(raw)),
        env.unnormalize_reward(env.normalize_reward(np.array([2.0]))),
    ]


def files(folder: Any) -> Any:
    """save, load, and what a loaded one does."""
    env = VecNormalize(_env(), clip_obs=5.0)
    env.reset()
    for _ in range(5):
        env.step(np.array([0, 1]))
    env.save(str(folder / "stats.pkl"))
    loaded = VecNormalize.load(str(folder / "stats.pkl"), _env())
    same = [np.allclose(a, b) for a, b in zip(_statistics(env)[:5], _statistics(loaded)[:5], strict=True)]
    return [same, loaded.training, loaded.norm_reward, loaded.clip_obs, loaded.returns, loaded.reset()]


def other_shape(folder: Any) -> Any:
    """Statistics of another shape are a mistake."""
    VecNormalize(_env()).save(str(folder / "stats.pkl"))
    return VecNormalize.load(str(folder / "stats.pkl"), DummyVecEnv([worlds.Goals]))


def synchronised() -> Any:
    """Statistics of training to evaluation."""
    train, evaluate = VecNormalize(_env()), VecNormalize(_env(), training=False, norm_reward=False)
    train.reset()
    train.step(np.array([0, 1]))
    sync_envs_normalization(train, evaluate)
    return [evaluate.obs_rms.mean, evaluate.ret_rms.var, evaluate.training, evaluate.obs_rms is train.obs_rms]


def running() -> Any:
    """RunningMeanStd by batches, and combined."""
    one, two = RunningMeanStd(shape=(2,)), RunningMeanStd(epsilon=1e-2, shape=(2,))
    one.update(np.arange(10.0).reshape(5, 2))
    two.update(np.arange(6.0).reshape(3, 2) ** 2)
    two.combine(one)
    copy = one.copy()
    return [one.mean, one.var, one.count, two.mean, two.var, two.count, copy.mean]


def unsupported() -> Any:
    """A space that cannot be normalised."""
    env = worlds.Counting()
    env.observation_space = env.action_space
    return VecNormalize(DummyVecEnv([lambda: env]))
