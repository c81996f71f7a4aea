"""Checks of environments whose errors name the class, the value and the fix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.spaces import Key, as_numbers, obs_space_info, outside_of, subspaces_of

NUMBERS = frozenset({bool, int, float, np.bool_, *(np.dtype(code).type for code in "bBhHiIlLqQefdg")})
"""Types of numbers that are accepted as a reward without a conversion."""


def class_of(env: gym.Env) -> str:
    """Name of the class inside all wrappers."""
    return type(env.unwrapped).__qualname__


def check_reward(env: gym.Env, reward: Any) -> None:
    """Accept one real number: also a 0-d array or tensor, or another type that ``float`` takes.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(reward, str | bytes) and reward is not None and np.shape(reward) == ():
        try:
            float(reward)
        except (TypeError, ValueError):
            pass
        else:
            if np.asarray(reward).dtype.kind not in "USc":
                return
    raise ValueError(
        f"step() of {class_of(env)} returned the reward {_shown(reward)}, which is not a number. "
        "Return a float: one reward for the one environment."
    )


def is_over(env: gym.Env, terminated: Any, truncated: Any) -> bool:
    """Whether a step has ended the episode.

    Raises:
        ValueError: one of them is neither a bool nor 0 or 1.
    """
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if type(flag) not in _FLAGS and not _is_flag(flag):
            raise ValueError(
                f"step() of {class_of(env)} returned {name}={_shown(flag)}, which is not a bool. Return True or False: "
                "one for the one environment."
            )
    return bool(terminated or truncated)


_FLAGS = frozenset({bool, np.bool_})


def _is_flag(value: Any) -> bool:
    """Whether it is 0 or 1, or an array or tensor without dimensions that is."""
    if isinstance(value, str | bytes) or value is None or np.shape(value) != ():
        return False
    try:
        return np.asarray(value).dtype.kind in "biuf" and float(value) in (0.0, 1.0)
    except (TypeError, ValueError):
        return False


def check_numbers(env: gym.Env, key: Key, value: Any) -> tuple[int, ...]:
    """Check that an observation is an array of real numbers, or becomes one; returns its shape.

    Args:
        env: the environment that returned it.
        key: key of a Dict or Tuple; None for another space.
        value: the observation, or its entry under the key.

    Raises:
        ValueError: it is something else, such as None, text or complex numbers.
    """
    if (array := as_numbers(value)) is None:
        space = subspaces_of(env.observation_space)[key]
        raise ValueError(
            f"{class_of(env)} returned the observation {_shown(value)}{_at(key)}, but its space {space} has real "
            f"numbers{f' in arrays of the shape {space.shape}' if space.shape else ''}. Return such."
        )
    return array.shape


def check_whole(env: gym.Env, key: Key, value: Any, dtype: np.dtype) -> None:
    """Check that an observation can be stored as integers without loss.

    Args:
        env: the environment that returned it.
        key: key of a Dict or Tuple; None for another space.
        value: the observation, or its entry under the key.
        dtype: the integer dtype of its space, in which it is stored.

    Raises:
        ValueError: it is not numbers, or some of them have fractions or are too large.
    """
    array = np.asarray(value)
    if array.dtype == dtype:
        return
    if array.dtype.kind not in "biuf":
        bad: Any = value
    elif np.can_cast(array.dtype, dtype):
        return
    else:
        limits = np.iinfo(dtype)
        fits = (array >= limits.min) & (array <= limits.max) & (array == np.rint(array))
        if fits.all():
            return
        bad = array[~fits][0].item()
    raise ValueError(
        f"{class_of(env)} returned an observation{_at(key)} with {_shown(bad)}, but its space "
        f"{subspaces_of(env.observation_space)[key]} has whole numbers of the type {dtype}. Return such, or make the "
        "space a Box of np.float32."
    )


def check_choices(env: gym.Env, observation: Any) -> None:
    """Check that the parts of an observation in Discrete, MultiDiscrete and MultiBinary spaces are elements of these.

    Raises:
        ValueError: one is not.
    """
    for key, space in subspaces_of(env.observation_space).items():
        value = observation if key is None else observation[key]
        if (bad := outside_of(value, space)) is not None:
            raise ValueError(
                f"{class_of(env)} returned an observation{_at(key)} with {bad}, which is not in its space {space}. "
                "Correct the space, or what reset() and step() return (polyak.envs.check_env(env) finds such mistakes)."
            )


def _at(key: Key) -> str:
    return "" if key is None else f" at key {key!r}"


def check_info(env: gym.Env, info: Any) -> dict[str, Any]:
    """Accept a dict, and return it.

    Raises:
        ValueError: it is something else.
    """
    if not isinstance(info, dict):
        raise ValueError(
            f"step() of {class_of(env)} returned the info {_shown(info)}, which is not a dict. "
            "Return {} where there is nothing to say."
        )
    return info


def check_success(env: gym.Env, info: dict[str, Any]) -> None:
    """Accept ``info["is_success"]`` that is true or false, or a number from 0 to 1, or missing.

    Raises:
        ValueError: it is something else.
    """
    success = info.get("is_success")
    if success is None or isinstance(success, bool | np.bool_):
        return
    number = np.asarray(success)
    if number.size != 1 or number.dtype.kind not in "biuf" or not 0 <= number.item() <= 1:
        raise ValueError(
            f"step() of {class_of(env)} returned info['is_success']={_shown(success)}, which is neither true nor "
            "false. Return True or False at the end of an episode."
        )


MASKS = "action_masks"
"""The name of the method that returns an environment's action masks."""


def check_masks_are_a_method(env: gym.Env) -> None:
    """Accept an environment without masks, or with a method for them.

    Raises:
        ValueError: it has an attribute of that name.
    """
    if env.has_wrapper_attr(MASKS) and not callable(masks := env.get_wrapper_attr(MASKS)):
        raise ValueError(
            f"{class_of(env)} has {MASKS} as an attribute, {_shown(masks)}. Make it a method, which is called before "
            f"every step: def {MASKS}(self): return self._masks."
        )


def check_has_spaces(env: gym.Env) -> None:
    """Accept an environment with both spaces.

    Raises:
        ValueError: one is missing, or is not a space.
    """
    for name in ("observation_space", "action_space"):
        space = getattr(env, name, None)
        if not isinstance(space, spaces.Space):
            raise ValueError(
                f"{class_of(env)} has {name}={space!r}, which is not a gymnasium space. Set it in __init__, such as "
                f"self.{name} = gymnasium.spaces.Box(-1.0, 1.0, (3,))."
            )


def check_same_spaces(described: Sequence[tuple[spaces.Space, spaces.Space]]) -> None:
    """Check that environments can be stepped as one: arrays of the same shapes and dtypes, and equally many choices.

    Bounds may differ.

    Args:
        described: observation and action space of each environment.

    Raises:
        ValueError: an environment's space does not fit that of the first; the message names it.
    """
    for index, pair in enumerate(described):
        for name, first, other in zip(("observation", "action"), described[0], pair, strict=True):
            if first is not other and _fingerprint(first) != _fingerprint(other):
                raise ValueError(
                    f"All environments must have the same {name} space: environment {index} has {other}, "
                    f"environment 0 has {first}."
                )


def _fingerprint(space: spaces.Space) -> Any:
    """Returns the properties that two spaces must share."""
    if isinstance(space, spaces.Dict):
        return {key: _fingerprint(part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return [_fingerprint(part) for part in space.spaces]
    if isinstance(space, spaces.Discrete):
        return "Discrete", int(space.n), int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return "MultiDiscrete", space.nvec.tolist(), space.start.tolist()
    try:
        return type(space), obs_space_info(space)
    except (TypeError, NotImplementedError):
        return space


def _shown(value: Any) -> str:
    return f"{value!r:.200} ({type(value).__name__})"
