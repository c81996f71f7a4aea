"""A replay buffer whose rows are in other processes, in several shards: Ape-X, Horgan et al. 2018 (arXiv:1803.00933).

Each shard is a :class:`~polyak.experience.ReplayBuffer` with the steps of some of the environments. A batch is drawn
from all, in proportion to their priorities, with the importance weights of a single buffer.

Shapes: T steps of N environments, B rows, S shards.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

import cloudpickle
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.arrays import joined, mapped, shared, to_device
from polyak.collecting.runner import on_host
from polyak.distributed.integrity import Integrity, whole
from polyak.distributed.local_workers import LocalWorkers
from polyak.distributed.placement import Reservation
from polyak.distributed.ray_workers import PATIENCE, Failure, Workers
from polyak.distributed.runners import Transport
from polyak.distributed.shard_process import ShardProcess
from polyak.envs.wrappers.layers import frozen
from polyak.experience.base_buffer import Normalizer
from polyak.experience.batch import Transition
from polyak.experience.record import Experience
from polyak.experience.replay_buffer import ReplayBuffer
from polyak.experience.samplers import Prioritized, make_sampler
from polyak.experience.step import Step
from polyak.hyperparameters.declaration import require
from polyak.seeding import derived_seed
from polyak.warning import warn_user

WAITING_ROWS = 64
"""Steps that wait here before they are sent, where nothing is drawn meanwhile."""
DRAWN_AHEAD = 4
"""Batches that are requested at a time, if they do not depend on learning from earlier ones."""


@dataclass
class _AwaitedBatch:
    """A batch that was requested."""

    rows: int
    """B"""
    wanted: list[int]
    """The shards with a part of the batch."""
    lives: np.ndarray
    """The generation of each shard at the request."""
    parts: dict[int, Experience] = field(default_factory=dict)
    is_lost: bool = False
    """Whether one of these shards has died."""


class ShardedReplay:
    """The newest ``buffer_size`` transitions of N environments in S processes.

    It replaces a :class:`~polyak.experience.ReplayBuffer`. New rows get the highest priority so far in any shard. A
    shard that dies is replaced by an empty one, and training continues with the rows of the others.

    Args:
        buffer_size: transitions in all shards together; each environment gets ``buffer_size // n_envs`` steps.
        observation_space, action_space: the spaces of one environment.
        device: device of the batches.
        n_envs: N
        n_shards: S, at most N.
        transport: ``"ray"`` for processes on Ray, ``"local"`` for this process.
        model_seed: seed of the shards' draws, if the options have no ``seed``; ``None``: drawn from numpy's global
            stream.
        sampler: ``None``, ``"uniform"``, ``"prioritized"`` or an object of these kinds, which serves as the pattern.
        columns: further columns of each row.
        drawn_ahead: number of batches that are requested in advance, also across calls: learning does not wait for
            shards then, and batches reflect rows and priorities that are that much older. ``None``: some within a call,
            if they do not depend on learning.
        handle_timeout_termination: False treats a time limit as a termination.
        placement: placement of shards on Ray.
        **options: see :class:`~polyak.experience.ReplayBuffer`.

    Raises:
        ValueError: ``n_shards`` or an option cannot be used.
        ImportError: ``polyak[scale]`` is missing.
    """

    relabel = None

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device,
        n_envs: int,
        *,
        n_shards: int,
        transport: Transport,
        model_seed: int | None,
        sampler: Any = None,
        columns: Any = None,
        drawn_ahead: int | None = None,
        handle_timeout_termination: bool = True,
        placement: Reservation = Reservation(num_cpus=0.0),
        **options: Any,
    ) -> None:
        fix = f"each holds the steps of at least one environment, and there are {n_envs}. Use at most as many."
        require(1 <= n_shards <= n_envs, "n_replay_shards", n_shards, fix)
        fix = "it must be at least 1, or None."
        require(drawn_ahead is None or drawn_ahead >= 1, "replay_buffer_kwargs['drawn_ahead']", drawn_ahead, fix)
        self.buffer_size, self.n_envs, self.device = max(buffer_size // n_envs, 1), n_envs, device
        self.observation_space, self.action_space = observation_space, action_space
        self.sampler: Any = make_sampler(sampler)
        """It holds no rows; it computes importance weights, and draws the number of rows from each shard."""
        self._highest, self._gamma = 1.0, options.get("gamma")
        stored: dict[str, Any] = {"columns": columns, "handle_timeout_termination": handle_timeout_termination}
        own = options.pop("seed", None)
        self.sampler.seed(own)
        first = next((one for one in (own, model_seed) if one is not None), None)
        first = int(np.random.randint(2**31)) if first is None else first
        self._envs = np.array_split(np.arange(n_envs), n_shards)
        recipe = partial(ReplayBuffer, observation_space=observation_space, action_space=action_space, device="cpu")
        arguments = []
        for shard, envs in enumerate(self._envs):
            size, draws = self.buffer_size * len(envs), derived_seed(first % 2**32, shard)
            make = partial(recipe, size, n_envs=len(envs), sampler=sampler, seed=draws, **stored, **options)
            arguments.append((cloudpickle.dumps(make), transport == "ray"))
        rows = min(WAITING_ROWS, self.buffer_size)
        self._outbox = recipe(rows * n_envs, n_envs=n_envs, **stored)
        self.workers: Workers | LocalWorkers = (
            LocalWorkers(ShardProcess, arguments)
            if transport == "local"
            else Workers(ShardProcess, arguments, PATIENCE, placement=placement, name="n_replay_shards")
        )
        self._end = weakref.finalize(self, self.workers.stop)
        self._ahead = drawn_ahead
        self._asked: deque[_AwaitedBatch] = deque()
        """Batches to come."""
        self._draws: list[deque[_AwaitedBatch]] = [deque() for _ in self._envs]
        """The pending batches of each shard."""
        self._due = np.zeros(n_shards, np.int64)
        """The number of other pending answers of each shard."""
        self._masses, self._held = np.zeros(n_shards), np.zeros(n_shards, np.int64)
        """The mass of each shard, and the steps of its environments that it holds."""
        self._lives = np.zeros(n_shards, np.int64)
        """The number of earlier shards in each place."""
        self.integrity = Integrity()
        self.processes = [0] * n_shards
        try:
            self._begin_again()
            self._settle()
        except BaseException:
            self.close()
            raise

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"replay_buffer.{name}: rows are elsewhere (n_replay_shards), and there is no {name} of them here. "
            "replay_buffer.contents() brings copies of all, transitions() draws some; n_replay_shards=0 has them here."
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError("shards of a replay buffer (n_replay_shards) cannot be copied: save the model, and load it.")

    # -- writing -------------------------------------------------------------------------------------------------------

    @whole
    def record(self, step: Step) -> None:
        """Store one step of the environments.

        Raises:
            ValueError: something has another shape than it must have, or a column is missing or unknown.
        """
        self._outbox.record(on_host(step) if isinstance(step.rewards, Tensor) else step)
        if self._outbox.full:
            self._send()

    def _send(self) -> None:
        """Send the recorded steps to the shards."""
        steps = self._outbox.size()
        if steps == 0:
            return
        rows = self._outbox.storage.all()
        for shard, envs in enumerate(self._envs):
            self._ask(shard, "add", rows[:, envs[0] : envs[-1] + 1], self._highest)
            self._held[shard] = min(self._held[shard] + steps, self.buffer_size)
        self._outbox.reset()

    @whole
    def cut_episodes(self, envs: Iterable[int] | None = None) -> None:
        """Truncate the running episodes at the newest row: the next rows belong to other episodes.

        Args:
            envs: which environments; ``None``: all.
        """
        self._send()
        which = set(range(self.n_envs) if envs is None else envs)
        for shard, own in enumerate(self._envs):
            if here := [int(env - own[0]) for env in own if env in which]:
                self._ask(shard, "cut", here)

    @whole
    def reset(self) -> None:
        """Empty all shards."""
        self._outbox.reset()
        self._asked.clear()
        self._held[:] = 0
        for shard in range(len(self._envs)):
            self._ask(shard, "reset")

    def size(self) -> int:
        """Returns the steps of each environment in the shards; their average if one was lost."""
        held = sum(int(steps) * len(envs) for steps, envs in zip(self._held, self._envs, strict=True))
        return min(held // self.n_envs + self._outbox.size(), self.buffer_size)

    def can_sample(self) -> bool:
        """Whether there is anything to draw."""
        return self.size() > 0

    # -- reading -------------------------------------------------------------------------------------------------------

    def transitions(
        self, batch_size: int, gamma: float, env: Normalizer | None = None, batches: int = 1, late: bool = False
    ) -> Iterator[tuple[Transition, Tensor | None]]:
        """Draw minibatches for learners; fewer, with a warning, if no shard holds a row.

        Args:
            batch_size: B
            gamma: discount of one step, if the buffer has no n-step returns.
            env: a VecNormalize, whose current statistics normalise observations and rewards.
            batches: number of minibatches.
            late: ignored: shards gather the rows.
        Yields:
            a minibatch, and the places of its rows [B] for :meth:`update_priorities`, or ``None`` without priorities.
        """
        normalizer = self._begin_draws(env)
        within = 1 if self.sampler.adaptive else DRAWN_AHEAD
        while batches:
            ahead = min(batches, within) if self._ahead is None else self._ahead
            draw = self._next_draw(ahead, batch_size, gamma, normalizer)
            if draw is None:
                warn_user(f"all replay shards are empty: {batches} minibatches are left out.", RuntimeWarning)
                return
            batches -= 1
            yield self._batch(draw)

    @whole
    def _begin_draws(self, env: Normalizer | None) -> Any:
        """Prepare for some minibatches; returns the normaliser to send to shards."""
        self._send()
        if self._ahead is None:
            self._asked.clear()  # requests of a call that was left early
        return None if env is None else self.workers.put(frozen(env))

    @whole
    def _next_draw(self, ahead: int, rows: int, gamma: float, normalizer: Any) -> _AwaitedBatch | None:
        """Returns a batch of ``rows`` rows that has arrived, while up to ``ahead`` of them are requested; ``None`` if
        there is nothing to draw from."""
        while True:
            while len(self._asked) < ahead and (draw := self._ask_draw(rows, gamma, normalizer)):
                self._asked.append(draw)
            if not self._asked:
                return None
            draw = self._asked.popleft()
            while not draw.is_lost and len(draw.parts) < len(draw.wanted):
                self._take()
            if not draw.is_lost and draw.rows == rows:
                return draw

    def _ask_draw(self, rows: int, gamma: float, normalizer: Any) -> _AwaitedBatch | None:
        """Request the parts of a batch from shards; returns ``None`` if there is nothing to draw from."""
        if self._ahead is None or not self._masses.any():
            self._settle()
        if not self._masses.any():
            return None
        strata = (np.arange(rows) + self.sampler.rng.random_sample(rows)) / rows
        counts = dealt(self._masses, strata)
        draw = _AwaitedBatch(rows, np.flatnonzero(counts).tolist(), self._lives.copy())
        for shard in draw.wanted:
            self._draws[shard].append(draw)
            self.workers.ask(shard, "draw", int(counts[shard]), float(gamma), normalizer)
        return draw

    def _batch(self, draw: _AwaitedBatch) -> tuple[Transition, Tensor | None]:
        parts = [draw.parts[shard] for shard in draw.wanted]
        columns = Experience.joined(parts, 0).columns
        cells, chances = columns.pop("cells", None), columns.pop("priorities", None)
        if chances is not None:
            columns["weights"] = self.sampler.weights(chances)
        batch = Transition(**mapped(self._tensor, columns))
        if cells is None:
            return batch, None
        origin = (shard + len(self._envs) * draw.lives[shard] for shard in draw.wanted)
        starts = [np.full(len(part.rewards), at * self._cells) for at, part in zip(origin, parts, strict=True)]
        return batch, torch.from_numpy(np.concatenate(starts) + cells)

    def _tensor(self, column: np.ndarray) -> Tensor:
        return to_device(shared(column), self.device)

    # -- priorities ----------------------------------------------------------------------------------------------------

    @property
    def _cells(self) -> int:
        """More than any shard has."""
        return self.buffer_size * len(self._envs[0]) + 1

    @whole
    def update_priorities(self, indices: Tensor | np.ndarray, td_errors: Tensor | np.ndarray) -> None:
        """Send the critic's errors to the shards.

        Args:
            indices: [B] the places that :meth:`transitions` returned with the batch. Rows that were lost since are left
                out.
            td_errors: [B] or [B, 1]; their sign does not matter.
        """
        if not isinstance(self.sampler, Prioritized):
            return
        places, errors = (torch.as_tensor(each).numpy(force=True).reshape(-1) for each in (indices, td_errors))
        self._highest = max(self._highest, float(np.abs(errors).max()) + self.sampler.eps)
        shards, cells = np.divmod(places, self._cells)
        lives, shards = np.divmod(shards, len(self._envs))
        for shard in range(len(self._envs)):
            here = (shards == shard) & (lives == self._lives[shard])
            if here.any():
                self._ask(shard, "update", cells[here], errors[here], self._highest)

    def anneal(self, progress: float) -> None:
        """Set how far training has come for the sampler: 0 at its start, 1 at its end."""
        if self.sampler.adaptive:
            self.sampler.anneal(progress)

    @whole
    def discount_by(self, gamma: float) -> None:
        """Sum returns of several steps with another discount from now on."""
        self._gamma = float(gamma)
        for shard in range(len(self._envs)):
            self._ask(shard, "discount_by", self._gamma)

    # -- shards --------------------------------------------------------------------------------------------------------

    def _ask(self, shard: int, method: str, *arguments: Any) -> None:
        """Let one do something that is answered with its mass."""
        self._due[shard] += 1
        self.workers.ask(shard, method, *arguments)

    def _settle(self) -> None:
        """Wait for all answers but draws."""
        while self._due.any():
            self._take()

    def _take(self) -> None:
        """Wait for some answers, and record them."""
        for shard, method, answer in self.workers.answers():
            self._note(shard, method, answer)

    def _note(self, shard: int, method: str, answer: Any) -> None:
        if isinstance(answer, Failure):
            self._replace(shard, answer)
        elif method == "draw":
            self._draws[shard].popleft().parts[shard] = answer
        elif method == "begin":
            self._due[shard] -= 1
            self.processes[shard], self._masses[shard], self._held[shard] = answer
        else:
            self._due[shard] -= 1
            self._masses[shard] = answer

    def _replace(self, shard: int, failure: Failure) -> None:
        lost = int(self._held[shard]) * len(self._envs[shard])
        loss = f"{lost:,} transitions are lost, and an empty one takes its place."
        self.workers.replace(shard, failure, "replay shard", loss)
        for draw in self._draws[shard]:
            draw.is_lost = True
        self._draws[shard].clear()
        self._begin(shard)

    def _begin(self, shard: int) -> None:
        """Let a shard begin, or report its content; its rows get other places than before."""
        self._lives[shard] += 1
        self._masses[shard] = self._held[shard] = self._due[shard] = 0
        self._ask(shard, "begin")
        if self._gamma is not None:
            self._ask(shard, "discount_by", self._gamma)

    def recover(self) -> None:
        """Restart after an exception has interrupted a request: shards keep their rows, except perhaps the newest ones,
        and no episode continues across."""
        if self.integrity.broken:
            self._begin_again()
            self.integrity.broken = False

    def _begin_again(self) -> None:
        self.workers.disown()
        self._outbox.reset()
        self._asked.clear()
        for shard in range(len(self._envs)):
            self._draws[shard].clear()
            self._begin(shard)

    def _all(self, method: str, *arguments: list[Any]) -> list[Any]:
        """Returns all shards' answers, in order: the i-th gets the i-th of each of the arguments."""
        self._settle()
        for shard in range(len(self._envs)):
            self.workers.ask(shard, method, *(each[shard] for each in arguments))
        found: dict[int, Any] = {}
        while len(found) < len(self._envs):
            for shard, asked, answer in self.workers.answers():
                if asked == method and not isinstance(answer, Failure):
                    found[shard] = answer
                    continue
                self._note(shard, asked, answer)
                if isinstance(answer, Failure):  # another shard has replaced it
                    self.workers.ask(shard, method, *(each[shard] for each in arguments))
        return [found[shard] for shard in range(len(self._envs))]

    def close(self) -> None:
        """End all shards."""
        self._end()

    # -- keeping -------------------------------------------------------------------------------------------------------

    @whole
    def contents(self) -> dict[str, Any]:
        """Copies of the newest steps that all shards hold, the oldest first, as of
        :meth:`~polyak.experience.ReplayBuffer.contents`: [T, N, ...]"""
        self._send()
        parts = self._all("contents")
        steps = min(part.lead[0] for part in parts)
        newest = [part[part.lead[0] - steps :].columns for part in parts]
        columns: dict[str, Any] = mapped(lambda *several: joined(several, 1), *newest)
        return columns

    @whole
    def state_dict(self) -> dict[str, Any]:
        """Returns the content of all shards, as numpy arrays, and the rest as JSON values."""
        self._send()
        self._asked.clear()  # requests are not saved: this buffer and a loaded one then draw alike
        state = {"shards": len(self._envs), "highest": self._highest, "rng": self.sampler.rng_state()}
        for shard, own in enumerate(self._all("state")):
            state |= {f"shard{shard}:{name}": value for name, value in own.items()}
        return state

    @whole
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned.

        Raises:
            ValueError: the state is of a buffer with another number of shards, or none.
        """
        if state.get("shards", 0) != len(self._envs):
            raise ValueError(
                f"The saved replay buffer has n_replay_shards={state.get('shards', 0)}, this one {len(self._envs)}: "
                "build it alike."
            )
        self._outbox.reset()
        self._asked.clear()
        prefixes = [f"shard{shard}:" for shard in range(len(self._envs))]
        parts = [{key[len(p) :]: value for key, value in state.items() if key.startswith(p)} for p in prefixes]
        self._masses[:] = self._all("load_state", parts)
        self._held[:] = [len(part["rewards"]) for part in parts]
        self._highest = float(state["highest"])
        self.sampler.load_rng_state(state["rng"])


def dealt(masses: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Returns the number of rows of a batch from each shard, in proportion to its mass: [S], B in total.

    One point is drawn in each of B equal parts of the whole mass, as within one tree (arXiv:1511.05952 section 3.3);
    shards whose share is a whole number of rows get exactly that number.

    Args:
        masses: [S], at least 0, one of them more.
        strata: [B] in [0, 1), one in each of B equal parts.
    """
    ends = np.cumsum(masses)
    found = np.searchsorted(ends, strata * ends[-1], side="right")
    last = np.flatnonzero(masses)[-1]  # rounding may put the last point beyond it
    return np.bincount(np.minimum(found, last), minlength=len(masses))
