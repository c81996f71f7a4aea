"""A VecEnv that steps its environments one after the other in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from polyak.envs.spaces import dict_to_obs, own_actions
from polyak.envs.state import get_state, set_state, states_of_all
from polyak.envs.validation import check_same_spaces
from polyak.envs.vec.env_slot import (
    EnvSlot,
    allocate_observations,
    build_env,
    check_env_fns,
    get_env_attr,
    is_env_wrapped,
    noted,
    set_env_attr,
)
from polyak.envs.vec.vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn
from polyak.envs.wrapper_statistics import Found, found_in, put_into
from polyak.warning import warn_user


class DummyVecEnv(VecEnv):
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
        self.actions: Sequence[Any] | np.ndarray = ()
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

    def step_async(self, actions: np.ndarray) -> None:
        actions = self._batch_of_actions(actions)
        self.actions = own_actions(actions, self.action_space) if self._alone else actions

    def step_wait(self) -> VecEnvStepReturn:
        rewards, dones, infos = self.buf_rews, self.buf_dones, []
        envs, actions = self.envs, self.actions
        for index, slot in enumerate(self._slots):
            rewards[index], dones[index], info, reset_info = slot.step(envs[index], actions[index])
            infos.append(info)
            if reset_info is not None:
                self.reset_infos[index] = reset_info
        self.buf_infos = infos
        observations = self._observations() if self._single is None else self._single.copy()  # spares a call
        return observations, rewards.copy(), dones.copy(), list(infos)

    def _observations(self) -> VecEnvObs:
        # A copy: the buffers are written again at the next step.
        if self._single is not None:
            return self._single.copy()
        return dict_to_obs(self.observation_space, {key: array.copy() for key, array in self.buf_obs.items()})

    def get_state(self) -> dict[str, Any]:
        return {"envs": [get_state(env) for env in self.envs]}

    def set_state(self, state: dict[str, Any]) -> None:
        for env, one in zip(self.envs, states_of_all(state, self.num_envs), strict=True):
            set_state(env, one)

    def get_statistics(self, indices: VecEnvIndices = None) -> list[Found]:
        return [found_in(env) for env in self._get_target_envs(indices)]

    def set_statistics(self, found: list[Found], indices: VecEnvIndices = None) -> None:
        for env, one in zip(self._get_target_envs(indices), found, strict=True):
            put_into(env, one)

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def get_images(self) -> Sequence[np.ndarray | None]:
        if self.render_mode != "rgb_array":
            warn_user(
                f"get_images() needs environments made with render_mode='rgb_array', these have {self.render_mode!r}."
            )
            return [None for _ in self.envs]
        return [env.render() for env in self.envs]  # type: ignore[misc]

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [get_env_attr(env, attr_name) for env in self._get_target_envs(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        for env in self._get_target_envs(indices):
            set_env_attr(env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        results = []
        for index in self._get_indices(indices):
            method = get_env_attr(self.envs[index], method_name)
            with noted(f"raised by {method_name}() of environment {index} ({self.envs[index]})"):
                results.append(method(*method_args, **method_kwargs))
        return results

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        return [is_env_wrapped(env, wrapper_class) for env in self._get_target_envs(indices)]

    def _get_target_envs(self, indices: VecEnvIndices) -> list[gym.Env]:
        return [self.envs[index] for index in self._get_indices(indices)]


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
