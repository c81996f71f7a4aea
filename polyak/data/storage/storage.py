"""The ring that holds transitions, in two layouts with one interface.

:class:`PairStorage` keeps both observations of a transition beside each other: one gather reads everything.
:class:`SingleStorage` keeps each observation once: the successor of a row is the observation of the next row, *checked
when the next row is written*; wherever it is not (the final observation of an episode, a reset, the newest row) a side
table holds the true one. So both layouts return the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from polyak.data.batch import ArrayObs, TransitionColumns
from polyak.data.storage.frames import FrameStack, find_stacks
from polyak.experience.arrays import assign
from polyak.experience.changes import Changes, Loans
from polyak.experience.records import Records, record_dtype, unpack
from polyak.experience.schema import Schema

SCALARS = {"rewards": np.dtype(np.float32), "dones": np.dtype(np.float32), "timeouts": np.dtype(np.float32)}


class RowLayout(NamedTuple):
    """Types of what varies between the rows of different rings."""

    observation: np.dtype
    action: np.dtype
    extras: np.dtype | None = None
    """A record with a field for each column of the schema; None: there are none."""

    @classmethod
    def of(cls, observation: np.dtype, action: np.dtype, schema: Schema) -> RowLayout:
        """The layout of rows with the columns of a schema."""
        return cls(observation, action, record_dtype(schema.layouts()) if len(schema) else None)

    def facts(self) -> dict[str, np.dtype]:
        """Name -> type of all that is stored alike everywhere: everything but observations."""
        more = {} if self.extras is None else {"extras": self.extras}
        return {"actions": self.action, **SCALARS, **more}


class Storage(ABC):
    """Facts of a ring [steps, envs], nothing derived. Cells are ``slot * envs + env``. ``on_disk``: in a file.

    Attributes:
        columns: "actions", "rewards", "dones", "timeouts" -> views [steps, envs, ...]; with the layout's observations,
            and "extras" -> dict of views, if there are any.
        records: the rows themselves.
        changes: what was written into them; it is to be noted here.
        loans: columns that others may be writing into.
    """

    def __init__(self, layout: RowLayout, steps: int, envs: int, on_disk: bool = False):
        self.layout, self.observation = layout, layout.observation
        self.steps, self.envs = steps, envs
        self.records = Records(self.record(layout), steps, envs, on_disk=on_disk)
        self.changes, self.loans = Changes(steps), Loans()
        self._written = tuple(self.records.columns[name] for name in ("actions", *SCALARS))

    @classmethod
    @abstractmethod
    def record(cls, layout: RowLayout) -> np.dtype:
        """A row of the table."""

    @classmethod
    @abstractmethod
    def size_of(cls, layout: RowLayout, cells: int) -> int:
        """Bytes of a full ring."""

    @property
    def columns(self) -> dict[str, Any]:
        return self.records.columns

    def lend(self, name: str) -> ArrayObs:
        """A column for others to read, and to write into for as long as they keep it or any view of it."""
        self.changes.note()
        return self.loans.lend(self.columns[name])  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        """Bytes of the full ring."""
        return self.records.rows.nbytes

    def scalars(self, name: str, cells: np.ndarray) -> np.ndarray:
        """One of the scalar columns at some cells of any shape."""
        return self.records.cells[name][cells]

    @property
    def shared(self) -> TransitionColumns | None:
        """All rows [steps * envs, ...] as tensors that share the ring's memory; None if it has no whole rows."""
        return None

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of one transition as :meth:`read` returns it."""

    def write(
        self,
        slot: int,
        observations: Any,
        next_observations: Any,
        actions: np.ndarray,
        rewards: np.ndarray,
        dones: np.ndarray,
        timeouts: np.ndarray | float,
        extras: Mapping[str, np.ndarray] | None = None,
    ) -> None:
        """Write one vectorised step over whatever the slot held; arrays start with the env axis."""
        self._write_observations(slot, observations, next_observations)
        action, reward, done, timeout = self._written
        action[slot], reward[slot], done[slot], timeout[slot] = actions, rewards, dones, timeouts
        if extras:
            assign(self.columns["extras"], slot, extras)
        self.changes.note(slot)

    def write_many(self, slots: slice, observations: Any, next_observations: Any, facts: Mapping[str, Any]) -> None:
        """Write successive vectorised steps over whatever some slots held.

        Args:
            slots: n of them, without a step.
            observations, next_observations: [n, envs, ...], or dicts of these.
            facts: "actions", "rewards", "dones", "timeouts", and "extras" if there are any: [n, envs, ...].
        """
        for place, slot in enumerate(range(slots.start, slots.stop)):
            action, reward, done, timeout = (facts[name][place] for name in ("actions", *SCALARS))
            extras = {name: column[place] for name, column in facts.get("extras", {}).items()}
            now, then = _at(observations, place), _at(next_observations, place)
            self.write(slot, now, then, action, reward, done, timeout, extras)

    @abstractmethod
    def _write_observations(self, slot: int, observations: Any, next_observations: Any) -> None:
        """The observations of a step, and what follows each."""

    @abstractmethod
    def read(self, cells: np.ndarray, shared: bool = False) -> dict[str, Any]:
        """Whole transitions: field -> [B, ...] copies; ``shared``: copies that may overlap one another."""

    @abstractmethod
    def next_observations(self, cells: np.ndarray, key: str | None = None) -> Any:
        """Successors [B, ...] of the rows in ``cells``, or one entry of a Dict observation; copies."""

    @abstractmethod
    def clear(self) -> None:
        """Forget what is not overwritten anyway."""

    @abstractmethod
    def state_dict(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        """Arrays with the rows of these slots."""

    @abstractmethod
    def load_state_dict(self, state: dict[str, np.ndarray], rows: np.ndarray, slots: np.ndarray) -> None:
        """Put saved ``rows`` into ``slots``, [K] each."""


class PairStorage(Storage):
    """Observation and next observation side by side in every record."""

    def __init__(self, layout: RowLayout, steps: int, envs: int, on_disk: bool = False):
        super().__init__(layout, steps, envs, on_disk)
        self._flat = self.observation.names is None and layout.extras is None  # no field is a record itself
        self._pair = self.records.columns["observations"], self.records.columns["next_observations"]

    @classmethod
    def record(cls, layout: RowLayout) -> np.dtype:
        observation = layout.observation
        return record_dtype({"observations": observation, "next_observations": observation, **layout.facts()})

    @classmethod
    def size_of(cls, layout: RowLayout, cells: int) -> int:
        return cls.record(layout).itemsize * cells

    @cached_property
    def shared(self) -> TransitionColumns | None:
        try:
            return TransitionColumns(**{name: _sharing(column) for name, column in self.records.cells.items()})
        except (TypeError, ValueError):  # numbers of a type, or rows of a width, that torch does not know
            return None

    @property
    def row_bytes(self) -> int:
        return self.records.dtype.itemsize

    def _write_observations(self, slot: int, observations: Any, next_observations: Any) -> None:
        now, then = self._pair
        assign(now, slot, observations)
        assign(then, slot, next_observations)

    def write_many(self, slots: slice, observations: Any, next_observations: Any, facts: Mapping[str, Any]) -> None:
        for target, value in zip(self._pair, (observations, next_observations), strict=True):
            assign(target, slots, value)
        for name, value in facts.items():
            assign(self.columns[name], slots, value)
        self.changes.note()

    def read(self, cells: np.ndarray, shared: bool = False) -> dict[str, Any]:
        rows = self.records.take_rows(cells)
        if self._flat:
            return {name: rows[name] for name in self.records.columns}
        return {name: unpack(rows[name]) for name in self.records.columns}

    def next_observations(self, cells: np.ndarray, key: str | None = None) -> Any:
        if key is not None:
            return self.records.cells["next_observations"][key][cells]
        return unpack(self.records.take_rows(cells)["next_observations"])

    def clear(self) -> None:
        pass

    def state_dict(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        return {name: column[slots] for name, column in flatten(self.records.columns)}

    def load_state_dict(self, state: dict[str, np.ndarray], rows: np.ndarray, slots: np.ndarray) -> None:
        for name, column in flatten(self.records.columns):
            column[slots] = state[name][rows]
        self.changes.note()


class SingleStorage(Storage):
    """Each observation once; see the module's first lines. Stacked pictures even share their frames."""

    def __init__(self, layout: RowLayout, steps: int, envs: int, on_disk: bool = False):
        super().__init__(layout, steps, envs, on_disk)
        self.stacks = {
            key: FrameStack(dtype, steps, envs, on_disk) for key, dtype in find_stacks(self.observation).items()
        }
        self.stored = self._stored(self.observation)
        self.clear()

    @staticmethod
    def _stored(observation: np.dtype) -> np.dtype:
        """The dtype of an observation in the table: stacks are replaced by the numbers of their planes."""
        numbers = {key: np.dtype((np.int64, dtype.shape[:1])) for key, dtype in find_stacks(observation).items()}
        if observation.names is None:
            return numbers.get(None, observation)
        return record_dtype({name: numbers.get(name, observation[name]) for name in observation.names})

    @classmethod
    def record(cls, layout: RowLayout) -> np.dtype:
        return record_dtype({"observations": cls._stored(layout.observation), **layout.facts()})

    @classmethod
    def size_of(cls, layout: RowLayout, cells: int) -> int:
        pictures = sum(FrameStack.size_of(dtype, cells) for dtype in find_stacks(layout.observation).values())
        return (cls.record(layout).itemsize + 4) * cells + pictures

    def clear(self) -> None:
        self._side = np.zeros(0, np.dtype([("observations", self.stored)]))
        self._side_row = np.zeros(self.steps * self.envs, np.int32)  # 1 + row in the side table, 0: see the next row
        self._free: list[int] = []  # rows of the side table
        self._newest = np.arange(self.envs)  # cells of the newest rows ...
        self._pending: dict[str | None, np.ndarray] = {}  # ... and their successors, [envs, ...] each
        self._pending_numbers: dict[str | None, np.ndarray] = {}  # the successors' planes, [envs, C]
        for stack in self.stacks.values():
            stack.clear()

    @property
    def nbytes(self) -> int:
        return self.records.rows.nbytes + sum(stack.planes.nbytes for stack in self.stacks.values())

    @property
    def row_bytes(self) -> int:
        return self.records.dtype.itemsize + 2 * self.observation.itemsize

    def _write_observations(self, slot: int, observations: Any, next_observations: Any) -> None:
        cells = slot * self.envs + np.arange(self.envs)
        now = {key: np.ascontiguousarray(value, dtype) for key, value, dtype in self._entries(observations)}
        then = {key: np.array(value, dtype, order="C") for key, value, dtype in self._entries(next_observations)}
        continues = self._continues(now)
        numbers = {key: self._number(key, slot, now[key], continues) for key in self.stacks}
        self._drop(np.concatenate([cells, self._newest[continues]]))
        assign(self.columns["observations"], slot, self._join({**now, **numbers}))
        self._pending, self._newest = then, cells
        self._pending_numbers = {
            key: np.stack([stack.follow(*row) for row in zip(then[key], now[key], numbers[key], strict=True)])
            for key, stack in self.stacks.items()
        }
        self._put(cells, self._join({**then, **self._pending_numbers}))

    def _entries(self, observations: Any) -> Iterator[tuple[str | None, np.ndarray, np.dtype]]:
        if self.observation.names is None:
            yield None, observations, self.observation.base
        else:
            for key in self.observation.names:
                yield key, observations[key], self.observation[key].base

    def _join(self, entries: dict[str | None, np.ndarray]) -> Any:
        return entries.get(None, entries)

    def _continues(self, now: dict[str | None, np.ndarray]) -> np.ndarray:
        """[envs] whether each observation is, bit by bit, the successor of the newest row."""
        if not self._pending:
            return np.zeros(self.envs, bool)
        same = np.ones(self.envs, bool)
        for key, value in now.items():
            ours, theirs = (a.reshape(self.envs, -1).view(np.uint8) for a in (value, self._pending[key]))
            same &= (ours == theirs).all(1)
        return same

    def _number(self, key: str | None, slot: int, now: np.ndarray, continues: np.ndarray) -> np.ndarray:
        """Plane numbers [envs, C] of the pictures that are about to be written."""
        stack = self.stacks[key]
        stack.make_room(slot)
        numbers = np.stack(
            [self._pending_numbers[key][env] if continues[env] else stack.start(now[env]) for env in range(self.envs)]
        )
        stack.note(slot, numbers)
        return numbers

    def _drop(self, cells: np.ndarray) -> None:
        """Let the side table forget the successors of these rows."""
        held = self._side_row[cells]
        self._free.extend(set((held[held > 0] - 1).tolist()))
        self._side_row[cells] = 0

    def _put(self, cells: np.ndarray, observations: Any) -> None:
        """Keep the successors of these rows in the side table."""
        missing = len(cells) - len(self._free)
        if missing > 0:
            size = len(self._side)
            added = max(missing, size // 2, 8)
            self._side = np.concatenate([self._side, np.zeros(added, self._side.dtype)])
            self._free.extend(range(size, size + added))
        rows = np.array([self._free.pop() for _ in cells], np.int32)
        assign(unpack(self._side["observations"]), rows, observations)
        self._side_row[cells] = rows + 1

    def _successors(self, cells: np.ndarray) -> np.ndarray:
        """Stored form of the next observations."""
        found = self.records.take_rows((cells + self.envs) % len(self.records.rows))["observations"]
        exceptions, values = self.exceptions(cells)
        if exceptions.size:
            found[exceptions] = values
        return found

    def exceptions(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which of ``cells`` are not followed by the next row, and the stored form of their successors."""
        rows = self._side_row[cells]
        places = np.flatnonzero(rows)
        return places, self._side["observations"][rows[places] - 1]

    def _decode(self, stored: np.ndarray) -> ArrayObs:
        """Stored form -> observations [B, ...]."""
        if not self.stacks:
            return unpack(stored)
        if None in self.stacks:
            return self.stacks[None].frames(stored)
        return {key: self.stacks[key].frames(a) if key in self.stacks else a for key, a in unpack(stored).items()}  # type: ignore[union-attr]

    def read(self, cells: np.ndarray, shared: bool = False) -> dict[str, Any]:
        rows = self.records.take_rows(cells)
        fields = {name: unpack(rows[name]) for name in self.layout.facts()}
        stored, successors = rows["observations"], self._successors(cells)
        if shared and None in self.stacks:
            fields["observations"], fields["next_observations"] = self.stacks[None].pairs(stored, successors)
        else:
            fields["observations"], fields["next_observations"] = self._decode(stored), self._decode(successors)
        return fields

    def next_observations(self, cells: np.ndarray, key: str | None = None) -> Any:
        successors = self._successors(cells)
        if key is None:
            return self._decode(successors)
        return self.stacks[key].frames(successors[key]) if key in self.stacks else successors[key]

    def state_dict(self, slots: np.ndarray) -> dict[str, np.ndarray]:
        place = np.full(self.steps, -1)
        place[slots] = np.arange(len(slots))
        exceptions = np.flatnonzero(self._side_row)
        side = self._side[self._side_row[exceptions] - 1]
        state = {name: column[slots] for name, column in flatten(self.columns)}
        for name, column in flatten({"successors/observations": unpack(side["observations"])}):
            state[name] = column
        state["successors/cells"] = place[exceptions // self.envs] * self.envs + exceptions % self.envs
        for key, stack in self.stacks.items():
            state[path("frames", key)] = stack.state_dict()
            for name in (path("observations", key), path("successors/observations", key)):
                state[name] = np.where(state[name] < 0, -1, state[name] - stack.tail)
        return state

    def load_state_dict(self, state: dict[str, np.ndarray], rows: np.ndarray, slots: np.ndarray) -> None:
        self.clear()
        for name, column in flatten(self.columns):
            column[slots] = state[name][rows]
        self.changes.note()
        for key, stack in self.stacks.items():
            stack.load_state_dict(state[path("frames", key)], slots, state[path("observations", key)][rows])
        slot_of = np.full(int(rows.max(initial=-1)) + 1, -1)
        slot_of[rows] = slots
        saved = state["successors/cells"]
        row, env = np.divmod(saved, self.envs)
        kept = np.flatnonzero(np.isin(row, rows))
        entries = {key: state[path("successors/observations", key)][kept] for key in self.observation.names or [None]}
        self._put(slot_of[row[kept]] * self.envs + env[kept], self._join(entries))
        self._resume(int(slots[-1]) if len(slots) else None)

    def _resume(self, slot: int | None) -> None:
        """Expect the observation that comes after the newest row."""
        if slot is None:
            return
        self._newest = slot * self.envs + np.arange(self.envs)
        stored = self._successors(self._newest)
        for key, value, dtype in self._entries(self._decode(stored)):
            self._pending[key] = np.array(value, dtype, order="C")
        self._pending_numbers = {key: np.array(stored if key is None else stored[key]) for key in self.stacks}


def _at(observations: ArrayObs, place: int) -> Any:
    """One of several, key by key for Dict observations."""
    if isinstance(observations, dict):
        return {key: array[place] for key, array in observations.items()}
    return observations[place]


def _sharing(column: ArrayObs) -> Any:
    """Arrays as tensors of the same memory."""
    if isinstance(column, dict):
        return {key: torch.from_numpy(array) for key, array in column.items()}
    return torch.from_numpy(column)


def path(name: str, key: str | None) -> str:
    """Name of a column, or of one entry of a Dict column."""
    return name if key is None else f"{name}/{key}"


def flatten(columns: dict[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """All arrays of nested columns with their paths."""
    for name, column in columns.items():
        if isinstance(column, dict):
            yield from ((path(name, key), array) for key, array in column.items())
        else:
            yield name, column
