"""Experience of the current policy, used for one update and thrown away.

Shapes: T steps of N environments; R = T * N rows, step by step; S states that no row holds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.arrays import Array, Device, assign, copied, leaves, mapped, paths, place, to_device, unflat, where, zeros
from polyak.envs.spaces import get_action_dtype
from polyak.experience.base_buffer import BaseBuffer, Normalizer, tensor_of
from polyak.experience.batch import (
    DictRolloutBufferSamples,
    ExtendedRolloutSamples,
    RolloutBufferSamples,
    RolloutRows,
    RolloutSamples,
)
from polyak.experience.memory import check_memory
from polyak.experience.record import Experience
from polyak.experience.schema import Column, Schema
from polyak.experience.step import Step
from polyak.experience.trajectory import Trajectory
from polyak.ops.returns import gae

FLATTENED = (
    "observations", "actions", "rewards", "episode_starts", "values", "log_probs", "advantages", "returns", "extras"
)  # fmt: skip
COLLECTED = (
    "observations", "actions", "rewards", "episode_starts", "values", "log_probs", "truncated", "final_values", "extras"
)  # fmt: skip
"""The columns that are written step by step."""
_STEP = "obs", "action", "reward", "episode_start"
_NO_ROWS = np.zeros(0, np.int64)
_NOT_WORTH_A_LOOK = 2**20
"""Bytes of a buffer that fits into any machine's memory; to ask the system takes longer than to make it."""
LOOP_UP_TO = 32  # below this many steps a loop over numpy views beats torch's logarithmic scan (measured)


def states_after(step: Step, memory: Mapping[str, Tensor] | None) -> Experience:
    """Returns the states that a step led to: ``observations``, recurrent ``memory`` and, if there are any, ``masks``,
    [N, ...] each."""
    states = Experience({"observations": step.next_observations, "memory": dict(memory or {})})
    return states.plus(masks=step.extras["next_masks"]) if "next_masks" in step.extras else states


class RolloutBuffer(BaseBuffer):
    """``buffer_size`` steps of ``n_envs`` environments, with advantages and value targets.

    ``values``, ``log_probs`` and ``final_values`` may be filled step by step or assigned as whole arrays afterwards.

    Attributes:
        observations: [buffer_size, n_envs, ...], or a dict of these.
        actions: [buffer_size, n_envs, action_dim].
        rewards, values, log_probs, advantages, returns, episode_starts: [buffer_size, n_envs] float32.
        extras: name -> [buffer_size, n_envs, ...]
        truncated: [buffer_size, n_envs] bool: the row ended its episode by truncation; set by :meth:`record` only.
        final_values: [buffer_size, n_envs] float32 values of the final observations of such episodes.
        finals: for each step with such rows, their final ``observations``, recurrent ``memory`` and ``masks``, if any,
            [K, ...]; in tensors those of all rows, since the host does not read which rows they are.
        generator_ready: whether :meth:`get` has begun; from then on all arrays but ``truncated`` and ``final_values``
            are [n_envs * buffer_size, ...].

    Args:
        buffer_size: steps of each environment.
        gae_lambda: trace decay of the advantages; 1 gives Monte Carlo returns.
        gamma: discount.
        columns: further columns of each row: a :class:`~polyak.experience.schema.Schema`, or columns. Every step must
            have them in ``extras``, and every minibatch has them.
        sequence_length: above 1: a divisor of ``buffer_size``; minibatches are made of concatenated sequences of that
            many steps, and ``starts`` in their ``extras`` marks where episodes begin.
        in_tensors: the arrays are tensors on ``device``, whose values the host does not read.
    """

    observations: Any
    actions: Array
    rewards: Array
    episode_starts: Array
    values: Array
    log_probs: Array
    advantages: Array
    returns: Array
    truncated: Array
    final_values: Array
    extras: dict[str, Array]
    finals: list[Experience]
    _final_rows: list[np.ndarray]
    _state_values: Array | None
    """[buffer_size, n_envs] the values of the rows' states as successors, if they differ from ``values``."""
    _seen: Any
    """[buffer_size + 1, n_envs, ...] the observations, including those after the last step, of a rollout that was given
    as a whole; else None."""
    elsewhere: Any = None
    """A reference to a rollout that is stored elsewhere: see :meth:`leave`; ``None``: it is here."""
    order_reads_rows: ClassVar[bool] = False
    """Whether the order of rows in minibatches depends on their content, so that they may not be stored elsewhere."""
    warns_of_rest = True
    """Whether to warn if ``batch_size`` leaves a smaller minibatch at the end of each pass."""

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        gae_lambda: float = 1,
        gamma: float = 0.99,
        n_envs: int = 1,
        *,
        columns: Schema | Iterable[Column] | None = None,
        sequence_length: int = 1,
        in_tensors: bool = False,
    ):
        super().__init__(buffer_size, observation_space, action_space, device, n_envs)
        self.schema, self.sequence_length = Schema.of(columns), sequence_length
        if sequence_length < 1 or buffer_size % sequence_length:
            raise ValueError(
                f"sequence_length must be a divisor of buffer_size={buffer_size}, so that the rollout is cut into "
                f"equal sequences, got {sequence_length}."
            )
        for name, value in (("gae_lambda", gae_lambda), ("gamma", gamma)):
            if not 0 <= value <= 1:
                raise ValueError(f"{name} must be between 0 and 1, got {value}.")
        self.gae_lambda, self.gamma = gae_lambda, gamma
        self.in_tensors = in_tensors
        self._on: Device = self.device if in_tensors else None
        parts = observation_space.values() if isinstance(observation_space, spaces.Dict) else [observation_space]
        has_numbers = any(isinstance(part, spaces.Discrete) for part in parts)
        self._shapings = (self._with_axis,) if has_numbers else ()
        self._by_add = type(self).add is not RolloutBuffer.add or self._has_own("compute_returns_and_advantage")
        scalars = "rewards", "episode_starts", "values", "log_probs", "advantages", "returns", "final_values"
        self._layouts: dict[str, Any] = {
            "observations": _layouts(observation_space, self.obs_shape),
            "actions": np.dtype((get_action_dtype(action_space), (self.action_dim,))),
            **dict.fromkeys(scalars, np.dtype(np.float32)),
            "truncated": np.dtype(bool),
            "extras": self.schema.layouts(),
        }
        """The numpy type of a row of each column."""
        self._check_memory()
        self.reset()

    def _check_memory(self) -> None:
        needed = sum(layout.itemsize for layout in leaves(self._layouts)) * self.buffer_size * self.n_envs
        if needed < _NOT_WORTH_A_LOOK:
            return
        check_memory(
            needed,
            f"The rollout buffer ({self.buffer_size:,} steps of n_envs={self.n_envs}, {self.observation_space})",
            "Use fewer steps (n_steps), fewer environments or smaller observations.",
        )

    def reset(self) -> None:
        """Start a new rollout, in new arrays: references to the old ones keep their contents."""
        self.pos, self.full, self.generator_ready = 0, False, False
        self.finals, self._final_rows, self._state_values, self._seen, self.elsewhere = [], [_NO_ROWS], None, None, None
        vars(self).update(mapped(self._zeros, self._layouts))

    def leave(self, elsewhere: Any) -> None:
        """Represent a whole rollout that is stored elsewhere: :meth:`passes` then gives the rows of each minibatch."""
        self.reset()
        self.elsewhere, self.pos, self.full = elsewhere, self.buffer_size, True

    def adopt(self, rows: Mapping[str, Any], seen: Any, ends: Iterable[tuple[int, Step, Any]] = ()) -> None:
        """Take a whole rollout without values, uncopied where it has the types of the buffer.

        Args:
            rows: ``actions``, ``rewards``, ``episode_starts``, ``truncated`` and the further columns by their names,
                [buffer_size, n_envs, ...] each; others are not read.
            seen: [buffer_size + 1, n_envs, ...] the observations, with those after the last step.
            ends: the steps in which episodes ended: number, step, and the recurrent state after it.
        """
        self.reset()
        for number, step, memory in ends:
            self._keep(number, step.truncated, step, memory)
        self._seen = mapped(lambda own, part: _like(own, part, len(part)), self.observations, seen)
        self.observations = mapped(lambda part: part[:-1], self._seen)
        for name in ("actions", "rewards", "episode_starts", "truncated"):
            setattr(self, name, _like(getattr(self, name), rows[name]))
        self.extras = {name: _like(own, rows[name]) for name, own in self.extras.items()}
        self.pos, self.full = self.buffer_size, True

    def _zeros(self, layout: Any) -> Array:
        """[buffer_size, n_envs, ...] of a type that may have a shape."""
        return zeros((self.buffer_size, self.n_envs), layout, self._on)

    def add(
        self,
        obs: Any,
        action: np.ndarray,
        reward: np.ndarray,
        episode_start: np.ndarray,
        value: Tensor | np.ndarray | None,
        log_prob: Tensor | np.ndarray | None,
        *,
        extras: dict[str, Any] | None = None,
    ) -> None:
        """Store one vectorised step.

        Args:
            obs: [n_envs, ...] or a dict of these.
            action: [n_envs, action_dim].
            reward: [n_envs]; at a time limit with the discounted value of the final observation added, unless
                ``truncated`` and ``final_values`` are assigned, or :meth:`record` does so.
            episode_start: [n_envs] whether ``obs`` is the first of an episode.
            value, log_prob: [n_envs] by the acting policy; None: they are assigned after the rollout.
            extras: name -> [n_envs, ...], of all ``columns``.

        Raises:
            ValueError: the buffer is full, something has another shape than it must have, or a column is missing or
                unknown.
        """
        if self.full:
            raise ValueError(
                f"The rollout buffer is full after buffer_size={self.buffer_size} steps: call reset() first."
            )
        shapes = self._obs_batch, self._action_batch, self._scalar_batch, self._scalar_batch
        obs, action, reward, starts = map(self._batched, _STEP, (obs, action, reward, episode_start), shapes)
        self._write(obs, action, reward, starts, self.schema.checked(extras, self.n_envs))
        if value is not None:
            self.values[self.pos - 1] = place(value, None).reshape(-1)
        if log_prob is not None:
            self.log_probs[self.pos - 1] = place(log_prob, None).reshape(-1)

    def _with_axis(self, observations: Any) -> Any:
        """Reshapes observations [N, ...] to the shapes of rows, in which single numbers [N] are [N, 1]."""
        return mapped(lambda own, part: part.reshape(own.shape[1:]), self.observations, observations)

    def _write(self, observations: Any, actions: Array, rewards: Array, starts: Array, extras: dict[str, Any]) -> None:
        """Write the next row."""
        pos = self.pos
        assign(self.observations, pos, observations)
        self.actions[pos], self.rewards[pos], self.episode_starts[pos] = actions, rewards, starts
        for name, column in self.extras.items():
            assign(column, pos, extras[name])
        self.pos = pos + 1
        self.full = self.pos == self.buffer_size

    def _has_own(self, *methods: str) -> bool:
        """Whether a subclass outside of this library has one of these methods."""
        return not all(getattr(type(self), name).__module__.startswith("polyak.") for name in methods)

    @cached_property
    def values_may_follow(self) -> bool:
        """Whether :meth:`record` needs no values, which may be assigned after the rollout.

        Not if a subclass has an ``add`` or ``compute_returns_and_advantage`` of its own: these see each step as SB3 has
        it, with its values, and rewards that hold those of final observations.
        """
        return not self._has_own("add", "compute_returns_and_advantage")

    def record(
        self,
        step: Step,
        value: Tensor | np.ndarray | None = None,
        log_prob: Tensor | np.ndarray | None = None,
        final_values: Tensor | np.ndarray | None = None,
        memory: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Store one step of the environments, including truncation; :meth:`add` takes rewards that include the value
        after it.

        Args:
            step: the step, with the environments' rewards; ``extras`` without a column are dropped.
            value, log_prob: see :meth:`add`.
            final_values: [n_envs] values of ``step.next_observations``, read where an episode was truncated. None, if
                :attr:`values_may_follow`: the states are kept in :attr:`finals`.
            memory: the policy's recurrent state [n_envs, ...] after the step, by name.

        Raises:
            ValueError: as for :meth:`add`; or an episode was truncated without ``final_values``, and they may not
                follow.
        """
        if self._by_add or value is not None:
            self._record_by_add(step, value, log_prob, final_values, memory)
            return
        # unpacked at once, which costs a fraction of reading the fields one by one
        obs, actions, _, rewards, _, _, truncated, _, _, _, starts, ended, extras, _ = step
        if self.in_tensors or (ended and truncated.any()):
            self.truncated[self.pos] = truncated
            self._keep(self.pos, slice(None) if self.in_tensors else truncated, step, memory)
        for shape in self._shapings:
            obs = shape(obs)
        self._write(obs, actions.reshape(self._action_batch), rewards, starts, extras)

    def _record_by_add(self, step: Step, value: Any, log_prob: Any, final_values: Any, memory: Any) -> None:
        """Stores a step by the ``add`` of a subclass, or with values: see :meth:`record`."""
        pos, truncated, rewards = self.pos, step.truncated, step.rewards
        cut, may_follow = step.ended and bool(truncated.any()), self.values_may_follow
        if cut and not may_follow:
            rewards = self._bootstrapped(rewards, truncated, final_values)
        kept = {name: step.extras[name] for name in self.extras if name in step.extras}
        further = self._arguments(kept) if kept else {}  # SB3's method has no such argument
        actions = step.actions.reshape(self._action_batch)
        self.add(step.observations, actions, rewards, step.episode_starts, value, log_prob, **further)
        if cut and may_follow:
            self.truncated[pos] = truncated
            if final_values is None:
                self._keep(pos, truncated, step, memory)
            else:
                self.final_values[pos] = np.where(truncated, place(final_values, None).reshape(-1), 0)

    def _keep(self, pos: int, envs: Any, step: Step, memory: Mapping[str, Tensor] | None) -> None:
        """Keep the states that a step led to in some environments; of all, ``slice(None)``, copies."""
        rows = envs if isinstance(envs, slice) else envs.nonzero()[0]  # torch warns of a mask that is not writable
        self.finals.append(self._stored(Experience(copied(states_after(step, memory)[rows].columns, self._on))))
        self._final_rows.append(np.arange(pos * self.n_envs, (pos + 1) * self.n_envs)[rows])

    def _bootstrapped(
        self, rewards: np.ndarray, truncated: np.ndarray, final_values: Tensor | np.ndarray | None
    ) -> np.ndarray:
        """Returns rewards [n_envs] to which final values are added where an episode was truncated."""
        if final_values is None:
            raise ValueError(
                f"An episode was truncated: pass record() the final_values. They cannot follow, for "
                f"{type(self).__name__} has an add() or compute_returns_and_advantage() of its own."
            )
        bootstrap = np.where(truncated, self.gamma * place(final_values, None).reshape(-1).astype(np.float64), 0)
        return rewards + bootstrap.astype(rewards.dtype)

    def _arguments(self, extras: dict[str, Any]) -> dict[str, Any]:
        """Returns further columns as arguments of :meth:`add`."""
        return {"extras": extras}

    @property
    def resumable(self) -> bool:
        """Whether :meth:`state_dict` describes a running rollout completely: no subclass overrides ``add``."""
        return not self._has_own("add")

    @property
    def collected(self) -> Experience:
        """The columns that are written step by step, [buffer_size, n_envs, ...]: the arrays themselves; only before
        :meth:`get`."""
        return Experience({name: getattr(self, name) for name in COLLECTED})

    def state_dict(self) -> dict[str, Any]:
        """Returns the steps of a rollout that is being collected, as arrays [steps, n_envs, ...], and the random
        state."""
        return {"rng": self.rng_state(), **self.collected[: self.pos].to(None).columns}

    def finals_state(self) -> dict[str, np.ndarray]:
        """Returns :attr:`finals` as arrays by name, and the numbers of their rows; empty without any."""
        if not self.finals:
            return {}
        kept = Experience.joined(self.finals, 0).map(partial(place, device=None))
        return {"rows": np.concatenate(self._final_rows), **dict(paths(kept.columns))}

    def load_finals(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that :meth:`finals_state` returned."""
        if state:
            columns = {"memory": {}, **{name: unflat(name, state) for name in {key.split("/")[0] for key in state}}}
            self._final_rows = [columns.pop("rows").astype(np.int64)]
            self.finals = [self._stored(Experience(copied(columns, None)))]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the rollout that :meth:`state_dict` described."""
        self.reset()
        self.load_rng_state(state["rng"])
        self.pos = len(state["rewards"])
        self.full = self.pos == self.buffer_size
        assign(self.collected.columns, slice(self.pos), state)

    def flat_inputs(self) -> tuple[Any, ...]:
        """Returns all observations and actions, step by step, as tensors [R, ...], and a dict of further columns if
        there are any; only before :meth:`get`."""
        columns = (self.observations, self.actions, *([self.extras] if self.extras else []))
        return tuple(mapped(lambda a: tensor_of(self, a.reshape(-1, *a.shape[2:])), part) for part in columns)

    def successors(self, *last: Experience) -> Experience:
        """The states [S] that no row holds, as tensors: :attr:`finals`, step by step, then the ``last`` [N], if given.

        Args:
            last: ``observations``, ``memory`` and ``masks``, if there are any, after the last step.
        """
        return Experience.joined([*self.finals, *map(self._stored, last)], 0).map(partial(tensor_of, self))

    def tensors(self, states: Experience) -> Experience:
        """Returns some states as policies read them."""
        return self._stored(states).map(partial(tensor_of, self))

    def _stored(self, states: Experience) -> Experience:
        """Returns some states as :attr:`finals` has them."""
        columns = mapped(partial(place, device=self._on), states.columns)
        columns["observations"] = mapped(self._typed, self._layouts["observations"], columns["observations"])
        return Experience(columns)

    def _typed(self, layout: np.dtype, part: Array) -> Array:
        """Returns observations [S, ...] in the dtype and shape of rows; tensors in their shape."""
        part = part.reshape(-1, *layout.shape)
        return part if self.in_tensors else np.asarray(part, layout.base, order="C")

    def fill(self, found: Mapping[str, Tensor], next_values: Tensor) -> Tensor:
        """Store a learner's outputs for a whole rollout.

        Args:
            found: ``values`` and ``log_probs`` [R]; ``state_values`` [R], if states have other values as successors.
            next_values: [S] the values of :meth:`successors`.

        Returns:
            values [N, 1] of the observations after the last step.
        """
        here = {name: place(column, self._on).reshape(self.values.shape) for name, column in found.items()}
        self.values[:], self.log_probs[:] = here["values"], here["log_probs"]
        self._state_values = here.get("state_values")
        then, count = place(next_values, self._on), sum(map(len, self._final_rows))
        rows = slice(None) if self.in_tensors else np.concatenate(self._final_rows)
        self.final_values.reshape(-1)[rows] = then[:count]
        return torch.as_tensor(then[count:, None])

    def compute_returns_and_advantage(self, last_values: Tensor | np.ndarray, dones: np.ndarray) -> None:
        """Fill ``advantages`` (GAE, Schulman et al. 2016 eq. 16) and ``returns = advantages + values``.

        Where :attr:`truncated` is True the value of the final observation is taken from :attr:`final_values`. No other
        end of an episode is bootstrapped: steps stored by :meth:`add` have that value in ``rewards`` already.

        Args:
            last_values: [n_envs] (or [n_envs, 1]) values of the observations after the last step.
            dones: [n_envs] whether the last step ended an episode.
        """
        values = self.values if self._state_values is None else self._state_values
        next_values = where(self.truncated, self.final_values, self._following(values, last_values))
        cuts = self._cuts(dones)
        discounts = self.gamma * (1 - cuts * ~self.truncated)
        of_arrays = gae_by_torch if len(values) > LOOP_UP_TO else gae_by_loop
        self.advantages, self.returns = (gae if self.in_tensors else of_arrays)(
            self.rewards, self.values, next_values, discounts, self.gae_lambda, cuts
        )

    def _cuts(self, dones: Array) -> Array:
        """Returns 1 where an episode ended, else 0, [buffer_size, n_envs] float32; the last row by ``dones``."""
        return self._following(self.episode_starts, dones)

    def _following(self, column: Array, last: Array) -> Array:
        """Returns the next row's entries of a column, [buffer_size, n_envs] float32; ``last`` [n_envs] follows the last
        row."""
        found = self._zeros(np.float32)
        found[:-1] = column[1:]
        assign(found, -1, place(last, self._on).reshape(-1))
        return found

    def trajectory(self, last_observations: Any, dones: np.ndarray) -> Trajectory:
        """Returns the whole rollout in order, as tensors on the buffer's device; before :meth:`get`.

        Args:
            last_observations: [n_envs, ...] after the last step, or a dict of these.
            dones: [n_envs] whether the last step ended an episode.

        Raises:
            ValueError: the buffer is not full.
        """
        if not self.full or self.generator_ready:
            raise ValueError(
                f"A trajectory needs a full rollout that get() has not flattened yet; this one holds {self.pos} of "
                f"{self.buffer_size} steps, and generator_ready={self.generator_ready}."
            )
        last = self._batched("last_observations", last_observations, self._obs_batch)
        cuts = self._cuts(dones) > 0
        alive = ~cuts | self.truncated
        seen = self._seen
        if seen is None:
            seen = mapped(lambda rows, end: np.concatenate([rows, end[None]]), self.observations, last)
        return Trajectory(
            mapped(partial(tensor_of, self), seen),
            tensor_of(self, self.actions),
            tensor_of(self, self.rewards),
            tensor_of(self, (self.gamma * alive).astype(np.float32)),
            tensor_of(self, cuts),
            tensor_of(self, self.log_probs),
            tensor_of(self, self.final_values),
            {name: tensor_of(self, column) for name, column in self.extras.items()},
        )

    def get(self, batch_size: int | None = None) -> Generator[RolloutSamples, None, None]:
        """Yields all rows once, in a new random order at each call.

        Args:
            batch_size: rows of a minibatch (the last one may be smaller); None gives all rows at once.

        Raises:
            ValueError: ``batch_size`` is less than 1.
        """
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
        if type(self)._get_samples is not RolloutBuffer._get_samples:
            self._read()
            order, size = self._order(batch_size)
            for start in range(0, len(order), size):
                yield self._get_samples(order[start : start + size])
            return
        for minibatch in self.minibatches(batch_size):
            yield minibatch.gathered()

    def minibatches(
        self, batch_size: int | None = None, rollout: RolloutSamples | None = None
    ) -> Generator[RolloutRows, None, None]:
        """Yields minibatches like :meth:`get`, but without gathering them. ``rollout`` is the whole rollout, if it is
        converted already."""
        rollout = self._rollout() if rollout is None else rollout
        order, size = self._order(batch_size)
        for rows in to_device(torch.from_numpy(order), self.device).split(size):
            yield RolloutRows(rollout, rows)

    def passes(self) -> Callable[[int | None], Generator[RolloutRows, None, None]]:
        """Returns :meth:`minibatches` of the current rollout, which is converted once for all passes over it."""
        return partial(self.minibatches, rollout=self.elsewhere or self._rollout())

    @cached_property
    def plain(self) -> bool:
        """Whether minibatches are just rows of the rollout: no subclass makes them otherwise."""
        cls = type(self)
        return cls.get is RolloutBuffer.get and cls._get_samples is RolloutBuffer._get_samples

    @property
    def _rows(self) -> int:
        """The number of rows in all minibatches."""
        return self.buffer_size * self.n_envs

    def _order(self, batch_size: int | None) -> tuple[np.ndarray, int]:
        """Returns all rows in a new random order, and the number of rows in a minibatch."""
        rows, steps = self._rows, self.sequence_length
        batch_size = rows if batch_size is None else batch_size
        first = self.rng.permutation(rows // steps)
        order = first if steps == 1 else (first[:, None] * steps + np.arange(steps)).reshape(-1)
        return order, max(1, batch_size // steps) * steps

    def _read(self) -> None:
        """Flatten the arrays of a rollout that is full, unless they are flat."""
        if not self.full:
            raise AssertionError(
                f"The rollout buffer holds {self.pos} of {self.buffer_size} steps: fill it before reading it."
            )
        if not self.generator_ready:
            self._flatten()

    def _flatten(self) -> None:
        """Join the steps of all environments into one axis, environment by environment."""
        for name in FLATTENED:
            setattr(self, name, mapped(self.swap_and_flatten, getattr(self, name)))
        for column in self.schema.columns:  # [rows], not [rows, 1], of single numbers
            self.extras[column.name] = self.extras[column.name].reshape(-1, *column.shape)
        self.generator_ready = True

    def _rollout(self) -> RolloutSamples:
        """Returns the whole flattened rollout as tensors, sharing memory with the arrays where it can."""
        self._read()
        scalars = (self.values, self.log_probs, self.advantages, self.returns)
        values, log_probs, advantages, returns = (tensor_of(self, column.reshape(-1)) for column in scalars)
        actions = tensor_of(self, self.actions).float()  # for all spaces, as in SB3
        columns = mapped(partial(tensor_of, self), self.observations), actions, values, log_probs, advantages, returns
        if self.extras or self.sequence_length > 1:
            return ExtendedRolloutSamples(*columns, self._further_columns())
        return (DictRolloutBufferSamples if isinstance(columns[0], dict) else RolloutBufferSamples)(*columns)

    def _further_columns(self) -> dict[str, Tensor]:
        extras = {name: tensor_of(self, column) for name, column in self.extras.items()}
        if self.sequence_length > 1:
            extras["starts"] = tensor_of(self, self.episode_starts.reshape(-1))
        return extras

    def _get_samples(self, batch_inds: np.ndarray, env: Normalizer | None = None) -> RolloutSamples:
        """Returns some rows [B] of the flattened rollout; :meth:`get` calls it where a subclass overrides it."""
        rows = to_device(torch.from_numpy(np.asarray(batch_inds, np.int64)), self.device)
        return RolloutRows(self._rollout(), rows).gathered()


def gae_by_loop(
    rewards: Array, values: Array, next_values: Array, discounts: Array, lam: float, cuts: Array
) -> tuple[Array, Array]:
    """Computes :func:`~polyak.ops.returns.gae` of few steps, for which numpy's operations cost a fraction of
    torch's."""
    y = rewards + discounts * next_values - values
    traces = discounts * lam * (cuts == 0)
    for t in range(len(y) - 2, -1, -1):
        y[t] += traces[t] * y[t + 1]
    return y, y + values


def gae_by_torch(
    rewards: Array, values: Array, next_values: Array, discounts: Array, lam: float, cuts: Array
) -> tuple[Array, Array]:
    """Computes the same estimate by torch, which is faster for many steps."""
    r, v, then, gammas, ends = map(torch.from_numpy, (rewards, values, next_values, discounts, cuts))
    advantages, targets = gae(r, v, then, gammas, lam, ends)
    return advantages.numpy(), targets.numpy()


class DictRolloutBuffer(RolloutBuffer):
    """:class:`RolloutBuffer` under SB3's name for Dict observations, which that class takes too."""

    def __init__(self, buffer_size: int, observation_space: spaces.Space, *args: Any, **kwargs: Any):
        assert isinstance(observation_space, spaces.Dict), "DictRolloutBuffer must be used with Dict obs space only"
        super().__init__(buffer_size, observation_space, *args, **kwargs)


def _layouts(space: spaces.Space, shape: Any) -> Any:
    """Returns the numpy type of an observation; for a Dict space a dict of them."""
    if isinstance(space, spaces.Dict):
        return {key: _layouts(sub, shape[key]) for key, sub in space.spaces.items()}
    return np.dtype((space.dtype, shape))


def _like(own: np.ndarray, part: np.ndarray, steps: int | None = None) -> np.ndarray:
    """Returns an array in the type and the shape of another, but for the number of ``steps``; itself where it has
    them."""
    return part.reshape(len(own) if steps is None else steps, *own.shape[1:]).astype(own.dtype, copy=False)
