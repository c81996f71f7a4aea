"""Remote runners as one: their environments, and a collector that returns their steps as a local runner does.

Each runner makes the steps of a whole collection with the newest weights, and sends them as columns. They are returned
row by row, so that collecting, storing and learning use the same code as with local environments.

Shapes: T steps of N environments, all runners' side by side.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import cloudpickle
import numpy as np
import torch

from polyak.arrays import assign, flat, joined, mapped, under, unflat
from polyak.collecting.actor import Actor, copy_of
from polyak.collecting.exploration import ActingProgress, Exploration
from polyak.collecting.time_split import TimeSplit
from polyak.distributed.integrity import Integrity, whole
from polyak.distributed.local_workers import LocalWorkers
from polyak.distributed.placement import Reservation
from polyak.distributed.ray_workers import MOST_RESTARTS, PATIENCE, Failure, Tolerance, Workers
from polyak.distributed.runner_process import (
    EXTRA,
    Chunk,
    Described,
    Ends,
    Heading,
    Normalising,
    Order,
    RunnerProcess,
)
from polyak.distributed.statistics import Report, SharedStatistics, settings_of
from polyak.distributed.traffic import RunnerPlace, Traffic
from polyak.distributed.weights import flat_weights
from polyak.envs import VecEnv, VecNormalize
from polyak.envs.adapters.infos import SUCCEEDED
from polyak.envs.nested_spaces import is_composed
from polyak.envs.vec.sending import packed
from polyak.envs.wrapper_statistics import Found
from polyak.experience.frames import Compression, lz4
from polyak.experience.record import Experience
from polyak.experience.step import NO_EXTRAS, Observations, Step
from polyak.hyperparameters.declaration import Positive, fitted, require
from polyak.nn.policies.base import Policy, State
from polyak.seeding import derived_seed, rng_state, set_rng_state
from polyak.warning import warn_user

Transport = Literal["ray", "local"]
"""The transport to runners: processes on Ray, or objects in this process."""


TIMEOUT = 60.0
"""Seconds that environments have for a step, a reset or a question."""
MOST_IN_A_ROW = 10
"""Number of runners that may be lost, besides each of them once, before one has sent results again."""
QUESTIONS = ("apply", "ask_env")
"""Methods whose errors are caused by the user's program."""


@dataclass(eq=False)
class _Wanted:
    """A request to one block of environments, those of one runner."""

    block: int
    method: str
    arguments: tuple[Any, ...]
    apart: bool = False
    """See :meth:`~polyak.distributed.ray_workers.Workers.ask`."""
    maker: int | None = None
    """The runner that got the request; ``None`` if there is none yet."""


class RemoteEnvs(VecEnv):
    """Environments that runners make and step, as one VecEnv for the model.

    A runner that is lost is replaced. Until then the others collect its share, as they do for runners without room. A
    runner on a draining node finishes its requests, and is moved.

    Args:
        env: the registered name of an environment, or a function that makes one, or a vector of them; each runner makes
            its own. A function with an argument gets the number of the runner, from 0.
        n_runners: number of runners; (min, max): as many as the cluster currently has room for.
        transport: ``"ray"`` for processes on Ray, ``"local"`` for this process.
        seed: seed of the model. Runner ``i`` uses ``seed + 1000 * i``.
        placement: placement of runners on Ray.
        workers: the runners, each a :class:`~polyak.distributed.runner_process.RunnerProcess`, where they are there
            already.
        patience: seconds within which one must have begun.
        timeout: seconds within which a runner's environments must have answered to a step, reset or question: else it
            is replaced. ``None`` waits for ever.
        restarts: number of runners that are replaced within an hour; when one more is lost, training ends with an
            error.
        as_one: show all as one environment, whose steps come one after another.
        compression: compression of images that runners send.

    Raises:
        ValueError: ``env`` is an environment, which cannot be in several processes, ``timeout`` is no time, or a
            placement group is combined with (min, max).
        ImportError: ``polyak[scale]`` is missing.
    """

    def __init__(
        self,
        env: Any,
        n_runners: int | Sequence[int],
        transport: Transport = "ray",
        seed: int | None = None,
        *,
        placement: Reservation = Reservation(),
        workers: Workers | LocalWorkers | None = None,
        patience: float = PATIENCE,
        timeout: float | None = TIMEOUT,
        restarts: int = MOST_RESTARTS,
        as_one: bool = False,
        compression: Compression | None = None,
    ) -> None:
        if compression is not None:
            lz4()
        timeout = None if timeout == math.inf else fitted("runner_timeout", timeout, Positive | None)
        least, most = (n_runners, n_runners) if isinstance(n_runners, int) else n_runners
        if workers is None:
            workers = _runners(env, (least, most), transport, seed, timeout, placement, restarts)
        self.recipe, self.workers, self.n_runners = env, workers, most
        self.integrity, self.traffic, self.compression = Integrity(), Traffic(most), compression
        self.masked, self.resets = False, 0
        self.absent: set[int] = set()
        """Runners that were lost and not replaced yet, that have no room yet, or that get no more requests because
        their nodes are being drained."""
        self._going: set[int] = set()
        """The last of these, until they have answered."""
        self.renewed: set[int] = set()
        """Runners in the places of others, until :meth:`newly_renewed`."""
        self._makers, self.generation = list(range(self.n_runners)), [0] * self.n_runners
        self._pending: list[_Wanted] = []
        self.made_by: list[tuple[int, int]] = []
        """The runner that gave the latest answer for each block of environments, and its count of replacements."""
        self._early: list[tuple[int, str, Any]] = []
        self._normalized: VecEnv | None = None
        self.on_absence: Callable[[int], None] = lambda worker: None
        """Called when a runner was lost."""
        self.on_renewal: Callable[[int], None] = lambda worker: None
        """Called when another one has taken its place."""
        self.on_drop: Callable[[], None] = lambda: None
        """Called when all requests are dropped."""
        try:
            found = workers.begin("describe", patience)
        except BaseException as error:
            workers.stop()
            if getattr(error, "actor_init_failed", False):
                reason = str(error).strip().rpartition("\n")[2]
                raise RuntimeError(f"a runner could not be made: {reason}") from error
            raise
        self.places = [RunnerPlace(0, "")] * self.n_runners
        """The place of each runner; process 0: it has not begun yet."""
        self._described: Described = next(iter(found.values()))[1]
        for worker, said in found.items():
            self._introduce(worker, said)
        self.absent.update(set(range(self.n_runners)) - found.keys())
        self._share_out()
        first = self._described
        self.per_runner, self.turned = first.num_envs, first.turned
        number = 1 if as_one else self.n_runners * first.num_envs
        super().__init__(number, first.observation_space, first.action_space)

    def _introduce(self, worker: int, said: tuple[RunnerPlace, Described]) -> None:
        """Record a runner's description of its process and environments, which must equal the others'."""
        self.places[worker], described = said
        if described != self._described:
            self.workers.stop()
            raise ValueError(
                f"env={self.recipe!r:.200} made other environments in one runner than in another: {described}, "
                f"{self._described}."
            )

    @property
    def processes(self) -> list[int]:
        """Process ids of the runners."""
        return [place.process for place in self.places]

    @whole
    def normalized(self) -> VecEnv:
        """Returns these environments in the ``VecNormalize`` that ``env`` has put around those of each runner, with the
        statistics of all; without one, these environments themselves."""
        if self._normalized is None:
            made = self.ask_all("normalizer_made")[0]
            self._normalized = self
            if made is not None:
                normalizer: VecNormalize = cloudpickle.loads(made)
                normalizer.observation_space = self.observation_space
                normalizer.set_venv(self)
                self._normalized = normalizer
        return self._normalized

    # -- requests to runners -------------------------------------------------------------------------------------------

    def ask_all(self, method: str, *arguments: Any) -> list[Any]:
        """Returns each runner's answer to the same request."""
        return self.ask_each(method, [arguments] * self.n_runners)

    def ask_each(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Returns each runner's answer to a request with its own arguments."""
        with self.integrity.changing():
            self.send(method, arguments)
            return self.gather(method)

    def send(self, method: str, arguments: Sequence[tuple[Any, ...]], apart: bool = False) -> None:
        """Send a request for each block of environments to the runner that makes its steps."""
        with self.integrity.changing():
            for block, own in enumerate(arguments):
                self._send(_Wanted(block, method, own, apart))

    def _send(self, asked: _Wanted) -> None:
        maker = self._makers[asked.block]
        asked.maker = None if maker in self.absent else maker
        self._pending.append(asked)
        if asked.maker is not None:
            self.workers.ask(asked.maker, asked.method, *asked.arguments, apart=asked.apart)

    def gather(self, method: str) -> list[Any]:
        """Returns the answers for all blocks to a sent request. Requests to a lost runner go to another one."""
        found: dict[int, Any] = {}
        others: list[tuple[int, str, Any]] = []
        makers: dict[int, tuple[int, int]] = {}
        with self.integrity.changing():
            while len(found) < self.n_runners:
                for worker, what, answer in self.answers():
                    asked = next((one for one in self._pending if (one.maker, one.method) == (worker, what)), None)
                    if isinstance(answer, Failure):
                        continue
                    if what == method and asked is not None:
                        self._pending.remove(asked)
                        found[asked.block], makers[asked.block] = answer, self.maker(worker)
                    elif what == "collect":
                        others.append((worker, what, answer))
            self._early = others
            self.made_by = [makers[block] for block in range(self.n_runners)]
        return [found[block] for block in range(self.n_runners)]

    def maker(self, worker: int) -> tuple[int, int]:
        """Returns a runner, and its number among those in its place."""
        return worker, self.generation[worker]

    def is_asked(self, method: str) -> bool:
        """Whether answers to this method are pending."""
        return any(one.method == method for one in self._pending)

    def _send_again(self, worker: int) -> None:
        """Repeat the requests to a lost runner, and those that no runner has got yet."""
        lost = (None, worker) if worker in self.absent else (None,)
        again = [one for one in self._pending if one.maker in lost]
        self._pending = [one for one in self._pending if one not in again]
        for one in again:
            self._send(one)

    def recover(self) -> None:
        """Drop all requests if an exception has interrupted one of them."""
        if self.integrity.broken:
            self.drop_requests()

    def drop_requests(self) -> None:
        """Let runners finish their requests, and drop the answers."""
        self.integrity.broken = True
        self.workers.disown(self.absent - self._going)
        self._pending, self._early = [], []
        self._share_out()
        self.on_drop()
        self.integrity.broken = False

    def ask_present(self, method: str, *arguments: Any) -> list[Any]:
        """Returns the answer of each runner that is not lost."""
        present = set(range(self.n_runners)) - self.absent
        found = self._ask_some(method, dict.fromkeys(present, arguments))
        return [found[worker] for worker in sorted(found)]

    def _ask_some(self, method: str, arguments: Mapping[int, tuple[Any, ...]]) -> dict[int, Any]:
        """Returns the answers of some runners, which may be collecting meanwhile; lost ones are left out.

        Raises:
            Exception: the first error among the answers, after all have answered.
        """
        self.recover()
        found: dict[int, Any] = {}
        others: list[tuple[int, str, Any]] = []
        with self.integrity.changing():
            for worker in arguments.keys() - self.absent:
                self.workers.ask(worker, method, *arguments[worker])
            while arguments.keys() - self.absent - found.keys():
                for worker, what, answer in self.answers():
                    if isinstance(answer, Failure) and answer.gone:
                        continue
                    if what == method:
                        found[worker] = answer
                    elif what == "collect":
                        others.append((worker, what, answer))
            self._early = others
        for answer in found.values():
            if isinstance(answer, Failure):
                raise answer.error
        return found

    def answers(self, wait: bool = True) -> list[tuple[int, str, Any]]:
        """Wait for some answers: (which runner, method, its result, or a
        :class:`~polyak.distributed.ray_workers.Failure` of one that is lost, or of a question). The caller notes them
        within ``integrity.changing()``.

        Args:
            wait: ``False``: only those that are there.
        """
        self.workers.renew_due(wait)
        self._move()
        early, self._early = self._early, []
        if early:
            return early
        found = self.workers.answers(wait)
        for worker, what, answer in found:
            if isinstance(answer, Failure):
                if answer.gone or what not in QUESTIONS:
                    self._lose(worker, answer)
            elif what == "describe":
                self._renew(worker, answer)
            elif what == "collect":
                self.workers.failures = 0
                seen = answer if isinstance(answer, Chunk) else answer[0]
                self.traffic.note(worker, seen.steps * self.per_runner, seen)
        return found

    def _move(self) -> None:
        """Send no more requests to runners on draining nodes, unless there is no other, and replace them when they have
        answered."""
        for worker in self.workers.leaving():
            if worker not in self.absent and len(self.absent) + 1 < self.n_runners:
                warn_user(
                    f"runner {worker + 1} of {self.n_runners} leaves a node that is about to go, and begins new "
                    "episodes elsewhere.",
                    RuntimeWarning,
                )
                self.absent.add(worker)
                self._going.add(worker)
                self._share_out()
        for worker in [one for one in self._going if not self.workers.waiting_for(one)]:
            self._going.discard(worker)
            self.workers.renew(worker)

    def _lose(self, worker: int, failure: Failure) -> None:
        self.workers.replace(worker, failure, "runner", "Another one takes its place and begins new episodes.")
        self.absent.add(worker)
        self._going.discard(worker)
        self._share_out()
        self.on_absence(worker)
        self._send_again(worker)

    def _renew(self, worker: int, said: tuple[RunnerPlace, Described]) -> None:
        self.generation[worker] += self.places[worker].process > 0  # one that there was no room for was not restarted
        self._introduce(worker, said)
        self.absent.discard(worker)
        self.renewed.add(worker)
        self._share_out()
        self.on_renewal(worker)
        self._send_again(worker)

    def newly_renewed(self) -> list[int]:
        """Returns the runners that were replaced since the last call."""
        found, self.renewed = sorted(self.renewed), set()
        return found

    def _share_out(self) -> None:
        """Assign the steps of a lost runner's environments to another, if there is one."""
        here = [worker for worker in range(self.n_runners) if worker not in self.absent] or [0]
        self._makers = list(range(self.n_runners))
        for number, block in enumerate(sorted(self.absent)):
            self._makers[block] = here[number % len(here)]

    # -- calls of the model to its environments ------------------------------------------------------------------------

    @whole
    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        if seed is None:
            seed = int(np.random.randint(0, np.iinfo(np.uint32).max, dtype=np.uint32))
        self._seeds = [seed, *[None] * (self.num_envs - 1)]
        self.ask_all("seed", seed)
        return self._seeds

    def reset(self) -> Any:
        self._refuse()

    def step_async(self, actions: Any) -> None:
        self._refuse()

    def step_wait(self) -> Any:
        self._refuse()

    def _refuse(self) -> Any:
        raise RuntimeError(
            "these environments are stepped by runners (n_runners), which act with the model's policy. To evaluate, "
            "make another environment."
        )

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return self._each("get_attr", indices, attr_name)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        self._each("set_attr", indices, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        return self._each("env_method", indices, method_name, *method_args, **method_kwargs)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return self._each("env_is_wrapped", indices, wrapper_class)

    def _each(self, method: str, indices: Any, *arguments: Any, **named: Any) -> list[Any]:
        """Calls a method of some environments through their runners, in the order of ``indices``."""
        wanted = list(self._get_indices(indices))
        found: dict[int, Any] = {}
        for block in sorted({index // self.per_runner for index in wanted}):
            rows = [index for index in dict.fromkeys(wanted) if index // self.per_runner == block]
            answer = self._ask_env(block, method, [index % self.per_runner for index in rows], arguments, named)
            found |= dict(zip(rows, answer if answer is not None else [None] * len(rows), strict=True))
        return [found[index] for index in wanted]

    def _ask_env(self, block: int, *question: Any) -> Any:
        """Returns the answer of the environments of one block."""
        worker = self._makers[block]
        found = self._ask_some("ask_env", {worker: question})
        if worker not in found:
            raise RuntimeError(f"runner {worker + 1} of {self.n_runners} is gone. Ask again when it is replaced.")
        return found[worker]

    def get_statistics(self, indices: Any = None) -> list[Found]:
        return self._each("get_statistics", indices)

    def set_statistics(self, found: list[Found], indices: Any = None) -> None:
        for index, one in zip(self._get_indices(indices), found, strict=True):
            self._each("set_statistics", [index], [one])

    def get_state(self) -> dict[str, Any]:
        found = self._ask_some("state", dict.fromkeys(range(self.n_runners), ()))
        return {"runners": [found.get(worker) for worker in range(self.n_runners)]}

    def set_state(self, state: dict[str, Any]) -> None:
        self._ask_some("load_state", {n: (one,) for n, one in enumerate(state["runners"]) if one is not None})

    def close(self) -> None:
        """End the runners."""
        self.workers.stop()


def _runners(
    env: Any,
    n_runners: tuple[int, int],
    transport: Transport,
    seed: int | None,
    timeout: float | None,
    placement: Reservation,
    restarts: int,
) -> Workers | LocalWorkers:
    """Runners that make environments by a recipe."""
    least, number = n_runners
    fix = f"a placement group is reserved as a whole. With n_runners={n_runners} use 'SPREAD'."
    require(least == number or placement.strategy == "SPREAD", "placement: strategy", placement.strategy, fix)
    if not (isinstance(env, str) or callable(env)):
        raise ValueError(
            f"env={env!r:.200} is in this process, and n_runners={number} runners make environments of their own. Pass "
            "a registered name, or a function such as lambda: make_vec_env('CartPole-v1', n_envs=4), or "
            "lambda: VecNormalize(make_vec_env('CartPole-v1', n_envs=4))."
        )
    made = packed(env, "env")
    if transport == "local":
        return LocalWorkers(RunnerProcess, [(made, index, seed, False) for index in range(number)])
    arguments = [(made, index, seed, True, timeout) for index in range(number)]
    limits = Tolerance(restarts, in_a_row=MOST_IN_A_ROW + number, said=" (restarts_per_hour)")
    name = "n_runners" if least == number else "n_runners[0]"
    return Workers(RunnerProcess, arguments, math.inf, limits, placement, name, least)


def envs_of_runners(env: VecEnv | None) -> RemoteEnvs | None:
    """Returns the environments of runners in ``env``, perhaps under a ``VecNormalize``; ``None``: it is stepped
    here."""
    inner = env.venv if isinstance(env, VecNormalize) else env
    return inner if isinstance(inner, RemoteEnvs) else None


class RemoteActor(Actor):
    """The policy and the exploration of runners, which act with copies of them.

    Attributes:
        is_new: whether runners do not have it yet.
        begins: whether the next steps begin a collection.
    """

    is_new, begins = True, True
    _next: Mapping[str, Exploration] | None = None
    """The exploration from the next series of steps on, if it changes."""

    def adopt(self, policy: Policy) -> None:
        super().adopt(policy)
        self.is_new = True

    def explore(self, exploration: Mapping[str, Exploration]) -> None:
        super().explore(exploration)
        self.is_new, self._next = True, None

    def explore_next(self, exploration: Mapping[str, Exploration]) -> None:
        self._next = exploration

    def begin(self, rows: int, restart: bool = True) -> None:
        self.policy.set_training_mode(False)
        self.begins = restart
        if restart and self._next is not None:
            self.explore(self._next)

    def prepare(self, observations: Observations) -> None:
        """Does nothing: this actor does not act in this process."""

    def state(self) -> dict[str, np.ndarray]:
        """Returns nothing: runners hold the state."""
        return {}


class Received(NamedTuple):
    """The results of all runners for one request."""

    chunks: list[Chunk]
    continues: bool
    """Whether all of them continue the episodes of the previous results."""
    headings: Sequence[Heading] = ()
    """Headings of chunks whose rows are in other processes; ``chunks`` are references then."""
    weights: Any = None
    """The weights that acted, as they were sent."""

    @property
    def steps(self) -> int:
        """Steps of each environment."""
        return self.headings[0].steps if self.headings else len(self.chunks[0].infos)


class _Ages(NamedTuple):
    """A number of rows, with the counts of updates when they were requested and when they arrived."""

    rows: int
    asked: int
    came: int


class RunnerGroup:
    """Remote runners, as a :class:`~polyak.collecting.runner.Runner` of all their environments.

    If their environments have a ``VecNormalize``, each runner normalises by the statistics in its last order, updated
    by its own steps since. It sends the statistics of its new samples with its steps. These are merged here, in the
    order of runners, and sent with the next order, together with the settings.

    Args:
        env: their environments, perhaps under a ``VecNormalize``.
        actor: the actor whose policy they use.
        numbers: the progress that exploration depends on.
        split: accumulates the time of collecting.
        uses_masks: whether the policy gets action masks.
        raw: return observations and rewards as they were before ``VecNormalize``, except for ``new_obs``.
        in_advance: least steps of a request, if runners make the steps of the next request while the caller reads the
            last ones; their weights are at most twice as many steps old. 0: steps are requested when they are needed.

    Raises:
        ValueError: the normalisation of ``env`` differs from that of the runners' environments.
    """

    def __init__(
        self,
        env: VecEnv,
        actor: RemoteActor,
        numbers: ActingProgress,
        split: TimeSplit,
        uses_masks: bool = False,
        raw: bool = False,
        in_advance: int = 0,
    ) -> None:
        remote = envs_of_runners(env)
        assert remote is not None
        if remote.normalized() not in (remote, env):
            raise ValueError(
                "the runners' environments have a VecNormalize of their own, and env is not what knows its statistics: "
                "pass env=....normalized()."
            )
        self.env, self.actor, self.numbers, self.split = remote, actor, numbers, split
        self._normalizer = env if isinstance(env, VecNormalize) else None
        self.share_statistics()
        self.shares_streams = False
        """Whether the single runner draws from the random streams of this process, as a local one would."""
        self._raw = raw and self._normalizer is not None
        self.uses_masks, self.steps, self.in_advance = uses_masks, 0, in_advance
        self.original_obs: Observations | None = None
        """[N, ...] the same as experience keeps it, where that differs, as before normalisation."""
        self._obs: Observations | None = None
        self.allowed: np.ndarray | None = None
        """[N, M] which choices are allowed next; ``None``: all."""
        self.episode_starts = np.ones(env.num_envs, bool)
        self.updates: Callable[[], int] = lambda: 0
        """Returns the number of updates of the weights; each request takes the newest weights."""
        self._asked_at: int | None = None
        self._ages: _Ages | None = None
        self._planned, self._wanted = 1, cast(Any, None)
        self._made_by: list[tuple[int, int]] = []
        self._unread: Received | None = None
        self._chunk: Chunk | None = None
        self._row = 0
        self.apart = False
        """Whether the rows of future requests stay in their processes."""
        self._sent_weights: Any = None
        self.epsilon_after: Callable[[int], float] | None = None
        """The probability of a random action after so many environment steps; ``None``: it stays while they collect."""
        self.on_loss: Callable[[], None] = lambda: None
        """Called when the next step does not continue the episodes of the one before."""
        remote.on_renewal, remote.on_absence, remote.on_drop = self._renewed, self._lost, self._dropped
        remote.drop_requests()  # of another group
        self._send_actor()

    @property
    def obs(self) -> Observations | None:
        """[N, ...] the next observations to act on; ``None`` before the first reset, and after an exception has
        interrupted a request: new episodes begin then."""
        return None if self.env.integrity.broken else self._obs

    @property
    def is_ahead(self) -> bool:
        """Whether runners are making the next steps, which :meth:`ahead` has requested."""
        return self.obs is not None and not self.in_advance and self.env.is_asked("collect")

    def _dropped(self) -> None:
        """Be as before the first reset."""
        self._obs = self._chunk = self._unread = self._ages = None
        self._row, self._made_by = 0, []
        self.actor.is_new = True
        self.on_loss()

    def _lost(self, worker: int) -> None:
        """Does nothing: requests to a lost runner go to another."""

    def _renewed(self, worker: int) -> None:
        """Send a replaced runner its seed, policy and statistics."""
        workers = self.env.workers
        workers.ask(worker, "seed", derived_seed(self.steps, worker, workers.restarts))
        workers.ask(worker, "take_actor", self._sent, self.uses_masks)
        workers.ask(worker, "reset", self._normalising())

    @property
    def _is_exact(self) -> bool:
        """Whether there is a single runner, whose statistics are exactly those known here."""
        return self.env.n_runners == 1

    def share_statistics(self, merges: bool = True, sends: bool = True) -> None:
        """Set how the statistics of runners are combined.

        Args:
            merges: merge the samples of all; ``False``: use the first runner's statistics.
            sends: let all continue from the result; ``False``: each continues from its own.
        """
        own = self._normalizer
        self._shared = own and SharedStatistics(own, merges and not self._is_exact, sends or self._is_exact)

    def _normalising(self) -> Normalising | None:
        moments = None if self._shared is None else self._shared.request()
        return None if moments is None else Normalising(settings_of(cast(VecNormalize, self._normalizer)), moments)

    def _merge(self, chunks: Sequence[Chunk | Heading]) -> None:
        """Merge the statistics that runners have reported."""
        if self._shared is not None:
            self._shared.take([chunk.report for chunk in chunks if chunk.report is not None])

    # -- collecting ----------------------------------------------------------------------------------------------------

    def plan(self, steps: int, wanted: Any = None) -> None:
        """Set the number of steps of the next request.

        Args:
            steps: number of steps; at least :attr:`in_advance`.
            wanted: length of the collections that they belong to; exploration draws its noise at the beginning of each.
        """
        self._planned, self._wanted = max(steps, self.in_advance, 1), wanted

    def reset(self) -> None:
        """Begin new episodes everywhere."""
        self.env.recover()
        with self.env.integrity.changing(), self.split.env:
            self._drop()
            self._send_actor()
            found = self.env.ask_all("reset", self._normalising())
            self._look_at(_side_by_side([observations for observations, _ in found]))
            allowed = [masks for _, masks in found]
            self.env.masked = allowed[0] is not None
            self.allowed = np.concatenate(allowed) if self.env.masked else None
            self.episode_starts = np.ones(self.env.num_envs, bool)
            self.env.resets += 1

    def _drop(self) -> None:
        """Drop steps that were made but not returned."""
        if (received := self._received()) is not None:
            self._merge(received.headings or received.chunks)
        self._chunk, self._row, self._unread, self._ages = None, 0, None, None

    def _look_at(self, observations: Observations) -> Observations:
        """Set the next observations to act on, as experience stores them; returns them as the policy reads them."""
        if self._raw:
            assert self._normalizer is not None
            self.original_obs, observations = observations, self._normalizer.normalize_obs(observations)
        self._obs = observations
        return observations

    def _send_actor(self) -> None:
        if self.actor.is_new:
            policy = copy_of(self.actor.policy).to("cpu")
            acts = policy, self.actor.exploration, self.actor.deterministic, self.numbers
            pickled = cloudpickle.dumps((*acts, self._normalizer, self._raw))
            self._sent = self.env.workers.put(pickled)
            self.env.ask_all("take_actor", self._sent, self.uses_masks)
            self.actor.is_new = False

    @property
    def fetched(self) -> Chunk:
        """The steps that were fetched last."""
        assert self._chunk is not None
        return self._chunk

    @property
    def is_used_up(self) -> bool:
        """Whether all steps that runners have made were returned."""
        return self._chunk is None or self._row == len(self._chunk.infos)

    def _request(self) -> None:
        """Request the planned steps of all runners."""
        self._send_actor()
        self._sent_weights = self.env.workers.put(flat_weights(self.actor.policy))
        order = self._order(self.actor.begins)._replace(apart=self.apart, tells_last=self.apart)
        self.actor.begins, self._asked_at = False, self.updates()
        self.env.send("collect", [(self._sent_weights, order)] * self.env.n_runners, self.apart)

    def _received(self) -> Received | None:
        """Waits for the runners' results that were not read yet; ``None`` if there is no request."""
        if self._unread is None and self.env.is_asked("collect"):
            with self.env.integrity.changing():
                found = self.env.gather("collect")
                headings = [] if isinstance(found[0], Chunk) else [heading for heading, _ in found]
                chunks: list[Chunk] = [rows for _, rows in found] if headings else found
                before, self._made_by = self._made_by, self.env.made_by
                whole = len(set(self._made_by)) == len(self._made_by)
                continues = whole and before in ([], self._made_by)
                self._unread = Received(chunks, continues, headings, self._sent_weights)
            if (streams := [*headings, *chunks][0].streams) is not None:
                set_rng_state(*streams)
        return self._unread

    def _order(self, begins: bool) -> Order:
        stride, in_hand = self.env.n_runners * self.env.per_runner, 0
        if self._chunk is not None:
            in_hand = len(self._chunk.infos) - self._row
        made, epsilon = self.numbers.steps + in_hand * stride, [self.numbers.epsilon]
        if (after := self.epsilon_after) is not None:
            first = [after(made)] if in_hand else epsilon
            epsilon = first + [after(made + number * stride) for number in range(1, self._planned)]
        streams = rng_state() if self.shares_streams else None
        wanted = self._wanted if self.in_advance else None
        begins = begins and wanted is None
        how = self.env.compression
        normalising = self._normalising()
        return Order(self._planned, made, epsilon, stride, begins, normalising, streams, wanted, compression=how)

    def step(self) -> Step:
        """Returns the next step of all environments."""
        if self.is_used_up:
            self.fetch()
        return self._handed_out()

    def fetch(self) -> Chunk:
        """Returns the results of one request, none of which has been returned as a step yet."""
        self.apart = False
        with self._taken() as received:
            chunks = received.chunks
            if received.headings:
                chunks = [self.env.workers.fetch(rows) for rows in chunks]
            self._chunk, self._row = self._together(chunks), 0
            if self.in_advance:
                self._request()
        return self._chunk

    @contextmanager
    def _taken(self) -> Iterator[Received]:
        """Yields the results of one request; they are recorded within the block."""
        if self.obs is None:
            self.reset()
        with self.env.integrity.changing():
            with self.split.env:
                if self._unread is None and not self.env.is_asked("collect"):
                    self._request()
                received = self._received()
            assert received is not None
            self._merge(received.headings or received.chunks)
            self._note_lag(received.steps)
            self._unread = None
            yield received
        if not received.continues:
            self.on_loss()

    def leave(self) -> Received:
        """Returns the results of one request, as if each step had been returned. Rows stay in their processes, unless
        they were requested before."""
        self.apart = True
        with self._taken() as received:
            if not received.headings:
                self._chunk, self._row = self._together(received.chunks), 0
                return received
            parts = [cast(Chunk, heading.last) for heading in received.headings]
            seen = _side_by_side([part.observations for part in parts])
            self.allowed = None if parts[0].allowed is None else np.concatenate([part.allowed for part in parts])
            memory = _side_by_side([part.memory for part in parts])
            self.actor.memory = {name: torch.from_numpy(np.array(part)) for name, part in memory.items()} or None
            self.episode_starts = np.concatenate([heading.dones for heading in received.headings])
            self._look_at(seen)
            self.steps += received.steps
            self._chunk, self._row = None, 0
        return received

    def _note_lag(self, steps: int) -> None:
        """Count the age in updates of the weights that made ``steps`` steps, which have arrived now. Steps made in
        advance count when all are returned, by the mean of the first and the last one."""
        now, before, rows = self.updates(), self._ages, steps * self.env.num_envs
        self._ages = None if self._asked_at is None else _Ages(rows, self._asked_at, now)
        counted = before if self.in_advance else self._ages
        if counted is not None:
            self.env.traffic.note_lag(counted.rows, (counted.came + now) / 2 - counted.asked)

    def peek(self, row: int) -> Step:
        """Returns one of the fetched steps; the actor gets the recurrent state after it."""
        assert self._chunk is not None
        step, self.actor.memory, _ = row_of(self._chunk, row, self.actor.codec)
        return step

    def pass_over(self) -> None:
        """Advance to the end of the fetched steps, as if each had been returned."""
        assert self._chunk is not None
        steps = len(self._chunk.infos)
        self.steps, self._row = self.steps + steps - 1, steps - 1
        self._handed_out()

    def _together(self, chunks: Sequence[Chunk]) -> Chunk:
        """Joins the runners' chunks to steps of all environments."""
        return side_by_side(chunks)

    def _handed_out(self) -> Step:
        assert self._chunk is not None
        step, memory, self.allowed = row_of(self._chunk, self._row, self.actor.codec)
        self.actor.memory = memory
        seen, self.episode_starts = self._look_at(step.new_obs), step.dones
        self.steps += 1
        self._row += 1
        return step if seen is step.new_obs else step._replace(new_obs=seen)

    # -- the rest of a runner's interface ------------------------------------------------------------------------------

    @property
    def stored_obs(self) -> Observations | None:
        """[N, ...] the observations to act on next, as experience keeps them."""
        return self.obs if self.original_obs is None else self.original_obs

    @property
    def interrupted(self) -> bool:
        """Never: no other program steps the environments of runners."""
        return False

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Let runners make the next steps while the block runs, with the weights from before it."""
        if self.obs is None:
            self.reset()
        if not self.in_advance:
            self._request()
        yield

    def close_thread(self) -> None:
        """Does nothing: runners wait in their processes."""

    def take_up(self, observations: Observations | None) -> None:
        """Refuse observations of other environments.

        Raises:
            ValueError: always.
        """
        raise ValueError("runners (n_runners) hold their observations themselves: call model.runner.reset() instead.")

    def state(self) -> dict[str, np.ndarray]:
        """Returns the observations in hand, and the steps that were not returned yet, as arrays by name."""
        if self.obs is None:
            return {}
        columns: dict[str, Any] = {
            "episode_starts": self.episode_starts,
            **flat("allowed", self.allowed),
            **flat("obs", self.obs),
            **flat("original_obs", self.original_obs),
            "made_by": np.array([worker for worker, _ in self._made_by], np.int64),
        }
        if self._chunk is not None and not self.is_used_up:
            columns |= {f"rest/{name}": part for name, part in chunk_state(self._chunk, self._row).items()}
        if self.in_advance and (received := self._received()) is not None:
            columns["continues"] = np.array(received.continues)
            for number, chunk in enumerate(received.chunks):
                columns |= {f"waiting/{number}/{name}": part for name, part in chunk_state(chunk).items()}
        return columns

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state that :meth:`state` returned; the runners must be in the matching state."""
        if not state:
            return
        self.env.recover()
        self._drop()
        self._asked_at = None
        self._obs, self.original_obs = unflat("obs", state), unflat("original_obs", state)
        self.allowed = unflat("allowed", state)
        self.env.masked = self.allowed is not None
        self.episode_starts = state["episode_starts"] > 0
        self._made_by = [self.env.maker(worker) for worker in state.get("made_by", np.empty(0)).tolist()]
        codec, composed = self.actor.codec, is_composed(self.env.action_space)
        if rest := under("rest", state):
            self._chunk = chunk_from(rest, codec, composed)
        chunks: list[Chunk] = []
        while waiting := under(f"waiting/{len(chunks)}", state):
            chunks.append(chunk_from(waiting, codec, composed))
        if chunks:
            self._unread = Received(chunks, bool(state["continues"]))


def row_of(chunk: Chunk, row: int, codec: Any) -> tuple[Step, State | None, np.ndarray | None]:
    """Returns one of T steps, the recurrent state after it (before the resets of episodes that ended), and the masks
    after it.

    Args:
        chunk: the steps.
        row: number of the step, from 0.
        codec: converts actions, if the chunk does not hold them in the environments' units.
    """
    columns, last = chunk.columns.columns, row + 1 == len(chunk.infos)
    now, then, episodes = _at(chunk.seen, row + 1), None, NO_EXTRAS
    memory = _memory_after(chunk, row)
    for ends in chunk.ends:
        if ends.step == row:
            then = mapped(np.array, now)
            assign(then, ends.rows, ends.successors)
            for name, part in ends.memory.items():
                memory[name][ends.rows] = part
            episodes = ends.episodes
    at = {name: _at(column, row) for name, column in columns.items()}
    extras = {name[len(EXTRA) :]: part for name, part in at.items() if name.startswith(EXTRA)}
    if chunk.env_actions is not None:
        sent = chunk.env_actions[row]
    else:
        sent = at["env_actions"] if "env_actions" in at else codec.to_env(at["actions"])
    step = Step(
        _at(chunk.seen, row),
        at["actions"],
        sent,
        at["rewards"],
        now if then is None else then,
        at["terminated"],
        at["truncated"],
        at["dones"],
        chunk.infos[row],
        now,
        at["episode_starts"],
        bool(at["dones"].any()),
        extras,
        episodes,
    )
    allowed = chunk.allowed if last or f"{EXTRA}masks" not in columns else columns[f"{EXTRA}masks"][row + 1]
    return step, {name: torch.from_numpy(part) for name, part in memory.items()} or None, allowed


def _at(column: Any, row: int) -> Any:
    """[N, ...] one row of a column."""
    return column[row] if isinstance(column, np.ndarray) else mapped(lambda part: part[row], column)


def _memory_after(chunk: Chunk, row: int) -> dict[str, np.ndarray]:
    """Returns the recurrent state [N, ...] after a row, except for episodes that ended there; empty without one."""
    if row + 1 == len(chunk.infos):
        return {name: part.copy() for name, part in chunk.memory.items()}
    return {name: chunk.columns[f"{EXTRA}{name}"][row + 1].copy() for name in chunk.memory}


def chunk_state(chunk: Chunk, first: int = 0) -> dict[str, np.ndarray]:
    """Returns the rows of a chunk from one on, as arrays by name, without infos."""
    columns = flat("seen", mapped(lambda part: part[first:], chunk.seen)) | flat("allowed", chunk.allowed)
    for name, column in chunk.columns.items():
        columns |= flat(f"rows/{name}", mapped(lambda part: part[first:], column))
    columns |= {f"memory/{name}": part for name, part in chunk.memory.items()}
    for number, ends in enumerate(one for one in chunk.ends if one.step >= first):
        columns[f"ends/{number}/step"], columns[f"ends/{number}/rows"] = np.array(ends.step - first), ends.rows
        columns |= flat(f"ends/{number}/successors", ends.successors)
        columns |= {f"ends/{number}/memory/{name}": part for name, part in ends.memory.items()}
        columns |= {f"ends/{number}/episodes/{name}": part for name, part in ends.episodes.items()}
    for which, moments in (chunk.report or Report({}, {}))._asdict().items():
        for name, of_one in moments.items():
            columns |= {f"report/{which}/{name}/{part}": np.array(value) for part, value in of_one.items()}
    return columns


def chunk_from(state: dict[str, np.ndarray], codec: Any, composed: bool) -> Chunk:
    """Builds a chunk from its state: the inverse of :func:`chunk_state`.

    Args:
        state: a result of :func:`chunk_state`.
        codec: converts actions.
        composed: whether actions are values of a Dict or Tuple space.
    """
    rows = under("rows", state)
    names = list(dict.fromkeys(_column_of(name) for name in rows))
    columns = Experience({name: unflat(name, rows) for name in names})
    ends: list[Ends] = []
    while found := under(f"ends/{len(ends)}", state):
        parts = unflat("successors", found), under("memory", found), under("episodes", found)
        ends.append(Ends(int(found["step"]), found["rows"], *parts))
    steps, envs = columns.lead
    infos: list[Any] = [[{} for _ in range(envs)] for _ in range(steps)]
    sent = [codec.to_env(row) for row in columns["actions"]] if composed else None
    report = Report({}, {}) if (said := under("report", state)) else None
    for name, value in said.items():
        which, of_one, part = name.partition("/")[0], *name.partition("/")[2].rpartition("/")[::2]
        getattr(report, which).setdefault(of_one, {})[part] = value
    seen, allowed = unflat("seen", state), unflat("allowed", state)
    return Chunk(columns, sent, ends, infos, seen, allowed, under("memory", state), report)


def _column_of(name: str) -> str:
    """Returns the column that an array of it is named after: ``observations/position`` is of ``observations``."""
    if name.startswith(EXTRA):
        return EXTRA + name[len(EXTRA) :].partition("/")[0]
    return name.partition("/")[0]


def _side_by_side(columns: Sequence[Any], axis: int = 0) -> Any:
    return columns[0] if len(columns) == 1 else mapped(lambda *parts: joined(parts, axis), *columns)


def side_by_side(chunks: Sequence[Chunk]) -> Chunk:
    """Returns the chunks of several runners as one of all their environments."""
    if len(chunks) == 1:
        return chunks[0]
    widths = [chunk.columns.lead[1] for chunk in chunks]
    starts = np.cumsum([0, *widths[:-1]])
    steps = range(len(chunks[0].infos))
    composed = [chunk.env_actions for chunk in chunks if chunk.env_actions is not None]
    return Chunk(
        Experience.joined([chunk.columns for chunk in chunks], 1),
        [[action for actions in composed for action in actions[t]] for t in steps] if composed else None,
        _joined_ends(chunks, starts, sum(widths)),
        [[info for chunk in chunks for info in chunk.infos[t]] for t in steps],
        _side_by_side([chunk.seen for chunk in chunks], 1),
        None if chunks[0].allowed is None else np.concatenate([chunk.allowed for chunk in chunks]),
        _side_by_side([chunk.memory for chunk in chunks]),
    )


def in_succession(chunks: Sequence[Chunk]) -> Chunk:
    """Joins chunks of the same number of environments one after another, each of which ends with an episode."""
    starts = np.cumsum([0, *(len(chunk.infos) for chunk in chunks)]).tolist()
    seen = [*(mapped(lambda part: part[:-1], chunk.seen) for chunk in chunks)]
    seen.append(mapped(lambda part: part[-1:], chunks[-1].seen))
    composed = chunks[0].env_actions is not None
    return Chunk(
        Experience.joined([chunk.columns for chunk in chunks], 0),
        [row for chunk in chunks for row in chunk.env_actions or []] if composed else None,
        [
            end._replace(step=start + end.step)
            for start, chunk in zip(starts[:-1], chunks, strict=True)
            for end in chunk.ends
        ],
        [row for chunk in chunks for row in chunk.infos],
        _side_by_side(seen),
        chunks[-1].allowed,
        {},
    )


def _joined_ends(chunks: Sequence[Chunk], starts: np.ndarray, envs: int) -> list[Ends]:
    """Returns the ends of all environments, those of one step together."""
    by_step: dict[int, list[tuple[int, Ends]]] = {}
    for start, chunk in zip(starts.tolist(), chunks, strict=True):
        for ends in chunk.ends:
            by_step.setdefault(ends.step, []).append((start, ends))
    found = []
    for step, parts in sorted(by_step.items()):
        episodes: dict[str, np.ndarray] = {}
        for start, ends in parts:
            for name, column in ends.episodes.items():
                whole = episodes.setdefault(name, _nothing_known(name, column, envs))
                whole[start : start + len(column)] = column
        found.append(
            Ends(
                step,
                np.concatenate([start + ends.rows for start, ends in parts]),
                _side_by_side([ends.successors for _, ends in parts]),
                _side_by_side([ends.memory for _, ends in parts]),
                episodes,
            )
        )
    return found


def _nothing_known(name: str, column: np.ndarray, envs: int) -> np.ndarray:
    """[N] of a column about episodes, where none has ended."""
    return np.full(envs, np.nan if name == SUCCEEDED else None if column.dtype == object else 0, column.dtype)
