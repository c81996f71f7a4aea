"""How a step of environments lies in a ring of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.arrays import Column, mapped, place
from polyak.envs.spaces import get_action_dim, get_action_dtype
from polyak.experience import Schema
from polyak.experience.base_buffer import observation_dtype, row_dtype, single_dtype
from polyak.experience.step import Step

_COLUMNS = tuple(name for name in Step._fields if name not in ("infos", "ended"))


def rows_layout(observation_space: spaces.Space, action_space: spaces.Space, schema: Schema) -> np.dtype:
    """The record type of a row: observations, actions [A], rewards, true successors, ends, and ``extras`` if there are
    further columns."""
    action = np.dtype((single_dtype(get_action_dtype(action_space)), (get_action_dim(action_space),)))
    scalars = {"rewards": np.float32, "terminated": bool, "truncated": bool}
    return row_dtype(observation_dtype(observation_space, stored=single_dtype), action, scalars, schema)


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
    """A step in tensors with arrays for columns, and the infos that Stable-Baselines3 gives callbacks."""
    columns = {name: mapped(lambda part: place(part, None), getattr(step, name)) for name in _COLUMNS}
    infos: list[dict[str, Any]] = [{} for _ in columns["dones"]]
    for i in columns["dones"].nonzero()[0]:
        last = mapped(lambda part, i=i: part[i], columns["next_observations"])
        infos[i] = {"terminal_observation": last, "TimeLimit.truncated": bool(columns["truncated"][i])}
    return step._replace(**columns, infos=infos)
