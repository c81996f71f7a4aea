"""Replay = storage + three independent choices.

    which rows?          Sampler   (Uniform, Prioritized)
    seen as which goal?  Relabel   (none, Hindsight)
    made into what?      Reduce    (NStep: one step by default; Sequence)

A draw is always the same pipeline, so every combination is legal and none needs its own class:

    cells --gather--> window [B, n] --relabel--> window [B, n] --reduce--> ReplayBufferSamples [B] or Transition [B]
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.arrays import assign, mapped, place, under
from polyak.envs.spaces import get_action_dtype, subspaces_of
from polyak.experience.base_buffer import BaseBuffer, Normalizer, observation_dtype, row_dtype, single_dtype, tensor_of
from polyak.experience.batch import ReplayBufferSamples, Transition, TransitionRows
from polyak.experience.compact import CompactRing
from polyak.experience.datasets.dataset import Dataset
from polyak.experience.hindsight.relabel import Hindsight, Relabel
from polyak.experience.hindsight.rewards import computed_if_possible, reconcile
from polyak.experience.placement import Placement, check_size
from polyak.experience.record import Experience
from polyak.experience.replay_state import (
    COMPUTED,
    check_columns,
    check_rows,
    computed_rewards,
    load_relabel,
    load_sampler,
    parts_state,
    tensors_of_before,
)
from polyak.experience.ring import Ring
from polyak.experience.samplers import Prioritized, Sampler, Uniform, make_sampler
from polyak.experience.sampling.pipeline import Pipeline, each_batch, ended, late_batches, uniform_batches
from polyak.experience.sampling.reduce import NStep, Reduce, Sequence, make_reduce
from polyak.experience.schema import Column, Schema
from polyak.experience.step import Step

STATE_VERSION = 1
ROWS_AT_ONCE = 8192
COLUMNS = "observations", "next_observations", "actions", "rewards", "dones", "timeouts"
_STORES, _BATCHES = frozenset({"add"}), frozenset({"sample", "_get_samples", "to_torch"})
_NORMALIZES = frozenset({"_normalize_obs", "_normalize_reward"})
"""Methods that a subclass, or a patch of a buffer, may override to store, make batches or normalise in its own way."""
_STEP = "obs", "next_obs", "action", "reward", "done"


class _Draw(NamedTuple):
    """The sampler's choice: slots [B], cells [B] (slot and environment in one number), importance weights."""

    rows: np.ndarray
    cells: np.ndarray
    weights: np.ndarray | None


def _column(name: str) -> property:
    """A stored column as an array attribute [steps, envs, ...]: a view, so writing into it edits the buffer."""

    def read(self: ReplayBuffer) -> Any:
        if name not in self.storage.columns:
            raise AttributeError(
                f"{name} does not exist with optimize_memory_usage=True, which stores every observation once: "
                "use sample(), or optimize_memory_usage=False."
            )
        return self.storage.lend(name)

    def write(self: ReplayBuffer, value: Any) -> None:
        read(self)[...] = value

    return property(read, write, doc=f"{name} of all rows [buffer_size, n_envs, ...]; a view.")


class ReplayBuffer(BaseBuffer):
    """Ring of transitions for off-policy learning.

    Windows of ``n_steps`` never cross the end of an episode or the newest row. Where the window ends at a time limit
    (``infos[i]["TimeLimit.truncated"]``) or at the newest row, the sample's ``dones`` is 0 and ``next_observations`` is
    the true successor, whose value is bootstrapped; at a termination ``dones`` is 1.

    Args:
        buffer_size: transitions kept in all; each environment gets ``buffer_size // n_envs`` steps, which is also the
            value of the attribute of that name.
        optimize_memory_usage: store every observation once, and every frame of stacked images once. Samples are the
            same bits; they take a little longer.
        handle_timeout_termination: False treats a time limit as a termination.
        sampler: "uniform" (default), "prioritized", "rank_based", or a Sampler object, of which a copy is used.
        relabel: e.g. :class:`~polyak.experience.hindsight.relabel.Hindsight`; a copy is used.
        n_steps: length of the returns; above 1 the samples carry ``discounts``. (least, most) draws a length for each
            sample.
        gamma: discount of one step within the n-step returns.
        reduce: the reduction of a window; None: an n-step return, ``NStep(n_steps, gamma)``. With
            :class:`~polyak.experience.sampling.reduce.Sequence` all batches have a second axis, of time.
        columns: further columns of each row: a :class:`~polyak.experience.schema.Schema`, or columns. Every step must
            have them in ``extras``, and every batch has them.
        seed: seed of the sampler, the relabelling and the choice of environments; None draws from numpy's global
            stream.
        in_tensors: rows are tensors on ``device`` alone, as are the steps; float64 is stored as float32. The indices of
            batches are drawn in main memory, which never waits for the device, except with hindsight.
        storage_device: a device that also keeps the rows, so that batches are gathered there; the samples are the same
            bits. "cpu": none. A device: that one; it must be ``device``. "auto": ``device``, if it is a GPU and at most
            half of its free memory is needed. "disk": a temporary file replaces main memory, which caches as much of it
            as there is room; the file is deleted with the buffer. Batches to be normalised or relabelled are still
            gathered in main memory, and so are all batches while a view of a column, such as ``buffer.rewards``, is
            held.

    Raises:
        InsufficientMemoryError: the full buffer would not fit into the free memory, or into the device's.
        ValueError: an argument is out of range, or two contradict each other; the message names them.
    """

    observations, next_observations, actions, rewards, dones, timeouts = map(_column, COLUMNS)
    _overrides: frozenset[str] = frozenset()
    in_tensors = False

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        names = _STORES | _BATCHES | _NORMALIZES
        cls._overrides = frozenset(name for name in names if getattr(cls, name) is not getattr(ReplayBuffer, name))

    def _has_own(self, names: frozenset[str]) -> bool:
        """Whether a subclass, or a patch of this object, has one of these methods of its own."""
        return not (names.isdisjoint(self._overrides) and names.isdisjoint(vars(self)))

    @property
    def pos(self) -> int:
        """The slot that is written next."""
        return self.storage.written % self.storage.length

    @pos.setter
    def pos(self, value: int) -> None:
        self.storage.written = value + self.full * self.buffer_size

    @property
    def full(self) -> bool:
        """Whether every slot was written."""
        return self.storage.written >= self.storage.length

    @full.setter
    def full(self, value: bool) -> None:
        self.storage.written = self.pos + value * self.buffer_size

    def size(self) -> int:
        return self.storage.filled

    @property
    def extras(self) -> dict[str, np.ndarray]:
        """Name -> extra column of all rows [buffer_size, n_envs, ...]; views."""
        return self.storage.lend("extras") if len(self.schema) else {}

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
        n_steps: int | tuple[int, int] = 1,
        gamma: float = 0.99,
        reduce: Reduce | None = None,
        columns: Schema | Iterable[Column] | None = None,
        seed: int | None = None,
        in_tensors: bool = False,
        storage_device: torch.device | str = "auto",
    ):
        least, most = n_steps if isinstance(n_steps, tuple | list) else (None, n_steps)
        self.reduce = make_reduce(reduce, NStep(int(most), float(gamma), least))
        self.n_steps, self.gamma = self.reduce.n_steps, float(gamma)
        self.schema = Schema.of(columns)
        self.optimize_memory_usage, self.handle_timeout_termination = optimize_memory_usage, handle_timeout_termination
        self.sampler, self.relabel = make_sampler(sampler), copy(relabel)
        super().__init__(buffer_size, observation_space, action_space, device, n_envs)
        self.buffer_size = max(self.buffer_size // self.n_envs, 1)
        if isinstance(self.reduce, Sequence) and self.reduce.window > self.buffer_size:
            raise ValueError(
                f"{self.reduce} looks at {self.reduce.window} successive rows, but the buffer keeps only "
                f"{self.buffer_size} of each environment: use a larger buffer_size or shorter sequences."
            )
        if in_tensors and storage_device != "auto":
            raise ValueError(f"in_tensors=True keeps rows on device={self.device}: leave out {storage_device=}.")
        self.in_tensors, self._on_disk = in_tensors, storage_device == "disk"
        elsewhere = "cpu" if self._on_disk or in_tensors else storage_device
        self._placement = Placement(elsewhere, self.device, self._needs_arrays())
        if not self._on_disk and (self.device.type == "cpu" or not in_tensors):
            once = optimize_memory_usage and not in_tensors  # there is room for a successor of each row
            check_size(self.layout, self.buffer_size * self.n_envs, once, observation_space)
        self.storage = self._make_storage()
        wide = (part.dtype == np.float64 for part in subspaces_of(observation_space).values())
        self._wide = not in_tensors and any(wide)
        if self._placement.asked:  # an impossible choice is an error now, not at the first batch
            self._placement.mirror(self.storage, self.device)
        self._drawn: _Draw | None = None
        self.reset()
        self.seed(seed)

    # --- building ---------------------------------------------------------------------------------------------------

    def seed(self, seed: int | None = None) -> None:
        """Restart the random numbers of the sampler, the relabelling and the buffer itself."""
        super().seed(seed)
        for part in (self.sampler, self.relabel):
            if part is not None:
                part.seed(None if seed is None else int(self.rng.randint(2**31)))

    _maybe_cast_dtype = staticmethod(single_dtype)
    """Converts actions to the dtype in which they are stored."""

    @property
    def layout(self) -> np.dtype:
        """The type of a row."""
        stored: Callable[[Any], Any] = single_dtype if self.in_tensors else np.dtype
        flag = bool if self.in_tensors else np.float32
        observation = observation_dtype(self.observation_space, self.obs_shape, stored)
        action = np.dtype((self._maybe_cast_dtype(get_action_dtype(self.action_space)), (self.action_dim,)))
        return row_dtype(observation, action, {"rewards": np.float32, "dones": flag, "timeouts": flag}, self.schema)

    def _make_storage(self) -> Ring:
        kind = CompactRing if self.optimize_memory_usage else Ring
        device = self.device if self.in_tensors else None
        return kind(self.layout, self.buffer_size, self.n_envs, device, self._on_disk)

    def reset(self) -> None:
        """Empty the buffer."""
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
        *,
        extras: dict[str, Any] | None = None,
    ) -> None:
        """Store one vectorised step.

        Args:
            obs, next_obs: [n_envs, ...] or a dict of these. At the end of an episode ``next_obs`` is its true final
                observation, not the first one of the next episode.
            action: [n_envs, action_dim], in the learner's units (scaled).
            reward, done: [n_envs]; ``done`` marks terminations and truncations.
            infos: one dict per environment; "TimeLimit.truncated" is read, and HER's copy_info_dict keeps all.
            extras: name -> [n_envs, ...], for all ``columns``.

        Raises:
            ValueError: an argument has a wrong shape, or a column is missing or unknown.
        """
        self._write(obs, next_obs, action, reward, done, self._timeouts(infos), infos, extras)

    def record(self, step: Step) -> None:
        """Store one step of the environments, which distinguishes termination and truncation; :meth:`add` takes
        ``dones`` alone.

        If a subclass overrides ``add``, that method stores the step.

        Raises:
            ValueError: as for :meth:`add`.
        """
        # unpacked at once, which costs a fraction of reading the fields one by one
        obs, actions, _, rewards, then, _, truncated, dones, infos, _, _, _, extras, _ = step
        if self._has_own(_STORES):
            self.add(obs, then, actions, rewards, dones, list(infos), **({"extras": extras} if extras else {}))
            return
        actions = actions if actions.ndim > 1 else actions[:, None]  # numbers of choices
        timeouts = truncated if self.handle_timeout_termination else 0.0
        self._write(obs, then, actions, rewards, dones, timeouts, infos, extras)

    def fill(
        self,
        dataset: Dataset,
        encode: Callable[[np.ndarray], np.ndarray] = np.asarray,
        reward: Callable[[np.ndarray], np.ndarray] = np.asarray,
        blank: Collection[str] = (),
    ) -> None:
        """Store all transitions of a dataset, in order.

        Args:
            dataset: a dataset with the buffer's spaces; columns that the buffer lacks are dropped.
            encode: maps actions [B, ...] in the environment's units to the learner's.
            reward: maps rewards [B] to the stored rewards.
            blank: columns of the buffer that stay zero where the dataset lacks them.

        Raises:
            ValueError: the buffer has several environments, no room for all of it, a column that the dataset lacks, or
                keeps the infos of steps, which datasets do not hold.
        """
        if self.n_envs != 1 or len(dataset) > self.buffer_size - self.pos or self.full:
            raise ValueError(
                f"{dataset} does not fit a buffer of buffer_size={self.buffer_size} with {self.pos} rows and "
                f"n_envs={self.n_envs}: it takes a buffer of one environment with a row for each transition."
            )
        kept = [column for column in self.schema if column.name in dataset.columns or column.name not in blank]
        if missing := [column.name for column in kept if column.name not in dataset.columns]:
            raise ValueError(f"the dataset lacks the columns {missing}: it has {sorted(dataset.columns)}.")
        if getattr(self.relabel, "infos", None) is not None:
            raise ValueError("copy_info_dict=True keeps the infos of steps, of which datasets hold none: leave it out.")
        first = self.pos
        for part in dataset.chunks():
            ended = part.terminations | part.truncations
            rows: dict[str, Any] = {
                "actions": encode(part.actions).reshape(-1, 1, self.action_dim),
                "rewards": reward(part.rewards)[:, None],
                "dones": ended[:, None],
                "timeouts": part.truncations[:, None] & self.handle_timeout_termination,
            }
            if len(self.schema):
                zeros = {c.name: np.broadcast_to(np.zeros(c.shape), (len(ended), *c.shape)) for c in self.schema}
                columns = {**zeros, **{c.name: part.columns[c.name] for c in kept}}
                rows["extras"] = {c.name: columns[c.name].reshape(-1, 1, *c.shape) for c in self.schema}
            for name in ("observations", "next_observations"):
                rows[name] = mapped(self._stacked, getattr(part, name), self.obs_shape)
            self.storage.extend(Experience(rows), copy=True)
        filled = np.arange(first, self.size())
        if self.relabel is not None:
            self._sync(self.relabel)
            filled = filled[self.relabel.eligible(filled)]
        if self.sampler.adaptive:
            self.sampler.include(filled)

    def take_over(self, rows: Experience) -> None:
        """Store the rows of another buffer of the same environments, in order.

        Args:
            rows: [T, n_envs, ...] columns as in :meth:`contents`, which are copied.

        Raises:
            ValueError: the buffer relabels, which needs the infos of steps.
        """
        if self.relabel is not None:
            raise ValueError(f"relabel={self.relabel!r} must see each step: call record().")
        first = self.storage.written
        self.storage.extend(rows, copy=True)
        if self.sampler.adaptive:
            slots = np.arange(first, self.storage.written) % self.buffer_size
            self.sampler.include((slots[:, None] * self.n_envs + self._lanes).reshape(-1))

    def contents(self) -> dict[str, Any]:
        """Returns all stored rows, the oldest first.

        Returns:
            "observations", "next_observations", "actions", "rewards", "dones", "timeouts", and "extras" if there are
            any -> copies [steps, n_envs, ...] in numpy; dicts of these for Dict observations and for extras.
        """
        return self.storage.copies().to(None).columns

    def replace_rewards(self, reward: Callable[[Any, np.ndarray, Any, np.ndarray], np.ndarray]) -> None:
        """Replace the stored rewards by those of another function; n-step returns are computed from them.

        Args:
            reward: ``(observations [B, ...], actions [B, A], next_observations [B, ...], terminated [B]) -> [B]``,
                called with some thousand rows at a time, as they are stored.
        """
        for start in range(0, self.size() * self.n_envs, ROWS_AT_ONCE):
            cells = np.arange(start, min(start + ROWS_AT_ONCE, self.size() * self.n_envs))
            row = self.storage.read(cells)
            columns = row["observations"], row["actions"], row["next_observations"], ended(row)
            slots = cells // self.n_envs, cells % self.n_envs
            assign(self.storage.columns["rewards"], slots, reward(*columns))
        self.storage.edited()

    def use_env(self, env: Any) -> None:
        """Let hindsight use the ``compute_reward`` of ``env``, a VecEnv, from now on. If it is another function, stored
        rewards are recomputed, with a warning. Does nothing without hindsight.

        Raises:
            ValueError: ``env`` has no ``compute_reward``, or stored rewards cannot be recomputed: see
                :func:`~polyak.experience.hindsight.rewards.reconcile`. The earlier environment is kept then.
        """
        relabel = self.relabel
        if not isinstance(relabel, Hindsight) or env is relabel.env:
            return
        before, computed = relabel.env, computed_if_possible(relabel, self.storage, self._slots())
        relabel.set_env(env)
        try:
            self.reconcile_rewards(computed)
        except Exception:
            relabel.env = before
            raise

    def reconcile_rewards(self, before: np.ndarray | None = None) -> None:
        """:func:`~polyak.experience.hindsight.rewards.reconcile` stored rewards with hindsight's environment, if there
        is one."""
        if isinstance(self.relabel, Hindsight):
            reconcile(self.relabel, self.storage, self._slots(), before)

    @staticmethod
    def _stacked(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """[n, ...] as [n, 1, *shape]."""
        return array.reshape(len(array), 1, *shape)

    @cached_property
    def _watched(self) -> bool:
        """Whether the sampler or the relabelling must see each row."""
        return self.relabel is not None or self.sampler.adaptive

    @cached_property
    def _lanes(self) -> np.ndarray:
        """[n_envs] 0, 1, 2 ..."""
        return np.arange(self.n_envs)

    @cached_property
    def _shapes(self) -> tuple[Any, ...]:
        """The shapes of the first arguments of :meth:`add`."""
        return self._obs_batch, self._obs_batch, self._action_batch, self._scalar_batch, self._scalar_batch

    def _write(
        self,
        obs: Any,
        next_obs: Any,
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        timeouts: np.ndarray | float,
        infos: list[dict[str, Any]],
        extras: dict[str, Any] | None,
    ) -> None:
        try:
            fits = (obs.shape, next_obs.shape, action.shape, reward.shape, done.shape) == self._shapes
        except AttributeError:  # a dict, or a list
            fits = False
        given = obs, next_obs, action, reward, done
        obs, next_obs, action, reward, done = given if fits else map(self._batched, _STEP, given, self._shapes)
        extras = self.schema.checked(extras, self.n_envs) if extras or self.schema.columns else extras
        row = {
            "observations": obs, "next_observations": next_obs, "actions": action, "rewards": reward, "dones": done,
            "timeouts": timeouts, "extras": extras,
        }  # fmt: skip
        if self._watched:
            self._append_watched(row, done, infos)
        else:
            self.storage.append(row)

    def _append_watched(self, row: dict[str, Any], done: np.ndarray, infos: list[dict[str, Any]]) -> None:
        """Append a row that the sampler, or the relabelling, must see."""
        cells = self._lanes + self.pos * self.n_envs
        if self.relabel is None:
            self.storage.append(row)
            self.sampler.include(cells)
            return
        self._sync(self.relabel)  # as long as the row is not there yet
        self.storage.append(row)
        ready = self.relabel.added(self.storage.newest, done, infos)
        if self.sampler.adaptive:
            self.sampler.exclude(cells)
            self.sampler.include(ready)

    def _timeouts(self, infos: list[dict[str, Any]]) -> np.ndarray | float:
        """Returns which environments [n_envs] reached a time limit; 0 if none did, as nearly always."""
        if not self.handle_timeout_termination:
            return 0.0
        if len(infos) == 1 == self.n_envs:
            return infos[0].get("TimeLimit.truncated", False)
        flags = [info.get("TimeLimit.truncated", False) for info in infos]
        if len(flags) == self.n_envs and not any(flags):
            return 0.0
        return np.array(flags, np.float32)

    def truncate_last_trajectory(self) -> None:
        """:meth:`cut_episodes` under SB3's name."""
        self.cut_episodes()

    def cut_episodes(self, envs: Iterable[int] | None = None) -> None:
        """Truncate the running episodes at the newest row: the next rows belong to other episodes.

        Call it when the environments are reset in the middle of an episode, so that no window and no hindsight goal
        crosses the reset.

        Args:
            envs: which environments; ``None``: all.
        """
        if self.size() == 0:
            return
        newest, columns = self.storage.newest, self.storage.columns
        running = np.flatnonzero(place(columns["dones"][newest], None) == 0)
        if envs is not None:
            running = np.intersect1d(running, np.fromiter(envs, np.int64))
        if self.relabel is not None:
            self._sync(self.relabel)
            self.sampler.include(self.relabel.cut(running))
        columns["dones"][newest, running] = 1
        columns["timeouts"][newest, running] = 1
        self.storage.edited(newest=1)

    def _sync(self, relabel: Relabel) -> None:
        """Let the relabelling catch up with rows written from elsewhere."""
        relabel.sync(self.storage.columns["dones"], self.pos, self.full)

    # --- reading ----------------------------------------------------------------------------------------------------

    def can_sample(self) -> bool:
        """Whether :meth:`sample` has anything to draw from; with hindsight, whether an episode has ended."""
        return self.size() > 0 and (self.relabel is None or self._has_finished_episodes(self.relabel))

    def _has_finished_episodes(self, relabel: Relabel) -> bool:
        self._sync(relabel)
        return relabel.can_sample()

    def sample(self, batch_size: int, env: Normalizer | None = None) -> ReplayBufferSamples:
        """Draw ``batch_size`` transitions; on a GPU from the rows that are kept there, as :meth:`transitions` does.

        Args:
            env: a VecNormalize, to normalise observations and rewards (each step's, before they are summed).
        Raises:
            RuntimeError: hindsight replay, and no episode has ended yet.
            ValueError: nothing was added yet.
        """
        if batch_size < 1 or not self.can_sample():
            raise self._why_none(batch_size)
        cells, weights = self.sampler.draw(batch_size, self.size() * self.n_envs, self.relabel)
        rows = cells if self.n_envs == 1 else cells // self.n_envs
        self._drawn = _Draw(rows, cells, weights)
        return self._get_samples(rows, env=env)

    def transitions(
        self, batch_size: int, gamma: float, env: Normalizer | None = None, batches: int = 1, late: bool = False
    ) -> Iterator[tuple[Transition | TransitionRows, Tensor | None]]:
        """Draw minibatches for learners: the same rows as ``batches`` calls of :meth:`sample`, in less time.

        Uniformly drawn batches are gathered many at a time; their tensors are slices of common blocks, to be read only.
        Prioritised and relabelled ones are drawn one at a time, so that they reflect the priorities updated by earlier
        ones. If a subclass overrides ``sample``, ``_get_samples`` or ``to_torch``, batches are drawn by ``sample``.

        Args:
            batch_size: transitions in each batch.
            gamma: discount of one step, where the buffer does not sum several.
            env: a VecNormalize, to normalise observations and rewards.
            batches: number of minibatches.
            late: let the learner gather the rows, if they need no other processing.
        Yields:
            a :class:`Transition` whose float64 observations became float32, or the :class:`TransitionRows` to gather it
            from, and the indices [batch_size] for :meth:`update_priorities` (None unless prioritised).
        Raises:
            RuntimeError, ValueError: as :meth:`sample`.
        """
        if self._has_own(_BATCHES):
            return self._samples(batch_size, gamma, env, batches)
        if batch_size < 1 or not self.can_sample():
            raise self._why_none(batch_size)
        pipeline, filled = self._pipeline(env), self.storage.filled * self.n_envs
        draw = late_batches if late and pipeline.learner_can_gather else self._gather
        return draw(pipeline, self.sampler, filled, batch_size, gamma, batches)

    def _samples(self, batch_size: int, gamma: float, env: Normalizer | None, batches: int) -> Iterator[Any]:
        """Draws the same minibatches by :meth:`sample`."""
        for _ in range(batches):
            samples = self.sample(batch_size, env=env)
            yield Transition.from_samples(samples, gamma), getattr(samples, "indices", None)

    @cached_property
    def _gather(self) -> Callable[..., Iterator[Any]]:
        """Makes the minibatches that learners do not gather."""
        uniform = self.relabel is None and type(self.sampler) is Uniform and not self.reduce.random
        return uniform_batches if uniform else each_batch

    def _why_none(self, batch_size: int) -> Exception:
        """Returns the error that explains why nothing can be drawn."""
        if batch_size < 1:
            return ValueError(f"batch_size must be at least 1, got {batch_size}.")
        if self.size() == 0:
            return ValueError("The replay buffer is empty: add transitions before sampling.")
        return RuntimeError(
            "No episode has ended yet, and hindsight replay draws from finished episodes only. Set learning_starts "
            "above the number of steps (times n_envs) that the longest episode takes, or give the environment a time "
            "limit."
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
        return self._pipeline(env).rows(drawn.cells).samples(partial(tensor_of, self), drawn.weights, drawn.cells)

    def discount_by(self, gamma: float) -> None:
        """Sum n-step returns with another discount of one step from now on."""
        n_step = self.reduce.n_step if isinstance(self.reduce, Sequence) else self.reduce
        if isinstance(n_step, NStep):
            n_step = replace(n_step, gamma=float(gamma))
            self.reduce = replace(self.reduce, n_step=n_step) if isinstance(self.reduce, Sequence) else n_step
            self.gamma = float(gamma)

    def _pipeline(self, env: Normalizer | None) -> Pipeline:
        """Returns the pipeline that makes batches of drawn rows, normalised by ``env``."""
        tensor, elsewhere = partial(tensor_of, self), self._placement
        placement = None if self.in_tensors or elsewhere.declined == self.device else elsewhere
        made = Pipeline(self.storage, placement, self.relabel, self.reduce, self._wide, tensor, self.device, self.rng)
        if env is None and not self._has_own(_NORMALIZES):
            return made
        # normalising takes arrays
        return made._replace(placement=None, wide=True, normalize=partial(self._normalized, env))

    def _normalized(self, env: Normalizer | None, *columns: Any) -> tuple[Any, Any, Any]:
        now, then, rewards = (mapped(partial(place, device=None), column) for column in columns)
        return self._normalize_obs(now, env), self._normalize_obs(then, env), self._normalize_reward(rewards, env)

    def _needs_arrays(self) -> str | None:
        """Why all batches must be made in main memory, if they must."""
        if self.relabel is not None:
            return "relabelling reads and edits batches in main memory"
        if "to_torch" in self._overrides:
            return f"{type(self).__name__} has a to_torch of its own, which takes arrays"
        return None

    def update_priorities(self, indices: Tensor | np.ndarray, td_errors: Tensor | np.ndarray) -> None:
        """Give the sampler the critic's errors.

        Args:
            indices: the samples' ``indices`` [B].
            td_errors: [B] or [B, 1], one for each sample, also if it is a sequence; their sign does not matter.
        """
        cells, errors = (place(part, None).reshape(-1) for part in (indices, td_errors))
        if cells.shape != errors.shape:
            raise ValueError(f"td_errors must hold one number for each of the {len(cells)} indices, got {len(errors)}.")
        self.sampler.update_priorities(cells, errors)

    def anneal(self, progress: float) -> None:
        """Set how far training has come for the sampler: 0 at its start, 1 at its end."""
        self.sampler.anneal(progress)

    def close(self) -> None:
        """Release resources such as processes; this class holds none."""

    # --- keeping ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The filled part as numpy arrays (oldest row first) and the rest as JSON values; nothing needs pickle."""
        relabel, slots = self.relabel, self._slots()
        found = computed_if_possible(relabel, self.storage, slots) if isinstance(relabel, Hindsight) else None
        return {
            "version": STATE_VERSION,
            "buffer_size": self.buffer_size,
            "n_envs": self.n_envs,
            "pos": self.pos,
            "full": self.full,
            "optimize_memory_usage": self.optimize_memory_usage,
            "rng": self.rng_state(),
            **parts_state(self.storage, self.sampler, relabel, slots),
            **({} if found is None else {COMPUTED: found}),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take back a :meth:`state_dict`; a smaller buffer keeps the newest rows.

        Raises:
            ValueError: the state is of another version, number of environments, layout or shape, or its positions do
                not fit its rows; with hindsight, its rewards are of another function and cannot be recomputed.
        """
        if shards := state.get("shards"):
            raise ValueError(f"The saved buffer has n_replay_shards={shards}, this one 0: build it alike.")
        if "written" in state:
            state = tensors_of_before(state, self._make_storage(), self.obs_shape, self.optimize_memory_usage)
        for key, ours in (
            ("version", STATE_VERSION),
            ("n_envs", self.n_envs),
            ("optimize_memory_usage", self.optimize_memory_usage),
        ):
            if state.get(key) != ours:
                raise ValueError(f"The saved buffer has {key}={state.get(key)!r}, this one {ours!r}: build it alike.")
        saved = check_rows(state)
        check_columns(self.storage, state)
        self.reset()
        rows = np.arange(saved)[-self.buffer_size :]
        if state["buffer_size"] == self.buffer_size:  # every row to its old slot, so that draws continue as before
            self.pos, self.full = state["pos"], state["full"]
        else:
            self.pos, self.full = len(rows) % self.buffer_size, len(rows) == self.buffer_size
        slots = self._slots()
        self.storage.load_rows(state, rows, slots)
        self.load_rng_state(state["rng"])
        if self.relabel is not None:
            self._sync(self.relabel)
            load_relabel(self.relabel, state, rows, slots)
        load_sampler(self.sampler, state, rows, self.storage, slots, self.relabel)
        try:
            self.reconcile_rewards(computed_rewards(state, rows))
        except Exception:
            self.reset()  # nothing is to be learned from them
            raise

    def drawing_state(self) -> dict[str, Any]:
        """Returns the part of :meth:`state_dict` that determines how rows are drawn, without the rows, for a buffer
        that can be filled again."""
        state: dict[str, Any] = {"sampler": type(self.sampler).__name__, "rng": self.rng_state()}
        return {**state, **{f"sampler/{key}": value for key, value in self.sampler.state_dict().items()}}

    def load_drawing_state(self, state: dict[str, Any]) -> None:
        """Take back a :meth:`drawing_state` of a buffer that was filled with the same rows.

        Raises:
            ValueError: it had another sampler.
        """
        if state["sampler"] != type(self.sampler).__name__:
            raise ValueError(
                f"The saved buffer draws by {state['sampler']}, this one by {type(self.sampler).__name__}: build it "
                "alike."
            )
        self.load_rng_state(state["rng"])
        self.sampler.load_state_dict(under("sampler", state))

    def _slots(self) -> np.ndarray:
        """Filled slots, oldest first."""
        return np.arange(self.pos - self.size(), self.pos) % self.buffer_size

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state for pickle and deepcopy, with only the filled part of the storage."""
        return {**vars(self), "storage": (self.storage.written, self.storage.rows_state(self._slots()))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        written, arrays = state.pop("storage")
        vars(self).update(state)
        self.storage = self._make_storage()
        self.storage.written = written
        slots = self._slots()
        self.storage.load_rows(arrays, np.arange(len(slots)), slots)


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
    """:class:`ReplayBuffer` with the :class:`~polyak.experience.samplers.Prioritized` sampler and its arguments."""

    sampler: Prioritized

    def __init__(
        self,
        *args: Any,
        alpha: float = 0.6,
        beta: float = 0.4,
        eps: float = 1e-6,
        final_beta: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(*args, sampler=Prioritized(alpha, beta, eps, final_beta), **kwargs)

    def set_beta(self, beta: float) -> None:
        """Set how much of the sampling bias the weights undo, 0 to 1."""
        self.sampler.set_beta(beta)
