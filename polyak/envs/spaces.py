"""Pure functions of gymnasium spaces: shapes, sizes, images, batches."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, TypeGuard

import numpy as np
from gymnasium import spaces

from polyak.envs.nested_spaces import is_composed, parts
from polyak.warning import warn_user

REAL = "biuf"
"""Kinds of the types of real numbers that arrays have."""
IMAGE_CHANNELS = (1, 3, 4)
"""Channel counts of a single image: grey, RGB, RGBA."""


class SpaceError(ValueError, AssertionError):
    """A space does not fit. Also an AssertionError, which Stable-Baselines3 raises in these places."""


# --- images ---------------------------------------------------------------------------------------------------------


def is_image_space_channels_first(observation_space: spaces.Box) -> bool:
    """Whether a 3-dimensional space is ``(C, H, W)``: its smallest dimension is taken for the channels.

    Warns when the middle dimension is the smallest; such a space is treated as ``(H, W, C)``.
    """
    smallest = int(np.argmin(observation_space.shape))
    if smallest == 1:
        warn_user(
            f"The middle dimension of the image space {observation_space.shape} is its smallest: "
            "treating the space as channels-last (H, W, C)."
        )
    return smallest == 0


def is_image_space(
    observation_space: spaces.Space, check_channels: bool = False, normalized_image: bool = False
) -> TypeGuard[spaces.Box]:
    """Whether a space holds images: a Box of three dimensions, uint8, bounded by 0 and 255.

    Args:
        check_channels: also require 1, 3 or 4 channels (a stack of frames has more).
        normalized_image: images are already floats in [0, 1]: skip the checks of dtype and bounds.
    """
    if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 3:
        return False
    if not normalized_image:
        if observation_space.dtype != np.uint8:
            return False
        if np.any(observation_space.low != 0) or np.any(observation_space.high != 255):
            return False
    if not check_channels:
        return True
    channel_axis = 0 if is_image_space_channels_first(observation_space) else -1
    return observation_space.shape[channel_axis] in IMAGE_CHANNELS


def transpose_image(image: np.ndarray) -> np.ndarray:
    """Move the channels of one image or a batch to the front: ``([B,] H, W, C)`` to ``([B,] C, H, W)``."""
    return np.moveaxis(image, -1, -3)


def maybe_transpose(observation: np.ndarray, observation_space: spaces.Space) -> np.ndarray:
    """Transpose images that come channels-last when the space is channels-first; return anything else as it is."""
    shape = observation_space.shape
    if observation.shape == shape or observation.shape[1:] == shape or observation.ndim not in (3, 4):
        return observation
    if not is_image_space(observation_space):  # last, because it looks at every pixel's bounds
        return observation
    transposed = transpose_image(observation)
    fits = transposed.shape == shape or transposed.shape[1:] == shape
    return transposed if fits else observation


# --- sizes ----------------------------------------------------------------------------------------------------------


def get_obs_shape(observation_space: spaces.Space) -> tuple[int, ...] | dict[str, tuple[int, ...]]:
    """Shape of one stored observation: ``(1,)`` for Discrete, one shape per key for Dict.

    Raises:
        NotImplementedError: for spaces that no network here can read (Tuple, Sequence, Graph, Text, OneOf).
    """
    if isinstance(observation_space, spaces.Discrete):
        return (1,)
    if isinstance(observation_space, (spaces.Box, spaces.MultiDiscrete, spaces.MultiBinary)):
        return tuple(int(size) for size in observation_space.shape)
    if isinstance(observation_space, spaces.Dict):
        return {key: get_obs_shape(subspace) for key, subspace in observation_space.spaces.items()}  # type: ignore[misc]
    raise NotImplementedError(
        f"The observation space {observation_space} is not supported. "
        "Use Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these (gymnasium has wrappers that convert)."
    )


def get_flattened_obs_dim(observation_space: spaces.Space) -> int:
    """Length of an observation once flattened for a network: Discrete and MultiDiscrete count as one-hot vectors."""
    if isinstance(observation_space, spaces.MultiDiscrete):
        return int(np.sum(observation_space.nvec))
    return int(spaces.utils.flatdim(observation_space))


def get_action_dim(action_space: spaces.Space) -> int:
    """Length of one stored action: 1 for Discrete (the index), the number of entries for Box, MultiDiscrete and
    MultiBinary, the sum over its parts for Dict and Tuple.

    Raises:
        NotImplementedError: for other spaces.
        AssertionError: for a MultiBinary of more than one dimension.
    """
    if isinstance(action_space, spaces.Box):
        return int(np.prod(action_space.shape))
    if isinstance(action_space, spaces.Discrete):
        return 1
    if isinstance(action_space, spaces.MultiDiscrete):
        return int(np.prod(action_space.shape))
    if isinstance(action_space, spaces.MultiBinary):
        if not isinstance(action_space.n, (int, np.integer)):
            raise AssertionError(
                f"Multi-dimensional MultiBinary({action_space.n}) action space is not supported. "
                "Use MultiBinary(n) with n the number of bits."
            )
        return int(action_space.n)
    if is_composed(action_space):
        return sum(get_action_dim(part.space) for part in parts(action_space))
    raise NotImplementedError(
        f"The action space {action_space} is not supported. Use Box, Discrete, MultiDiscrete, MultiBinary, or a Dict "
        "or Tuple of these."
    )


def get_action_dtype(action_space: spaces.Space) -> np.dtype:
    """Type of stored actions, which are in the network's units.

    That of the space where it can hold them (a Box of float32 or wider, choices of 64 bits); else float32 for a Box
    (such as a Box of integers, where networks act in real numbers), int64 for choices (which count from 0), and
    float32 for Dict and Tuple, which holds the actions of all parts."""
    if is_composed(action_space):
        return np.dtype(np.float32)
    own = np.dtype(action_space.dtype)
    if isinstance(action_space, spaces.Box):
        return own if own.kind == "f" and own.itemsize >= 4 else np.dtype(np.float32)
    return np.dtype(np.int64) if isinstance(action_space, spaces.Discrete | spaces.MultiDiscrete) else own


def wide_bounds(space: spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """Low and high of a Box in the float type in which actions are computed: float32, or wider where that cannot hold
    the Box's own type. Only bounds of 64-bit integers may be rounded; they can still be converted back."""
    wide = np.result_type(space.dtype, np.float32)
    low, high = space.low.astype(wide), space.high.astype(wide)
    own: Any = np.dtype(space.dtype)
    if own.kind in "iu":
        beyond = wide.type(int(np.iinfo(own).max) + 1)
        high = np.minimum(high, np.nextafter(beyond, wide.type(0)))
    return low, high


def rounded(numbers: np.ndarray, space: spaces.Box) -> np.ndarray:
    """Floats in the dtype of a Box; for a Box of integers the nearest integers."""
    dtype = np.dtype(space.dtype)
    if dtype.kind == "f":
        return numbers.astype(dtype, copy=False)
    with np.errstate(invalid="ignore"):  # callers check the floats for NaN
        return np.rint(numbers).astype(dtype)


def clipped(numbers: Any, space: spaces.Box) -> np.ndarray:
    """The elements of the Box nearest to ``numbers`` [..., *shape], in its dtype.

    Exact: the bounds are exact in the type in which numbers are clipped, and rounding to the Box's own type cannot
    pass a bound.
    """
    low, high = wide_bounds(space)
    found = rounded(np.minimum(np.maximum(numbers, low), high), space)
    # no float has all 64 bits of an integer
    return np.asarray(found if found.dtype.kind == "f" else np.clip(found, space.low, space.high))


def own_actions(actions: Any, action_space: spaces.Space) -> Any:
    """Actions [N, ...] so that each entry is an element of the space: of a Box of shape () an array, not a number."""
    if isinstance(action_space, spaces.Box) and action_space.shape == ():
        return [np.asarray(actions[i], action_space.dtype) for i in range(len(actions))]
    return actions


def check_for_nested_spaces(obs_space: spaces.Space) -> None:
    """Refuse a Dict or Tuple inside a Dict or Tuple.

    Raises:
        NotImplementedError: naming the entry that is nested.
    """
    for key, subspace in _children(obs_space).items():
        if isinstance(subspace, (spaces.Dict, spaces.Tuple)):
            raise NotImplementedError(
                f"Nested observation spaces are not supported here: entry {key!r} is {subspace}. "
                "Wrap the environment in polyak.envs.NamedObservation, as make_vec_env does."
            )


# --- comparing spaces -----------------------------------------------------------------------------------------------


def check_for_correct_spaces(env: Any, observation_space: spaces.Space, action_space: spaces.Space) -> None:
    """Check that an environment has the spaces a model was built for.

    Raises:
        ValueError: naming both spaces when they differ.
    """
    if observation_space != env.observation_space:
        raise ValueError(
            f"Observation spaces do not match: expected {observation_space}, the environment has "
            f"{env.observation_space}. Wrap the environment as it was wrapped for training."
        )
    if action_space != env.action_space:
        raise ValueError(
            f"Action spaces do not match: expected {action_space}, the environment has {env.action_space}. "
            "Wrap the environment as it was wrapped for training."
        )


def check_shape_equal(space1: spaces.Space, space2: spaces.Space) -> None:
    """Check that two spaces hold arrays of the same shapes under the same keys.

    Raises:
        AssertionError: they differ; the message names keys or shapes.
    """
    if isinstance(space1, spaces.Dict):
        if not isinstance(space2, spaces.Dict) or space1.spaces.keys() != space2.spaces.keys():
            raise AssertionError(f"The spaces have different keys: {space1} and {space2}.")
        for key in space1.spaces:
            check_shape_equal(space1.spaces[key], space2.spaces[key])
    elif space1.shape != space2.shape:
        raise AssertionError(f"The spaces have different shapes: {space1.shape} and {space2.shape}.")


def check_has_entries(space: spaces.Space) -> None:
    """Check that observations, and each of their parts, hold something.

    Raises:
        SpaceError: one is an array without entries.
    """
    for key, part in subspaces_of(space).items():
        if 0 in (part.shape or ()):
            raise SpaceError(
                f"The observation space {part}{'' if key is None else f' at key {key!r}'} has no entries. Leave it "
                "out; where there is nothing to observe, return the same number always: spaces.Discrete(1), and 0."
            )


# --- numbers ---------------------------------------------------------------------------------------------------------


def as_numbers(value: Any) -> np.ndarray | None:
    """Converts an observation to an array of real numbers; returns ``None`` if it is something else."""
    try:
        array = np.asarray(value)
    except ValueError:  # lists of unequal lengths
        return None
    if array.dtype.kind in REAL:
        return array
    if array.dtype == object and array.size and all(isinstance(number, Real) for number in array.flat):
        return array.astype(np.float64)
    return None


# --- one observation or a batch? ------------------------------------------------------------------------------------


def is_vectorized_dict_observation(observation: Mapping[str, np.ndarray], observation_space: spaces.Dict) -> bool:
    """Whether a Dict observation is a batch.

    Raises:
        ValueError: when a key is missing, has a wrong shape, or only some of the keys are batched.
    """
    missing = observation_space.spaces.keys() - observation.keys()
    if missing:
        raise ValueError(
            f"The observation lacks the keys {sorted(missing)} of the Dict space; it has {sorted(observation)}."
        )
    batched: dict[str, bool] = {}
    for key, subspace in observation_space.spaces.items():
        try:
            batched[key] = is_vectorized_observation(observation[key], subspace)
        except ValueError as error:
            raise ValueError(f"Error: observation key {key!r}: {error}") from None
    if len(set(batched.values())) > 1:
        single = [key for key, flag in batched.items() if not flag]
        raise ValueError(
            f"Error: Unexpected observation: keys {single} hold a single observation while the others hold a batch. "
            "Give every key the same leading dimension n_env, or none."
        )
    return next(iter(batched.values()), False)


def is_vectorized_observation(observation: Any, observation_space: spaces.Space) -> bool:
    """Whether an observation is a batch (leading dimension ``n_env``) or a single one, whatever its space.

    Raises:
        ValueError: when its shape fits neither, or the space is not supported.
    """
    if isinstance(observation_space, spaces.Dict):
        return is_vectorized_dict_observation(observation, observation_space)
    for kind in (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary):
        if isinstance(observation_space, kind):
            return _is_batched(np.shape(observation), tuple(observation_space.shape or ()), kind.__name__)
    raise ValueError(
        f"Observations of {observation_space} are not supported: a batch of them looks like one alone. "
        "Use Box, Discrete, MultiDiscrete, MultiBinary or a Dict of these."
    )


def _is_batched(shape: tuple[int, ...], single: tuple[int, ...], kind: str) -> bool:
    if shape == single:
        return False
    if len(shape) == len(single) + 1 and shape[1:] == single:
        return True
    batch = ", ".join(["n_env", *map(str, single)]) + ("," if not single else "")
    raise ValueError(
        f"Error: Unexpected observation shape {shape} for {kind} environment, "
        f"please use {single} or ({batch}) for the observation shape."
    )


# --- a space as a flat table of arrays ------------------------------------------------------------------------------

Key = Any
"""Name of one array of an observation: a Dict's key, a Tuple's index, or None for a space that is one array."""


def obs_space_info(obs_space: spaces.Space) -> tuple[list[Key], dict[Key, tuple[int, ...]], dict[Key, np.dtype]]:
    """Keys, shapes and dtypes of the arrays that one observation consists of.

    A Dict has its own keys, a Tuple the keys 0, 1, ..., any other space the single key None.

    Raises:
        NotImplementedError: for nested spaces.
        TypeError: for a space whose elements are not arrays (Text, Graph, Sequence, OneOf).
    """
    check_for_nested_spaces(obs_space)
    subspaces = subspaces_of(obs_space)
    for key, subspace in subspaces.items():
        if subspace.shape is None or subspace.dtype is None:
            where = "" if key is None else f" at key {key!r}"
            raise TypeError(
                f"The observation space {subspace}{where} has no fixed shape. "
                "Convert it to Box, Discrete, MultiDiscrete or MultiBinary with a gymnasium wrapper."
            )
    shapes = {key: tuple(subspace.shape or ()) for key, subspace in subspaces.items()}
    dtypes = {key: np.dtype(subspace.dtype) for key, subspace in subspaces.items()}
    return list(subspaces), shapes, dtypes


def dict_to_obs(obs_space: spaces.Space, obs_dict: Mapping[Key, np.ndarray]) -> Any:
    """Turn the table of arrays of :func:`obs_space_info` into an observation: a dict, a tuple or the single array."""
    if isinstance(obs_space, spaces.Dict):
        return dict(obs_dict)
    if isinstance(obs_space, spaces.Tuple):
        return tuple(obs_dict[index] for index in range(len(obs_space.spaces)))
    return obs_dict[None]


def subspaces_of(obs_space: spaces.Space) -> dict[Key, spaces.Space]:
    """Spaces of the arrays that one observation consists of, by the keys of :func:`obs_space_info`."""
    return _children(obs_space) or {None: obs_space}


def choice_bounds(space: spaces.Space) -> tuple[Any, Any] | None:
    """The least and the largest value of a Discrete, and of each choice of a MultiDiscrete or MultiBinary; None for
    other spaces."""
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start) + int(space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + (space.nvec - 1)
    return (0, 1) if isinstance(space, spaces.MultiBinary) else None


def outside_of(values: Any, space: spaces.Space) -> Any:
    """The first of values [..., *shape] that is not in a Discrete, MultiDiscrete or MultiBinary; None if all are in
    it, and for other spaces."""
    if (bounds := choice_bounds(space)) is None:
        return None
    array = np.asarray(values)
    fits = (array >= bounds[0]) & (array <= bounds[1])  # not so NaN
    if array.dtype.kind == "f":
        fits &= array == np.rint(array)
    return None if fits.all() else array[~fits][0].item()


def _children(space: spaces.Space) -> dict[Key, spaces.Space]:
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    if isinstance(space, spaces.Tuple):
        return dict(enumerate(space.spaces))
    return {}
