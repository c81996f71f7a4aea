"""Packages that register environments, imported when an id needs one, and ids of environments without velocities."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass

import gymnasium as gym
from gymnasium.envs.registration import WrapperSpec

from polyak.envs.wrappers.mask_velocity import VELOCITIES


@dataclass(frozen=True)
class Provider:
    """A package that registers environments when it is imported.

    Fields: ``ids`` matches the names of its environments; ``module`` is imported; ``install`` is pip's argument.
    """

    ids: re.Pattern[str]
    module: str
    install: str


PROVIDERS = tuple(
    Provider(re.compile(ids), module, install)
    for ids, module, install in (
        (r"ALE/.*|.*(NoFrameskip|Deterministic)-v\d+", "ale_py", "'polyak[atari]'"),
        (
            r"(exit|highway|intersection|lane-keeping|merge|parking|racetrack|roundabout|two-way|u-turn)(-\w+)*-v\d+",
            "highway_env",
            "'polyak[highway]'",
        ),
        (r"(MiniGrid|BabyAI)-.*", "minigrid", "'polyak[minigrid]'"),
        (r"Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip)\w*-v\d+", "panda_gym", "'polyak[panda]'"),
        (r"\w+Bullet(Duck)?Env-v\d+", "pybullet_envs_gymnasium", "pybullet_envs_gymnasium"),
        (
            r"(Fetch|HandReach|HandManipulate|PointMaze|AntMaze|AdroitHand|FrankaKitchen)\w*-v\d+",
            "gymnasium_robotics",
            "gymnasium-robotics",
        ),
    )
)

_NO_VELOCITIES = re.compile(r"(\w+)NoVel-v(\d+)")


def provide(env_id: str) -> None:
    """Register the environment `env_id` if its package is known; does nothing otherwise.

    ``<Env>NoVel-v<n>`` is ``<Env>-v<n>`` without velocities in its observations, for each task of
    :data:`~polyak.envs.wrappers.mask_velocity.VELOCITIES`.

    Raises:
        ImportError: its package is not installed; the message has the command that installs it.
    """
    if env_id in gym.registry:
        return
    if is_without_velocities(env_id) and (match := _NO_VELOCITIES.fullmatch(env_id)):
        _register_without_velocities(*match.groups())
    for provider in PROVIDERS:
        if provider.ids.fullmatch(env_id):
            _import(provider, env_id)


def is_without_velocities(env_id: str) -> bool:
    """Whether an id is that of a registered environment without velocities in its observations."""
    match = _NO_VELOCITIES.fullmatch(env_id)
    return match is not None and match[1] in VELOCITIES and f"{match[1]}-v{match[2]}" in gym.registry


def _register_without_velocities(task: str, version: str) -> None:
    original = gym.registry[f"{task}-v{version}"]
    # It is given the entries to hide: from the new name it could not find them.
    hiding = WrapperSpec(
        "MaskVelocityWrapper",
        "polyak.envs.wrappers.mask_velocity:MaskVelocityWrapper",
        {"velocities": list(VELOCITIES[task])},
    )
    gym.register(
        f"{task}NoVel-v{version}",
        entry_point=original.entry_point,
        reward_threshold=original.reward_threshold,
        nondeterministic=original.nondeterministic,
        max_episode_steps=original.max_episode_steps,
        additional_wrappers=(*original.additional_wrappers, hiding),
        kwargs=dict(original.kwargs),
    )


def _import(provider: Provider, env_id: str) -> None:
    try:
        module = importlib.import_module(provider.module)
    except ModuleNotFoundError as error:
        if error.name != provider.module:
            raise  # it is installed, and something that it needs is not
        package = provider.module.replace("_", "-")
        raise ImportError(f"{env_id} needs {package}: pip install {provider.install}") from error
    gym.register_envs(module)
