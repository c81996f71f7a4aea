"""A runner with its own environments and actor, as it exists in another process. It does not depend on the transport.

Shapes: T steps of N environments.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from operator import itemgetter
from socket import gethostname
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import torch
from gymnasium import spaces

from polyak.arrays import aligned, assign, mapped
from polyak.collecting.actor import Actor
from polyak.collecting.runner import Runner
from polyak.collecting.train_freq import Series
from polyak.distributed.ray_workers import own_node
from polyak.distributed.statistics import Moments, Report, count_fresh, fresh_in, report_of, take_moments
from polyak.distributed.traffic import RunnerPlace
from polyak.distributed.watch import HangWatch
from polyak.distributed.weights import put_back
from polyak.envs import VecEnv, as_vec_env, unwrap_vec_normalize
from polyak.envs.adapters.infos import FINAL
from polyak.envs.adapters.vec_env import FromVecEnv
from polyak.envs.masks import find_masks
from polyak.envs.nested_spaces import is_composed
from polyak.envs.wrappers.layers import above_normalisation, check_one_normaliser, turned_images
from polyak.experience.frames import Compression, SentImages, as_sent
from polyak.experience.record import Experience
from polyak.experience.step import Step
from polyak.seeding import rng_state, set_random_seed, set_rng_state

EXTRA = "extras/"
SEEDS_APART = 1000
"""Between the seeds of two runners."""


class Described(NamedTuple):
    """Description of a runner's environments."""

    num_envs: int
    observation_space: spaces.Space[Any]
    action_space: spaces.Space[Any]
    turned: list[str | None]
    """Keys of the images whose channels were last; ``None`` for an observation that is an image."""


class Normalising(NamedTuple):
    """The normalisation of environments, by the model's ``VecNormalize``."""

    settings: dict[str, Any]
    """Its arguments, by name."""
    moments: Moments
    """Its statistics."""


class Order(NamedTuple):
    """A request to collect steps."""

    steps: int
    """T"""
    made: int
    """Environment steps that all runners have made so far, by which exploration schedules advance."""
    epsilon: Sequence[float]
    """[T] probability of a random action at each step, where exploration has one; after the last one it stays."""
    stride: int
    """Environment steps that all runners make while this one steps its environments once."""
    begins: bool
    """Whether a new collection begins with the first step, for which exploration draws its noise."""
    normalising: Normalising | None
    """``None``: environments are not normalised, or as the runner does it."""
    streams: Any = None
    """Random streams to draw from, whose state is returned with the steps; ``None``: the runner's own."""
    wanted: Any = None
    """Length of collections that begin at any step, which the runner counts; ``None``: :attr:`begins` marks them."""
    apart: bool = False
    """Whether a :class:`Heading` is sent at once, and the steps separately."""
    tells_last: bool = False
    """Whether the heading contains the state after the last step."""
    compression: Compression | None = None
    """The compression of images that are sent."""


class Ends(NamedTuple):
    """The successors of the rows in which episodes ended, at one step."""

    step: int
    rows: np.ndarray
    """[K] of the environments."""
    successors: Any
    """[K, ...]"""
    memory: dict[str, np.ndarray]
    """Name -> [K, ...] the recurrent state after the step."""
    episodes: dict[str, np.ndarray]
    """Columns about the episodes, [N] each."""


class Chunk(NamedTuple):
    """T steps of one runner. In a pickle each frame of stacked images is kept once."""

    columns: Experience
    """[T, N, ...] ``actions``, ``rewards``, ``terminated``, ``truncated``, ``dones``, ``episode_starts``,
    ``env_actions`` unless actions are composed, and :attr:`~polyak.experience.step.Step.extras`, whose names begin with
    :data:`EXTRA` here."""
    env_actions: list[list[Any]] | None
    """[T][N] of a Dict or Tuple space."""
    ends: list[Ends]
    infos: list[Sequence[dict[str, Any]]]
    """[T][N]"""
    seen: Any
    """[T + 1, N, ...] the observations acted on, and those to act on next."""
    allowed: np.ndarray | None
    """[N, M] which choices are allowed then; ``None``: all."""
    memory: dict[str, np.ndarray]
    """Name -> [N, ...] the recurrent state then."""
    report: Report | None = None
    """The runner's report of the statistics by which it normalises, if it does."""
    streams: Any = None
    """Random numbers to continue from, if the order brought some."""
    dropped: int = 0
    """Environment steps that it leaves out."""
    compression: Compression | None = None
    """The compression of images in a pickle."""

    def __reduce__(self) -> tuple[Any, ...]:
        sends = partial(as_sent, after=[(end.step, end.rows) for end in self.ends], compression=self.compression)
        sent = mapped(lambda seen, *others: sends(seen, others), self.seen, *[end.successors for end in self.ends])
        seen, *others = (mapped(itemgetter(number), sent) for number in range(1 + len(self.ends)))
        ends = [end._replace(successors=each) for end, each in zip(self.ends, others, strict=True)]
        return Chunk, tuple(self._replace(seen=seen, ends=ends, infos=self._infos_sent(others)))

    def _infos_sent(self, successors: Sequence[Any]) -> list[Sequence[dict[str, Any]]]:
        """Infos whose last observations are the successors' frames, where these travel once."""
        infos = list(self.infos)
        for end, sent in zip(self.ends, successors, strict=True):
            if isinstance(sent, SentImages):
                infos[end.step] = row = list(infos[end.step])
                for number, env in enumerate(end.rows.tolist()):
                    if np.array_equal(row[env].get(FINAL), end.successors[number]):
                        row[env] = {**row[env], FINAL: SentImages(sent.frames, sent.numbers[number])}
        return infos

    @property
    def rows(self) -> dict[str, Any]:
        """The columns by the names that a rollout has for them."""
        return {name.removeprefix(EXTRA): column for name, column in self.columns.items()}

    @property
    def observations(self) -> Any:
        """[N, ...] to act on next, as experience keeps them."""
        return mapped(lambda part: part[-1], self.seen)

    @property
    def steps(self) -> int:
        """T"""
        return len(self.infos)


class Heading(NamedTuple):
    """Summary of a :class:`Chunk` whose rows stay in their process until a learner reads them."""

    steps: int
    """T"""
    ends: list[Ends]
    """The ends of episodes, with their statistics alone."""
    report: Report | None
    streams: Any
    last: Chunk | None
    """The state after the last step, as a chunk of no steps; ``None`` if it was not requested."""
    dones: np.ndarray
    """[N] whether the last step ended an episode."""

    @classmethod
    def of(cls, chunk: Chunk, tells_last: bool) -> Heading:
        """Returns the heading of a chunk."""
        ends = [Ends(end.step, end.rows, None, {}, end.episodes) for end in chunk.ends]
        seen = mapped(lambda part: part[-1:].copy(), chunk.seen)
        last = Chunk(Experience({}), None, [], [], seen, chunk.allowed, chunk.memory) if tells_last else None
        return cls(chunk.steps, ends, chunk.report, chunk.streams, last, chunk.columns["dones"][-1].copy())


class RunnerProcess:
    """Collects experience with given weights.

    It has its own random streams, also in a shared process: its draws do not affect the others.

    Args:
        make_env: the registered name of an environment, or a function that makes one, or a vector of them, perhaps
            pickled. A function with an argument gets ``index``.
        index: number of the runner, from 0.
        seed: seed of the model; ``None``: none.
        alone: whether it has its own process, with one thread.
        limit: seconds that a step, reset or call of the environments may take; ``None``: unlimited.

    Raises:
        ValueError: the environments have more than one ``VecNormalize``, or a wrapper around it that changes its
            results.
    """

    def __init__(self, make_env: Any, index: int, seed: int | None, alone: bool, limit: float | None = None) -> None:
        if alone:
            torch.set_num_threads(1)
        recipe = cloudpickle.loads(make_env) if isinstance(make_env, bytes) else make_env
        self.made = as_vec_env(_made(recipe, index))
        _check_normalised_last(self.made)
        self._use(self.made, False)
        self.index = index
        self.runner: Runner | None = None
        self._series: Series | None = None
        """The running collection, if orders do not mark where one begins."""
        self._streams: Any = None
        self._alone = alone
        self._watch = None if limit is None else HangWatch(limit, f"runner {index + 1}")
        with self._at_work("seed()"):
            if seed is None:
                set_random_seed(int(np.random.SeedSequence().generate_state(1)[0]))
            else:
                self._seed(seed)

    def _use(self, env: VecEnv, raw: bool) -> None:
        """Step these environments, perhaps with the model's normaliser. ``raw``: see ``FromVecEnv``."""
        self.env, self.normalizer = env, unwrap_vec_normalize(env)
        self.rows, self._kind = FromVecEnv(env, raw), (raw, type(self.normalizer))
        if self.normalizer is not None:
            count_fresh(self.normalizer)

    @contextmanager
    def _at_work(self, doing: str) -> Iterator[None]:
        """While the block runs, the random generators of the process are in this runner's states; afterwards a shared
        process gets its own back.

        Raises:
            EnvTimeoutError: environments take longer than the limit.
            RuntimeError: in its own process, in place of ``KeyboardInterrupt`` or ``SystemExit``, which would end it.
        """
        before = None if self._alone else rng_state()
        if self._streams is not None:
            set_rng_state(*self._streams)
        try:
            with nullcontext() if self._watch is None else self._watch.over(doing):
                yield
        except BaseException as error:
            if isinstance(error, Exception) or not self._alone:
                raise
            raise RuntimeError(f"the environments of runner {self.index + 1} raised {error!r} in {doing}.") from error
        finally:
            self._streams = None if before is None else rng_state()
            if before is not None:
                set_rng_state(*before)

    @property
    def _drawn(self) -> Any:
        """The states of the generators that this runner draws from."""
        return rng_state() if self._streams is None else self._streams

    def describe(self) -> tuple[RunnerPlace, Described]:
        """Returns the runner's place, and a description of its environments."""
        env, place = self.env, RunnerPlace(os.getpid(), own_node() if self._alone else gethostname())
        return place, Described(env.num_envs, env.observation_space, env.action_space, turned_images(env))

    def normalizer_made(self) -> bytes | None:
        """Returns the ``VecNormalize`` of the environments that were made, pickled without them; ``None`` if there is
        none."""
        found = unwrap_vec_normalize(self.made)
        return None if found is None else cloudpickle.dumps(found)

    def seed(self, seed: int) -> None:
        """Seed environments and random streams by a model's seed."""
        with self._at_work("seed()"):
            self._seed(seed)

    def _seed(self, seed: int) -> None:
        own = seed_of_runner(seed, self.index)
        set_random_seed(own)
        self.env.seed(own)
        self._seed_random_actions(own)
        self._own_seed = own

    def _seed_random_actions(self, seed: int) -> None:
        for space in self._sampled():
            space.seed(seed)

    def _sampled(self) -> list[spaces.Space[Any]]:
        """Returns the spaces that exploration draws from."""
        acting: Any = None if self.runner is None else self.runner.actor
        parts = [] if acting is None else acting.exploration.values()
        return list({id(part.random.space): part.random.space for part in parts if hasattr(part, "random")}.values())

    def take_actor(self, pickled: bytes, uses_masks: bool) -> None:
        """Use this policy and exploration from now on.

        Args:
            pickled: policy, exploration by name, whether actions are deterministic, the progress that exploration
                depends on, the model's ``VecNormalize`` (``None``: none), and whether experience is stored as it was
                before normalisation.
            uses_masks: whether the policy gets action masks.
        """
        policy, exploration, deterministic, self.progress, normalizer, raw = cloudpickle.loads(pickled)
        self.uses_masks, self._series = uses_masks, None
        if (raw, type(normalizer)) != self._kind:
            self.runner = None
            if normalizer is not None and unwrap_vec_normalize(self.made) is None:
                normalizer.set_venv(self.made)
                self._use(normalizer, raw)
            else:
                self._use(self.made, raw)
        with self._at_work("a new policy"):
            if self.runner is None:
                self.runner = Runner(self.rows, Actor(policy, exploration, deterministic))
                self._seed_random_actions(getattr(self, "_own_seed", int(np.random.randint(2**31))))
                return
            actor: Any = self.runner.actor
            memory, drawn = actor.memory, [space.np_random.bit_generator.state for space in self._sampled()]
            actor.adopt(policy)
            actor.explore(exploration)
            actor.memory, actor.deterministic = memory, deterministic
            for space, state in zip(self._sampled(), drawn, strict=False):
                space.np_random.bit_generator.state = state

    def _normalise(self, how: Normalising | None) -> None:
        if self.normalizer is not None and how is not None:
            for name, value in how.settings.items():
                setattr(self.normalizer, name, value)
            take_moments(self.normalizer, how.moments)

    def reset(self, normalising: Normalising | None) -> tuple[Any, np.ndarray | None]:
        """Begins new episodes; returns observations [N, ...] as experience stores them, and masks [N, M], if there are
        any."""
        assert self.runner is not None
        self._normalise(normalising)
        self._series = None
        with self._at_work("reset()"):
            self.runner.reset()
            if self.uses_masks and self.rows.masks is None and (masks := find_masks(self.env)) is not None:
                self.rows.masks = masks
                self.runner.allowed = masks.after_reset(self.runner.stored_obs)
        return self.runner.stored_obs, self.runner.allowed

    def collect(self, weights: np.ndarray, order: Order) -> Chunk | tuple[Heading, Chunk]:
        """Make steps with these weights of the policy."""
        runner = self.runner
        assert runner is not None
        actor: Any = runner.actor
        put_back(actor.policy, weights)
        self._normalise(order.normalising)
        if order.streams is not None:
            self._streams = order.streams
        with self._at_work("step()"):
            actor.begin(self.rows.num_envs, order.begins)
            chunk = self._collected(order)
        report = None if self.normalizer is None else report_of(self.normalizer)
        streams = None if order.streams is None else self._drawn
        chunk = chunk._replace(report=report, streams=streams, compression=order.compression)
        return (Heading.of(chunk, order.tells_last), chunk) if order.apart else chunk

    def _follow(self, order: Order, number: int) -> None:
        """Advance exploration to the state after ``number`` steps of an order."""
        if self._watch is not None:
            self._watch.restart()
        self.progress.steps = order.made + number * order.stride
        self.progress.epsilon = order.epsilon[min(number, len(order.epsilon) - 1)]

    def _collected(self, order: Order) -> Chunk:
        runner: Any = self.runner
        chunk = ChunkOfSteps(order.steps, is_composed(self.rows.action_space))
        for number in range(order.steps):
            self._follow(order, number)
            if order.wanted is not None and (self._series is None or order.wanted.is_complete(self._series)):
                runner.actor.begin(self.rows.num_envs)
                self._series = Series()
            step = runner.step()
            if (series := self._series) is not None:
                series.steps, series.episodes = series.steps + 1, series.episodes + int(step.dones.sum())
            chunk.add(step, runner.actor.memory)
        return chunk.done(runner.stored_obs, runner.allowed, runner.actor.memory)

    # -- calls of the model to its environments ------------------------------------------------------------------------

    def ask_env(self, method: str, indices: list[int], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """Returns the result of a method of the vectorised environment: ``get_attr``, ``env_method`` and their like."""
        with self._at_work(f"{method}()"):
            return getattr(self.env, method)(*arguments, indices=indices, **named)

    # -- state ---------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Returns everything that determines the next steps, as plain data."""
        assert self.runner is not None
        values, arrays = self._drawn
        with self._at_work("get_state()"):
            environments = self.rows.get_state()
        return {
            "environments": environments,
            "runner": self.runner.state(),
            "actor": self.runner.actor.state(),
            "streams": {"values": values, "arrays": arrays},
            "random_actions": [space.np_random.bit_generator.state for space in self._sampled()],
            "not_sent": {} if self.normalizer is None else fresh_in(self.normalizer),
            "series": None if self._series is None else [self._series.steps, self._series.episodes],
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`state` returned."""
        assert self.runner is not None
        allowed = state["runner"].get("allowed")
        with self._at_work("set_state()"):
            self.rows.set_state(state["environments"])
            if allowed is not None and self.uses_masks and self.rows.masks is None:
                self.env.unwrapped.reset_infos = [{"action_mask": row} for row in np.asarray(allowed).astype(bool)]
                self.rows.masks = find_masks(self.env)
            self.runner.load_state(state["runner"])
            self.runner.actor.load_state(state["actor"])
            for space, drawn in zip(self._sampled(), state["random_actions"], strict=False):
                space.np_random.bit_generator.state = drawn
        if self.normalizer is not None:
            count_fresh(self.normalizer, state["not_sent"])
        self._series = None if (made := state.get("series")) is None else Series(*made)
        self._streams = state["streams"]["values"], state["streams"]["arrays"]
        self.env.unwrapped._reset_seeds()

    def close(self) -> None:
        """Free the environments."""
        self.env.close()


def seed_of_runner(seed: int, index: int) -> int:
    """Returns the seed of one of the runners, from 0, of a model that has this one."""
    return (seed + SEEDS_APART * index) % 2**32


def _made(recipe: Any, index: int) -> Any:
    """Returns the environments that a recipe makes for one of the runners; a name is returned as it is."""
    if isinstance(recipe, str):
        return recipe
    parameters = inspect.signature(recipe).parameters.values()
    wants = [one for one in parameters if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
    return recipe(index) if wants else recipe()


def _check_normalised_last(env: VecEnv) -> None:
    """Refuse wrappers that change the results of ``VecNormalize``: a model with remote environments has its statistics
    alone."""
    check_one_normaliser(env)
    normalizer, above = unwrap_vec_normalize(env), above_normalisation(env)
    if normalizer is None:
        return
    if changing := above.observations * normalizer.norm_obs + above.rewards * normalizer.norm_reward:
        raise ValueError(
            f"{changing[0]} stands around VecNormalize in what env makes. With n_runners, VecNormalize comes last: put "
            f"it around {changing[0]}."
        )


class ChunkOfSteps:
    """Steps on their way into the columns of a :class:`Chunk`.

    Args:
        steps: T
        composed: whether actions are values of a Dict or Tuple space.
    """

    def __init__(self, steps: int, composed: bool) -> None:
        self.steps, self.composed, self.made = steps, composed, 0
        self.columns: dict[str, Any] = {}
        self.env_actions: list[list[Any]] | None = [] if composed else None
        self.ends: list[Ends] = []
        self.infos: list[Any] = []

    def add(self, step: Step, memory: Mapping[str, torch.Tensor] | None) -> None:
        """Add a step; ``memory``: the recurrent state after it."""
        row = {
            "actions": step.actions,
            "rewards": step.rewards,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "dones": step.dones,
            "episode_starts": step.episode_starts,
            **{f"{EXTRA}{name}": column for name, column in step.extras.items()},
        }
        if self.env_actions is None:
            row["env_actions"] = step.env_actions
        else:
            self.env_actions.append(list(step.env_actions))
        if self.made == 0:
            self.seen = self._empty(step.observations, self.steps + 1)
        assign(self.seen, self.made, step.observations)
        for name, column in row.items():
            if name not in self.columns:  # some come with the policy's actions alone, not with random ones
                self.columns[name] = self._empty(column, self.steps)
            assign(self.columns[name], self.made, column)
        if step.ended or step.episodes:
            rows = step.dones.nonzero()[0]
            successors = mapped(lambda part: part[rows], step.next_observations)
            after = {name: part.numpy(force=True)[rows] for name, part in (memory or {}).items()}
            self.ends.append(Ends(self.made, rows, successors, after, dict(step.episodes)))
        self.infos.append(list(step.infos))
        self.made += 1

    @staticmethod
    def _empty(column: Any, steps: int) -> Any:
        """Room for so many steps of a column [N, ...]."""
        return mapped(lambda part: aligned((steps, *part.shape), part.dtype), column)

    def done(
        self, observations: Any, allowed: np.ndarray | None, memory: Mapping[str, torch.Tensor] | None = None
    ) -> Chunk:
        """Returns the chunk, given the state after the last step: the next observations as experience stores them,
        their masks, and the recurrent state."""
        after = {name: part.numpy(force=True).copy() for name, part in (memory or {}).items()}
        assign(self.seen, self.made, observations)
        columns = Experience(self.columns)
        return Chunk(columns, self.env_actions, self.ends, self.infos, self.seen, allowed, after)
