"""Environments of other packages are found by their names, and so are those without velocities."""

import sys
from types import ModuleType

import gymnasium as gym
import numpy as np
import pytest

from polyak.envs import SubprocVecEnv, make_vec_env
from polyak.envs.make import find_spec, make_env
from polyak.envs.wrappers.mask_velocity import VELOCITIES


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("parking-v99", r"parking-v99 needs highway-env: pip install 'polyak\[highway\]'"),
        ("BabyAI-Nowhere-v99", r"needs minigrid: pip install 'polyak\[minigrid\]'"),
        ("PandaReachDense-v99", r"needs panda-gym: pip install 'polyak\[panda\]'"),
        ("MinitaurBulletDuckEnv-v9", "needs pybullet-envs-gymnasium: pip install pybullet_envs_gymnasium"),
        ("FetchPickAndPlaceDense-v99", "needs gymnasium-robotics: pip install gymnasium-robotics"),
        ("NowhereNoFrameskip-v4", r"needs ale-py: pip install 'polyak\[atari\]'"),
    ],
)
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, env_id: str, message: str) -> None:
    for module in ("highway_env", "minigrid", "panda_gym", "pybullet_envs_gymnasium", "gymnasium_robotics", "ale_py"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=message):
        find_spec(env_id)


def test_an_installed_package_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def register_envs(module: ModuleType) -> None:
        assert module.__name__ == "panda_gym"
        gym.register("PandaPushNew-v7", "gymnasium.envs.classic_control:PendulumEnv")

    monkeypatch.setitem(sys.modules, "panda_gym", ModuleType("panda_gym"))
    monkeypatch.setattr(gym, "register_envs", register_envs)
    try:
        assert find_spec("PandaPushNew-v7").id == "PandaPushNew-v7"
        assert make_env("PandaPushNew-v7").reset(seed=0)[0].shape == (3,)
    finally:
        gym.registry.pop("PandaPushNew-v7", None)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0"])
def test_observations_without_velocities(env_id: str) -> None:
    task, _, version = env_id.partition("-")
    hidden, seen = make_env(f"{task}NoVel-{version}"), gym.make(env_id)
    assert hidden.spec is not None
    assert seen.spec is not None
    assert hidden.spec.max_episode_steps == seen.spec.max_episode_steps
    expected, given = seen.reset(seed=3)[0], hidden.reset(seed=3)[0]
    for _ in range(5):
        positions = np.delete(expected, VELOCITIES[task])
        assert (np.delete(given, VELOCITIES[task]) == positions).all()
        assert (given[list(VELOCITIES[task])] == 0).all()
        action = seen.action_space.sample()
        expected, given = seen.step(action)[0], hidden.step(action)[0]


def test_they_are_made_in_worker_processes_too() -> None:
    envs = make_vec_env("CartPoleNoVel-v1", n_envs=2, seed=0, vec_env_cls=SubprocVecEnv)
    try:
        observations = envs.reset()
        assert isinstance(observations, np.ndarray)
        assert (observations[:, [1, 3]] == 0).all()
        assert (observations[:, [0, 2]] != 0).all()
    finally:
        envs.close()
