"""Building the environments of a run: monitored, wrapped, normalised and stacked as its settings say."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyak.zoo.errors import ZooError
from polyak.zoo.own_code import errors_of_own_code, file_of
from polyak.zoo.registry import Environment
from polyak.zoo.settings import Settings
from polyak.zoo.sizes import MOST_ENVS, MOST_PROCESSES, whole_number
from polyak.zoo.untrusted import NamedClass

if TYPE_CHECKING:
    from polyak.envs import VecEnv

_WITH_GOALS = re.compile(r"(parking|Panda|Fetch|HandReach|HandManipulate).*")


def make_envs(
    environment: Environment,
    settings: Settings,
    n_envs: int,
    *,
    seed: int | None,
    env_kwargs: dict[str, Any] | None = None,
    vec_env: str = "dummy",
    monitor_dir: Path | None = None,
    start_index: int = 0,
    normalize: Callable[[VecEnv], VecEnv] | None = None,
    append: bool = False,
) -> VecEnv:
    """Build `n_envs` vectorised copies of `environment`: monitored, wrapped and stacked.

    `env_kwargs` win over those of the settings; `monitor_dir` receives one monitor.csv per copy, whose names count from
    `start_index`; `append` continues existing ones. The environments are not normalised, unless `normalize` does it,
    beneath the stack of frames, where the Zoo's statistics belong.
    """
    from polyak.envs import DummyVecEnv, SubprocVecEnv, VecFrameStack, as_vec_env, make_vec_env

    classes: dict[str, Any] = {"dummy": DummyVecEnv, "subproc": SubprocVecEnv}
    if vec_env not in classes:
        raise ZooError(f"--vec-env must be dummy or subproc, got {vec_env!r}.")
    whole_number("n_envs", n_envs, MOST_PROCESSES if vec_env == "subproc" else MOST_ENVS)
    envs: VecEnv = make_vec_env(
        environment.spec,
        n_envs=n_envs,
        seed=seed,
        start_index=start_index,
        monitor_dir=None if monitor_dir is None else str(monitor_dir),
        wrapper_class=WrapperChain(settings.env_wrapper) if settings.env_wrapper else None,
        env_kwargs={**settings.env_kwargs, **(env_kwargs or {})},
        vec_env_cls=classes[vec_env],
        monitor_kwargs={
            **(settings.monitor_kwargs or _successes(environment.name)),
            **({"override_existing": False} if append else {}),
        },
    )
    for wrapper in settings.vec_env_wrapper:
        envs = wrapper(envs)
    if normalize is not None:
        envs = normalize(envs)
    if settings.frame_stack is not None:
        envs = VecFrameStack(envs, settings.frame_stack)
    return as_vec_env(envs)


def _successes(name: str) -> dict[str, Any]:
    """Arguments of Monitor for tasks with goals: whether each episode was a success is a column of its own."""
    return {"info_keywords": ("is_success",)} if _WITH_GOALS.fullmatch(name) else {}


def check_own_env(environment: Environment, settings: Settings, env_kwargs: dict[str, Any]) -> list[str]:
    """Make one environment of the user's own, wrapped as the settings say, and check that it can be trained in.

    Returns the advice of `check_env`, in sentences. Raises ZooError with the error and its place, if the environment's
    own code raised it.
    """
    from gymnasium.envs.registration import load_env_creator

    from polyak.envs import check_env

    entry_point: Any = environment.spec.entry_point
    maker = (
        load_env_creator(entry_point) if isinstance(entry_point, str) else getattr(entry_point, "maker", entry_point)
    )
    kwargs = {**environment.spec.kwargs, **settings.env_kwargs, **env_kwargs}
    for of_gymnasium_make in ("max_episode_steps", "disable_env_checker"):
        kwargs.pop(of_gymnasium_make, None)
    what = f"The environment {environment.source} cannot be trained in yet"
    with errors_of_own_code(what, file_of(maker)), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = maker(**kwargs)
        try:
            check_env(WrapperChain(settings.env_wrapper)(env))
        except AssertionError as error:
            raise ZooError(f"{what}: {error}") from error
        finally:
            getattr(env, "close", lambda: None)()
    return [str(warning.message) for warning in caught]


def normalized(envs: VecEnv, settings: Settings) -> VecEnv:
    """Put VecNormalize around `envs`, unless they are normalised.

    It is the outermost wrapper, as when a saved model brings its own statistics. For files of Stable-Baselines3 it is
    beneath the stack of frames, as in the Zoo: see `make_envs`.
    """
    from polyak.envs import VecNormalize, unwrap_vec_normalize

    if unwrap_vec_normalize(envs) is not None:
        return envs
    return VecNormalize(envs, **{"gamma": settings.gamma, **(settings.normalize or {})})


class WrapperChain:
    """Several wrappers applied in the order of the settings, the first one innermost; can be pickled for workers."""

    def __init__(self, wrappers: list[NamedClass]) -> None:
        self.wrappers = wrappers

    def __call__(self, env: Any) -> Any:
        """Wrap `env` and return the result."""
        for wrapper in self.wrappers:
            env = wrapper(env)
        return env
