"""Replay = storage + three independent choices.

    which rows?          Sampler   (Uniform, Prioritized)
    seen as which goal?  Relabel   (none, Hindsight)
    over how many steps? n_steps   (1 by default)

A draw is always the same pipeline, so every combination is legal and none needs its own class:

    cells --gather--> window [B, n] --relabel--> window [B, n] --reduce--> ReplayBufferSamples [B] or Transition [B]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.data.base import BaseBuffer, Normalizer
from polyak.data.batch import (
    DictReplayBufferSamples,
    ReplayBufferSamples,
    TensorObs,
    Transition,
    TransitionColumns,
    TransitionRows,
    single_precision,
)
from polyak.data.hindsight.relabel import Relabel, Window
from polyak.data.sampling.samplers import Prioritized, Sampler, Uniform, make_sampler
from polyak.data.storage.memory import GIGABYTE, check_memory
from polyak.data.storage.mirror import Mirror
from polyak.data.storage.placement import Placement
from polyak.data.storage.storage import PairStorage, SingleStorage, Storage
from polyak.data.storage.table import ArrayObs, observation_dtype

STATE_VERSION = 1
BLOCK_BYTES = 4 << 20  # of rows gathered at once: much larger blocks leave the processor's caches before they are used
DEVICE_BLOCK_BYTES = 64 << 20  # on a device: enough for hundreds of minibatches, and little of its memory


class _Draw(NamedTuple):
    """What the sampler chose: slots [B], cells [B] (slot and environment in one number), importance weights."""

    rows: np.ndarray
    cells: np.ndarray
    weights: np.ndarray | None


class _Rows(NamedTuple):
    """Drawn transitions, normalised and reduced to one step each: arrays, or tensors where a device gathered them."""

    observations: ArrayObs | TensorObs  # [B, ...]
    actions: np.ndarray | Tensor  # [B, A]
    next_observations: ArrayObs | TensorObs  # [B, ...]
    terminated: np.ndarray | Tensor  # [B] float32
    rewards: np.ndarray | Tensor  # [B] float32
    discounts: np.ndarray | None  # [B] float32; None: one step each


def _column(name: str) -> property:
    """A stored column as an array attribute [steps, envs, ...]: a view, so writing into it edits the buffer."""

    def read(self: ReplayBuffer) -> Any:
        if name not in self.storage.columns:
            raise AttributeError(
                f"{name} does not exist with optimize_memory_usage=True, which stores every observation once: "
                "use sample(), or optimize_memory_usage=False."
            )
        return self.storage.table.lend(name)

    def write(self: ReplayBuffer, value: Any) -> None:
        read(self)[...] = value

    return property(read, write, doc=f"{name} of all rows [buffer_size, n_envs, ...]; a view.")


class ReplayBuffer(BaseBuffer):
    """Ring of transitions for off-policy learning.

    Windows of ``n_steps`` never cross the end of an episode or the newest row. Where the window ends at a time limit
    (``infos[i]["TimeLimit.truncated"]``) or at the newest row, the sample's ``dones`` is 0 and ``next_observations`` is
    the true successor: it is bootstrapped from; at a termination ``dones`` is 1.

    Args:
        buffer_size: transitions kept in all; each environment gets ``buffer_size // n_envs`` steps, which is also the
            value of the attribute of that name.
        optimize_memory_usage: store every observation once, and every frame of stacked pictures once. Samples are the
            same bits; they take a little longer.
        handle_timeout_termination: False treats a time limit as a termination.
        sampler: "uniform" (default), "prioritized", or a Sampler object, of which a copy is used.
        relabel: e.g. :class:`~polyak.data.hindsight.relabel.Hindsight`; a copy is used.
        n_steps: length of the returns; above 1 the samples carry ``discounts``.
        gamma: discount of one step within the n-step returns.
        seed: of the sampler, the relabelling and the choice of environments; None draws from numpy's global stream.
        storage_device: where rows are kept beside main memory, so that batches are gathered there; the samples are the
            same bits. "cpu": nowhere. A device: there; it must be ``device``. "auto": on ``device`` if it is a GPU, at
            most half of whose free memory is needed. Batches to be normalised or relabelled are gathered in main memory
            all the same, and so are all while somebody holds a view of a column, such as ``buffer.rewards``.

    Raises:
        InsufficientMemoryError: the full buffer would not fit into the memory that is free, or into the device's.
    """

    observations = _column("observations")
    next_observations = _column("next_observations")
    actions = _column("actions")
    rewards = _column("rewards")
    dones = _column("dones")
    timeouts = _column("timeouts")

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        sampler: Sampler | str | None = None,
        relabel: Relabel | None = None,
        n_steps: int = 1,
        gamma: float = 0.99,
        seed: int | None = None,
        storage_device: torch.device | str = "auto",
    ):
        if n_steps < 1:
            raise ValueError(f"n_steps must be at least 1, got {n_steps}. 1 gives ordinary one-step transitions.")
        if not 0 <= gamma <= 1:
            raise ValueError(f"gamma must be between 0 and 1, got {gamma}.")
        self.n_steps, self.gamma = int(n_steps), float(gamma)
        self.optimize_memory_usage, self.handle_timeout_termination = optimize_memory_usage, handle_timeout_termination
        self.sampler, self.relabel = make_sampler(sampler), copy(relabel)
        super().__init__(buffer_size, observation_space, action_space, device, n_envs)
        self.buffer_size = max(self.buffer_size // self.n_envs, 1)
        self._placement = Placement(storage_device, self.device, self._needs_arrays())
        self._check_memory()
        self.storage = self._make_storage()
        if self._placement.asked:  # what cannot be had is an error now, not at the first batch
            self._placement.mirror(self.storage, self.device)
        self._drawn: _Draw | None = None
        self._unit_weights = 0, torch.ones(0)  # see _ones
        self.reset()
        self.seed(seed)

    # --- building ---------------------------------------------------------------------------------------------------

    def seed(self, seed: int | None = None) -> None:
        """Restart the random numbers of the sampler, the relabelling and the buffer itself."""
        super().seed(seed)
        for part in (self.sampler, self.relabel):
            if part is not None:
                part.seed(None if seed is None else int(self.rng.randint(2**31)))

    @staticmethod
    def _maybe_cast_dtype(dtype: Any) -> Any:
        """float64 actions are stored as float32; every other type as it is."""
        return np.float32 if dtype == np.float64 else dtype

    @property
    def _layout(self) -> tuple[np.dtype, np.dtype]:
        action = np.dtype((self._maybe_cast_dtype(self.action_space.dtype), (self.action_dim,)))
        return observation_dtype(self.observation_space, self.obs_shape), action

    def _make_storage(self) -> Storage:
        storage_class = SingleStorage if self.optimize_memory_usage else PairStorage
        return storage_class(*self._layout, self.buffer_size, self.n_envs)

    def _check_memory(self) -> None:
        cells = self.buffer_size * self.n_envs
        needed, saving = (kind.size_of(*self._layout, cells) for kind in (PairStorage, SingleStorage))
        ways = [
            f"a smaller buffer_size ({GIGABYTE / needed * cells:,.0f} transitions take 1 GB)",
            f"optimize_memory_usage=True ({saving / GIGABYTE:.2f} GB)",
            "smaller observations (uint8 pictures, fewer pixels, float32)",
        ]
        if self.optimize_memory_usage:
            needed = saving
            ways = [f"a smaller buffer_size ({GIGABYTE / needed * cells:,.0f} transitions take 1 GB)", ways[2]]
        what = f"The replay buffer (buffer_size={cells:,} transitions of {self.observation_space})"
        check_memory(needed, what, f"Ways out: {'; '.join(ways)}.")

    def reset(self) -> None:
        """Empty the buffer."""
        super().reset()
        self.storage.clear()
        self.sampler.prepare(self.buffer_size, self.n_envs)
        if self.relabel is not None:
            self.relabel.prepare(self.buffer_size, self.n_envs, self.observation_space)

    # --- writing ----------------------------------------------------------------------------------------------------

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store one vectorised step.

        Args:
            obs, next_obs: [n_envs, ...] or a dict of these. At the end of an episode ``next_obs`` is its true final
                observation, not the first one of the next episode.
            action: [n_envs, action_dim], as the learner wants them (scaled).
            reward, done: [n_envs]; ``done`` marks terminations and truncations.
            infos: one dict per environment; "TimeLimit.truncated" is read, and HER's copy_info_dict keeps all.
        """
        # `_batched` would accept what has the right shape as well: asking here saves five calls a step
        if type(obs) is not np.ndarray or obs.shape != self._obs_batch:
            obs = self._batched("obs", obs, self._obs_batch)
        if type(next_obs) is not np.ndarray or next_obs.shape != self._obs_batch:
            next_obs = self._batched("next_obs", next_obs, self._obs_batch)
        if type(action) is not np.ndarray or action.shape != self._action_batch:
            action = self._batched("action", action, self._action_batch)
        if type(reward) is not np.ndarray or reward.shape != self._scalar_batch:
            reward = self._batched("reward", reward, self._scalar_batch)
        if type(done) is not np.ndarray or done.shape != self._scalar_batch:
            done = self._batched("done", done, self._scalar_batch)
        slot = self.pos
        self.storage.write(slot, obs, next_obs, action, reward, done, self._timeouts(infos))
        if self.relabel is not None or self.sampler.adaptive:
            self._announce(slot, done, infos)
        self.pos = slot + 1
        if self.pos == self.buffer_size:
            self.pos, self.full = 0, True

    def _timeouts(self, infos: list[dict[str, Any]]) -> np.ndarray | float:
        """Which environments [n_envs] ran into a time limit; 0 if none did, as nearly always."""
        if not self.handle_timeout_termination:
            return 0.0
        if len(infos) == 1 == self.n_envs:
            return infos[0].get("TimeLimit.truncated", False)
        flags = [info.get("TimeLimit.truncated", False) for info in infos]
        if len(flags) == self.n_envs and not any(flags):
            return 0.0
        return np.array(flags, np.float32)

    def _announce(self, slot: int, done: np.ndarray, infos: list[dict[str, Any]]) -> None:
        """Tell sampler and relabelling about the rows just written."""
        ready = None
        if self.relabel is not None:
            self._sync(self.relabel)
            ready = self.relabel.added(slot, done, infos)
        if self.sampler.adaptive:
            cells = slot * self.n_envs + np.arange(self.n_envs)
            if ready is not None:
                self.sampler.exclude(cells)
            self.sampler.include(cells if ready is None else ready)

    def truncate_last_trajectory(self) -> None:
        """:meth:`cut_episodes` under SB3's name."""
        self.cut_episodes()

    def cut_episodes(self) -> None:
        """Let the running episodes end, by truncation, at the newest row: what comes next belongs to another episode.

        To be called when the environments are reset in the middle of an episode, so that no window and no hindsight
        goal reaches across.
        """
        if self.size() == 0:
            return
        newest, columns = self._newest(), self.storage.columns
        running = np.flatnonzero(columns["dones"][newest] == 0)
        if self.relabel is not None:
            self._sync(self.relabel)
            self.sampler.include(self.relabel.cut(running))
        columns["dones"][newest, running] = 1
        columns["timeouts"][newest, running] = 1
        self.storage.table.changed(newest)

    def _newest(self) -> int:
        return (self.pos - 1) % self.buffer_size

    def _sync(self, relabel: Relabel) -> None:
        """Let the relabelling catch up with rows written from elsewhere."""
        relabel.sync(self.storage.columns["dones"], self.pos, self.full)

    # --- reading ----------------------------------------------------------------------------------------------------

    def can_sample(self) -> bool:
        """Whether :meth:`sample` has anything to draw from; with hindsight, whether an episode has ended."""
        if self.size() == 0:
            return False
        if self.relabel is None:
            return True
        self._sync(self.relabel)
        return self.relabel.can_sample()

    def sample(self, batch_size: int, env: Normalizer | None = None) -> ReplayBufferSamples:
        """Draw ``batch_size`` transitions; on a GPU from the rows that are kept there, as :meth:`transitions` does.

        Args:
            env: a VecNormalize, to normalise observations and rewards (each step's, before they are summed).
        Raises:
            RuntimeError: hindsight replay, and no episode has ended yet.
            ValueError: nothing was added yet.
        """
        self._require_rows(batch_size)
        cells, weights = self.sampler.draw(batch_size, self.size() * self.n_envs, self.relabel)
        rows = cells if self.n_envs == 1 else cells // self.n_envs
        self._drawn = _Draw(rows, cells, weights)
        return self._get_samples(rows, env=env)

    def transitions(
        self, batch_size: int, gamma: float, env: Normalizer | None = None, batches: int = 1, late: bool = False
    ) -> Iterator[tuple[Transition | TransitionRows, Tensor | None]]:
        """Draw minibatches in the form that learners eat: what ``batches`` calls of :meth:`sample` would draw, sooner.

        Uniformly drawn batches are gathered many at a time; their tensors are slices of common blocks, to be read only.
        Prioritised and relabelled ones are drawn when they are asked for, so that they know what was learned from those
        before. A subclass with its own ``sample``, ``_get_samples`` or ``to_torch`` is asked through ``sample``.

        Args:
            batch_size: transitions in each batch.
            gamma: discount of one step, where the buffer does not sum several.
            env: a VecNormalize, to normalise observations and rewards.
            batches: how many.
            late: leave it to the learner to gather the rows, where nothing else has to be done with them.
        Yields:
            a :class:`Transition` whose float64 observations became float32, or the :class:`TransitionRows` to gather it
            from, and the indices [batch_size] for :meth:`update_priorities` (None unless prioritised).
        Raises:
            RuntimeError, ValueError: as :meth:`sample`, at the first batch.
        """
        if self._makes_own_batches():
            for _ in range(batches):
                samples = self.sample(batch_size, env=env)
                yield Transition.from_samples(samples, gamma), getattr(samples, "indices", None)
            return
        self._require_rows(batch_size)
        stored = self.n_steps == 1 and self.relabel is None and env is None and self.device.type == "cpu"
        columns = self.storage.shared if late and stored else None
        if columns is not None:
            yield from self._rows_of(columns, batch_size, gamma, batches)
            return
        if self.relabel is None and type(self.sampler) is Uniform:
            yield from self._uniform_transitions(self.sampler, batch_size, gamma, env, batches)
            return
        for _ in range(batches):
            cells, weights = self.sampler.draw(batch_size, self.size() * self.n_envs, self.relabel)
            transition = self._transition(self._rows(cells, env), weights, gamma)
            yield transition, None if weights is None else torch.from_numpy(cells)

    def _makes_own_batches(self) -> bool:
        """Whether a subclass, or a patch of this object, says how batches are made."""
        kind, ours = type(self), ReplayBuffer
        return (
            kind.sample is not ours.sample
            or kind._get_samples is not ours._get_samples
            or kind.to_torch is not ours.to_torch
            or not vars(self).keys().isdisjoint(("sample", "_get_samples", "to_torch"))
        )

    def _rows_of(
        self, columns: TransitionColumns, batch_size: int, gamma: float, batches: int
    ) -> Iterator[tuple[TransitionRows, Tensor | None]]:
        """:meth:`transitions` that are not gathered yet."""
        filled, discount = self.size() * self.n_envs, _scalar(gamma)
        if type(self.sampler) is Uniform:
            ones = self._ones(batch_size)
            cells = torch.from_numpy(self.sampler.draw_batches(batches, batch_size, filled))
            for rows in (cells,) if batches == 1 else cells.split(batch_size):
                yield TransitionRows(columns, rows, discount, ones), None
            return
        for _ in range(batches):
            rows, weights = map(torch.from_numpy, self.sampler.draw(batch_size, filled, None))
            yield TransitionRows(columns, rows, discount, weights), rows

    def _uniform_transitions(
        self, sampler: Uniform, batch_size: int, gamma: float, env: Normalizer | None, batches: int
    ) -> Iterator[tuple[Transition, None]]:
        """:meth:`transitions` that depend on nothing but the random numbers: several are gathered at once."""
        filled = self.size() * self.n_envs
        block_bytes = BLOCK_BYTES if self._source(env, batch_size) is self.storage else DEVICE_BLOCK_BYTES
        at_once = max(block_bytes // (batch_size * self.storage.row_bytes), 1)
        for start in range(0, batches, at_once):
            count = min(at_once, batches - start)
            cells = sampler.draw_batches(count, batch_size, filled)
            block = self._transition(self._rows(cells, env, shared=True), None, gamma)
            if count == 1:
                yield block, None
            else:
                yield from ((part, None) for part in block.split(count))

    def _require_rows(self, batch_size: int) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        if self.size() == 0:
            raise ValueError("The replay buffer is empty: add transitions before sampling.")
        if self.relabel is not None and not self.can_sample():
            raise RuntimeError(
                "No episode has ended yet, and hindsight replay draws from finished episodes only. Set learning_starts "
                "above the number of steps (times n_envs) that the longest episode takes, or give the environment a "
                "time limit."
            )

    def _get_samples(self, batch_inds: np.ndarray, env: Normalizer | None = None) -> ReplayBufferSamples:
        """The batch of some rows (slots) [B].

        :meth:`sample` calls it; then the sampler has chosen the environments too. Called with other rows it draws an
        environment for each.
        """
        drawn, self._drawn = self._drawn, None
        if drawn is None or drawn.rows is not batch_inds:
            rows = np.asarray(batch_inds, np.int64)
            drawn = _Draw(rows, rows * self.n_envs + self.rng.randint(0, self.n_envs, len(rows)), None)
        return self._samples(self._rows(drawn.cells, env), drawn)

    def _rows(self, cells: np.ndarray, env: Normalizer | None, shared: bool = False) -> _Rows:
        """The transitions that begin in some cells [B]; ``shared``: both observations may share memory."""
        if self.n_steps == 1 and self.relabel is None:
            return self._one_step(cells, env, shared)
        return self._n_step(cells, env)

    def _source(self, env: Normalizer | None, rows: int) -> Storage | Mirror:
        """What the next ``rows`` are gathered from: the storage, or its mirror on the device."""
        if env is not None:  # normalises arrays
            return self.storage
        return self._placement.source(self.storage, self.device, self.size(), rows)

    def _needs_arrays(self) -> str | None:
        """Why all batches must be made in main memory, if they must."""
        if self.relabel is not None:
            return "relabelling reads and edits batches in main memory"
        if type(self).to_torch is not BaseBuffer.to_torch:
            return f"{type(self).__name__} has a to_torch of its own, which takes arrays"
        return None

    def _one_step(self, cells: np.ndarray, env: Normalizer | None, shared: bool) -> _Rows:
        row = self._source(env, len(cells)).read(cells, shared)
        terminated = row["dones"] * (1 - row["timeouts"])
        observations, then, rewards = row["observations"], row["next_observations"], row["rewards"]
        observations, then = self._normalize_obs(observations, env), self._normalize_obs(then, env)
        return _Rows(observations, row["actions"], then, terminated, self._normalize_reward(rewards, env), None)

    def _n_step(self, first: np.ndarray, env: Normalizer | None) -> _Rows:
        """[B, n] -> [B]: the discounted sum of the window's rewards, and the successor of its last row."""
        cells, valid = self._windows(first)
        length = valid.sum(1)
        last = cells[np.arange(len(cells)), length - 1]
        source = self._source(env, len(cells))
        row = source.read(first)
        then = row["next_observations"] if self.n_steps == 1 else source.next_observations(last)
        window = Window(cells, valid, self.storage.scalars("rewards", cells), row["observations"], then)
        if self.relabel is not None:
            self.relabel(self.storage, window)
        rewards = self._normalize_reward(window.rewards, env) * valid
        rewards = (rewards @ self.gamma ** np.arange(self.n_steps)).astype(np.float32)
        terminated = self.storage.scalars("dones", last) * (1 - self.storage.scalars("timeouts", last))
        discounts = None if self.n_steps == 1 else (self.gamma**length).astype(np.float32)
        observations, then = self._normalize_obs(row["observations"], env), self._normalize_obs(then, env)
        return _Rows(observations, row["actions"], then, terminated, rewards, discounts)

    def _windows(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[B] cells -> the ``n_steps`` cells from each on [B, n], and which of them belong to the episode [B, n]."""
        slots, envs = np.divmod(cells, self.n_envs)
        slots = (slots[:, None] + np.arange(self.n_steps)) % self.buffer_size
        cells = slots * self.n_envs + envs[:, None]
        ends = (self.storage.scalars("dones", cells) > 0) | (self.storage.scalars("timeouts", cells) > 0)
        ends |= slots == self._newest()
        valid = np.ones(cells.shape, bool)
        valid[:, 1:] = ~np.logical_or.accumulate(ends[:, :-1], axis=1)
        return cells, valid

    def _samples(self, rows: _Rows, drawn: _Draw) -> ReplayBufferSamples:
        """Everything as tensors, scalars as columns [B, 1]."""
        weights, discounts = drawn.weights, rows.discounts
        samples = DictReplayBufferSamples if isinstance(rows.observations, dict) else ReplayBufferSamples
        return samples(
            self._tensors(rows.observations),
            self._tensor(rows.actions),
            self._tensors(rows.next_observations),
            self._tensor(rows.terminated[:, None]),
            self._tensor(rows.rewards[:, None]),
            None if discounts is None else self._tensor(discounts[:, None]),
            None if weights is None else self._tensor(weights[:, None]),
            None if weights is None else torch.from_numpy(drawn.cells),
        )

    def _transition(self, rows: _Rows, weights: np.ndarray | None, gamma: float) -> Transition:
        """The same bits as :meth:`Transition.from_samples` of :meth:`_samples`, but for the type of observations."""
        discounts = 1 - rows.terminated
        discounts *= gamma if rows.discounts is None else rows.discounts
        on_cpu = self.device.type == "cpu" and isinstance(rows.actions, np.ndarray)
        tensor: Callable[[Any], Tensor] = torch.from_numpy if on_cpu else self._tensor
        return Transition(
            _map(rows.observations, single_precision, tensor),
            tensor(rows.actions),
            tensor(rows.rewards),
            _map(rows.next_observations, single_precision, tensor),
            tensor(discounts),
            self._ones(len(discounts)) if weights is None else tensor(weights),
        )

    def _ones(self, size: int) -> Tensor:
        """[size] ones, the same tensor every time."""
        if self._unit_weights[0] != size or self._unit_weights[1].device.type != self.device.type:
            self._unit_weights = size, torch.ones(size, device=self.device)
        return self._unit_weights[1]

    def update_priorities(self, indices: Tensor | np.ndarray, td_errors: Tensor | np.ndarray) -> None:
        """Tell the sampler how wrong the critic was.

        Args:
            indices: the samples' ``indices`` [B].
            td_errors: [B] or [B, 1]; their sign does not matter.
        """
        self.sampler.update_priorities(_array(indices), _array(td_errors))

    # --- keeping ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The filled part as numpy arrays (oldest row first) and the rest as JSON values; nothing needs pickle.

        Keys with a slash belong to an entry of a Dict observation, to the sampler, or to the relabelling.
        """
        slots = self._slots()
        state: dict[str, Any] = {
            "version": STATE_VERSION,
            "buffer_size": self.buffer_size,
            "n_envs": self.n_envs,
            "pos": self.pos,
            "full": self.full,
            "optimize_memory_usage": self.optimize_memory_usage,
            "rng": self.rng_state(),
            "sampler": type(self.sampler).__name__,
            **self.storage.state_dict(slots),
        }
        for key, value in self.sampler.state_dict().items():
            state[f"sampler/{key}"] = value[slots] if isinstance(value, np.ndarray) else value
        if self.relabel is not None:
            state |= {f"relabel/{key}": value for key, value in self.relabel.state_dict(slots).items()}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back a :meth:`state_dict`; a smaller buffer keeps the newest rows.

        Raises:
            ValueError: the state is of another version, number of environments, layout or shape.
        """
        for key, ours in (
            ("version", STATE_VERSION),
            ("n_envs", self.n_envs),
            ("optimize_memory_usage", self.optimize_memory_usage),
        ):
            if state.get(key) != ours:
                raise ValueError(f"The saved buffer has {key}={state.get(key)!r}, this one {ours!r}: build it alike.")
        self._check_shapes(state)
        self.reset()
        saved = len(state["rewards"])
        rows = np.arange(saved)[-self.buffer_size :]
        if state["buffer_size"] == self.buffer_size:  # every row to its old slot, so that draws go on as before
            self.pos, self.full = state["pos"], state["full"]
        else:
            self.pos, self.full = len(rows) % self.buffer_size, len(rows) == self.buffer_size
        slots = self._slots()
        self.storage.load_state_dict(state, rows, slots)
        self.load_rng_state(state["rng"])
        if self.relabel is not None:
            self._sync(self.relabel)
            if "relabel/rng" in state:
                self.relabel.load_state_dict(_section(state, "relabel/"), rows, slots)
        self._load_sampler(state, rows, slots)

    def _slots(self) -> np.ndarray:
        """Filled slots, oldest first."""
        return np.arange(self.pos - self.size(), self.pos) % self.buffer_size

    def _check_shapes(self, state: dict[str, Any]) -> None:
        for name, ours in self.storage.state_dict(np.empty(0, np.int64)).items():
            saved = state.get(name)
            if saved is None:
                raise ValueError(f"The saved buffer has no {name!r}: it belongs to other observations.")
            if saved.dtype != ours.dtype or saved.shape[1:] != ours.shape[1:]:
                raise ValueError(
                    f"The saved {name!r} are {saved.dtype}{list(saved.shape[1:])} per step, this buffer holds "
                    f"{ours.dtype}{list(ours.shape[1:])}: was it made for another environment?"
                )

    def _load_sampler(self, state: dict[str, Any], rows: np.ndarray, slots: np.ndarray) -> None:
        if state["sampler"] != type(self.sampler).__name__:  # another kind: every row is new to it
            cells = (slots[:, None] * self.n_envs + np.arange(self.n_envs)).reshape(-1)
            self.sampler.include(cells if self.relabel is None else cells[self.relabel.eligible(cells)])
            return
        theirs = _section(state, "sampler/")
        for key, value in theirs.items():
            if isinstance(value, np.ndarray):
                theirs[key] = np.zeros((self.buffer_size, *value.shape[1:]), value.dtype)
                theirs[key][slots] = value[rows]
        self.sampler.load_state_dict(theirs)

    def __getstate__(self) -> dict[str, Any]:
        """For pickle and deepcopy: only the filled part of the storage."""
        return {**vars(self), "storage": self.storage.state_dict(self._slots())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        arrays = state.pop("storage")
        vars(self).update(state)
        self.storage = self._make_storage()
        slots = self._slots()
        self.storage.load_state_dict(arrays, np.arange(len(slots)), slots)


@lru_cache(maxsize=8)
def _scalar(value: float) -> Tensor:
    """[] a number, as the same tensor every time."""
    return torch.tensor(value, dtype=torch.float32)


def _map(obs: ArrayObs | TensorObs, *steps: Callable[[Any], Any]) -> Any:
    """Functions applied one after the other to observations, key by key if they are a dict."""
    if isinstance(obs, dict):
        return {key: _map(array, *steps) for key, array in obs.items()}
    for step in steps:
        obs = step(obs)
    return obs


def _array(values: Tensor | np.ndarray) -> np.ndarray:
    return (values.numpy(force=True) if isinstance(values, Tensor) else np.asarray(values)).reshape(-1)


def _section(state: dict[str, Any], prefix: str) -> dict[str, Any]:
    """Entries whose key starts with a prefix, without it."""
    return {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}


class DictReplayBuffer(ReplayBuffer):
    """:class:`ReplayBuffer` under SB3's name for Dict observations, which that class takes too."""

    def __init__(self, buffer_size: int, observation_space: spaces.Space, *args: Any, **kwargs: Any):
        assert isinstance(observation_space, spaces.Dict), (
            f"DictReplayBuffer needs a Dict observation space, got {observation_space}: use ReplayBuffer."
        )
        super().__init__(buffer_size, observation_space, *args, **kwargs)


class NStepReplayBuffer(ReplayBuffer):
    """:class:`ReplayBuffer` with n-step returns, under SB3's name and defaults."""

    def __init__(self, *args: Any, n_steps: int = 3, gamma: float = 0.99, **kwargs: Any):
        super().__init__(*args, n_steps=n_steps, gamma=gamma, **kwargs)


class PrioritizedReplayBuffer(ReplayBuffer):
    """:class:`ReplayBuffer` with the :class:`~polyak.data.sampling.samplers.Prioritized` sampler and its arguments."""

    def __init__(self, *args: Any, alpha: float = 0.6, beta: float = 0.4, eps: float = 1e-6, **kwargs: Any):
        super().__init__(*args, sampler=Prioritized(alpha, beta, eps), **kwargs)

    def set_beta(self, beta: float) -> None:
        """Set how much of the sampling bias the weights undo, 0 to 1."""
        self.sampler.set_beta(beta)  # type: ignore[attr-defined]
