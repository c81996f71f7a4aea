"""Make environments by name: one, a vector, a vector of Atari games; with errors that name the fix."""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import gymnasium as gym
from gymnasium import error as gym_error
from gymnasium.envs.registration import EnvSpec, load_env_creator

from polyak.envs.extras import needed
from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.registration import provide
from polyak.envs.sizes import MOST_ENVS, check_size
from polyak.envs.state import layers_of
from polyak.envs.vec.reaching import is_env_wrapped
from polyak.envs.vec.seeds import seeds_of
from polyak.envs.vec.vec_env import VecEnv
from polyak.envs.wrappers.atari import AtariWrapper
from polyak.envs.wrappers.by_name import name_parts
from polyak.envs.wrappers.monitor import Monitor
from polyak.suggestions import did_you_mean

Wrapper = TypeVar("Wrapper", bound=gym.Wrapper)

_EXTRAS = {
    # module of the environments -> extra of this library
    "gymnasium.envs.mujoco": "mujoco",
    "gymnasium.envs.box2d": "box2d",
    "ale_py": "atari",
}


def unwrap_wrapper(env: gym.Env, wrapper_class: type[Wrapper]) -> Wrapper | None:
    """Outermost wrapper of the class around ``env``, or None."""
    return next((layer for layer in layers_of(env) if isinstance(layer, wrapper_class)), None)


is_wrapped = is_env_wrapped


# --- one environment ------------------------------------------------------------------------------------------------


def make_env(env_id: str | EnvSpec, **env_kwargs: Any) -> gym.Env:
    """Make an environment by ``gymnasium.make``, with Atari games registered and errors that name the fix.

    Args:
        env_id: a registered name (``"module:Name-v0"`` imports the module first) or a spec.
        env_kwargs: arguments of the environment.

    Raises:
        ValueError: for an unknown name; the message has the names closest to it.
        ImportError: when the environment needs a package that is not installed; the message has the extra.
    """
    spec = find_spec(env_id) if isinstance(env_id, str) else env_id
    try:
        return gym.make(env_id, **env_kwargs)
    except (gym_error.DependencyNotInstalled, ImportError) as error:
        raise ImportError(missing_package(spec, error)) from error


def find_spec(env_id: str) -> EnvSpec:
    """The registered spec of a name; imports the package that registers it, if that is known.

    Raises:
        ValueError: for an unknown name; the message has the names closest to it.
        DeprecatedEnv: gymnasium's own, for an old version of an environment.
        ImportError: when the module in front of the name, or the package that registers it, is not installed.
    """
    module, _, name = env_id.rpartition(":")
    if module:
        _import_module(module, env_id)
    provide(name)
    try:
        return gym.spec(name)
    except gym_error.DeprecatedEnv:
        raise  # it names the version to use; programs catch it to try that one
    except gym_error.Error as error:
        raise ValueError(_unknown_name(env_id, name, error)) from error


def _import_module(module: str, env_id: str) -> None:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, but imports one that is not
        raise ImportError(f"The module {module!r} of environment {env_id!r} is not installed.") from error


def register_atari(needed_by: str = "Atari") -> None:
    """Add the games of ale-py to gymnasium's registry.

    Raises:
        ImportError: when ale-py is not installed.
    """
    gym.register_envs(needed("ale_py", f"{needed_by} needs ale-py", "atari"))


def _unknown_name(env_id: str, name: str, error: Exception) -> str:
    hint = did_you_mean(name, gym.registry)
    return (
        f"env_id={env_id!r} is not a registered environment.{hint} An environment of your own must be registered in "
        f"the process that makes it: use 'your_module:{name}', or pass a function. (gymnasium: {error})"
    )


def missing_package(spec: EnvSpec, error: Exception) -> str:
    """The message when an environment needs a package that is not installed: the extra to install."""
    entry_point = spec.entry_point if isinstance(spec.entry_point, str) else ""
    for module, extra in _EXTRAS.items():
        if entry_point.startswith(module):
            return f"{spec.id} needs a package that is not installed: pip install 'polyak[{extra}]' ({error})"
    return f"{spec.id} needs a package that is not installed: {error}"


# --- several --------------------------------------------------------------------------------------------------------


def make_vec_env(
    env_id: str | EnvSpec | Callable[..., gym.Env],
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | os.PathLike[str] | None = None,
    wrapper_class: Callable[..., gym.Env] | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env_cls: Callable[..., VecEnv] | None = None,
    vec_env_kwargs: dict[str, Any] | None = None,
    monitor_kwargs: dict[str, Any] | None = None,
    wrapper_kwargs: dict[str, Any] | None = None,
) -> VecEnv:
    """Make a VecEnv of ``n_envs`` environments, each in a Monitor and then in ``wrapper_class``.

    Episodes end where ``wrapper_class`` ends them, too (a TimeLimit). Returns and lengths that are reported are those
    of the environment itself: the Monitor does not see rewards that ``wrapper_class`` changes. To report these, use
    ``make_vec_env(lambda: MyWrapper(gym.make(name)))``, which puts the Monitor around the wrapper.

    Nested observations become a Dict of their parts: see :class:`~polyak.envs.NamedObservation`.

    Args:
        env_id: a registered name or spec, an environment class or a function; made with ``render_mode="rgb_array"``
            when it is a name, unless its class does not list that mode or does not take it.
        n_envs: how many, at most 100,000.
        seed: of the first environment and its action space at the first reset, and the root of the others' seeds.
        start_index: first number of the monitor files and of the seeds of the action spaces.
        monitor_dir: folder for the monitor files (made if it is missing); None for no files.
        wrapper_class: called with each environment.
        env_kwargs: arguments of the environments.
        vec_env_cls: the class of VecEnv, None for DummyVecEnv.
        vec_env_kwargs: its further arguments.
        monitor_kwargs: further arguments of Monitor.
        wrapper_kwargs: further arguments of ``wrapper_class``.

    Raises:
        ValueError: for an unknown name, or ``n_envs`` below 1 or above 100,000.
        TypeError: when ``env_id`` is neither name nor callable, or ``vec_env_cls`` is not callable.
        ImportError: when the environment needs a package that is not installed.
    """
    check_size("n_envs", n_envs, MOST_ENVS)
    if isinstance(env_id, str):
        find_spec(env_id)  # here, not in a worker process
    elif not isinstance(env_id, EnvSpec) and not callable(env_id):
        raise TypeError(
            f"env_id must be the name of a registered environment or a function that makes one, got {env_id!r}. "
            "For an environment that exists already use DummyVecEnv([lambda: env])."
        )

    seeds = None if seed is None else seeds_of(seed, start_index + n_envs)

    def factory(rank: int) -> Callable[[], gym.Env]:
        def make_one() -> gym.Env:
            env = _make_rendering(env_id, env_kwargs or {})
            if seeds is not None:
                env.action_space.seed(seeds[rank])
            monitor_path = None
            if monitor_dir is not None:
                folder = os.path.expanduser(monitor_dir)
                os.makedirs(folder, exist_ok=True)
                monitor_path = os.path.join(folder, str(rank))
            env = Monitor(env, filename=monitor_path, **(monitor_kwargs or {}))
            env = env if wrapper_class is None else wrapper_class(env, **(wrapper_kwargs or {}))
            return name_parts(env)

        return make_one

    vec_env_class = DummyVecEnv if vec_env_cls is None else vec_env_cls
    if not callable(vec_env_class):
        raise TypeError(
            f"vec_env_cls={vec_env_cls!r} cannot be used: pass the class itself, DummyVecEnv or SubprocVecEnv, not its "
            "name."
        )
    venv = vec_env_class([factory(start_index + index) for index in range(n_envs)], **(vec_env_kwargs or {}))
    venv.seed(seed)
    return venv


def _make_rendering(env_id: str | EnvSpec | Callable[..., gym.Env], env_kwargs: dict[str, Any]) -> gym.Env:
    if not isinstance(env_id, (str, EnvSpec)):
        return env_id(**env_kwargs)
    if _may_render(find_spec(env_id) if isinstance(env_id, str) else env_id):
        with contextlib.suppress(TypeError):  # it has no argument `render_mode`
            return make_env(env_id, **{"render_mode": "rgb_array", **env_kwargs})
    return make_env(env_id, **env_kwargs)


def _may_render(spec: EnvSpec) -> bool:
    """Whether to request images: not where a class lists its render modes without them, about which gymnasium warns."""
    creator: Any = spec.entry_point
    with contextlib.suppress(ImportError, AttributeError, gym_error.Error):  # gym.make raises them again
        creator = load_env_creator(creator) if isinstance(creator, str) else creator
    metadata = getattr(creator, "metadata", None)
    modes = metadata.get("render_modes") if isinstance(metadata, Mapping) else None
    return modes is None or "rgb_array" in modes


def make_atari_env(
    env_id: str | Callable[..., gym.Env],
    n_envs: int = 1,
    seed: int | None = None,
    start_index: int = 0,
    monitor_dir: str | os.PathLike[str] | None = None,
    wrapper_kwargs: dict[str, Any] | None = None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env_cls: Callable[..., VecEnv] | None = None,
    vec_env_kwargs: dict[str, Any] | None = None,
    monitor_kwargs: dict[str, Any] | None = None,
) -> VecEnv:
    """:func:`make_vec_env` for Atari games: each in an :class:`~polyak.envs.AtariWrapper`.

    Args:
        wrapper_kwargs: arguments of AtariWrapper.

    Raises:
        ImportError: without ale-py or opencv.
    """
    register_atari("make_atari_env")
    return make_vec_env(
        env_id,
        n_envs=n_envs,
        seed=seed,
        start_index=start_index,
        monitor_dir=monitor_dir,
        wrapper_class=AtariWrapper,
        env_kwargs=env_kwargs,
        vec_env_cls=vec_env_cls,
        vec_env_kwargs=vec_env_kwargs,
        monitor_kwargs=monitor_kwargs,
        wrapper_kwargs=wrapper_kwargs,
    )
