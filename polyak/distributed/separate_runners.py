"""Remote runners that collect independently: the chunk of one is taken without waiting for the others.

Shapes: T steps of N environments of one runner.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from torch import nn

from polyak.arrays import under
from polyak.collecting.exploration import ActingProgress
from polyak.collecting.time_split import TimeSplit
from polyak.distributed.ray_workers import Failure
from polyak.distributed.runner_process import Chunk, Heading
from polyak.distributed.runners import RemoteActor, RunnerGroup, chunk_from, chunk_state, row_of
from polyak.distributed.unrolls import Last, last_of
from polyak.distributed.weights import flat_weights
from polyak.envs import VecEnv
from polyak.envs.nested_spaces import is_composed
from polyak.experience.step import Step


class Published(NamedTuple):
    """Weights that runners act with from their next request on."""

    version: int
    flat: np.ndarray
    sent: Any
    """The weights as they are sent to runners."""


class Finished(NamedTuple):
    """The steps that a runner has made of one request."""

    worker: int
    chunk: Chunk | Heading
    version: int
    """The version of the weights that acted."""
    weights: np.ndarray
    """These, as :func:`~polyak.distributed.weights.flat_weights` returned them."""
    apart: tuple[Any, Any] | None = None
    """For a heading: references to the chunk and to the weights."""


class SeparateRunners(RunnerGroup):
    """Runners that each get the next request without waiting for the others.

    Args:
        env: their environments, perhaps under a ``VecNormalize``.
        actor: the actor whose policy they use.
        numbers: the progress that exploration depends on.
        split: accumulates the time of waiting for them.
        uses_masks: whether the policy gets action masks.
        in_turn: take chunks in the order of runners, and send a runner its next request when its chunk has been learned
            from: equal seeds give equal results. Else the first finished chunk is taken first, and its runner gets the
            next request at once.
        most_waiting: unless ``in_turn``: no request is sent while this many chunks wait to be taken.
        in_flight: unless ``in_turn``: number of pending requests of each runner.
    """

    def __init__(
        self,
        env: VecEnv,
        actor: RemoteActor,
        numbers: ActingProgress,
        split: TimeSplit,
        uses_masks: bool,
        in_turn: bool,
        most_waiting: int,
        in_flight: int = 1,
    ) -> None:
        self.in_turn, self.most_waiting, self.in_flight = in_turn, most_waiting, 1 if in_turn else in_flight
        self.in_hand: Finished | None = None
        """The chunk that was taken and is not finished yet."""
        self.row, self.shown = 0, False
        """The row of it that callbacks get next, and whether they have got it already."""
        self.apart = False
        """Whether the rows of future requests stay in their processes."""
        self._turn = 0
        self._idle: deque[int] = deque()
        self._waiting: deque[Finished] = deque()
        self._under_way: dict[int, deque[tuple[Published, bool]]] = {}
        """For each runner, the weights of its pending requests, and whether their rows stay in its process."""
        self._published: Published | None = None
        super().__init__(env, actor, numbers, split, uses_masks)

    def _begin_idle(self) -> None:
        """Mark all runners as idle."""
        self._idle = deque([one for one in range(self.env.n_runners) if one not in self.env.absent] * self.in_flight)

    @property
    def _is_exact(self) -> bool:
        return self.in_turn and super()._is_exact

    @property
    def rollout_envs(self) -> int:
        """Number of environments whose steps make one rollout: those of one runner."""
        return self.env.per_runner

    # -- collecting ----------------------------------------------------------------------------------------------------

    def publish(self, version: int, policy: nn.Module) -> np.ndarray:
        """Send these weights with all requests from now on. Returns them as they are sent."""
        flat = flat_weights(policy)
        self._published = Published(version, flat, self.env.workers.put(flat))
        return flat

    def take(self) -> Finished:
        """Returns the chunk in hand, or else waits for a finished one."""
        if self.in_hand is None:
            if self.obs is None:
                self.reset()
            with self.env.integrity.changing():
                self._receive(wait=False)
                self._ask_idle()
                while (found := self._next()) is None:
                    self._receive()
                    self._ask_idle()
                self.in_hand, self.row, self.shown = found, 0, False
                if not self.in_turn:
                    self._ask_idle()
        return self.in_hand

    def step_in_hand(self, row: int) -> Step:
        """Returns one step of the chunk in hand; the actor gets the recurrent state after it."""
        assert self.in_hand is not None
        step, self.actor.memory, _ = row_of(cast(Chunk, self.in_hand_whole().chunk), row, self.actor.codec)
        return step

    def in_hand_whole(self) -> Finished:
        """Returns the chunk in hand with its rows."""
        assert self.in_hand is not None
        self.in_hand = self._whole(self.in_hand)
        return self.in_hand

    def _whole(self, finished: Finished) -> Finished:
        if finished.apart is None:
            return finished
        return finished._replace(chunk=self.env.workers.fetch(finished.apart[0]), apart=None)

    def rows_in_hand(self) -> Iterator[tuple[int, bool]]:
        """Yields the remaining rows of the chunk in hand, and whether callbacks have yet to be called for each. A row
        is finished when the next one is requested."""
        assert self.in_hand is not None
        steps = self.in_hand.chunk.steps
        while self.row < steps:
            is_new, self.shown = not self.shown, True
            yield self.row, is_new
            self.row, self.shown = self.row + 1, False

    def after_in_hand(self) -> Last:
        """Returns the state after its last step; the actor gets the recurrent state then."""
        return last_of(cast(Chunk, self.in_hand_whole().chunk), self.actor)

    def finish(self) -> None:
        """Finish the chunk in hand."""
        assert self.in_hand is not None
        worker, chunk, *_ = self.in_hand
        with self.env.integrity.changing():
            self._turn = (worker + 1) % self.env.n_runners
            self.steps += chunk.steps
            has_more = worker in self._idle or self._under_way.get(worker)  # as another process, if it was lost
            if self.in_turn and not has_more and worker not in self.env.absent:
                self._idle.append(worker)
            self.in_hand = None

    def waiting(self) -> int:
        """Returns the number of chunks that can be taken without waiting, including the one in hand."""
        self.env.recover()
        self._receive(wait=False)
        return len(self._waiting) + (self.in_hand is not None)

    def _next(self) -> Finished | None:
        """Returns the next chunk to take, if it has arrived."""
        turn, number = self._turn, self.env.n_runners
        while turn in self.env.absent and not any(finished.worker == turn for finished in self._waiting):
            turn = (turn + 1) % number
        for place, finished in enumerate(self._waiting):
            if not self.in_turn or finished.worker == turn:
                del self._waiting[place]
                self._merge([finished.chunk])
                return finished
        return None

    def _ask_idle(self) -> None:
        self._send_actor()
        while self._idle and (self.in_turn or len(self._waiting) < self.most_waiting):
            assert self._published is not None
            worker = self._idle.popleft()
            if worker in self.env.absent:  # it is about to go
                continue
            self._under_way.setdefault(worker, deque()).append((self._published, self.apart))
            order = self._order(True)._replace(apart=self.apart)
            self.env.workers.ask(worker, "collect", self._published.sent, order, apart=self.apart)

    def _receive(self, wait: bool = True) -> None:
        """Receive finished chunks and append them to the waiting ones."""
        with self.env.integrity.changing():
            for worker, asked, answer in self.env.answers(wait):
                if asked == "collect" and not isinstance(answer, Failure):
                    weights, apart = self._under_way[worker].popleft()
                    chunk, rows = answer if apart else (answer, None)
                    references = (rows, weights.sent) if apart else None
                    self._waiting.append(Finished(worker, chunk, weights.version, weights.flat, references))
                    if not self.in_turn:
                        self._idle.append(worker)

    def _settle(self) -> None:
        """Wait until no runner is making steps."""
        while any(self._under_way.values()):
            self._receive()

    def _dropped(self) -> None:
        super()._dropped()
        self._forget()

    def _forget(self) -> None:
        """Drop all requests and chunks."""
        self._under_way.clear()
        self._waiting.clear()
        self.in_hand, self._turn = None, 0
        self._begin_idle()

    def _lost(self, worker: int) -> None:
        """Drop the requests of a lost runner; others make its share."""
        self._under_way.pop(worker, None)
        self._idle = deque(one for one in self._idle if one != worker)

    def _renewed(self, worker: int) -> None:
        super()._renewed(worker)
        self._idle.extend([worker] * self.in_flight)

    def _send_actor(self) -> None:
        if self.actor.is_new:
            self._settle()
        super()._send_actor()

    def _drop(self) -> None:
        self._settle()
        self._merge([finished.chunk for finished in self._waiting])
        self._forget()

    def step(self) -> Step:
        """Refuse a step of all environments at a time.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError("these runners (n_runners) collect each by itself, whole rollouts: call model.learn().")

    # -- state ---------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, np.ndarray]:
        """Returns the next observations and the finished chunks that have not been read, as arrays by name."""
        self.env.recover()
        self._settle()
        columns = super().state()
        if not columns:
            return columns
        held = [self.in_hand] if self.in_hand is not None else []
        for number, finished in enumerate([*held, *self._waiting]):
            worker, chunk, version, weights, _ = self._whole(finished)
            columns |= {
                f"finished/{number}/chunk/{name}": part for name, part in chunk_state(cast(Chunk, chunk)).items()
            }
            columns[f"finished/{number}/source"] = np.array([worker, version])
            columns[f"finished/{number}/weights"] = weights
        columns["in_hand"] = np.array([len(held), self.row, self.shown, self._turn])
        columns["idle"] = np.array(self._idle, np.int64)
        return columns

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that :meth:`state` returned; the runners must be in the matching state."""
        super().load_state(state)
        if "in_hand" not in state:
            return
        composed = is_composed(self.env.action_space)
        while found := under(f"finished/{len(self._waiting)}", state):
            worker, version = found["source"].tolist()
            chunk = chunk_from(under("chunk", found), self.actor.codec, composed)
            self._waiting.append(Finished(worker, chunk, version, found["weights"]))
        held, self.row, self.shown, self._turn = state["in_hand"].tolist()
        self.shown = bool(self.shown)
        self.in_hand = self._waiting.popleft() if held else None
        self._idle = deque(state["idle"].tolist())
