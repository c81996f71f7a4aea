"""A ``gymnasium.vector.VectorEnv`` as a VecEnv."""

from __future__ import annotations

import inspect
import time
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array

from polyak.envs.adapters.infos import InfoRows
from polyak.envs.native.envpool import EnvPoolVectorEnv
from polyak.envs.nested_spaces import is_composed, mapped_parts
from polyak.envs.state import EnvStateError
from polyak.envs.vec.reaching import get_env_attr, is_env_wrapped, set_env_attr
from polyak.envs.vec.vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn
from polyak.envs.wrapper_statistics import Found, found_in, put_into
from polyak.envs.wrappers.monitor import Monitor
from polyak.warning import warn_user

NEXT_STEP, SAME_STEP, DISABLED = "NextStep", "SameStep", "Disabled"
"""Values of ``gymnasium.vector.AutoresetMode``: when and by which call an environment that ended is reset."""


class GymVectorEnv(VecEnv):
    """Gives a Gymnasium vector environment the VecEnv contract, with the same transitions in all autoreset modes.

    - SAME_STEP: the vector environment resets at once, as a VecEnv does; its ``final_obs`` becomes
      ``terminal_observation``.
    - DISABLED: the environments that ended are reset here, through ``reset(options={"reset_mask": ended})``.
    - NEXT_STEP: the vector environment would spend the next step on the reset, ignoring the action; that step is no
      transition. The environments that ended are reset here instead, as for DISABLED, which is only possible when
      the vector environment takes a ``reset_mask``.

    Args:
        env: the vector environment.
        autoreset_mode: overrides ``env.metadata["autoreset_mode"]``, for a vector environment without that entry.
        reset_mask: whether ``env.reset`` honours ``options["reset_mask"]``; None to find out from its source. It is
            also checked at each masked reset that the others were left alone.
        episode_statistics: put ``{"r": return, "l": length, "t": seconds}`` into ``info["episode"]`` at the end of
            each episode, as Monitor does.
        copy: whether observations are copied. Unneeded where the vector environment returns new arrays from each
            step, and slow where they are images.

    Raises:
        TypeError: when ``env`` is no vector environment.
        ValueError: when the mode is unknown, or is NEXT_STEP and the vector environment takes no ``reset_mask``.
    """

    def __init__(
        self,
        env: gym.vector.VectorEnv,
        *,
        autoreset_mode: str | None = None,
        reset_mask: bool | None = None,
        episode_statistics: bool = True,
        copy: bool = True,
    ):
        if not isinstance(env, gym.vector.VectorEnv):
            raise TypeError(
                f"GymVectorEnv wraps a gymnasium.vector.VectorEnv, got {type(env).__name__}. "
                "For single environments use DummyVecEnv([lambda: env])."
            )
        self.env = env
        self.autoreset_mode = _autoreset_mode(env, autoreset_mode)
        if self.autoreset_mode == NEXT_STEP and env.num_envs > 1:
            _check_can_reset_some(env, reset_mask)
        self.metadata = env.metadata
        self.episode_statistics = episode_statistics
        self.copy = copy
        self._actions: Any = None
        self._returns = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, dtype=np.int64)
        self._t_start = time.time()
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)

    # --- stepping ---

    def reset(self) -> VecEnvObs:
        self.resets += 1
        obs, infos = self.env.reset(seed=self._seed_of_reset(), options=_joint_options(self._options))
        self.reset_infos = _split_infos(infos, self.num_envs)
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = 0.0
        self._lengths[:] = 0
        return self._own(obs)

    def _seed_of_reset(self) -> Any:
        """The seed argument of the next reset: one for each environment where each has its own generator, else a single
        one."""
        each = isinstance(self.env.unwrapped, (SyncVectorEnv, AsyncVectorEnv, EnvPoolVectorEnv))
        return None if None in self._seeds else self._seeds if each else self._seeds[0]

    def step_async(self, actions: Any) -> None:
        if is_composed(self.action_space):  # Gymnasium's are stacked
            batch: Any = create_empty_array(self.action_space, self.num_envs)
            actions = concatenate(self.action_space, self._batch_of_actions(actions), batch)
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        obs, rewards, dones, infos = self._advance()
        return obs, rewards, dones, infos.all()

    def step_rows(self, actions: Any) -> tuple[VecEnvObs, np.ndarray, np.ndarray, InfoRows]:
        self.step_async(actions)
        return self._advance()

    def _advance(self) -> tuple[VecEnvObs, np.ndarray, np.ndarray, InfoRows]:
        if self._actions is None:
            raise RuntimeError("step_wait() was called without step_async() before it.")
        raw_obs, raw_rewards, terminated, truncated, raw_infos = self.env.step(self._actions)
        self._actions = None
        obs = self._own(raw_obs)
        rewards = np.array(raw_rewards, dtype=np.float32)
        dones = np.logical_or(terminated, truncated)
        self._returns += raw_rewards
        self._lengths += 1
        if not dones.any():
            return obs, rewards, dones, self._infos(raw_infos, {})
        over = self._episodes_over(raw_infos, dones)
        if self.autoreset_mode == SAME_STEP:
            made = self._after_own_reset(obs, raw_infos, dones, over)
            raw_infos = {key: value for key, value in raw_infos.items() if key not in _OF_THE_END}
        else:
            obs, made = self._reset_ended(obs, raw_infos, dones)
        for index, info in made.items():
            info["TimeLimit.truncated"] = bool(truncated[index] and not terminated[index])
        if self.episode_statistics:
            self._add_episodes(made, over)
        self._returns[over] = 0.0
        self._lengths[over] = 0
        return obs, rewards, dones, self._infos(raw_infos, made)

    def _infos(self, raw_infos: dict[str, Any], made: dict[int, dict[str, Any]]) -> InfoRows:
        make = partial(_split_infos, raw_infos, self.num_envs, {"TimeLimit.truncated": False})
        return InfoRows(self.num_envs, made, make)

    def _own(self, obs: Any) -> Any:
        """The observations as arrays that later steps leave alone."""
        return mapped_parts(np.array, obs) if self.copy else obs

    def _episodes_over(self, raw_infos: dict[str, Any], dones: np.ndarray) -> np.ndarray:
        """Returns which environments ended an episode as ``info["episode"]`` counts them."""
        return dones

    def _after_own_reset(
        self, obs: VecEnvObs, raw_infos: dict[str, Any], dones: np.ndarray, over: np.ndarray
    ) -> dict[int, dict[str, Any]]:
        """Sort out the infos of a vector environment that has reset some of its environments in this step: the last
        ones of these, by place."""
        if "final_obs" not in raw_infos:
            raise RuntimeError(
                f"{self.env} ended an episode in autoreset mode SAME_STEP without 'final_obs' in its infos, so the "
                "last observation is lost. Use another autoreset mode."
            )
        places = dones.nonzero()[0].tolist()
        others = {key: value for key, value in raw_infos.items() if key not in _OF_THE_END}
        own: dict[str, Any] = {key: raw_infos[key] for key in ("episode", "_episode") if key in raw_infos}
        of_resets, of_ends, episodes = (
            _rows_of(infos, places, self.num_envs) for infos in (others, raw_infos.get("final_info", {}), own)
        )
        for index in places:
            self.reset_infos[index] = of_resets[index]
            of_ends[index] |= episodes[index]
            of_ends[index]["terminal_observation"] = _row(raw_infos["final_obs"], index, self.observation_space)
        return of_ends

    def _reset_ended(
        self, obs: VecEnvObs, raw_infos: dict[str, Any], dones: np.ndarray
    ) -> tuple[VecEnvObs, dict[int, dict[str, Any]]]:
        """Reset the environments that ended: the observations to act on next, and the last infos of these by place."""
        places = dones.nonzero()[0].tolist()
        made = _rows_of(raw_infos, places, self.num_envs)
        for index, info in made.items():
            info["terminal_observation"] = _row(obs, index, self.observation_space)
        if dones.all():
            raw_obs, reset_infos = self.env.reset()
        else:
            raw_obs, reset_infos = self.env.reset(options={"reset_mask": dones.copy()})
        new_obs = self._own(raw_obs)
        _check_untouched(self.env, obs, new_obs, ~dones)
        for index, info in _rows_of(reset_infos, places, self.num_envs).items():
            self.reset_infos[index] = info
        return new_obs, made

    def _add_episodes(self, made: dict[int, dict[str, Any]], over: np.ndarray) -> None:
        seconds = round(time.time() - self._t_start, 6)
        places = over.nonzero()[0]
        returns, lengths = self._returns[places].tolist(), self._lengths[places].tolist()
        for index, total, length in zip(places.tolist(), returns, lengths, strict=True):
            made[index]["episode"] = {"r": round(total, 6), "l": length, "t": seconds}

    def close(self) -> None:
        self.env.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        frames: Any = self.env.render()
        return [None] * self.num_envs if frames is None else list(frames)

    # --- reaching into the environments ---

    # A SyncVectorEnv holds the environments. An AsyncVectorEnv queries its workers, which end when an attribute is
    # missing; so the presence of one is found on an environment made for that. Any other vector environment steps all
    # at once and has no environments: its own attributes represent theirs.

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        chosen = list(self._get_indices(indices))
        inner = self.env.unwrapped
        if attr_name == "render_mode":
            return [self.env.render_mode for _ in chosen]
        if isinstance(inner, gym.vector.SyncVectorEnv):
            return [get_env_attr(inner.envs[index], attr_name) for index in chosen]
        if isinstance(inner, gym.vector.AsyncVectorEnv):
            self._check_has(attr_name)
            values = inner.get_attr(attr_name)
            return [values[index] for index in chosen]
        return [getattr(inner, attr_name) for _ in chosen]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        inner = self.env.unwrapped
        if isinstance(inner, gym.vector.SyncVectorEnv):
            for index in self._get_indices(indices):
                set_env_attr(inner.envs[index], attr_name, value)
            return
        self._check_all(indices, f"set_attr({attr_name!r})")
        if isinstance(inner, gym.vector.AsyncVectorEnv):
            inner.set_attr(attr_name, [value] * self.num_envs)
        else:
            setattr(inner, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        inner = self.env.unwrapped
        if isinstance(inner, gym.vector.SyncVectorEnv):
            methods = self.get_attr(method_name, indices)
            return [method(*method_args, **method_kwargs) for method in methods]
        if isinstance(inner, gym.vector.AsyncVectorEnv):
            self._check_all(indices, f"env_method({method_name!r})")
            self._check_has(method_name)
            return list(inner.call(method_name, *method_args, **method_kwargs))
        raise NotImplementedError(
            f"{inner} steps all environments as one, so there is no environment to call {method_name!r} on. "
            "Call the vector environment itself: vec_env.env.unwrapped."
        )

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        chosen = list(self._get_indices(indices))
        if wrapper_class is Monitor and self.episode_statistics:
            return [True for _ in chosen]  # infos have the entries that Monitor adds
        inner = self.env.unwrapped
        if isinstance(inner, gym.vector.SyncVectorEnv):
            return [is_env_wrapped(inner.envs[index], wrapper_class) for index in chosen]
        wrapped = isinstance(inner, gym.vector.AsyncVectorEnv) and is_env_wrapped(self._sample, wrapper_class)
        return [wrapped for _ in chosen]

    def has_attr(self, attr_name: str) -> bool:
        if isinstance(self.env.unwrapped, gym.vector.AsyncVectorEnv):
            return attr_name == "render_mode" or self._sample.has_wrapper_attr(attr_name)
        return super().has_attr(attr_name)

    def get_statistics(self, indices: VecEnvIndices = None) -> list[Found]:
        own, inner = found_in(self.env, shared=True), self.env.unwrapped
        if isinstance(inner, gym.vector.AsyncVectorEnv) and found_in(self._sample):
            raise EnvStateError(
                "an AsyncVectorEnv does not show the running statistics in its processes. Use SubprocVecEnv, or "
                "VecNormalize instead of a wrapper in each environment."
            )
        envs = inner.envs if isinstance(inner, gym.vector.SyncVectorEnv) else [None] * self.num_envs
        return [{**own, **({} if envs[i] is None else found_in(envs[i]))} for i in self._get_indices(indices)]

    def set_statistics(self, found: list[Found], indices: VecEnvIndices = None) -> None:
        put_into(self.env, found[0] if found else {})
        if isinstance(inner := self.env.unwrapped, gym.vector.SyncVectorEnv):
            for index, one in zip(self._get_indices(indices), found, strict=True):
                put_into(inner.envs[index], one)

    @cached_property
    def _sample(self) -> gym.Env:
        """Makes, resets and closes one more environment, which has the same attributes and wrappers as those in the
        workers."""
        env = self.env.unwrapped.env_fns[0]()  # type: ignore[attr-defined]
        env.reset()
        env.close()
        return env

    def _check_has(self, attr_name: str) -> None:
        if not self.has_attr(attr_name):
            raise AttributeError(f"The environments of {self.env} have no attribute {attr_name!r}.")

    def _check_all(self, indices: VecEnvIndices, doing: str) -> None:
        if sorted(self._get_indices(indices)) != list(range(self.num_envs)):
            raise NotImplementedError(
                f"{doing}: {type(self.env.unwrapped).__name__} reaches only all environments together, got "
                f"indices={indices}. Pass indices=None, or use SubprocVecEnv."
            )


# --- modes ----------------------------------------------------------------------------------------------------------

_NOTHING: dict[str, Any] = {}
_OF_THE_END = frozenset({"final_obs", "_final_obs", "final_info", "_final_info", "episode", "_episode"})


def _autoreset_mode(env: gym.vector.VectorEnv, given: str | None) -> str:
    mode = env.metadata.get("autoreset_mode") if given is None else given
    value = getattr(mode, "value", mode)
    if value in (NEXT_STEP, SAME_STEP, DISABLED):
        return value
    if value is None:
        raise ValueError(
            f"{env} does not say how it resets: its metadata has no 'autoreset_mode'. Pass "
            f"autoreset_mode={NEXT_STEP!r}, {SAME_STEP!r} or {DISABLED!r} to GymVectorEnv."
        )
    raise ValueError(f"autoreset_mode must be {NEXT_STEP!r}, {SAME_STEP!r} or {DISABLED!r}, got {mode!r}.")


def _check_can_reset_some(env: gym.vector.VectorEnv, reset_mask: bool | None) -> None:
    inner = env.unwrapped
    # An AsyncVectorEnv without shared memory resets again in the step after a masked reset.
    forgets = isinstance(inner, gym.vector.AsyncVectorEnv) and not inner.shared_memory
    if reset_mask is None:
        reset_mask = _mentions_reset_mask(type(inner)) and not forgets
    if not reset_mask:
        raise ValueError(
            f"{env} resets an environment that ended in the step after (autoreset mode NEXT_STEP) and does not take "
            "reset(options={'reset_mask': ...}), so that step cannot be kept out of the data. Fix: make it with "
            "autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP or DISABLED, for example "
            "gymnasium.make_vec(env_id, num_envs=n, vectorization_mode='sync', "
            "vector_kwargs={'autoreset_mode': 'SameStep'}), or use make_vec_env(env_id, n_envs=n). "
            "If it does take a reset_mask, pass reset_mask=True to GymVectorEnv."
        )


def resettable(env: gym.vector.VectorEnv) -> gym.vector.VectorEnv:
    """``env``; or, if it resets one step late and cannot be changed, the same environments made again, one by one.

    ``gymnasium.make_vec("CartPole-v1")`` makes such a vector. One in wrappers, or not made by name, is returned as it
    is, for :class:`GymVectorEnv` to refuse.
    """
    late = _autoreset_mode(env, None) == NEXT_STEP and env.num_envs > 1
    if not late or env.unwrapped is not env or env.spec is None:
        return env
    try:
        _check_can_reset_some(env, None)
    except ValueError:
        own = {key: value for key, value in env.spec.kwargs.items() if key not in _OF_THE_VECTOR}
        options = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
        again = gym.make_vec(env.spec.id, env.num_envs, vectorization_mode="sync", vector_kwargs=options, **own)
        warn_user(
            f"{env} resets an environment in the step after its end, which is no experience: its environments were "
            "made again, one by one, by gymnasium.make_vec(..., vectorization_mode='sync'). make_vec_env(name, "
            "n_envs=n) makes such at once."
        )
        return again
    return env


_OF_THE_VECTOR = frozenset(("num_envs", "vectorization_mode", "vector_kwargs", "wrappers"))
"""Entries of a spec that describe how environments are made into a vector."""


def _mentions_reset_mask(vector_class: type) -> bool:
    try:
        return "reset_mask" in inspect.getsource(vector_class)
    except (OSError, TypeError):
        return False


def _check_untouched(env: gym.vector.VectorEnv, before: VecEnvObs, after: VecEnvObs, rows: np.ndarray) -> None:
    def check(old: np.ndarray, new: np.ndarray) -> None:
        if old[rows].tobytes() != new[rows].tobytes():  # bytes, because a NaN is not equal to itself
            raise RuntimeError(
                f"{env} changed the observations of environments that a reset with options['reset_mask'] should have "
                "left alone: it ignores the mask. Make it with autoreset_mode SAME_STEP, or use make_vec_env."
            )

    mapped_parts(check, before, after)


def _joint_options(options: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    if any(option != options[0] for option in options):
        raise ValueError(
            "set_options() got different options for the environments, but a gymnasium.vector.VectorEnv takes one "
            "dict for all. Pass one dict, or use DummyVecEnv or SubprocVecEnv."
        )
    return dict(options[0]) or None


# --- arrays of all environments, and of one -------------------------------------------------------------------------


def _row(obs: Any, index: int, space: spaces.Space) -> Any:
    """The observation of one environment, in the dtypes of its space.

    ``obs`` is a batch (for a Dict space a dict of batches) or an array of separate observations.
    """
    return _owned(mapped_parts(lambda batch: batch[index], obs), space)


def _owned(own: Any, space: spaces.Space) -> Any:
    """Converts one observation to the dtypes of its space."""
    if isinstance(space, spaces.Dict):
        return {key: _owned(own[key], part) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_owned(own[place], part) for place, part in enumerate(space.spaces))
    return _as(own, space)


def _as(value: Any, space: spaces.Space) -> Any:
    if type(value) is np.ndarray and value.dtype == space.dtype:
        return value.copy()[()]
    return np.array(value, dtype=space.dtype)[()]


def _split_infos(infos: Mapping[str, Any], num_envs: int, begin: Mapping[str, Any] = _NOTHING) -> list[dict[str, Any]]:
    """Splits Gymnasium's dict of arrays into one info dict for each environment, which begins with the entries of
    ``begin``."""
    return list(_rows_of(infos, range(num_envs), num_envs, begin).values())


def _rows_of(
    infos: Mapping[str, Any], places: Sequence[int], num_envs: int, begin: Mapping[str, Any] = _NOTHING
) -> dict[int, dict[str, Any]]:
    """Returns the info dicts of some environments by place, from Gymnasium's dict of arrays, where ``"_key"`` marks the
    environments that have ``"key"``. Each begins with the entries of ``begin``."""
    rows: dict[int, dict[str, Any]] = {place: {**begin} for place in places}
    for key, value in infos.items():
        if key.startswith("_") and key[1:] in infos:
            continue
        mask = infos.get(f"_{key}")
        owners = places if mask is None else [place for place in places if mask[place]]
        for place, own in zip(owners, _parts(value, owners, num_envs), strict=True):
            rows[place][key] = own
    return rows


def _parts(value: Any, owners: Sequence[int], num_envs: int) -> Sequence[Any]:
    """Returns each owner's value of one entry of the infos."""
    if isinstance(value, np.ndarray) and value.ndim and len(value) == num_envs:
        # An array of numbers gives NumPy's own numbers, which never change; rows of a larger one are views.
        parts = list(value if len(owners) == num_envs else value[owners])
        return parts if value.ndim == 1 and value.dtype != object else [_copied_array(part) for part in parts]
    if isinstance(value, Mapping):
        return list(_rows_of(value, owners, num_envs).values())
    if isinstance(value, (list, tuple)) and len(value) == num_envs:
        return [_copied_array(value[index]) for index in owners]
    return [value] * len(owners)


def _copied_array(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
