"""Environments by registered names, and the vectors of environments that a config describes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium as gym
import numpy as np

from polyak.compat.rllib_face.connectors.environments import connected
from polyak.compat.rllib_face.foreign_envs import MultiAgentEnv, is_atari
from polyak.compat.rllib_face.models.simplex import Simplex
from polyak.envs import DummyVecEnv, Monitor, SubprocVecEnv, VecEnv, check_env, make_env
from polyak.envs.nested_spaces import is_nested
from polyak.envs.spaces import clipped, is_image_space, is_image_space_channels_first, wide_bounds
from polyak.envs.wrappers.by_name import NamedObservation
from polyak.hyperparameters.declaration import require
from polyak.suggestions import did_you_mean

if TYPE_CHECKING:
    from polyak.compat.rllib_face.config.base import AlgorithmConfig

_REGISTERED: dict[str, Callable[[Any], gym.Env]] = {}


def register_env(name: str, env_creator: Callable[[Any], gym.Env]) -> None:
    """Give an environment a name, for ``config.environment(name)``, in this program.

    Args:
        name: an existing name is reassigned.
        env_creator: called with an :class:`EnvContext`.

    Raises:
        HyperparameterError: a name that is no text, or a creator that cannot be called.
    """
    require(isinstance(name, str) and bool(name), "name", name, "give a text.")
    require(callable(env_creator), "env_creator", env_creator, "give a function of one argument, the EnvContext.")
    _REGISTERED[name] = env_creator


def registered() -> Mapping[str, Callable[[Any], gym.Env]]:
    """Returns names that :func:`register_env` has given, now and later."""
    return _REGISTERED


class EnvContext(dict[str, Any]):
    """The argument of environments: ``env_config``, and the position of the environment.

    Args:
        env_config: its entries.
        worker_index: number of its process; 0: this one.
        vector_index: number of the environment in that process.
        num_workers: number of processes that collect experience.
        remote: whether it has its own process.
    """

    def __init__(
        self,
        env_config: Mapping[str, Any],
        worker_index: int = 0,
        vector_index: int = 0,
        num_workers: int = 0,
        remote: bool = False,
    ) -> None:
        super().__init__(env_config)
        self.worker_index, self.vector_index = worker_index, vector_index
        self.num_workers, self.remote = num_workers, remote


def creator_of(env: Any) -> Callable[[EnvContext], gym.Env]:
    """Returns the function that makes the environment of ``environment(env)``.

    Raises:
        HyperparameterError: there is no such environment, or ``env`` is one already.
    """
    require(env is not None, "env", env, "say what to learn in: config.environment('CartPole-v1').")
    made = isinstance(env, gym.Env | gym.vector.VectorEnv | VecEnv)
    require(not made, "env", env, "pass its class, or a function that makes it, so that there can be several.")
    if not isinstance(env, str):
        fix = "give a registered name, or a class or function of one argument, the EnvContext."
        require(callable(env), "env", env, fix)
        require(
            _takes_one(env),
            "env",
            env,
            "it is called with its config, an EnvContext: add that argument, such as def __init__(self, config=None).",
        )
        return env
    if env in _REGISTERED:
        return _REGISTERED[env]
    if hint := did_you_mean(env, _REGISTERED):
        known = env in gym.registry or ":" in env or "/" in env
        require(known, "env", env, f"nothing has that name.{hint}")
    return partial(_by_name, env)


def _takes_one(create: Callable[..., Any]) -> bool:
    """Whether a function can be called with one argument; True if Python cannot inspect it."""
    try:
        inspect.signature(create).bind(None)
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def _by_name(name: str, context: EnvContext) -> gym.Env:
    return make_env(name, **context)


class LimitedReward(gym.RewardWrapper[Any, Any]):
    """Rewards as one learns from them.

    Args:
        env: the environment.
        limit: ``True`` takes the sign; a number the reward within plus and minus it.
    """

    def __init__(self, env: gym.Env, limit: bool | float) -> None:
        super().__init__(env)
        self.limit = limit

    def reward(self, reward: Any) -> float:
        """Returns the limited reward."""
        return float(limited(reward, self.limit))


def limited(rewards: Any, limit: bool | float) -> Any:
    """Returns rewards as one learns from them: their sign (``True``), themselves (``False``), or within plus and minus
    a number."""
    if limit is True or limit is False:
        return np.sign(rewards) if limit else rewards
    return np.clip(rewards, -limit, limit)


def scaled_space(space: gym.Space) -> gym.Space:
    """Continuous actions in [-1, 1], where they have bounds; the space itself, where it is no other."""
    if not isinstance(space, gym.spaces.Box) or isinstance(space, Simplex):
        return space
    dtype: Any = space.dtype
    if not np.all(np.isfinite([space.low, space.high])):
        return space
    if dtype.kind != "f" or (np.all(space.low == -1) and np.all(space.high == 1)):
        return space
    return gym.spaces.Box(dtype.type(-1), dtype.type(1), space.shape, dtype.type)


def scaled(env: gym.Env) -> gym.Env:
    """Wraps an environment so that its actions are in the :func:`scaled_space`."""
    space: Any = scaled_space(env.action_space)
    if space is env.action_space:
        return env
    return ScaledActions(env, space.dtype.type(-1), space.dtype.type(1))


def in_units_of(space: gym.spaces.Box, action: Any) -> np.ndarray:
    """Returns actions [..., *shape] in [-1, 1] as the Box has them, which contains them."""
    low, high = wide_bounds(space)
    return clipped(low + (np.asarray(action) + 1) / 2 * (high - low), space)


class ScaledActions(gym.wrappers.RescaleAction):
    """Actions in [-1, 1] for those of the environment."""

    def action(self, action: Any) -> np.ndarray:
        """Returns the environment's own action, which is in its space."""
        return in_units_of(self.env.action_space, action)  # type: ignore[arg-type]

    @property
    def own_action_space(self) -> gym.Space:
        """The environment's."""
        return self.env.action_space


class Named(NamedObservation):
    """Nested observations as a Dict of their parts, so that they can be stacked."""

    @property
    def own_observation_space(self) -> gym.Space:
        """The environment's."""
        return self.env.observation_space


def own_spaces(env: VecEnv) -> tuple[gym.Space, gym.Space]:
    """Returns the observation and action spaces of the innermost environments, in their own units."""
    nested, scales = env.env_is_wrapped(Named)[0], env.env_is_wrapped(ScaledActions)[0]
    observations: gym.Space = env.get_attr("own_observation_space", 0)[0] if nested else env.observation_space
    actions: gym.Space = env.get_attr("own_action_space", 0)[0] if scales else env.action_space
    return observations, actions


def portable(config: AlgorithmConfig) -> AlgorithmConfig:
    """Returns a copy of a config for another process, which lacks the registered names of this one."""
    other = config.copy(copy_frozen=False)
    if isinstance(config.env, str) and config.env in _REGISTERED:
        other.__dict__["env"] = _REGISTERED[config.env]
        other.__dict__["disable_env_checking"] = True  # as of every name
    return other


class Maker:
    """Makes the environments of a config, one by one; can be pickled if the config's settings can.

    Args:
        config: the config.
        training: whether they are for training: only then rewards are limited.
        created: called with each environment and its context.
        worker_index: number of their process.
    """

    def __init__(
        self, config: AlgorithmConfig, training: bool, created: Callable[..., None] | None = None, worker_index: int = 0
    ) -> None:
        self.create, self.worker_index = creator_of(config.env), worker_index
        self.num_workers = config.num_env_runners
        self.env_config, self.remote = config.env_config, config.gym_env_vectorize_mode == "async"
        atari = config.is_atari if config.is_atari is not None else is_atari(str(config.env))
        limit = atari if config.clip_rewards is None else config.clip_rewards
        self.limit = limit if training else False
        self.scales = config.scales_actions and config.normalize_actions
        self.clips = config.clip_actions or not config.scales_actions
        self.created = created

    def __call__(self, index: int) -> gym.Env:
        context = EnvContext(self.env_config, self.worker_index, index, self.num_workers, self.remote)
        env = self.create(context)
        fix = "it has several agents, and algorithms here train one. Give each agent an environment and a config."
        require(not isinstance(env, MultiAgentEnv), "env", self.create, fix)
        fix = f"it made {type(env).__name__}, which is no gymnasium.Env."
        require(isinstance(env, gym.Env), "env", self.create, fix)
        if self.created is not None:
            self.created(env=env, env_context=context)
        env = Monitor(env)
        if is_nested(env.observation_space):
            env = Named(env)
        if self.limit:
            env = LimitedReward(env, self.limit)
        if self.scales:
            return scaled(env)
        continuous = isinstance(env.action_space, gym.spaces.Box) and not isinstance(env.action_space, Simplex)
        fix = "with normalize_actions=False actions are brought into the bounds: set clip_actions=True."
        require(self.clips or not continuous, "clip_actions", False, fix)
        return env


def make_environments(
    config: AlgorithmConfig, training: bool, created: Callable[..., None] | None = None, worker_index: int = 0
) -> VecEnv:
    """Makes the vector of environments that one process steps.

    Raises:
        HyperparameterError: the config names no environment, or one with other spaces than the config's.
    """
    maker = Maker(config, training, created, worker_index)
    if training and not config.disable_env_checking and not isinstance(config.env, str):
        look_over(maker.create(EnvContext(config.env_config, worker_index, num_workers=config.num_env_runners)))
    kind = SubprocVecEnv if maker.remote else DummyVecEnv
    env = kind([partial(maker, index) for index in range(config.num_envs_per_env_runner)])
    own = own_spaces(env)
    for name, found in zip(("observation_space", "action_space"), own, strict=True):
        said = getattr(config, name)
        same = said is None or said == found
        if not same:
            env.close()
        require(same, name, said, f"the environment has {found}. Leave it out.")
    try:
        return connected(env, *own, config, training)
    except BaseException:
        env.close()
        raise


def look_over(env: gym.Env) -> None:
    """Check a program's own environment, and close it."""
    try:
        check_env(env, warn=False)
    finally:
        env.close()


class Spaces(NamedTuple):
    """The spaces of environments, which may be in other processes."""

    observations: gym.Space
    actions: gym.Space
    own_actions: gym.Space
    """The action space of the environments themselves, in their own units."""
    turned: bool
    """Whether there are images with the channels last."""

    @classmethod
    def of(cls, env: VecEnv) -> Spaces:
        """Returns the spaces of environments in this process."""
        return cls(env.observation_space, env.action_space, own_spaces(env)[1], has_channels_last(env))


def has_channels_last(env: VecEnv) -> bool:
    """Whether observations are images that polyak's networks read with the channels first."""
    space = env.observation_space
    return is_image_space(space) and not is_image_space_channels_first(space)
