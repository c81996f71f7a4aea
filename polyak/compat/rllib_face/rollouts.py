"""Rollouts as RLlib orders and cuts them.

Shapes: T steps of N environments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polyak.arrays import mapped
from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.collection import Collection
from polyak.collecting.rollout import RolloutWriter
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID, Columns
from polyak.compat.rllib_face.connectors.environments import layers_of
from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode
from polyak.distributed.runner_process import Chunk
from polyak.distributed.runners import RunnerGroup, in_succession
from polyak.experience import Experience, RolloutBuffer
from polyak.experience.step import Step
from polyak.hyperparameters.changing import inherited
from polyak.loops.off_policy import OffPolicyLoop, storage_of
from polyak.loops.updates import Gained
from polyak.parts.part import Through


class RowsInOrder(RolloutBuffer):
    """A rollout buffer whose minibatches are consecutive rows, for ``shuffle_batch_per_epoch=False``.

    Rows are ordered by runner: for each, first the episodes that ended, in the order of their ends, then those that
    continue, by environment. All minibatches have the same size: one may contain the end of a pass and the beginning of
    the next.

    Args:
        args, kwargs: see :class:`~polyak.experience.RolloutBuffer`.
        envs_per_runner: environments of each runner.

    Attributes:
        ends: [T, N] bool: whether an episode ended with the step.
    """

    order_reads_rows = True
    warns_of_rest = False

    def __init__(self, *args: Any, envs_per_runner: int, **kwargs: Any) -> None:
        self.envs_per_runner = envs_per_runner
        super().__init__(*args, **kwargs)

    def reset(self) -> None:
        super().reset()
        self.ends, self._passes = self._zeros(bool), 0

    @property
    def collected(self) -> Experience:
        return super().collected.plus(ends=self.ends)

    def _cuts(self, dones: np.ndarray) -> np.ndarray:
        cuts = super()._cuts(dones)
        self.ends = cuts > 0
        return cuts

    def _order(self, batch_size: int | None) -> tuple[np.ndarray, int]:
        shuffled, size = super()._order(batch_size)
        rows, steps = len(shuffled), self.sequence_length
        first, past = (-(-number * rows // size) for number in (self._passes, self._passes + 1))
        self._passes += 1
        places = np.arange(first * size, past * size, steps) % rows // steps
        return (self._in_order()[places, None] + np.arange(steps)).reshape(-1), size

    def _in_order(self) -> np.ndarray:
        """Returns the first rows of all sequences, which are those of ``sequence_length`` steps."""
        length = self.buffer_size
        step, env = np.tile(np.arange(length), self.n_envs), np.repeat(np.arange(self.n_envs), length)
        last = np.where(self.ends, np.arange(length)[:, None], length)  # of the episode, or past the rollout
        last = np.minimum.accumulate(last[::-1])[::-1].T.reshape(-1)
        order = np.lexsort((step, env, last, env // self.envs_per_runner))
        return order[order % length % self.sequence_length == 0]


class Rounds:
    """Selects whole episodes from the steps of N environments.

    A round lasts until N episodes have ended, in any environments; with several environments, running episodes are
    dropped then, and all begin a new one.

    Args:
        n_envs: N
    """

    def __init__(self, n_envs: int) -> None:
        self.n_envs, self._ended = n_envs, 0
        self._waiting: list[list[Step]] = [[] for _ in range(n_envs)]

    def add(self, step: Step) -> list[Step]:
        """Returns the steps of the episodes that end with this one, each of one environment."""
        found: list[Step] = []
        for env, waiting in enumerate(self._waiting):
            waiting.append(_of_one(step, env))
            if step.dones[env] and self._ended < self.n_envs:
                self._ended += 1
                found += waiting
                waiting.clear()
        return found

    @property
    def is_over(self) -> bool:
        """Whether the round is."""
        return self._ended >= self.n_envs

    def next(self, runner: Any) -> int:
        """Begin another one. -> environment steps that are dropped"""
        dropped, self._ended = sum(map(len, self._waiting)), 0
        if self.n_envs > 1:
            runner.reset()
            self._waiting = [[] for _ in range(self.n_envs)]
        return dropped


class RoundsOfRunners(RunnerGroup):
    """Rounds that each runner plays by itself, presented as steps of one environment, runner by runner.

    Attributes:
        rounds: number of rounds of each runner per request.
        dropped: environment steps of dropped episodes in the last result.
    """

    rounds = 1
    dropped = 0

    def plan(self, steps: int, wanted: Any = None) -> None:
        self._planned = self.rounds

    def _together(self, chunks: Sequence[Chunk]) -> Chunk:
        self.dropped = sum(chunk.dropped for chunk in chunks)
        return in_succession(chunks)


def with_part(algorithm: type[Any], name: str, *mixins: type[Any], **members: Any) -> type[Any]:
    """Returns an algorithm with mixins for one of its parts.

    Args:
        algorithm: a class.
        name: name of the part.
        mixins: put before the class of the part.
        members: attributes of that class.
    """
    made: Any = inherited(algorithm, "made_of")[name]
    part = type(made.__name__, (*mixins, made), {**members, "__module__": __name__})
    own = {"_make_group": Through(name, WholeEpisodes.make_group)} if issubclass(part, WholeEpisodes) else {}
    return type(algorithm.__name__, (algorithm,), {"made_of": {name: part}, "__module__": __name__, **own})


class WholeEpisodes:
    """A mixin for a part: it takes complete episodes, for ``batch_mode="complete_episodes"``.

    Experience is collected in :class:`Rounds`. Buffers hold one episode after another, as if there were one
    environment.

    Attributes:
        least: least number of environment steps, including dropped ones, before rounds end.
        least_rounds: least number of rounds.
        rounds: number of rounds so far.
        dropped: dropped environment steps of the latest collection.
    """

    least: ClassVar[int] = 1
    least_rounds: ClassVar[int] = 1
    model: Any
    rounds = dropped = 0

    def make_group(self, actor: Any) -> RunnerGroup:
        """Runners that play rounds."""
        model = self.model
        known = model._progress, model._split, model._uses_masks, model.raw_experience
        made = RoundsOfRunners(model.env, actor, *known)
        made.rounds = self.least_rounds
        return made

    def begin_rounds(self) -> None:
        """Begin another collection."""
        self.model._collection = None  # no file holds the steps of episodes that are under way
        self._round = Rounds(self.model.n_envs)
        self._until, self.dropped = self.rounds + self.least_rounds, 0

    def finished(self, step: Step) -> list[Step]:
        """Returns the steps that a step completes, each of one environment."""
        return [step] if isinstance(self.model.runner, RoundsOfRunners) else self._round.add(step)

    def is_complete(self, collection: Collection) -> bool:
        """Whether there is experience enough; ends a round."""
        model = self.model
        if isinstance(runner := model.runner, RoundsOfRunners):
            if collection.steps == 0 or not runner.is_used_up:
                return False
            dropped, runner.dropped = runner.dropped, 0
            model.num_timesteps += dropped
            self.dropped += dropped
            return collection.steps + self.dropped >= self.least
        if not self._round.is_over:
            return False
        self.rounds += 1
        self.dropped += self._round.next(runner)
        return collection.steps * model.n_envs >= self.least and self.rounds >= self._until


class WholeRollouts(WholeEpisodes):
    """Before rollouts. ``undivided``: a gradient step is made of all rows."""

    undivided: ClassVar[bool] = False
    made_by_recipe: ClassVar = False
    n_envs = 1

    def make_buffer(self) -> RolloutBuffer:
        made: RolloutBuffer = super().make_buffer()  # type: ignore[misc]
        made.warns_of_rest = False  # its number of rows is not known yet
        return made

    def writer(self, *args: Any) -> Any:
        self.begin_rounds()
        return EpisodeWriter(super().writer(*args), self.finished, self.is_complete)  # type: ignore[misc]

    def fresh_writer(self) -> Any:
        self.begin_rounds()
        return EpisodeWriter(super().fresh_writer(), self.finished, self.is_complete)  # type: ignore[misc]

    def minibatches(self) -> Callable[[int | None], Any]:
        found: Callable[[int | None], Any] = super().minibatches()  # type: ignore[misc]
        return (lambda size: found(None)) if self.undivided else found


class ByEpisodes:
    """A mixin for PPO's rollouts: with a program's own losses, experience is collected and learned from as episodes.

    Otherwise minibatches are indices of rows, which the learner gathers.
    """

    model: Any
    buffer: Any
    _open: Mapping[int, SingleAgentEpisode] = {}

    def minibatches(self) -> Any:
        return (lambda size: ()) if self.model.learner.plainly else self.buffer.passes()

    def writer(self, steps: int | None = None) -> Any:
        if not self.model.learner.plainly:
            return super().writer(steps)  # type: ignore[misc]
        self._written = EpisodesWriter(self.model, steps, dict(self._open))
        return self._written

    def lesson(self, minibatches: Any) -> Gained:
        learner, config = self.model.learner, self.model.learner.config
        if not learner.plainly:
            found: Gained = super().lesson(minibatches)  # type: ignore[misc]
            return found
        episodes, self._open = self._written.taken()
        names = ("num_epochs", "minibatch_size", "shuffle_batch_per_epoch")
        metrics = learner.learn_from_episodes(episodes, **{name: getattr(config, name) for name in names})
        columns = learner.batches[DEFAULT_MODULE_ID]
        learned = {"rewards": Columns.REWARDS, "values": Columns.VF_PREDS, "returns": Columns.VALUE_TARGETS}
        for name, column in learned.items() if Columns.VF_PREDS in columns else ():  # of one environment after another
            setattr(self.buffer, name, columns[column][columns[Columns.LOSS_MASK]].numpy(force=True))
        last_pass = -(-len(metrics["loss"]) // config.num_epochs)
        metrics |= {name: metrics[name][-last_pass:] for name in ("approx_kl",) if name in metrics}
        return Gained({**metrics, "loss": metrics["loss"][-1:]}, config.num_epochs)


class EpisodesWriter(RolloutWriter):
    """Writes steps into episodes, and nothing into the buffer.

    Args:
        model: polyak's algorithm.
        steps: number of steps of each environment; ``None``: the size of the buffer.
        going_on: number of an environment -> its running episode.
        ends: number of episodes to complete, in place of ``steps``.
    """

    def __init__(
        self, model: Any, steps: int | None, going_on: dict[int, SingleAgentEpisode], ends: int | None = None
    ) -> None:
        super().__init__(model.rollouts.buffer, model.runner.actor, steps)
        self._model, self._ends, self._open = model, ends, going_on
        self._layers = [layer for layer in layers_of(model.get_env()) if layer.keeps]
        self._by_env: dict[int, list[SingleAgentEpisode]] = {}

    adopts = False

    def is_complete(self, series: Any) -> bool:
        if self._ends is None:
            return bool(series.steps >= self.steps)
        return sum(one.is_done for of_one in self._by_env.values() for one in of_one) >= self._ends

    def missing(self, series: Any) -> int:
        return self.steps - series.steps if self._ends is None else 1

    def record(self, step: Step) -> None:
        self._last = step
        policy, space = self._model.policy, self._model.action_space
        seen, then = (
            as_environments_have(part, policy._turned) for part in (step.observations, step.next_observations)
        )
        said = policy.said_of_step(step.extras, self.actor.memory)
        for env in range(len(step.rewards)):
            one = self._open.get(env)
            if one is None:
                one = SingleAgentEpisode(
                    observations=[_row(seen, env)],
                    observation_space=self._model.observation_space,
                    action_space=space,
                    t_started=0 if step.episode_starts[env] else 1,
                )
            if self._open.get(env) is not one or not self._by_env.get(env) or self._by_env[env][-1] is not one:
                self._open[env] = one
                self._by_env.setdefault(env, []).append(one)
            one.add_env_step(
                _row(then, env),
                np.asarray(step.actions[env]).reshape(space.shape).copy(),
                step.rewards[env],
                step.infos[env],
                terminated=bool(step.terminated[env]),
                truncated=bool(step.truncated[env]),
                extra_model_outputs=_row(said, env),
            )
            if step.dones[env]:
                del self._open[env]

    def evaluate(self, learner: Any, runner: Any, policy: Any) -> Tensor:
        return torch.zeros(runner.env.num_envs, 1)

    def estimate(self, last_values: Tensor, dones: Any) -> None:
        """Does nothing: pieces compute advantages."""

    def last(self) -> Step:
        return self._last

    def taken(self) -> tuple[list[SingleAgentEpisode], dict[int, SingleAgentEpisode]]:
        """Returns the episodes, environment by environment, and the next stretches of those that continue."""
        episodes = [one for env in sorted(self._by_env) for one in self._by_env[env]]
        going_on = {env: one.cut() for env, one in self._open.items()}
        if not self._layers:
            return episodes, going_on
        shown = [one for of_one in self._layers[0].taken() for one in of_one]
        for whole, own in zip(shown, episodes, strict=True):  # pieces get the environment's observations
            whole.seen, whole.actions = own.observations, own.actions
            whole.extra_model_outputs = own.extra_model_outputs
        return shown, going_on


def as_environments_have(observations: Any, turned: bool) -> Any:
    """Returns observations [N, ...] of a runner, with the channels of images where the environment has them."""
    return np.moveaxis(observations, 1, -1) if turned else observations


def _row(columns: Any, env: int) -> Any:
    """Returns one environment's part of columns [N, ...], copied, so that its next step cannot change it."""
    return mapped(lambda part: np.array(part[env]), columns)


def rounds_loop(model: Any, callback: BaseCallback, log_interval: int | None) -> OffPolicyLoop:
    """Returns the loop of a model that replays whole episodes."""
    loop = OffPolicyLoop.acting(model, callback, log_interval)
    loop.wanted, loop.store = model.replay.next_rounds, Finished(model)
    return loop


class Finished:
    """Stores the steps of the episodes that have ended.

    Args:
        model: the model whose replay joins them.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.plain = model, storage_of(model)

    def record(self, step: Step) -> None:
        """Take a step of the environments."""
        for row in self.model.replay.finished(step):
            self.plain.record(row)


class WholeReplay(WholeEpisodes):
    """Before replay, with the loop :func:`rounds_loop`."""

    numpy_alone: ClassVar[str] = "whole episodes are put together in numpy"

    def make(self, size: int, n_envs: int, **options: Any) -> Any:
        return super().make(size, 1, **options)  # type: ignore[misc]

    def next_rounds(self) -> WholeReplay:
        """Begin to collect; returns itself, which decides when to stop."""
        self.begin_rounds()
        return self

    def missing(self, collection: Collection) -> int:
        """Returns the number of steps that are certain to follow."""
        return 1


class EpisodeWriter:
    """Writes the episodes that have ended into a buffer, which takes as many rows as they have.

    Args:
        writer: writes rows into the buffer.
        finished: the rows that a step completes.
        is_complete: whether a collection has enough.
    """

    adopts = False

    def __init__(
        self, writer: RolloutWriter, finished: Callable[[Step], list[Step]], is_complete: Callable[[Collection], bool]
    ) -> None:
        self._inner, self._finished, self.is_complete, self.buffer = writer, finished, is_complete, writer.buffer
        self.steps, self.missing = writer.steps, writer.missing
        self._rows: list[Step] = []
        self._last: Step

    def ready(self, step: Step) -> Step:
        return self._inner.ready(step)

    def record(self, step: Step) -> None:
        self._last = step
        self._rows += self._finished(step)

    def evaluate(self, learner: Any, runner: Any, policy: Any) -> Tensor:
        self.buffer.buffer_size = len(self._rows)
        self.buffer.reset()
        for row in self._rows:
            self._inner.record(row)
        return self._inner.evaluate(learner, runner, policy)[:1]  # which is not read: the last row ends an episode

    def following(self, runner: Any) -> tuple[Experience, np.ndarray]:
        return Experience({"observations": runner.obs, "memory": {}})[:1], np.ones(1, bool)

    def estimate(self, last_values: Tensor, dones: np.ndarray) -> None:
        self._inner.estimate(last_values, np.ones(1))

    def last(self) -> Step:
        return self._last


def _of_one(step: Step, env: int) -> Step:
    """Returns one environment's part of a step, copied, so that its next step cannot change it."""
    here = slice(env, env + 1)
    columns = {
        name: mapped(lambda part: part[here].copy(), getattr(step, name))
        for name in ("observations", "next_observations", "actions", "rewards", "terminated", "truncated", "dones")
    }
    return Step(
        **columns,
        env_actions=step.env_actions[here],
        infos=[step.infos[env]],
        new_obs=None,
        episode_starts=step.episode_starts[here].copy(),
        ended=bool(step.dones[env]),
        extras={name: column[here].copy() for name, column in step.extras.items()},
    )
