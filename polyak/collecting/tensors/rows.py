"""How a step of environments lies in a ring of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.data.step import Step
from polyak.envs.spaces import get_action_dim, get_action_dtype
from polyak.experience import Schema
from polyak.experience.arrays import Column, mapped, place
from polyak.experience.records import record_dtype

_COLUMNS = tuple(name for name in Step._fields if name not in ("infos", "ended"))


def rows_layout(observation_space: spaces.Space, action_space: spaces.Space, schema: Schema) -> np.dtype:
    """The record type of a row: observations, actions [A], rewards, true successors, ends, and ``extras`` if there are
    further columns."""
    observation, action = _layout(observation_space), np.dtype(get_action_dtype(action_space))
    fields = {
        "observations": observation,
        "actions": np.dtype((np.float32 if action == np.float64 else action, (get_action_dim(action_space),))),
        "rewards": np.dtype(np.float32),
        "next_observations": observation,
        "terminated": np.dtype(bool),
        "truncated": np.dtype(bool),
    }
    if len(schema):
        fields["extras"] = record_dtype(schema.layouts())
    return record_dtype(fields)


def row_of(step: Step, schema: Schema) -> dict[str, Column]:
    """The columns of a step, [N, ...] each."""
    row = {
        "observations": step.observations,
        "actions": step.actions.reshape(len(step.rewards), -1),
        "rewards": step.rewards,
        "next_observations": step.next_observations,
        "terminated": step.terminated,
        "truncated": step.truncated,
    }
    return {**row, "extras": {column.name: step.extras[column.name] for column in schema}} if len(schema) else row


def on_host(step: Step) -> Step:
    """A step with arrays for columns, and the infos that Stable-Baselines3 gives callbacks."""
    if isinstance(step.rewards, np.ndarray):
        return step
    columns = {name: mapped(lambda part: place(part, None), getattr(step, name)) for name in _COLUMNS}
    infos: list[dict[str, Any]] = [{} for _ in columns["dones"]]
    for i in columns["dones"].nonzero()[0]:
        last = mapped(lambda part, i=i: part[i], columns["next_observations"])
        infos[i] = {"terminal_observation": last, "TimeLimit.truncated": bool(columns["truncated"][i])}
    return step._replace(**columns, infos=infos)


def _layout(space: spaces.Space) -> np.dtype:
    if isinstance(space, spaces.Dict):
        return record_dtype({key: _layout(part) for key, part in space.spaces.items()})
    dtype: Any = space.dtype
    return np.dtype((np.float32 if dtype == np.float64 else dtype, space.shape or ()))
