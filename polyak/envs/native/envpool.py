"""EnvPool's environments as a ``gymnasium.vector.VectorEnv`` that resets only the environments in a mask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode

from polyak.envs.extras import needed
from polyak.envs.nested_spaces import mapped_parts
from polyak.envs.vec.seeds import seeds_of

_NOT_INFO = ("env_id", "players", "terminated", "ram")


class EnvPoolVectorEnv(gym.vector.VectorEnv):
    """Environments of EnvPool, which step in threads of compiled code.

    EnvPool itself spends the step after an episode's end on the reset, and takes seeds only when it is made. This
    resets at once, through ``reset(options={"reset_mask": ended})``, and makes a new pool for a seeded reset.

    Args:
        env_id: a name of ``envpool.list_all_envs()``.
        num_envs: number of environments.
        seed: seed of the first environment, and root of the others' seeds.
        config: further arguments of ``envpool.make``.

    Raises:
        ValueError: for a name or an argument that EnvPool does not have, or a batch smaller than ``num_envs``.
        ImportError: without EnvPool.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.DISABLED}

    def __init__(self, env_id: str, num_envs: int, seed: int | None = None, **config: Any):
        if config.get("batch_size", num_envs) != num_envs:
            raise ValueError(f"batch_size must be num_envs ({num_envs}), got {config['batch_size']}.")
        self.env_id = env_id
        self.config = config
        self.num_envs = num_envs
        self.render_mode = None
        self._last_obs: Any = None
        self._make(seeds_of(0 if seed is None else seed, num_envs))
        self.single_observation_space = self.pool.observation_space
        self.single_action_space = self.pool.action_space
        self.observation_space = gym.vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = gym.vector.utils.batch_space(self.single_action_space, num_envs)

    def _make(self, seeds: Sequence[int]) -> None:
        envpool = needed("envpool", "EnvPool's environments need envpool", "envpool")
        if self.env_id not in envpool.list_all_envs():
            raise ValueError(f"EnvPool has no environment {self.env_id!r}; envpool.list_all_envs() names those it has.")
        limit = np.iinfo(np.int32).max  # EnvPool's seeds are of this type
        try:
            self.pool = envpool.make_gymnasium(
                self.env_id,
                **{"num_envs": self.num_envs, "env_seed": [int(seed % limit) for seed in seeds], **self.config},
            )
        except TypeError as error:
            raise ValueError(f"EnvPool's {self.env_id} does not take {self.config}: {error}") from error

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Reset all environments, or those of ``options["reset_mask"]`` (bool, ``(num_envs,)``).

        Args:
            seed: of the first environment and root of the others' seeds, or one per environment; makes a new pool.
        """
        mask = (options or {}).get("reset_mask")
        if seed is not None:
            seeds = seed if isinstance(seed, (list, tuple, np.ndarray)) else seeds_of(seed, self.num_envs)
            self._make([int(one) for one in seeds])
        if mask is None or seed is not None:
            obs, infos = self.pool.reset()
            self._last_obs = obs
            return obs, _own_infos(infos)
        chosen = np.flatnonzero(mask)
        part, infos = self.pool.reset(chosen)
        # The rows of the chosen environments are new; the others stay.
        self._last_obs = _merged(self._last_obs, part, chosen)
        full = {
            key: _merged(np.zeros((self.num_envs, *value.shape[1:]), value.dtype), value, chosen)
            for key, value in _own_infos(infos).items()
        }
        return self._last_obs, full

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments."""
        space = self.single_action_space
        obs, rewards, terminated, truncated, infos = self.pool.step(np.asarray(actions, dtype=space.dtype))
        self._last_obs = obs
        return obs, rewards, terminated, truncated, _own_infos(infos)

    def close_extras(self, **kwargs: Any) -> None:
        """End EnvPool's threads."""
        self.pool.close()


def _own_infos(infos: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in infos.items() if key not in _NOT_INFO and isinstance(value, np.ndarray)}


def _merged(all_rows: Any, rows: Any, places: np.ndarray) -> Any:
    """Returns a copy of ``all_rows`` (an array, or a dict or tuple of them) with ``rows`` at ``places``."""

    def put(whole: np.ndarray, part: np.ndarray) -> np.ndarray:
        merged = whole.copy()
        merged[places] = part
        return merged

    return mapped_parts(put, all_rows, rows)
