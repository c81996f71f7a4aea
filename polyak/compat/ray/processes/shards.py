"""A replay buffer whose rows are in other processes (Ape-X, Horgan et al. 2018, arXiv:1803.00933).

Shapes: N environments, B rows, S shards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.compat.buffers import OwnArrays
from polyak.compat.ray.processes.batches import Columns, batch_of, stacked
from polyak.compat.ray.processes.experience import Outbox
from polyak.compat.ray.processes.fragments import of_envs
from polyak.compat.ray.processes.shard_worker import Drawn, Mass, ShardWorker
from polyak.data import Transition, TransitionRows
from polyak.data.base import BaseBuffer, Normalizer
from polyak.data.step import Step
from polyak.distributed.ray_workers import Failure, Workers
from polyak.distributed.shards import dealt
from polyak.experience.samplers import Prioritized, make_sampler
from polyak.hyperparameters.declaration import require
from polyak.warning import warn_user

PATIENCE = 600.0
"""Seconds within which a shard must answer."""
MOST_WAITING = 32
"""Requests that a shard may have waiting before others wait for it."""
_NOTHING = Mass(0.0, 0)


@dataclass
class _Draw:
    """A batch that was asked for."""

    ticket: int
    rows: int
    wanted: dict[int, int]
    """Shard -> rows."""
    parts: dict[int, Drawn] = field(default_factory=dict)


class ShardedReplayBuffer(OwnArrays):
    """A :class:`~polyak.data.ReplayBuffer` in S processes, which are drawn from in proportion to their priorities.

    Each holds the steps of some of the environments. New rows get the highest priority so far, in whatever shard. A
    shard that dies is replaced by an empty one, and training continues with what the others hold.

    Args:
        buffer_size: transitions in all shards together.
        shards: how many, S; at most N.
        waiting: batches that are asked for in advance; 1 draws each by the newest priorities.
        processors: that each reserves.
        seed: of the draws.
        **options: as for :class:`~polyak.data.ReplayBuffer`.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        *,
        shards: int,
        waiting: int = 1,
        processors: float = 0,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs)
        fix = f"each holds the steps of at least one environment, and there are {n_envs}: use as many at most."
        require(shards <= n_envs, "num_replay_buffer_shards", shards, fix)
        self.sampler = make_sampler(options.get("sampler"))  # no rows, but beta and the draws of strata
        adaptive = isinstance(self.sampler, Prioritized)
        require(adaptive or not self.sampler.adaptive, "prioritized", "rank", "shards have proportional priorities.")
        self._envs = np.array_split(np.arange(n_envs), shards)
        self._outbox = Outbox(1, observation_space, action_space, "cpu", n_envs)
        self._cut: set[int] = set()
        self._waiting, self._adaptive = waiting, adaptive
        self._highest = 1.0
        self._cells = 1 + max(buffer_size * len(envs) // n_envs for envs in self._envs)  # of a shard, at most
        self._lives = np.zeros(shards, np.int64)
        """How many have been in the place of each shard before."""
        self._draws: deque[_Draw] = deque()
        self._ticket = 0
        options = {"optimize_memory_usage": optimize_memory_usage, **options}
        arguments = [
            (
                max(buffer_size * len(envs) // n_envs, len(envs)),
                observation_space,
                action_space,
                len(envs),
                None if seed is None else (seed + 7919 * (shard + 1)) % 2**31,
                options,
            )
            for shard, envs in enumerate(self._envs)
        ]
        self._workers = Workers(ShardWorker, arguments, PATIENCE, num_cpus=processors)
        self._masses = [_NOTHING] * shards
        self._sent = [0] * shards
        """Rows sent to each shard that is there."""
        self.processes: list[int] = self._all("describe")
        """Of the shards."""

    # --- writing ----------------------------------------------------------------------------------------------------

    def record(self, step: Step) -> None:
        self._outbox.record(step)

    def cut_episodes(self, envs: Iterable[int] | None = None) -> None:
        self._send()
        self._cut |= set(range(self.n_envs) if envs is None else envs)

    def _send(self) -> None:
        """Give the shards what was recorded."""
        if not self._outbox.is_empty:
            fragment = self._outbox.taken(0)
            for shard, envs in enumerate(self._envs):
                cut = [place for place, env in enumerate(envs) if env in self._cut] if self._sent[shard] else []
                part = of_envs(fragment, envs)
                self._ask(shard, "add", part, cut, self._highest)
                self._sent[shard] += part.rows
            self._cut.clear()

    def size(self) -> int:
        """Steps of each environment, on average, that shards hold."""
        return min(sum(self._sent), self.buffer_size) // self.n_envs

    def can_sample(self) -> bool:
        self._send()
        return any(self._sent)

    # --- reading ----------------------------------------------------------------------------------------------------

    def transitions(
        self, batch_size: int, gamma: float, env: Normalizer | None = None, batches: int = 1, late: bool = False
    ) -> Iterator[tuple[Transition | TransitionRows, Tensor | None]]:
        """As :meth:`~polyak.data.ReplayBuffer.transitions`; there are fewer batches where all shards have died."""
        self._send()
        for _ in range(batches):
            draw = self._drawn_next(batch_size, gamma)
            if draw is None:
                return
            batch, indices = self._assembled(draw)
            if env is not None:
                batch = batch._replace(
                    observations=_normalized(batch.observations, env),
                    next_observations=_normalized(batch.next_observations, env),
                )
            yield batch, indices

    def _drawn_next(self, rows: int, gamma: float) -> _Draw | None:
        """The batch whose turn it is; ``None``: there is nothing to draw from."""
        while True:
            if self._waiting == 1:
                self._settle()
            while len(self._draws) < self._waiting:
                if not any(mass.total for mass in self._masses):
                    self._settle()
                if not any(mass.total for mass in self._masses):
                    return None
                self._ask_draw(rows, gamma)
            draw = self._draws[0]
            while self._draws and self._draws[0] is draw and draw.parts.keys() != draw.wanted.keys():
                self._take()
            if self._draws and self._draws[0] is draw:
                self._draws.popleft()
                if draw.rows == rows:
                    return draw

    def _ask_draw(self, rows: int, gamma: float) -> None:
        """Ask the shards for their parts of one more batch."""
        strata = (np.arange(rows) + self.sampler.rng.random_sample(rows)) / rows  # type: ignore[attr-defined]
        counts = dealt(np.array([mass.total for mass in self._masses]), strata)
        self._ticket += 1
        wanted = {shard: int(count) for shard, count in enumerate(counts) if count}
        self._draws.append(_Draw(self._ticket, rows, wanted))
        for shard, count in wanted.items():
            self._ask(shard, "draw", self._ticket, count, gamma)

    def _assembled(self, draw: _Draw) -> tuple[Transition, Tensor | None]:
        parts = [(shard, draw.parts[shard]) for shard in sorted(draw.parts)]
        columns: Columns = stacked([part.columns for _, part in parts])
        if not isinstance(self.sampler, Prioritized):
            return batch_of(columns, self.device), None
        columns["weights"] = self.sampler.weights(np.concatenate([part.priorities for _, part in parts]))
        places = [part.cells + self._cells * (shard + len(self._envs) * self._lives[shard]) for shard, part in parts]
        return batch_of(columns, self.device), torch.from_numpy(np.concatenate(places))

    def update_priorities(self, indices: Tensor | np.ndarray, td_errors: Tensor | np.ndarray) -> None:
        places = np.asarray(indices).reshape(-1)
        errors = (td_errors.numpy(force=True) if isinstance(td_errors, Tensor) else np.asarray(td_errors)).reshape(-1)
        assert isinstance(self.sampler, Prioritized)
        self._highest = max(self._highest, float(np.abs(errors).max()) + self.sampler.eps)
        shards, cells = np.divmod(places, self._cells)
        lives, shards = np.divmod(shards, len(self._envs))
        for shard in range(len(self._envs)):
            here = (shards == shard) & (lives == self._lives[shard])  # rows of one that died are gone
            if here.any():
                self._ask(shard, "update", cells[here], errors[here], self._highest)

    def anneal(self, progress: float) -> None:
        if isinstance(self.sampler, Prioritized):
            self.sampler.anneal(progress)

    # --- processes --------------------------------------------------------------------------------------------------

    def _ask(self, shard: int, method: str, *arguments: Any) -> None:
        while self._workers.waiting_for(shard) >= MOST_WAITING:
            self._take()
        self._workers.ask(shard, method, *arguments)

    def _settle(self) -> None:
        """Wait for all answers."""
        while any(map(self._workers.waiting_for, range(len(self._envs)))):
            self._take()

    def _take(self) -> None:
        """Wait for some answers, and note what they say."""
        for shard, method, answer in self._workers.answers():
            if isinstance(answer, Failure):
                self._failed(shard, answer)
            elif method == "draw":
                self._masses[shard] = answer.mass
                for draw in self._draws:
                    if draw.ticket == answer.ticket:
                        draw.parts[shard] = answer
            elif method == "describe":
                self.processes[shard] = answer
            else:
                self._masses[shard] = answer

    def _failed(self, shard: int, failure: Failure) -> None:
        if not failure.gone:
            raise failure.error
        number = len(self._envs)
        words = f"replay shard {shard + 1} of {number} is gone, and an empty one takes its place."
        warn_user(words, RuntimeWarning)
        self._workers.renew(shard)
        self._workers.ask(shard, "describe")
        self._lives[shard] += 1
        self._masses[shard], self._sent[shard] = _NOTHING, 0
        self._draws.clear()  # parts of them are lost

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        answers = self._workers.ask_all(method, *arguments)
        for answer in answers:
            if isinstance(answer, Failure):
                raise answer.error
        return answers

    @property
    def num_restarts(self) -> int:
        """How many shards had to be replaced."""
        return self._workers.restarts

    def close(self) -> None:
        """End all of them."""
        self._workers.stop()

    # --- keeping ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        self._send()
        self._settle()
        found: dict[str, Any] = {"shards": len(self._envs), "highest": self._highest}
        for shard, state in enumerate(self._all("state")):
            found |= {f"shard{shard}:{name}": value for name, value in state.items()}
        return found

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what :meth:`state_dict` returned.

        Raises:
            ValueError: of a buffer that had another number of shards, or none.
        """
        if state.get("shards") != len(self._envs):
            raise ValueError(
                f"The saved replay buffer has {state.get('shards', 0)} shards, this one {len(self._envs)}: build it "
                "alike (num_replay_buffer_shards)."
            )
        self._send()
        self._settle()
        self._draws.clear()
        self._highest = float(state["highest"])
        prefixes = [f"shard{shard}:" for shard in range(len(self._envs))]
        parts = [{k.removeprefix(p): v for k, v in state.items() if k.startswith(p)} for p in prefixes]
        self._masses = self._all("load", parts)
        self._sent = [mass.rows for mass in self._masses]


def _normalized(observations: Any, env: Normalizer) -> Any:
    """By the newest statistics."""
    if isinstance(observations, dict):
        arrays: Any = {key: part.numpy(force=True) for key, part in observations.items()}
        return {
            key: torch.as_tensor(part, device=observations[key].device)
            for key, part in env.normalize_obs(arrays).items()
        }
    return torch.as_tensor(env.normalize_obs(observations.numpy(force=True)), device=observations.device)
