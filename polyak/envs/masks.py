"""Action masks: found in methods, observations or infos of environments, and read after every reset and step.

A mask is flat, True where a choice is allowed: [n] of a Discrete; the choices of a MultiDiscrete one after the other,
[sum of nvec]; for each coin of a MultiBinary whether 0 is allowed and whether 1 is, [2 n]; the masks of those parts of
a Dict or Tuple that are one of these, one after the other in the order of :mod:`polyak.envs.nested_spaces`.

Shape letters: N environments, M entries of a mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.gym_batch import FINAL, joined
from polyak.envs.nested_spaces import compose, is_composed, parts
from polyak.envs.validation import MASKS
from polyak.envs.vec.vec_env import VecEnv
from polyak.envs.wrappers.normalize import unwrap_vec_normalize

KEY = "action_mask"
"""The key of masks in observations or infos."""


class Masks(Protocol):
    """Reads the masks of N environments."""

    def after_reset(self, observations: Any) -> np.ndarray:
        """[N, M] bool."""
        ...

    def after_step(self, observations: Any, dones: np.ndarray, infos: Sequence[dict[str, Any]]) -> np.ndarray:
        """[N, M] bool, of new episodes where old ones ended."""
        ...

    def final(self, row: int, successors: Any, info: dict[str, Any]) -> Any:
        """[M] of the state in which the episode in one environment ended; None if unknown."""
        ...


class MethodMasks:
    """Reads the masks of environments with a method ``action_masks()``."""

    def __init__(self, env: VecEnv, size: int) -> None:
        self.env, self.size = env, size

    def after_reset(self, observations: Any) -> np.ndarray:
        return self._checked(self.env.env_method(MASKS))

    def after_step(self, observations: Any, dones: np.ndarray, infos: Sequence[dict[str, Any]]) -> np.ndarray:
        return self.after_reset(observations)

    def _checked(self, masks: Any) -> np.ndarray:
        return checked(masks, self.size, self.env.action_space)

    def final(self, row: int, successors: Any, info: dict[str, Any]) -> Any:
        return _last(info.get(FINAL), self.env.action_space)


class ObservationMasks(MethodMasks):
    """Reads the masks in Dict observations with a key ``action_mask``."""

    def after_reset(self, observations: Any) -> np.ndarray:
        return self._checked(observations[KEY])

    def final(self, row: int, successors: Any, info: dict[str, Any]) -> Any:
        return _last(successors[KEY][row], self.env.action_space)


class InfoMasks(MethodMasks):
    """Reads the masks of environments whose infos have a key ``action_mask``, after resets and steps alike."""

    def after_reset(self, observations: Any) -> np.ndarray:
        return self._checked([_of(info) for info in self.env.reset_infos])

    def after_step(self, observations: Any, dones: np.ndarray, infos: Sequence[dict[str, Any]]) -> np.ndarray:
        newest = [first if done else info for first, done, info in zip(self.env.reset_infos, dones, infos, strict=True)]
        return self._checked([_of(info) for info in newest])

    def final(self, row: int, successors: Any, info: dict[str, Any]) -> Any:
        return _last(info.get(KEY), self.env.action_space)


def mask_size(space: spaces.Space) -> int | None:
    """M for a space of choices, or one that has such among its parts; None for any other."""
    sizes = _choice_sizes(space)
    return sum(sizes) if sizes else None


def holds_masks(observation_space: spaces.Space, action_space: spaces.Space) -> bool:
    """Whether observations hold masks of the actions."""
    if not isinstance(observation_space, spaces.Dict) or KEY not in observation_space.spaces:
        return False
    return bool(np.prod(observation_space[KEY].shape or ()) == mask_size(action_space))


def find_masks(env: VecEnv) -> Masks | None:
    """Returns a reader of the environments' masks; None if they have none.

    Masks in infos are found after a reset only.

    Raises:
        ValueError: masks among the observations that ``VecNormalize`` changes.
    """
    size = mask_size(env.action_space)
    if size is None:
        return None
    if env.has_attr(MASKS):
        return MethodMasks(env, size)
    if holds_masks(env.observation_space, env.action_space):
        normalizer = unwrap_vec_normalize(env)
        if normalizer is not None and normalizer.norm_obs and KEY in (normalizer.norm_obs_keys or (KEY,)):
            raise ValueError(
                f"VecNormalize changes the masks that the observations have under {KEY!r}: pass it norm_obs_keys=[...] "
                "with the other keys."
            )
        return ObservationMasks(env, size)
    if any(KEY in info for info in getattr(env, "reset_infos", [])):
        return InfoMasks(env, size)
    return None


def mask_of(env: gym.Env, observation: Any, info: dict[str, Any]) -> np.ndarray | None:
    """Returns the mask of one environment after a reset or step that returned these: [M] bool; None if it has none.

    Raises:
        ValueError: the mask is of another shape, has other entries than 0 and 1, or forbids everything.
    """
    space = env.action_space
    size = mask_size(space)
    if size is None:
        return None
    if env.has_wrapper_attr(MASKS):
        mask = env.get_wrapper_attr(MASKS)()
    elif holds_masks(env.observation_space, space):
        mask = observation[KEY]
    elif KEY in info:
        mask = info[KEY]
    else:
        return None
    return checked([mask], size, space)[0]


def sample_allowed(space: spaces.Space, mask: np.ndarray | None) -> Any:
    """A random action among those that a mask [M] allows, drawn by the space; None allows all."""
    return space.sample() if mask is None else space.sample(mask=_in_parts(space, iter(mask)))


def checked(masks: Any, size: int, space: spaces.Space) -> np.ndarray:
    """Masks [N, M] bool.

    Raises:
        ValueError: they are of another shape, have other entries than 0 and 1, or forbid everything.
    """
    rows = as_bools(masks, space)
    rows = rows.reshape(len(rows), -1)
    if rows.shape[1] != size:
        raise ValueError(
            f"masks of {space} must have {size} entries for each environment, got shape {np.shape(masks)[1:]}."
        )
    allowed = rows if isinstance(space, spaces.Discrete) else _choices(rows, _choice_sizes(space))
    if not allowed.any(-1).all():
        row = int(np.argwhere(~allowed.any(-1))[0, 0])
        raise ValueError(
            f"the mask of environment {row} forbids every choice of {space}: {rows[row].astype(int).tolist()}. "
            "Allow at least one, such as doing nothing."
        )
    return rows


def _joined(masks: Any) -> Any:
    """Masks in which lists of arrays, one for each choice, are concatenated."""
    if isinstance(masks, list | tuple) or (isinstance(masks, np.ndarray) and masks.dtype == object and masks.ndim):
        return [joined(row) for row in masks]
    return masks


def masks_for_rows(masks: Any, rows: int, size: int, space: spaces.Space) -> np.ndarray:
    """The argument ``action_masks`` of ``predict``, [M] or [B, M], as [B, M] bool.

    Args:
        masks: which choices are allowed.
        rows: B, of the observations.
        size: M.
        space: of the actions.

    Raises:
        ValueError: they are of another shape, have other entries than 0 and 1, or forbid everything.
    """
    one = joined(masks)
    array = one if isinstance(one, np.ndarray) and one.size == size else np.asarray(_joined(masks))
    allowed = checked(array.reshape(1, -1) if array.ndim < 2 or array.size == size else array, size, space)
    if len(allowed) not in (1, rows):
        raise ValueError(
            f"action_masks has the shape {array.shape}, {len(allowed)} masks for {rows} observations. Pass one for "
            f"each, ({rows}, {size}), or one for all, ({size},)."
        )
    return allowed if len(allowed) == rows else np.repeat(allowed, rows, axis=0)


def as_bools(masks: Any, space: spaces.Space) -> np.ndarray:
    """Masks of any shape as bool.

    Raises:
        ValueError: an entry is neither 0 nor 1: it may mean the opposite, as the 0 of log-probabilities does.
    """
    array = np.asarray(_joined(masks))
    if array.dtype.kind == "b":
        return array
    rows = array.astype(bool) if array.dtype.kind in "iuf" else np.zeros(array.shape, bool)
    strange = rows != array
    if np.any(strange):
        raise ValueError(
            f"masks of {space} must have the entries True and False, or 1 and 0, got {array[strange][0]!r}. Of "
            "logarithms, which are -inf where a choice is forbidden, pass `logarithms > -np.inf`."
        )
    return rows


def _last(mask: Any, space: spaces.Space) -> Any:
    """The mask of a state in which an episode ended, where nothing need be allowed; None: it is unknown."""
    return None if mask is None else as_bools(mask, space)


def _choice_sizes(space: spaces.Space) -> list[int]:
    """Returns the number of classes of each choice: two for an entry of a MultiBinary."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)]
    if isinstance(space, spaces.MultiDiscrete):
        return [int(n) for n in space.nvec.reshape(-1)]
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(np.prod(space.shape))
    return [n for part in parts(space) for n in _choice_sizes(part.space)] if is_composed(space) else []


def _choices(rows: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """[N, M] -> [N, choices, classes], False where a choice has fewer classes than another."""
    padded = np.zeros((len(rows), len(sizes), max(sizes)), dtype=bool)
    start = 0
    for i, n in enumerate(sizes):
        padded[:, i, :n] = rows[:, start : start + n]
        start += n
    return padded


def _in_parts(space: spaces.Space, mask: Iterator[Any]) -> Any:
    """The next entries of a flat mask as Gymnasium's ``space.sample(mask=...)`` takes them."""
    if is_composed(space):
        own = [_in_parts(part.space, mask) for part in parts(space)]
        return compose(space, iter(own))
    if isinstance(space, spaces.MultiBinary):
        coins = np.array([next(mask) for _ in range(2 * int(np.prod(space.shape)))], bool).reshape(-1, 2)
        return np.where(coins.all(1), 2, coins[:, 1]).astype(np.int8).reshape(space.shape)
    classes = [np.array([next(mask) for _ in range(n)], np.int8) for n in _choice_sizes(space)]
    if isinstance(space, spaces.Discrete):
        return classes[0]
    return _nested(classes, space.shape) if isinstance(space, spaces.MultiDiscrete) else None


def _nested(classes: list[np.ndarray], shape: Sequence[int]) -> Any:
    """Nests the entries, one for each choice, in tuples as deep as the choices' shape."""
    if len(shape) == 1:
        return tuple(classes)
    each = len(classes) // shape[0]
    return tuple(_nested(classes[i * each : (i + 1) * each], shape[1:]) for i in range(shape[0]))


def _of(info: dict[str, Any]) -> Any:
    try:
        return info[KEY]
    except KeyError:
        raise ValueError(
            f"an info lacks the key {KEY!r}, which others have: give it after every reset and every step, got the keys "
            f"{sorted(info)}."
        ) from None
