"""A batch of environments that speaks columns, as a VecEnv: for evaluation, and for callbacks that read infos."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from polyak.arrays import copied, mapped, place
from polyak.envs.protocol import BatchedEnv, Outcome
from polyak.envs.vec.vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn
from polyak.envs.wrappers.monitor import Monitor


class BatchedVecEnv(VecEnv):
    """Gives a :class:`~polyak.envs.protocol.BatchedEnv` the VecEnv contract, in numpy.

    Every step copies its columns to the host. Algorithms that learn in tensors step :attr:`batch` itself, without.

    Args:
        batch: the environments.
    """

    def __init__(self, batch: BatchedEnv) -> None:
        self.batch = batch
        self.render_mode = None
        super().__init__(batch.num_envs, batch.observation_space, batch.action_space)
        self.started = time.time()
        self._actions: Any = None
        self._begin_counting()

    def _common_render_mode(self) -> None:
        return None

    def _begin_counting(self) -> None:
        self.returns, self.lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)

    @property
    def resets(self) -> int:
        """How often all environments were reset, by any program."""
        return self.batch.resets

    @resets.setter
    def resets(self, value: int) -> None:
        self.batch.resets = value  # type: ignore[misc]

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Seeds the random numbers of all environments together, immediately; ``None`` draws one from numpy's global
        generator.

        Returns:
            the seed and, since the others share it, ``None`` for each of them.
        """
        seed = super().seed(seed)[0]
        if (start := getattr(self.batch, "seed", None)) is not None:
            start(seed)
        self._seeds = [seed, *[None] * (self.num_envs - 1)]
        return self._seeds

    def reset(self) -> VecEnvObs:
        self._reset_seeds()
        self._reset_options()
        first = self.batch.reset()
        self._begin_counting()
        self.reset_infos = self._with_masks([{} for _ in range(self.num_envs)], first.masks)
        return _host(first.observations)

    def step_async(self, actions: Any) -> None:
        device = self.batch.device
        self._actions = place(np.asarray(actions, self.action_space.dtype), device)

    def step_wait(self) -> VecEnvStepReturn:
        outcome = self.batch.step(self._actions)
        truncated, dones = _host(outcome.truncated), _host(outcome.dones)
        rewards = _host(outcome.rewards).astype(np.float32)
        self.returns += rewards
        self.lengths += 1
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for i in dones.nonzero()[0]:
            infos[i] = self._ended(i, outcome, bool(truncated[i]))
        self.returns[dones], self.lengths[dones] = 0, 0
        return _host(outcome.observations), rewards, dones, self._with_masks(infos, outcome.masks)

    def _ended(self, i: int, outcome: Outcome, truncated: bool) -> dict[str, Any]:
        """The info of an episode's last step."""
        seconds = round(time.time() - self.started, 6)
        episode = {"r": float(self.returns[i]), "l": int(self.lengths[i]), "t": seconds}
        last = mapped(lambda column: place(column[i], None), outcome.successors)
        return {"terminal_observation": last, "TimeLimit.truncated": truncated, "episode": episode}

    def _with_masks(self, infos: list[dict[str, Any]], masks: Any) -> list[dict[str, Any]]:
        if masks is not None:
            for info, row in zip(infos, _host(masks), strict=True):
                info["action_mask"] = row
        return infos

    def get_state(self) -> dict[str, Any]:
        state = copied(self.batch.get_state(), None)
        return {"batch": state, "returns": self.returns.copy(), "lengths": self.lengths.copy()}

    def set_state(self, state: dict[str, Any]) -> None:
        self.batch.set_state(copied(state["batch"], self.batch.device))
        self.returns, self.lengths = state["returns"].copy(), state["lengths"].copy()

    def close(self) -> None:
        """Does nothing: there is nothing to free."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        return [getattr(self.batch, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        if len(list(self._get_indices(indices))) < self.num_envs:
            raise ValueError(
                f"set_attr({attr_name!r}, indices={indices!r}): these environments are one object, which has the "
                "attribute for all of them. Leave indices out."
            )
        setattr(self.batch, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        raise AttributeError(
            f"env_method({method_name!r}): {self.batch!r} has no environment of its own for each row. Call "
            "env.batch's method."
        )

    def env_is_wrapped(self, wrapper_class: type[gym.Wrapper], indices: VecEnvIndices = None) -> list[bool]:
        counts = wrapper_class is Monitor  # which keeps the same records of episodes as this class
        return [counts for _ in self._get_indices(indices)]


def _host(column: Any) -> Any:
    """Returns a column, or a dict of them, as new arrays in host memory."""
    return mapped(lambda part: np.array(place(part, None)), column)
