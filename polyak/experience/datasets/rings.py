"""Episodes out of a replay buffer: a ring of steps of several environments side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces

from polyak.arrays import mapped
from polyak.envs.nested_spaces import is_composed
from polyak.envs.spaces import rounded, wide_bounds
from polyak.experience.datasets.episodes import DatasetError, RecordedData, assemble


class Buffer(Protocol):
    """The interface of a replay buffer that is needed here."""

    observation_space: spaces.Space
    action_space: spaces.Space

    def contents(self) -> dict[str, Any]: ...


def recording_of_ring(
    rows: Mapping[str, Any],
    observation_space: spaces.Space,
    action_space: spaces.Space,
    decode: Callable[[np.ndarray], Any] | None = None,
) -> RecordedData:
    """The episodes of each environment, one environment after the other.

    Args:
        rows: "observations", "next_observations", "actions", "rewards", "dones", "timeouts", and "extras" if there are
            any: [steps, envs, ...], oldest first.
        observation_space, action_space: of the environments.
        decode: from actions [B, ...] as they are stored to the environment's units; None: see :func:`unscaled`.

    Raises:
        DatasetError: there are no rows, or actions of several parts.
    """
    steps, envs = rows["rewards"].shape
    if not steps:
        raise DatasetError("the replay buffer is empty: there is nothing to make a dataset of.")
    if is_composed(action_space):
        raise DatasetError(f"action_space={action_space} is composed of others: datasets hold no such actions.")

    def in_order(array: np.ndarray) -> np.ndarray:
        return array.swapaxes(0, 1).reshape(steps * envs, *array.shape[2:])

    done, cut = (in_order(rows[name]) > 0 for name in ("dones", "timeouts"))
    terminations = done & ~cut
    truncations = done & cut
    truncations[steps - 1 :: steps] |= ~done[steps - 1 :: steps]  # running episodes are truncated at the newest row
    actions = in_order(rows["actions"])
    shape = tuple(action_space.shape or ())
    units = (decode or unscaled(action_space))(actions.reshape(len(actions), *shape))
    if isinstance(action_space, spaces.Box):  # scaling there and back rounds
        low, high = wide_bounds(action_space)
        near = np.clip(units, low, high)
        units = rounded(np.where(abs(near - units) <= 1e-5 * (high - low), near, units), action_space)
    now, then = (mapped(in_order, rows[name]) for name in ("observations", "next_observations"))
    recording = assemble(
        _shaped(now, observation_space),
        np.asarray(units).astype(action_space.dtype, copy=False),
        in_order(rows["rewards"]),
        terminations,
        truncations,
        _shaped(then, observation_space),
        {name: in_order(array) for name, array in rows.get("extras", {}).items()},
    )
    return recording._replace(observation_space=observation_space, action_space=action_space)


def _shaped(observations: Any, space: spaces.Space) -> Any:
    """Rows as their space has them: buffers keep a choice as an array of one."""
    if isinstance(space, spaces.Dict):
        return {key: _shaped(observations[key], part) for key, part in space.spaces.items()}
    return observations.reshape(len(observations), *(space.shape or ()))


def unscaled(space: spaces.Space) -> Callable[[np.ndarray], np.ndarray]:
    """Returns the map from actions as off-policy algorithms store them to the environment's units: those of a Box are
    in [-1, 1], choices count from 0."""
    if isinstance(space, spaces.Box):
        low, high = wide_bounds(space)
        return lambda actions: low + 0.5 * (actions + 1.0) * (high - low)
    start = getattr(space, "start", 0)
    return lambda actions: actions + start
