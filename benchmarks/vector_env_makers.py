"""The vector environments that ``vector_envs.py`` compares, and the loop that steps them.

Runs under each library's own interpreter: a maker imports what it needs when it is called.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

CHUNK = 64
"""Steps between two looks at the clock."""


def _factory(env_id: str) -> Any:
    import gymnasium

    return gymnasium.make(env_id)


def _factories(env_id: str, n_envs: int) -> list[Callable[[], Any]]:
    return [functools.partial(_factory, env_id)] * n_envs


def polyak_dummy(env_id: str, n_envs: int) -> Any:
    from polyak.envs import DummyVecEnv

    return DummyVecEnv(_factories(env_id, n_envs))


def polyak_subproc(env_id: str, n_envs: int) -> Any:
    from polyak.envs import SubprocVecEnv

    return SubprocVecEnv(_factories(env_id, n_envs))


def polyak_subproc_in_caller(env_id: str, n_envs: int) -> Any:
    from polyak.envs import SubprocVecEnv

    return SubprocVecEnv(_factories(env_id, n_envs), step_in_caller=True)


def polyak_native(env_id: str, n_envs: int) -> Any:
    from polyak.envs import make_native_vec_env

    return make_native_vec_env(env_id, n_envs, seed=0)


def polyak_atari(env_id: str, n_envs: int) -> Any:
    from polyak.envs import SubprocVecEnv, VecFrameStack, make_atari_env

    env = make_atari_env(env_id, n_envs, vec_env_cls=SubprocVecEnv, env_kwargs={"frameskip": 1})
    return VecFrameStack(env, n_stack=4)


def sb3_subproc(env_id: str, n_envs: int) -> Any:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    return SubprocVecEnv(_factories(env_id, n_envs))


def _atari_factory(env_id: str, **env_kwargs: Any) -> Any:
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)  # in the worker process
    return gymnasium.make(env_id, **env_kwargs)


def sb3_atari(env_id: str, n_envs: int) -> Any:
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecFrameStack

    make_one = functools.partial(_atari_factory, env_id, frameskip=1)
    env = make_atari_env(make_one, n_envs, vec_env_cls=SubprocVecEnv)
    return VecFrameStack(env, n_stack=4)


def gymnasium_vector(env_id: str, n_envs: int) -> Any:
    import gymnasium

    return gymnasium.make_vec(env_id, n_envs, vectorization_mode="vector_entry_point")


def ale_vector(env_id: str, n_envs: int) -> Any:
    """As polyak makes it: the same options, driven bare."""
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        "breakout",
        n_envs,
        autoreset_mode="SameStep",
        repeat_action_probability=0.25,
        reward_clipping=False,
        life_loss_info=True,
    )


def envpool_vector(env_id: str, n_envs: int) -> Any:
    import envpool

    return envpool.make_gymnasium(env_id.removeprefix("ALE/"), num_envs=n_envs, seed=0)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Environment steps per second with random actions, over ``job["seconds"]`` after a warm-up."""
    import numpy

    env = globals()[job["maker"]](job["env"], job["n_envs"])
    space = getattr(env, "single_action_space", env.action_space)
    space.seed(0)
    actions = numpy.stack([[space.sample() for _ in range(job["n_envs"])] for _ in range(8 * CHUNK)])
    env.reset()
    steps, start = 0, 0.0
    ends = [time.perf_counter() + job["seconds"] / 4]
    while True:
        first = steps % len(actions)
        for action in actions[first : first + CHUNK]:
            env.step(action)
        steps += CHUNK
        now = time.perf_counter()
        if now < ends[-1]:
            continue
        if len(ends) == 2:
            break
        steps, start = 0, now
        ends.append(now + job["seconds"])
    env.close()
    return {"env_steps_per_s": steps * job["n_envs"] / (now - start)}
