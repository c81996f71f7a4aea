"""From drawn cells to batches: gather, relabel, reduce, convert."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from polyak import arrays
from polyak.arrays import mapped
from polyak.experience.batch import (
    DictReplayBufferSamples,
    ReplayBufferSamples,
    Span,
    Transition,
    TransitionColumns,
    TransitionRows,
    single_precision,
)
from polyak.experience.hindsight.relabel import Relabel
from polyak.experience.placement import Placement
from polyak.experience.ring import Ring
from polyak.experience.samplers import Sampler, Uniform
from polyak.experience.sampling.reduce import NStep, Reduce
from polyak.experience.sampling.window import Window, look
from polyak.experience.step import AFTER, NO_EXTRAS

BLOCK_BYTES = 4 << 20  # of rows gathered at once: much larger blocks leave the processor's caches before they are used
DEVICE_BLOCK_BYTES = 64 << 20  # on a device: enough for hundreds of minibatches, and little of its memory


class Rows(NamedTuple):
    """Drawn transitions: tensors where a device gathered them, else arrays. [B, L, ...] of sequences."""

    observations: Any  # [B, ...], or a dict of these
    actions: Any  # [B, A]
    next_observations: Any  # [B, ...], or a dict of these
    terminated: Any  # [B] bool
    rewards: Any  # [B] float32
    discounts: Any  # [B] float32; None: one step each
    extras: dict[str, Any]  # name -> [B, ...]
    valid: Any  # [B, L] bool; None: no sequences

    def samples(
        self, tensor: Callable[[Any], Tensor], weights: np.ndarray | None, cells: np.ndarray
    ) -> ReplayBufferSamples:
        """Returns SB3's samples, with scalars as columns [B, 1]; ``cells`` are the indices if there are ``weights``."""
        samples = DictReplayBufferSamples if isinstance(self.observations, dict) else ReplayBufferSamples
        return samples(
            mapped(tensor, self.observations),
            tensor(self.actions),
            mapped(tensor, self.next_observations),
            tensor(arrays.single(self.terminated[..., None])),
            tensor(self.rewards[..., None]),
            None if self.discounts is None else tensor(self.discounts[..., None]),
            None if weights is None else tensor(weights[:, None]),
            None if weights is None else torch.from_numpy(cells),
            mapped(tensor, self.extras) if self.extras else None,
            None if self.valid is None else tensor(self.valid),
        )

    def transition(self, tensor: Callable[[Any], Tensor], weights: Tensor, gamma: float) -> Transition:
        """Returns the same bits as :meth:`Transition.from_samples` of :meth:`samples`, except for the dtype of
        observations."""
        discounts = 1 - arrays.single(self.terminated)
        discounts *= gamma if self.discounts is None else self.discounts
        discounts = discounts if self.valid is None else discounts * self.valid
        return Transition(
            mapped(tensor, self.observations),
            tensor(self.actions),
            tensor(self.rewards),
            mapped(tensor, self.next_observations),
            tensor(discounts),
            weights,
            mapped(tensor, self.extras) if self.extras else NO_EXTRAS,
            None if self.valid is None else tensor(self.valid),
        )


class Pipeline(NamedTuple):
    """The steps from cells drawn from a ring of transitions to batches."""

    ring: Ring
    placement: Placement | None
    """The placement of a mirror from which whole rows may be gathered; ``None``: there is none."""
    relabel: Relabel | None
    reduce: Reduce
    wide: bool
    """Whether observations may have 64 bits; learners take 32."""
    tensor: Callable[[Any], Tensor]
    """Puts an array on the device, and leaves a tensor where it is."""
    device: torch.device
    rng: np.random.RandomState
    """The generator of the reduction's random numbers."""
    normalize: Callable[[Any, Any, Any], tuple[Any, Any, Any]] | None = None
    """Applied to observations, their successors, and the reward of each step before they are summed."""

    def source(self, rows: int) -> Ring:
        """Returns the ring, or its mirror on the device, from which this many whole rows are gathered."""
        return self.ring if self.placement is None else self.placement.source(self.ring, self.device, rows)

    @property
    def whole_rows(self) -> bool:
        """Whether transitions are just rows of the ring."""
        return self.relabel is None and self.reduce.window == 1 and isinstance(self.reduce, NStep)

    @property
    def learner_can_gather(self) -> bool:
        """Whether the ring's rows, and where transitions begin, are all that it takes to make them."""
        untouched = self.relabel is None and self.normalize is None and self.device.type == "cpu"
        plain = isinstance(self.reduce, NStep) and not self.reduce.random
        return untouched and plain and self.ring.tensors is not None

    def span(self) -> Span | None:
        """Returns the description of n-step transitions for late gathering; None if transitions are single rows."""
        n, envs = self.reduce.window, self.ring.n_envs
        if n == 1:
            return None
        assert isinstance(self.reduce, NStep)
        newest = self.ring.newest * envs
        return Span(*_steps(n, envs, self.reduce.gamma), torch.arange(newest, newest + envs))

    @property
    def gathered_rows(self) -> int:
        """Rows that are gathered for each cell."""
        return self.reduce.window - self.reduce.n_steps + 1

    def at_once(self, batch_size: int) -> int:
        """Returns the number of batches in a block."""
        rows = batch_size * self.gathered_rows
        source = self.source(rows)
        in_main_memory = source is self.ring and (source.device is None or source.device.type == "cpu")
        block_bytes = BLOCK_BYTES if in_main_memory else DEVICE_BLOCK_BYTES
        return max(block_bytes // (rows * self.ring.row_bytes), 1)

    def rows(self, cells: np.ndarray, shared: bool = False) -> Rows:
        """The transitions that begin in some cells [B]; ``shared``: both observations may share memory."""
        if not self.whole_rows:
            return self._windows(self.source(len(cells) * self.gathered_rows), cells)
        row = self.source(len(cells)).read(cells, shared)
        columns = row["observations"], row["next_observations"], row["rewards"]
        now, then, rewards = columns if self.normalize is None else self.normalize(*columns)
        return Rows(now, row["actions"], then, ended(row), rewards, None, row.get("extras", NO_EXTRAS), None)

    def _windows(self, source: Ring, cells: np.ndarray) -> Rows:
        ring = self.ring
        around, valid = look(ring, cells, self.reduce.window, self.reduce.before)
        valid = self.reduce.cut(valid, self.rng)
        first, last, exists = self.reduce.ends(around, valid)
        row = source.read(first)
        then, extras = row["next_observations"], row.get("extras", NO_EXTRAS)
        if last is not first:
            then = source.successors(last)
            if names := [name for name in extras if name.startswith(AFTER)]:
                end = source.read(last)["extras"]
                extras = {**extras, **{name: end[name] for name in names}}
        window = Window(around, valid, ring.take(around, "rewards"), row["observations"], then)
        if self.relabel is not None:
            self.relabel(ring, window)
        columns = window.observations, window.next_observations, window.rewards
        now, then, each = columns if self.normalize is None else self.normalize(*columns)
        rewards, discounts = self.reduce.returns(each, valid)
        terminated = ended({name: ring.take(last, name) for name in ("dones", "timeouts")})
        return Rows(now, row["actions"], then, terminated, rewards, discounts, extras, exists)

    def transition(
        self, cells: np.ndarray, weights: np.ndarray | None, gamma: float, shared: bool = False
    ) -> Transition:
        """:meth:`rows` in the form that learners eat; ``weights`` [B], None: all 1."""
        rows = self.rows(cells, shared)
        if self.wide:
            now, then = map(single_precision, (rows.observations, rows.next_observations))
            rows = rows._replace(observations=now, next_observations=then)
        on_cpu = self.device.type == "cpu" and isinstance(rows.actions, np.ndarray)
        tensor: Callable[[Any], Tensor] = torch.from_numpy if on_cpu else self.tensor
        return rows.transition(tensor, _ones(len(cells), self.device) if weights is None else tensor(weights), gamma)


def ended(row: Mapping[str, Any]) -> Any:
    """[...] bool: which rows end an episode that is over, not just cut short by a time limit."""
    return row["dones"] > row["timeouts"]


def each_batch(
    pipeline: Pipeline, sampler: Sampler, filled: int, batch_size: int, gamma: float, batches: int
) -> Iterator[tuple[Transition, Tensor | None]]:
    """Minibatches drawn one by one, among the first ``filled`` cells, with the indices of their rows if weighted."""
    for _ in range(batches):
        cells, weights = sampler.draw(batch_size, filled, pipeline.relabel)
        yield pipeline.transition(cells, weights, gamma), None if weights is None else torch.from_numpy(cells)


def uniform_batches(
    pipeline: Pipeline, sampler: Uniform, filled: int, batch_size: int, gamma: float, batches: int
) -> Iterator[tuple[Transition, None]]:
    """Draws uniform batches, which depend on nothing but the random numbers: several are gathered at once."""
    at_once = 1 if batches == 1 else pipeline.at_once(batch_size)
    for start in range(0, batches, at_once):
        count = min(at_once, batches - start)
        block = pipeline.transition(sampler.draw_batches(count, batch_size, filled), None, gamma, shared=True)
        if count == 1:
            yield block, None
        else:
            yield from ((part, None) for part in block.split(count))


def late_batches(
    pipeline: Pipeline, sampler: Sampler, filled: int, batch_size: int, gamma: float, batches: int
) -> Iterator[tuple[TransitionRows, Tensor | None]]:
    """Draws batches of rows that the learner gathers."""
    columns = TransitionColumns(**(pipeline.ring.tensors or {}))
    discount, span = _scalar(gamma), pipeline.span()
    if type(sampler) is Uniform:
        ones = _ones(batch_size, torch.device("cpu"))
        cells = torch.from_numpy(sampler.draw_batches(batches, batch_size, filled))
        for rows in (cells,) if batches == 1 else cells.split(batch_size):
            yield TransitionRows(columns, rows, discount, ones, span), None
        return
    for _ in range(batches):
        rows, weights = map(torch.from_numpy, sampler.draw(batch_size, filled, None))
        yield TransitionRows(columns, rows, discount, weights, span), rows


@lru_cache(maxsize=8)
def _scalar(value: float) -> Tensor:
    """[] a number, as the same tensor every time."""
    return torch.tensor(value, dtype=torch.float32)


@lru_cache(maxsize=8)
def _steps(n: int, envs: int, gamma: float) -> tuple[Tensor, Tensor]:
    """[n] from a row to the n of its window, and [n + 1] powers of ``gamma``, as the same tensors every time."""
    return torch.arange(n) * envs, torch.from_numpy(gamma ** np.arange(n + 1.0))


@lru_cache(maxsize=8)
def _ones(size: int, device: torch.device) -> Tensor:
    """[size] ones, the same tensor every time."""
    return torch.ones(size, device=device)
