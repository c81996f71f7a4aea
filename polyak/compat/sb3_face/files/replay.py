"""``replay_buffer.pkl``: the experience in a replay buffer's pickle, put into one of polyak's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from gymnasium import spaces

from polyak.arrays import mapped, paths
from polyak.checkpoint.serialise import UntrustedError
from polyak.compat.sb3_face.files import names, unpickle
from polyak.compat.sb3_face.files.translate import SavedObject, whole
from polyak.experience import HerReplayBuffer, ReplayBuffer, Ring
from polyak.experience.datasets.episodes import DatasetError, RecordedData
from polyak.experience.datasets.formats.source import Source
from polyak.experience.datasets.rings import recording_of_ring
from polyak.experience.replay_state import COMPUTED

_COLUMNS = ("observations", "actions", "rewards", "dones")


def read(file: IO[bytes], name: str, buffer: ReplayBuffer, trust: bool = False) -> None:
    """Fill ``buffer`` from a pickle.

    Args:
        file: open for reading.
        name: its name in messages.
        buffer: the buffer; its earlier content is lost.
        trust: also run a pickle with other content.

    Raises:
        UntrustedError: without ``trust``, the pickle has other content than Stable-Baselines3 writes.
        ValueError: the pickle is damaged, holds another object, or does not fit ``buffer``.
    """
    state = _state(file.read(), name, trust)
    try:
        _fill(buffer, _Rows(state))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def recorded(source: Source) -> RecordedData:
    """Returns the experience in a pickle, with actions in the environment's units.

    Raises:
        UntrustedError, ValueError: as :func:`read`.
    """
    state = _state(source.path.read_bytes(), str(source), source.trust)
    try:
        rows = _Rows(state)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error
    # if each observation is stored once, the newest row's successor has replaced the oldest observation
    slots = rows.slots[1:] if rows.full and state.get("optimize_memory_usage") else rows.slots
    columns = {name: mapped(lambda array: array[slots], column) for name, column in rows.columns.items()}
    observation_space = source.observation_space or state.get("observation_space")
    action_space = source.action_space or state.get("action_space")
    if not isinstance(observation_space, spaces.Space) or not isinstance(action_space, spaces.Space):
        raise DatasetError(f"{source} does not say its spaces: pass observation_space and action_space.")
    return recording_of_ring(columns, observation_space, action_space)


def _state(data: bytes, name: str, trust: bool) -> Mapping[str, Any]:
    """Returns the attributes of the replay buffer in a pickle."""
    try:
        saved = unpickle.loads(data, trust)
    except UntrustedError as error:
        raise UntrustedError(f"{name}: {error}") from error
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if not isinstance(saved, SavedObject) or saved.name not in names.REPLAY_BUFFERS:
        kind = saved.name[1] if isinstance(saved, SavedObject) else type(saved).__name__
        raise ValueError(f"{name} does not hold a replay buffer, but a {kind}.")
    return saved.state


class _Rows:
    """The pickled attributes, checked: columns [steps, envs, ...], oldest row first.

    Raises:
        ValueError: a column is missing or has another shape than the rest.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        if missing := [name for name in (*_COLUMNS, "pos", "full") if name not in state]:
            old = (
                " It was written before 1.8, when hindsight buffers kept whole episodes." if "_buffer" in state else ""
            )
            raise ValueError(f"its buffer lacks {missing}.{old}")
        rewards = state["rewards"]
        if not isinstance(rewards, np.ndarray) or rewards.ndim != 2 or not rewards.shape[0]:
            raise ValueError("its rewards are not an array [steps, envs]: it is damaged.")
        self.steps, self.n_envs = rewards.shape
        self.pos, self.full = whole(state["pos"], "pos"), bool(state["full"])
        if self.pos >= self.steps:
            raise ValueError(f"its pos={self.pos} lies beyond its {self.steps} steps: it is damaged.")
        count = self.steps if self.full else self.pos
        self.slots = np.arange(self.pos - count, self.pos) % self.steps
        self.columns = {name: self._column(name, state[name]) for name in _COLUMNS}
        self.columns["timeouts"] = self._column("timeouts", state.get("timeouts", np.zeros_like(rewards)))
        following = state.get("next_observations")
        if following is None or state.get("optimize_memory_usage"):
            # each observation is stored once, and the newest row's successor is where the next will be written
            following = self._rolled(state["observations"])
        self.columns["next_observations"] = self._column("next_observations", following)
        self.infos: np.ndarray | None = self._column("infos", state["infos"]) if state.get("copy_info_dict") else None

    def _column(self, name: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._column(f"{name}[{key!r}]", part) for key, part in value.items()}
        if not isinstance(value, np.ndarray) or value.shape[:2] != (self.steps, self.n_envs):
            raise ValueError(f"its {name} are not an array [{self.steps}, {self.n_envs}, ...]: it is damaged.")
        return value

    def _rolled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._rolled(part) for key, part in value.items()}
        return np.roll(value, -1, axis=0) if isinstance(value, np.ndarray) and value.ndim else value


def _fill(buffer: ReplayBuffer, rows: _Rows) -> None:
    if rows.n_envs != buffer.n_envs:
        raise ValueError(
            f"its rows are of n_envs={rows.n_envs} environments, the model's buffer is for {buffer.n_envs}: load it "
            "into a model with as many."
        )
    one_row = Ring(buffer.layout, 1, buffer.n_envs)
    layout = {key: (array.dtype, array.shape[2:]) for key, array in paths(one_row.columns)}
    columns = dict(paths(rows.columns))
    for key, (dtype, shape) in layout.items():
        found = columns.get(key)
        if found is None or found.shape[2:] != shape or not np.can_cast(found.dtype, dtype, "same_kind"):
            has = "none" if found is None else f"{found.dtype}{list(found.shape[2:])}"
            raise ValueError(
                f"its {key} are {has} per step, the model's buffer holds {dtype}{list(shape)}: was it made for another "
                "environment?"
            )
    if buffer.optimize_memory_usage:
        _add_one_by_one(buffer, rows)
    else:
        _take_over(
            buffer, rows, {key: columns[key][rows.slots].astype(kind[0], copy=False) for key, kind in layout.items()}
        )


def _take_over(buffer: ReplayBuffer, rows: _Rows, columns: dict[str, np.ndarray]) -> None:
    """Put all rows into their old slots at once."""
    state = (
        buffer.state_dict() | columns | {"buffer_size": rows.steps, "pos": rows.pos, "full": rows.full, "sampler": ""}
    )
    if rows.infos is not None and isinstance(buffer, HerReplayBuffer) and buffer.copy_info_dict:
        state["relabel/infos"] = rows.infos[rows.slots].tolist()
    state.pop(COMPUTED, None)  # of the rows that it had
    buffer.load_state_dict(state)


def _add_one_by_one(buffer: ReplayBuffer, rows: _Rows) -> None:
    """Storage that keeps each observation once looks at successive rows as they come."""
    buffer.reset()
    columns = rows.columns
    for slot in rows.slots:
        limits = columns["timeouts"][slot]
        infos = [{} for _ in limits] if rows.infos is None else [dict(info) for info in rows.infos[slot]]
        buffer.add(
            _row(columns["observations"], slot),
            _row(columns["next_observations"], slot),
            columns["actions"][slot],
            columns["rewards"][slot],
            columns["dones"][slot],
            [info | {"TimeLimit.truncated": bool(limit)} for info, limit in zip(infos, limits, strict=True)],
        )
    buffer.reconcile_rewards()


def _row(column: Any, slot: int) -> Any:
    return {key: part[slot] for key, part in column.items()} if isinstance(column, dict) else column[slot]
