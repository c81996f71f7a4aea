"""Gymnasium environments in this process, stepped in turn: reset, step with auto-reset, and the errors when one breaks
the API."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.spaces import REAL, Key, dict_to_obs, obs_space_info, own_actions
from polyak.envs.validation import (
    MASKS,
    NUMBERS,
    check_choices,
    check_has_spaces,
    check_info,
    check_masks_are_a_method,
    check_numbers,
    check_reward,
    check_same_spaces,
    check_success,
    check_whole,
    is_over,
)
from polyak.envs.vec.reaching import CALLS, GymEnvs, add_note, get_env_attr, noted
from polyak.envs.vec.vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn
from polyak.envs.wrappers.monitor import CutEpisodes

FINAL = "terminal_action_masks"
"""The key of the last info of an episode for the masks of its last observation: the reset happens before they are
read."""

_FIRST = 2
"""Observations of each environment that are compared with its space: those of its first reset and step."""

ObservationBuffers = Mapping[Key, np.ndarray]
"""One array ``(num_envs, *shape)`` per key of :func:`polyak.envs.spaces.obs_space_info`."""


def allocate_observations(observation_space: spaces.Space, num_envs: int) -> dict[Key, np.ndarray]:
    """Zeroed arrays for the observations of ``num_envs`` environments, one per key."""
    keys, shapes, dtypes = obs_space_info(observation_space)
    return {key: np.zeros((num_envs, *shapes[key]), dtype=dtypes[key]) for key in keys}


def joined(mask: Any) -> Any:
    """A mask; one that is given as a list of arrays, one for each choice, as these one after the other."""
    by_choice = isinstance(mask, list | tuple) and len(mask) > 0 and all(map(_is_flat, mask))
    return np.concatenate(mask) if by_choice else mask


def _is_flat(part: Any) -> bool:
    """Whether something is a list of numbers; unlike ``np.ndim(part) == 1``, lists of unequal lists are none."""
    if isinstance(part, list | tuple):
        return not any(isinstance(item, list | tuple) or np.ndim(item) for item in part)
    return np.ndim(part) == 1


def check_env_fns(env_fns: Any) -> None:
    """Accept several things, one for each environment.

    Raises:
        TypeError: it is one function or one environment.
    """
    if callable(env_fns) or isinstance(env_fns, str | gym.Env) or not isinstance(env_fns, Iterable):
        one = "lambda: env" if isinstance(env_fns, gym.Env) else "make"
        raise TypeError(
            f"env_fns={env_fns!r:.200} must be a list of functions, one for each environment: [{one}], or "
            f"[make for _ in range(4)]. make_vec_env(..., n_envs=4) does that by itself."
        )


def build_env(env_fn: Callable[[], gym.Env], index: int) -> gym.Env:
    """Call the factory of environment ``index``.

    Raises:
        TypeError: when the factory is not callable.
        ValueError: when it returns something else than a gymnasium environment, or one without spaces.
    """
    if not callable(env_fn):
        raise TypeError(
            f"env_fns[{index}] must be a function that returns an environment, got {type(env_fn).__name__}. "
            "Pass [lambda: env] instead of [env]."
        )
    with noted(f"raised by env_fns[{index}]()"):
        env = env_fn()
    if isinstance(env, gym.Env):
        check_has_spaces(env)
        check_masks_are_a_method(env)
        return env
    if isinstance(env, gym.vector.VectorEnv):
        raise ValueError(
            f"env_fns[{index}] returned a gymnasium.vector.VectorEnv, which holds several environments. "
            "Use GymVectorEnv(vector_env) instead."
        )
    raise ValueError(
        f"env_fns[{index}] returned {type(env).__module__}.{type(env).__name__}, not a Gymnasium environment. "
        "Subclass gymnasium.Env; wrap an environment of the old gym package with "
        "shimmy.GymV26CompatibilityV0(env=env) or shimmy.GymV21CompatibilityV0(env=env)."
    )


_UNKNOWN = re.compile(r"reset\(\) got an unexpected keyword argument '(seed|options)'")


class EnvSlot:
    """Runs the environment at one index and writes its observations to row ``index`` of shared arrays.

    The environment is passed to each call, so that its owner may replace it (to wrap it) at any time.

    Args:
        index: place in the VecEnv, used in messages.
        buffers: arrays ``(num_envs, *shape)``, see :func:`allocate_observations`.
    """

    def __init__(self, index: int, buffers: ObservationBuffers):
        self.index = index
        self.seed: int | None = None
        # `array[index, ...]` is a view even where the observation is a single number.
        self._rows: dict[Key, np.ndarray] = {key: array[index, ...] for key, array in buffers.items()}
        self._single = self._rows.get(None)
        self._shape = None if self._single is None else self._single.shape
        self._whole = {key: _own_types(row.dtype) for key, row in self._rows.items() if row.dtype.kind in "iu"}
        """By key, for entries stored as integers: the types that fit; other numbers would be truncated."""
        self._unseen = _FIRST
        """The number of observations still to be compared with the space."""
        self._quick: tuple[np.dtype, ...] = ()
        """Arrays of these types are written without a further look, once the first ones have been looked at."""

    def reset(self, env: gym.Env, seed: int | None = None, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Reset the environment, write its first observation to the row and return the info."""
        if seed is not None:
            self.seed = seed
        try:
            result = env.reset(seed=seed, options=options) if options else env.reset(seed=seed)
            return self._accept_reset(env, result)
        except (Exception, SystemExit) as error:
            if isinstance(error, TypeError) and (argument := _UNKNOWN.search(str(error))):
                raise TypeError(
                    f"reset() of environment {self.index} ({env}) does not take {argument[1]}, which Gymnasium passes: "
                    "write `def reset(self, *, seed=None, options=None)`, and `super().reset(seed=seed)` in it."
                ) from error
            add_note(error, f"raised by reset() of environment {self.index} ({env}), {self._last_seed()}")
            raise

    def step(self, env: gym.Env, action: Any, reset_infos: Any) -> tuple[Any, bool, dict[str, Any]]:
        """Step the environment, reset it if it ended, and write the observation to act on next to the row.

        Args:
            env: the environment.
            action: as the environment takes it.
            reset_infos: where to put the info of the reset, at :attr:`index`, if there is one.

        Returns:
            reward; done; info, copied so that later steps do not alter it, with ``"TimeLimit.truncated"`` and
            at the end ``"terminal_observation"``.
        """
        try:
            result = env.step(action)
            try:
                obs, reward, terminated, truncated, raw_info = result
            except (TypeError, ValueError):
                raise ValueError(self._wrong_step(env, result)) from None
            if type(reward) not in NUMBERS:
                check_reward(env, reward)
            if type(obs) is np.ndarray and obs.shape == self._shape and obs.dtype in self._quick:
                self._single[...] = obs  # type: ignore[index]
            else:
                self._write(env, obs)
            info = {} if raw_info == {} else own_info(check_info(env, raw_info))
            info["TimeLimit.truncated"] = False
            done = not (terminated is False and truncated is False) and is_over(env, terminated, truncated)
            if done:
                reset_infos[self.index] = self._begin_another(env, obs, info, not terminated)
            return reward, done, info
        except (Exception, SystemExit) as error:
            self._say_where(error, env, action)
            raise

    def _say_where(self, error: BaseException, env: gym.Env, action: Any) -> None:
        where = f"raised by step() of environment {self.index} ({env}), {self._last_seed()}"
        add_note(error, f"{where}, action {action!r:.500}")

    def _begin_another(self, env: gym.Env, obs: Any, info: dict[str, Any], is_cut: bool) -> dict[str, Any]:
        """Complete the last info of an episode, which ended with ``obs``, and reset; the info of the reset."""
        info["TimeLimit.truncated"] = is_cut
        check_success(env, info)
        check_choices(env, obs)  # no policy acts on it, so no other check reads it
        info["terminal_observation"] = self._read(obs)
        if env.has_wrapper_attr(MASKS):
            info[FINAL] = np.array(joined(get_env_attr(env, MASKS)()))
        cut = CutEpisodes(env)
        reset_info = self._accept_reset(env, env.reset())
        cut.record(info)
        return reset_info

    # --- observations ---

    def _write(self, env: gym.Env, obs: Any) -> None:
        parts = obs if self._single is None else {None: obs}
        for key, row in self._rows.items():
            try:
                part = parts[key]
            except (KeyError, IndexError, TypeError):
                raise ValueError(
                    f"The observation of environment {self.index} has no entry {key!r}, which its observation space "
                    f"has: got {_describe(obs)}. Return every entry of the space, or remove it from the space."
                ) from None
            numbers = type(part) is np.ndarray and part.dtype.kind in REAL
            if (shape := part.shape if numbers else check_numbers(env, key, part)) != row.shape:
                raise ValueError(self._wrong_shape(key, shape, row.shape))
            if key in self._whole and type(part) not in self._whole[key]:
                check_whole(env, key, part, row.dtype)
            row[...] = part
        if self._unseen:
            self._look(env, obs)
        elif self._single is not None and not self._whole and type(obs) is np.ndarray:
            self._quick = self._single.dtype, obs.dtype

    def _look(self, env: gym.Env, obs: Any) -> None:
        """Compare one of the first observations with its space. Later ones are not compared, to save time."""
        self._unseen -= 1
        if self._unseen == 0 and self._single is not None:
            self._quick = (self._single.dtype,)
        check_choices(env, obs)

    def _read(self, obs: Any) -> Any:
        # `[()]` makes a number of an array without dimensions and leaves any other as it is.
        if self._single is not None:
            return self._single.copy()[()]
        copies = {key: row.copy()[()] for key, row in self._rows.items()}
        return tuple(copies.values()) if isinstance(obs, tuple) else copies

    def _accept_reset(self, env: gym.Env, result: Any) -> dict[str, Any]:
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            raise ValueError(
                f"reset() of environment {self.index} ({env}) must return (observation, info dict), "
                f"got {_describe(result)}. The old gym API returned the observation alone: "
                "return `observation, {}`, or wrap the environment with shimmy.GymV21CompatibilityV0(env=env)."
            )
        obs, info = result
        self._write(env, obs)
        return info

    # --- messages ---

    def _wrong_shape(self, key: Key, actual: tuple[int, ...], expected: tuple[int, ...]) -> str:
        where = "" if key is None else f" at key {key!r}"
        return (
            f"The observation of environment {self.index}{where} has shape {actual}, expected {expected} by its "
            "observation space. Correct the space or what reset() and step() return "
            "(polyak.envs.check_env(env) finds such mistakes)."
        )

    def _wrong_step(self, env: gym.Env, result: Any) -> str:
        return (
            f"step() of environment {self.index} ({env}) must return (observation, reward, terminated, truncated, "
            f"info), got {_describe(result)}. The old gym API returned (observation, reward, done, info): return "
            "`terminated, truncated` in place of `done`, or wrap the environment with "
            "shimmy.GymV21CompatibilityV0(env=env)."
        )

    def _last_seed(self) -> str:
        return "never seeded" if self.seed is None else f"last seeded with {self.seed}"


def _own_types(dtype: np.dtype) -> frozenset[type]:
    """Types of numbers that an array of whole numbers takes as they are."""
    return frozenset({dtype.type, int} if dtype == np.int64 else {dtype.type})


def _describe(result: Any) -> str:
    if isinstance(result, tuple):
        return f"a tuple of {len(result)} ({', '.join(type(part).__name__ for part in result)})"
    if isinstance(result, dict):
        return f"a dict with keys {list(result)}"
    return f"a {type(result).__name__}"


# --- infos ----------------------------------------------------------------------------------------------------------

_IMMUTABLE = frozenset({bool, int, float, complex, str, bytes, type(None), *np.sctypeDict.values()})


def own_info(info: dict[str, Any]) -> dict[str, Any]:
    """Copy an info dict with the arrays, dicts, lists and tuples in it; other objects stay shared.

    An environment may reuse its info or an array in it; the copy keeps what was true at this step.
    """
    return {key: value if type(value) in _IMMUTABLE else _owned(value) for key, value in info.items()}


def _owned(value: Any) -> Any:
    kind = type(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if kind is dict:
        return own_info(value)
    if kind is list or kind is tuple:
        return kind(item if type(item) in _IMMUTABLE else _owned(item) for item in value)
    if isinstance(value, (dict, list, set)):
        return copy.copy(value)
    return value


class DummyVecEnv(GymEnvs):
    """Steps several environments in turn; the fastest choice for environments as light as CartPole.

    Args:
        env_fns: functions that each make one environment.

    Raises:
        ValueError: when there are none, when one is not a Gymnasium environment, when two return the same
            environment or have different spaces.
    """

    def __init__(self, env_fns: Sequence[Callable[[], gym.Env]]):
        check_env_fns(env_fns)
        self.envs = [build_env(env_fn, index) for index, env_fn in enumerate(env_fns)]
        _check_envs(self.envs)
        check_same_spaces([(env.observation_space, env.action_space) for env in self.envs])
        first = self.envs[0]
        self.metadata = first.metadata
        super().__init__(len(self.envs), first.observation_space, first.action_space)
        self.buf_obs = allocate_observations(self.observation_space, self.num_envs)
        self.buf_rews = np.zeros(self.num_envs, dtype=np.float32)
        self.buf_dones = np.zeros(self.num_envs, dtype=bool)
        self.buf_infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        self.actions: Any = ()
        self._alone = self.action_space.shape == ()  # an action is one number
        self._take_buffers()

    def _take_buffers(self) -> None:
        self._slots = [EnvSlot(index, self.buf_obs) for index in range(self.num_envs)]
        self._single = self.buf_obs.get(None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_slots", "_single")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._take_buffers()  # a copy's slots must write into the copy's buffers

    def reset(self) -> VecEnvObs:
        self.resets += 1
        for index, (slot, env) in enumerate(zip(self._slots, self.envs, strict=True)):
            self.reset_infos[index] = slot.reset(env, self._seeds[index], self._options[index])
        self._reset_seeds()
        self._reset_options()
        return self._observations()

    def step_async(self, actions: Any) -> None:
        self.actions = self._batch_of_actions(actions)

    def step_wait(self) -> VecEnvStepReturn:
        return self.step_rows(self.actions)

    def step_rows(self, actions: Any) -> VecEnvStepReturn:
        envs, rewards, dones, infos = self.envs, self.buf_rews, self.buf_dones, []
        own = own_actions(actions, self.action_space) if self._alone else actions
        for index, slot in enumerate(self._slots):
            rewards[index], dones[index], info = slot.step(envs[index], own[index], self.reset_infos)
            infos.append(info)
        self.buf_infos = infos
        observations = self._observations() if self._single is None else self._single.copy()  # spares a call
        return observations, rewards.copy(), dones.copy(), list(infos)

    def _observations(self) -> VecEnvObs:
        # A copy: the buffers are written again at the next step.
        return dict_to_obs(self.observation_space, {key: array.copy() for key, array in self.buf_obs.items()})

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _call(self, what: str, argument: Any, indices: VecEnvIndices) -> list[Any]:
        results = []
        for index in self._get_indices(indices):
            env = self.envs[index]
            doing = argument[0] if what == "env_method" else what
            with noted(f"raised by {doing}() of environment {index} ({env})"):
                results.append(CALLS[what](env, argument))
        return results


def _check_envs(envs: Sequence[gym.Env]) -> None:
    if not envs:
        raise ValueError("env_fns must hold at least one function that returns an environment, got none.")
    places: dict[int, int] = {}
    for index, env in enumerate(envs):
        other = places.setdefault(id(env.unwrapped), index)
        if other != index:
            raise ValueError(
                "Each function of env_fns must make an environment of its own, but they returned the same instance for "
                f"environments {other} and {index}. "
                'Make the environment inside the function: [lambda: gym.make("CartPole-v1") for _ in range(n_envs)].'
            )
