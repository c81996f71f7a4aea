"""A ring that stores each observation once, and each frame of stacked images once, for any environment.

The successor of a row is the observation of the next row, *checked when the next row is written*; wherever it is not
(the final observation of an episode, a reset, the newest row) a side table holds the true one. So rows are read with
the same bits as from a :class:`~polyak.experience.ring.Ring`, and as many rows can be read. ``Ring(share_frames=True)``
has neither the check nor growing side tables: its shapes are static, as a GPU needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from polyak import arrays
from polyak.arrays import Column
from polyak.experience.frames import FrameStack, find_stacks
from polyak.experience.record import Experience, record_dtype
from polyak.experience.ring import Records, Ring, shaped, unpack


class CompactRing(Ring):
    """The newest ``length`` rows in main memory or on disk, observations and frames once; see :class:`Ring`.

    Attributes:
        columns: as stored: there are no ``next_observations``, and stacked images are numbers of frames.
        stacks: entry of the observations (``None`` if they have none) -> its frames.
    """

    records: Records

    def __init__(self, layout: np.dtype, length: int, n_envs: int = 1, on_disk: bool = False) -> None:
        super().__init__(self._stored(layout), length, n_envs, on_disk=on_disk)
        self.observation, self._stored_observation = layout["observations"], self.layout["observations"]
        self.stacks = {
            key: FrameStack(dtype, length, n_envs, on_disk) for key, dtype in find_stacks(self.observation).items()
        }
        self.clear()

    @staticmethod
    def _stored(layout: np.dtype) -> np.dtype:
        """The type of a row as it is stored: stacks are replaced by the numbers of their frames."""
        fields = {name: layout[name] for name in layout.names or () if name != "next_observations"}
        observation = fields["observations"]
        numbers = {key: np.dtype((np.int64, dtype.shape[:1])) for key, dtype in find_stacks(observation).items()}
        if observation.names is None:
            fields["observations"] = numbers.get(None, observation)
        else:
            parts = {name: numbers.get(name, observation[name]) for name in observation.names}
            fields["observations"] = record_dtype(parts)
        return record_dtype(fields)

    @classmethod
    def size_of(cls, layout: np.dtype, cells: int) -> int:
        frames = sum(FrameStack.size_of(dtype, cells) for dtype in find_stacks(layout["observations"]).values())
        return (cls._stored(layout).itemsize + 4) * cells + frames

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
        self._side = np.zeros(0, np.dtype([("observations", self._stored_observation)]))
        self._side_row = np.zeros(self.length * self.n_envs, np.int32)  # 1 + row in the side table; 0: see the next row
        self._free: list[int] = []  # rows of the side table
        self._newest = np.arange(self.n_envs)  # cells of the newest rows ...
        self._pending: dict[str | None, np.ndarray] = {}  # ... and their successors, [n_envs, ...] each
        self._pending_numbers: dict[str | None, np.ndarray] = {}  # the successors' frames, [n_envs, C]
        for stack in self.stacks.values():
            stack.clear()

    def append(self, row: Mapping[str, Column]) -> None:
        at = self.written % self.length
        cells = at * self.n_envs + np.arange(self.n_envs)
        now = {key: np.ascontiguousarray(value, dtype) for key, value, dtype in self._entries(row["observations"])}
        then = {key: np.array(value, dtype, order="C") for key, value, dtype in self._entries(row["next_observations"])}
        continues = self._continues(now)
        numbers = {key: self._number(key, at, now[key], continues) for key in self.stacks}
        self._drop(np.concatenate([cells, self._newest[continues]]))
        super().append({**row, "observations": _joined({**now, **numbers})})
        self._pending, self._newest = then, cells
        self._pending_numbers = {
            key: np.stack([stack.follow(*one) for one in zip(then[key], now[key], numbers[key], strict=True)])
            for key, stack in self.stacks.items()
        }
        self._put(cells, _joined({**then, **self._pending_numbers}))

    def extend(self, experience: Experience, copy: bool = False) -> None:
        for t in range(experience.lead[0]):
            self.append(experience[t])

    def _entries(self, observations: Column) -> Iterator[tuple[str | None, np.ndarray, np.dtype]]:
        if self.observation.names is None:
            yield None, observations, self.observation.base
        else:
            for key in self.observation.names:
                yield key, observations[key], self.observation[key].base

    def _continues(self, now: dict[str | None, np.ndarray]) -> np.ndarray:
        """[n_envs] whether each observation is, bit by bit, the successor of the newest row."""
        if not self._pending:
            return np.zeros(self.n_envs, bool)
        same = np.ones(self.n_envs, bool)
        for key, value in now.items():
            ours, theirs = (a.reshape(self.n_envs, -1).view(np.uint8) for a in (value, self._pending[key]))
            same &= (ours == theirs).all(1)
        return same

    def _number(self, key: str | None, at: int, now: np.ndarray, continues: np.ndarray) -> np.ndarray:
        """Numbers [n_envs, C] of the frames that are about to be written."""
        stack = self.stacks[key]
        stack.make_room(at)
        pending = self._pending_numbers.get(key, now)  # where there are none yet, nothing continues
        numbers = np.stack([pending[env] if continues[env] else stack.start(now[env]) for env in range(self.n_envs)])
        stack.note(at, numbers)
        return numbers

    def _drop(self, cells: np.ndarray) -> None:
        """Remove the successors of these rows from the side table."""
        held = self._side_row[cells]
        self._free.extend(set((held[held > 0] - 1).tolist()))
        self._side_row[cells] = 0

    def _put(self, cells: np.ndarray, observations: Column) -> None:
        """Keep the successors of these rows in the side table."""
        missing = len(cells) - len(self._free)
        if missing > 0:
            size = len(self._side)
            added = max(missing, size // 2, 8)
            self._side = np.concatenate([self._side, np.zeros(added, self._side.dtype)])
            self._free.extend(range(size, size + added))
        rows = np.array([self._free.pop() for _ in cells], np.int32)
        arrays.assign(unpack(self._side["observations"]), rows, observations)
        self._side_row[cells] = rows + 1

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, cells: np.ndarray, shared: bool = False) -> dict[str, Column]:
        flat = cells.reshape(-1)
        columns = self.records.take(flat)
        now, then = columns["observations"], self._successors(flat)
        if shared and None in self.stacks:
            columns["observations"], columns["next_observations"] = self.stacks[None].pairs(now, then)
        else:
            columns["observations"], columns["next_observations"] = self._decode(now), self._decode(then)
        return shaped(columns, cells)

    def successors(self, cells: np.ndarray, key: str | None = None) -> Column:
        found = self._successors(cells.reshape(-1))
        if key is None:
            found = self._decode(found)
        else:
            found = self.stacks[key].frames(found[key]) if key in self.stacks else found[key]
        return shaped(found, cells)

    def exceptions(self, cells: np.ndarray) -> tuple[np.ndarray, Column]:
        """Which of ``cells`` are not followed by the next row, and the stored form of their successors."""
        rows = self._side_row[cells]
        places = np.flatnonzero(rows)
        return places, unpack(self._side["observations"][rows[places] - 1])

    def _successors(self, cells: np.ndarray) -> Column:
        """Stored form of the next observations."""
        found = self.records.take((cells + self.n_envs) % (self.length * self.n_envs), "observations")
        exceptions, values = self.exceptions(cells)
        if exceptions.size:
            arrays.assign(found, exceptions, values)
        return found

    def _decode(self, stored: Column) -> Column:
        """Stored form -> observations [B, ...]."""
        if None in self.stacks:
            return self.stacks[None].frames(stored)
        if not self.stacks:
            return stored
        return {key: self.stacks[key].frames(a) if key in self.stacks else a for key, a in stored.items()}

    # --- keeping ------------------------------------------------------------------------------------------------------

    def rows_state(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        place = np.full(self.length, -1)
        place[rows] = np.arange(len(rows))
        exceptions = np.flatnonzero(self._side_row)
        side = unpack(self._side[self._side_row[exceptions] - 1])
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
        row_of = np.full(int(saved.max(initial=-1)) + 1, -1)
        row_of[saved] = rows
        row, env = np.divmod(state["successors/cells"], self.n_envs)
        kept = np.flatnonzero(np.isin(row, saved))
        keys = self.observation.names or [None]
        entries = {key: state[_path("successors/observations", key)][kept] for key in keys}
        self._put(row_of[row[kept]] * self.n_envs + env[kept], _joined(entries))
        if len(rows):
            self._resume(int(rows[-1]))

    def _resume(self, newest: int) -> None:
        """Expect the observation after the newest row."""
        self._newest = newest * self.n_envs + np.arange(self.n_envs)
        stored = self._successors(self._newest)
        for key, value, dtype in self._entries(self._decode(stored)):
            self._pending[key] = np.array(value, dtype, order="C")
        self._pending_numbers = {key: np.array(stored if key is None else stored[key]) for key in self.stacks}


def _joined(entries: Mapping[str | None, Any]) -> Any:
    """An observation from its entries; the entry ``None`` is the whole observation."""
    return entries.get(None, entries)


def _path(name: str, key: str | None) -> str:
    """Path of a column, or of one entry of a column of dicts."""
    return name if key is None else f"{name}/{key}"
