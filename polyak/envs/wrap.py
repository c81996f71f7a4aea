"""Any kind of environment, as a :class:`~polyak.envs.VecEnv`."""

from typing import Any, TypeGuard

import gymnasium as gym

from polyak.envs.batched import BatchedVecEnv
from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.make import is_wrapped, make_env
from polyak.envs.native.gym_vector import GymVectorEnv, resettable
from polyak.envs.nested_spaces import is_nested
from polyak.envs.protocol import BatchedEnv
from polyak.envs.spaces import is_image_space, is_image_space_channels_first
from polyak.envs.vec.vec_env import VecEnv, is_vecenv_wrapped
from polyak.envs.wrappers.by_name import VecNamedObservation, name_parts
from polyak.envs.wrappers.monitor import Monitor
from polyak.envs.wrappers.transpose import VecTransposeImage


def as_vec_env(
    env: gym.Env | VecEnv | gym.vector.VectorEnv | BatchedEnv | str, monitor_wrapper: bool = True, verbose: int = 0
) -> VecEnv:
    """Wrap ``env`` as training needs it.

    A single environment gets a :class:`~polyak.envs.Monitor` (unless it has one or ``monitor_wrapper`` is false) and
    becomes a vector of one. A ``gymnasium.vector.VectorEnv`` is adapted, and so is a batch of environments in tensors,
    such as those of :mod:`polyak.envs.tensor`. Tuple and nested observations become a Dict of their parts, see
    :class:`~polyak.envs.NamedObservation`. Channels-last images become channels-first.

    Args:
        env: an environment, a vector of them, or a registered name.
        monitor_wrapper: record returns and lengths of a single environment.
        verbose: 1 prints each wrapper that is added.

    Raises:
        ValueError: an unknown name, not an environment, or observations with two parts of the same name.
    """
    say = print if verbose >= 1 else (lambda *_: None)
    if isinstance(env, str):
        say(f"Making the environment {env!r}.")
        env = make_env(env)
    if isinstance(env, gym.vector.VectorEnv):
        env = GymVectorEnv(resettable(env))
    elif is_batch(env):
        env = BatchedVecEnv(env)
    if not isinstance(env, VecEnv):
        check_is_env(env)
        one: Any = env
        if monitor_wrapper and not is_wrapped(one, Monitor):
            say("Adding a Monitor.")
            one = Monitor(one)
        single = name_parts(one)
        if single is not one:
            say("Adding a NamedObservation.")
        say("Adding a DummyVecEnv.")
        env = DummyVecEnv([lambda: single])
    if is_nested(env.observation_space) or isinstance(env.observation_space, gym.spaces.Tuple):
        say("Adding a VecNamedObservation.")
        env = VecNamedObservation(env)
    if _has_channels_last(env) and not is_vecenv_wrapped(env, VecTransposeImage):
        say("Adding a VecTransposeImage.")
        env = VecTransposeImage(env)
    return env


def is_batch(env: Any) -> TypeGuard[BatchedEnv]:
    """Whether ``env`` implements :class:`~polyak.envs.protocol.BatchedEnv` and no other kind of environment."""
    return not isinstance(env, VecEnv | gym.Env) and isinstance(env, BatchedEnv)


def check_is_env(given: Any) -> None:
    """Accept a Gymnasium environment.

    Raises:
        ValueError: it is something else, such as a function that makes an environment.
    """
    if not isinstance(given, gym.Env):
        raise ValueError(
            f"env={given!r:.200} is not an environment. Pass a gymnasium.Env, a VecEnv, a gymnasium.vector.VectorEnv "
            f"or the name of a registered environment.{_way_out(given)}"
        )


def _way_out(given: Any) -> str:
    """Returns the fix for an argument from which environments can be made."""
    if isinstance(given, list | tuple):
        if given and all(isinstance(item, str) for item in given):
            return f" Of several: make_vec_env({given[0]!r}, n_envs={len(given)})."
        made = "" if given and all(callable(item) for item in given) else ", where each function makes one,"
        return f" A list is made into a vector by DummyVecEnv([lambda: env0, lambda: env1]){made} or make_vec_env()."
    if isinstance(given, type) or callable(given):
        name = getattr(given, "__name__", "make")
        what = "class" if isinstance(given, type) else "function"
        name = "function" if name == "<lambda>" else name
        return f" This is a {what} that makes one: make_vec_env({name}, n_envs=4), or {name}() for a single one."
    if type(given).__name__ == "DataFrame":
        return " A table of recorded steps is read by polyak.Dataset.load(table)."
    if any(kind.__module__.partition(".")[0] == "gym" for kind in type(given).__mro__):
        return " This one is made for gym, which is no longer maintained: import gymnasium instead, or use shimmy."
    return ""


def _has_channels_last(env: VecEnv) -> bool:
    space = env.observation_space
    parts = space.spaces.values() if isinstance(space, gym.spaces.Dict) else [space]
    return any(is_image_space(part) and not is_image_space_channels_first(part) for part in parts)
