"""A ring that stores each observation once, and each frame of stacked images once, for any environment.

The successor of a row is the observation of the next row, *checked when the next row is written*; wherever it is not
(the final observation of an episode, a reset, the newest row) a side table holds the true one. So rows are read with
the same bits as from a :class:`~polyak.experience.ring.Ring`, and as many rows can be read.

On a device all shapes are static, so that the host never waits: the side table has a place for each row from the
beginning, and stacked images are stored as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import reduce
from operator import and_
from typing import Any

import numpy as np
import torch

from polyak import arrays
from polyak.arrays import Array, Column
from polyak.experience.frames import FrameStack, find_stacks
from polyak.experience.record import Experience, record_dtype
from polyak.experience.ring import Records, Ring, shaped


class ReadOnce(Ring, ABC):
    """Reads rows whose observations, and frames of stacked images, are stored once."""

    records: Records
    stacks: Mapping[str | None, Any]
    """The frames of each image entry of the observations (key ``None`` if the observation is not a dict)."""

    @abstractmethod
    def _successors(self, cells: Any, places: Array) -> Column:
        """Stored form of the next observations of some cells [B], which ``places`` holds where the rows are."""

    def read(self, cells: Any, shared: bool = False) -> dict[str, Column]:
        flat = cells.reshape(-1)
        places = self.index(flat)
        columns = self.records.take(places)
        now, then = columns["observations"], self._successors(flat, places)
        if shared and isinstance(stack := self.stacks.get(None), FrameStack):
            columns["observations"], columns["next_observations"] = stack.pairs(now, then)
        else:
            columns["observations"], columns["next_observations"] = self._decode(now), self._decode(then)
        return shaped(columns, cells)

    def successors(self, cells: Any, key: str | None = None) -> Column:
        flat = cells.reshape(-1)
        found = self._successors(flat, self.index(flat))
        if key is None:
            return shaped(self._decode(found), cells)
        return shaped(self.stacks[key].frames(found[key]) if key in self.stacks else found[key], cells)

    def _decode(self, stored: Column) -> Column:
        """Stored form -> observations [B, ...]."""
        if None in self.stacks:
            return self.stacks[None].frames(stored)
        if not self.stacks:
            return stored
        return {key: self.stacks[key].frames(a) if key in self.stacks else a for key, a in stored.items()}


class CompactRing(ReadOnce):
    """The newest ``length`` rows, observations and frames once; see :class:`Ring`.

    Attributes:
        columns: as stored: there are no ``next_observations``, and stacked images are numbers of frames.
    """

    stacks: dict[str | None, FrameStack]

    def __init__(
        self,
        layout: np.dtype,
        length: int,
        n_envs: int = 1,
        device: torch.device | str | None = None,
        on_disk: bool = False,
    ) -> None:
        self.observation = layout["observations"]
        found = find_stacks(self.observation) if device is None else {}
        super().__init__(_stored(layout, found), length, n_envs, device, on_disk)
        self.stacks = {key: FrameStack(dtype, length, n_envs, on_disk) for key, dtype in found.items()}
        self._lanes = self.index(np.arange(n_envs))
        self._room = 8 if device is None else length * n_envs
        """Places of the side table after those of the newest rows' successors and one that is never read."""
        self.clear()

    @classmethod
    def size_of(cls, layout: np.dtype, cells: int) -> int:
        stacks = find_stacks(layout["observations"])
        frames = sum(FrameStack.size_of(dtype, cells) for dtype in stacks.values())
        return (_stored(layout, stacks).itemsize + 4) * cells + frames

    @property
    def nbytes(self) -> int:
        return super().nbytes + sum(stack.planes.nbytes for stack in self.stacks.values())

    @property
    def row_bytes(self) -> int:
        return super().row_bytes + 2 * self.observation.itemsize

    @property
    def tensors(self) -> None:
        return None

    # --- writing ------------------------------------------------------------------------------------------------------

    def clear(self) -> None:
        super().clear()
        self._side = self._table(self._room)
        self._side_row = arrays.full((self.length * self.n_envs,), 0, np.int32, self.device)
        """[cells] 1 + place in the side table; 0: see the next row."""
        self._head: Array = arrays.full((), 0, np.int64, self.device)
        self._tail = 0
        """Successors are put into the side table in turn: those in use have numbers from tail to head; in numpy."""
        self._pending: dict[str | None, Array] = {}  # the newest rows' successors, [n_envs, ...] each
        self._pending_numbers: dict[str | None, np.ndarray] = {}  # their frames, [n_envs, C]
        for stack in self.stacks.values():
            stack.clear()

    def _table(self, room: int) -> Records:
        aside = record_dtype({"observations": self.layout["observations"]})
        return Records(aside, self.n_envs + 1 + room, 1, self.device)

    def append(self, row: Mapping[str, Column]) -> None:
        at = self.written % self.length
        cells = at * self.n_envs + self._lanes
        now, then = self._entries(row["observations"]), self._entries(row["next_observations"], copy=True)
        continues = self._continues(now)
        numbers = {key: self._number(key, at, now[key], continues) for key in self.stacks}
        if self._pending:
            self._part(continues)
        self._drop(cells)
        super().append({**row, "observations": _joined({**now, **numbers})})
        self._pending = then
        self._pending_numbers = {
            key: np.stack([stack.follow(*one) for one in zip(then[key], now[key], numbers[key], strict=True)])
            for key, stack in self.stacks.items()
        }
        self._put(self._lanes, cells, _joined({**then, **self._pending_numbers}))

    def extend(self, experience: Experience, copy: bool = False) -> None:
        for t in range(experience.lead[0]):
            self.append(experience[t])

    def _entries(self, observations: Column, copy: bool = False) -> dict[str | None, Array]:
        """Arrays of the ring's library by entry, in the types of the observations."""
        found: dict[str | None, Array] = {}
        for key in self.observation.names or (None,):
            value, kind = (
                (observations, self.observation) if key is None else (observations[key], self.observation[key])
            )
            if self.device is None:
                found[key] = np.array(value, kind.base, order="C") if copy else np.ascontiguousarray(value, kind.base)
            else:
                placed = torch.as_tensor(value, dtype=arrays.torch_dtype(kind), device=self.device).contiguous()
                found[key] = placed.clone() if copy else placed
        return found

    def _continues(self, now: dict[str | None, Array]) -> Array:
        """[n_envs] whether each observation is, bit by bit, the successor of the newest row."""
        same = [(arrays.bytes_of(now[key]) == arrays.bytes_of(before)).all(1) for key, before in self._pending.items()]
        return reduce(and_, same) if same else arrays.full((self.n_envs,), False, np.bool_, self.device)

    def _number(self, key: str | None, at: int, now: np.ndarray, continues: np.ndarray) -> np.ndarray:
        """Numbers [n_envs, C] of the frames that are about to be written."""
        stack = self.stacks[key]
        stack.make_room(at)
        pending = self._pending_numbers.get(key, now)  # without pending numbers, no row continues
        numbers = np.stack([pending[env] if continues[env] else stack.start(now[env]) for env in range(self.n_envs)])
        stack.note(at, numbers)
        return numbers

    def _part(self, continues: Array) -> None:
        """Another row is about to follow the newest one: keep those of its successors that are not in it."""
        parts = ~continues
        newest = self.newest * self.n_envs + self._lanes
        if self.device is None:
            self._make_room(int(np.count_nonzero(parts)))
        number = self._head + parts.cumsum(0)  # from 1 on
        place = arrays.where(parts, (number - 1) % self._room + self.n_envs + 1, 0 * number + self.n_envs)
        self._put(place, newest, self._side.take(self._lanes, "observations"))
        self._side_row[newest] *= parts
        self._head = number[-1]

    def _put(self, places: Array, cells: Array, observations: Column) -> None:
        """Keep the successors of some cells in these places of the side table."""
        arrays.assign(self._side.cells["observations"], places, observations)
        arrays.assign(self._side_row, cells, places + 1)

    def _drop(self, cells: Array) -> None:
        """The rows in some cells are about to be overwritten."""
        if self.device is None:
            self._tail += int(np.count_nonzero(self._side_row[cells] > self.n_envs + 1))

    def _make_room(self, count: int) -> None:
        """Let the side table take so many successors more."""
        used = np.arange(self._tail, self._head)
        if len(used) + count <= self._room:
            return
        first, before = self.n_envs + 1, used % self._room
        self._room = max(len(used) + count, self._room * 3 // 2)
        table, moved = self._table(self._room), np.arange(first + len(self._side.rows))
        table.rows[:first] = self._side.rows[:first]
        table.rows[first + used % self._room] = self._side.rows[first + before]
        moved[first + before + 1] = first + used % self._room + 1
        self._side, self._side_row = table, moved[self._side_row].astype(np.int32)

    # --- reading ------------------------------------------------------------------------------------------------------

    def all(self) -> Experience:
        return self.copies()

    def exceptions(self, cells: np.ndarray) -> tuple[np.ndarray, Column]:
        """Returns the places of the ``cells`` whose successor is not the next row, and the stored form of these
        successors; in numpy."""
        rows = self._side_row[cells]
        places = np.flatnonzero(rows)
        return places, self._side.take(rows[places] - 1, "observations")

    def _successors(self, cells: Any, places: Array) -> Column:
        found = self.records.take((places + self.n_envs) % (self.length * self.n_envs), "observations")
        if self.device is None:
            arrays.assign(found, *self.exceptions(places))
            return found
        row = self._side_row[places]
        aside = self._side.take((row - 1).clip(0), "observations")
        return arrays.mapped(lambda a, b: arrays.where(row > 0, a, b), aside, found)

    # --- keeping ------------------------------------------------------------------------------------------------------

    def rows_state(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        place = np.full(self.length, -1)
        place[rows] = np.arange(len(rows))
        side_row = arrays.place(self._side_row, None)
        exceptions = np.flatnonzero(side_row)
        side = self._side.take(self.index(side_row[exceptions] - 1), "observations")
        side = arrays.mapped(lambda array: arrays.place(array, None), {"observations": side})
        state = super().rows_state(rows) | dict(arrays.paths(side, "successors/"))
        state["successors/cells"] = place[exceptions // self.n_envs] * self.n_envs + exceptions % self.n_envs
        for key, stack in self.stacks.items():
            state[_path("frames", key)] = stack.state_dict()
            for name in (_path("observations", key), _path("successors/observations", key)):
                state[name] = np.where(state[name] < 0, -1, state[name] - stack.tail)
        return state

    def load_rows(self, state: Mapping[str, np.ndarray], saved: np.ndarray, rows: np.ndarray) -> None:
        written = self.written
        self.clear()
        self.written = written
        super().load_rows(state, saved, rows)
        for key, stack in self.stacks.items():
            stack.load_state_dict(state[_path("frames", key)], rows, state[_path("observations", key)][saved])
        if not len(rows):
            return
        row, env = np.divmod(state["successors/cells"], self.n_envs)
        kept = np.flatnonzero(np.isin(row, saved))
        kept = kept[np.argsort(row[kept], kind="stable")]  # in the order in which they will be overwritten
        entries = {key: state[_path("successors/observations", key)][kept] for key in self.observation.names or [None]}
        newest = row[kept] == saved[-1]
        count = int(np.count_nonzero(~newest))
        if self.device is None:
            self._make_room(count)
        self._head += count
        places = np.where(newest, env[kept], self.n_envs + 1 + np.arange(len(kept)))  # the newest row's are the last
        row_of = np.full(int(saved.max()) + 1, -1)
        row_of[saved] = rows
        self._put(self.index(places), self.index(row_of[row[kept]] * self.n_envs + env[kept]), _joined(entries))
        stored = self._side.take(self._lanes, "observations")
        self._pending = self._entries(self._decode(stored), copy=True)
        self._pending_numbers = {key: np.array(stored if key is None else stored[key]) for key in self.stacks}


def _stored(layout: np.dtype, stacks: Mapping[str | None, np.dtype]) -> np.dtype:
    """The type of a row as it is stored: stacks are replaced by the numbers of their frames."""
    fields = {name: layout[name] for name in layout.names or () if name != "next_observations"}
    observation = fields["observations"]
    numbers = {key: np.dtype((np.int64, dtype.shape[:1])) for key, dtype in stacks.items()}
    if observation.names is None:
        fields["observations"] = numbers.get(None, observation)
    else:
        fields["observations"] = record_dtype(
            {name: numbers.get(name, observation[name]) for name in observation.names}
        )
    return record_dtype(fields)


def _joined(entries: Mapping[str | None, Any]) -> Any:
    """An observation from its entries; the entry ``None`` is the whole observation."""
    return entries.get(None, entries)


def _path(name: str, key: str | None) -> str:
    """Path of a column, or of one entry of a column of dicts."""
    return name if key is None else f"{name}/{key}"
