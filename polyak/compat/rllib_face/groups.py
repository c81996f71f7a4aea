"""Runners and learners of this process: collecting and learning without further processes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import chain
from operator import methodcaller
from typing import Any

from polyak.compat.rllib_face.config.base import HORIZON
from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode
from polyak.compat.rllib_face.learners.base import TorchLearner
from polyak.compat.rllib_face.rollouts import EpisodesWriter
from polyak.hyperparameters.declaration import require
from polyak.loops.on_policy import OnPolicyLoop


def beside(learner: Any) -> dict[str, Any]:
    """Name -> module of those that only a learner has."""
    return dict(learner.beside.items()) if isinstance(learner, TorchLearner) else {}


class RunnerGroup:
    """The methods of runner groups for programs, in this process or in others."""

    @property
    def local_env_runner(self) -> Any:
        """The runner of this process; ``None`` if there is none."""
        return None

    def num_remote_env_runners(self) -> int:
        """Runners in other processes."""
        return 0

    def num_remote_workers(self) -> int:
        """RLlib's former name of :meth:`num_remote_env_runners`."""
        return self.num_remote_env_runners()

    def foreach_env_runner(
        self,
        func: Callable[..., Any] | str,
        *,
        kwargs: Mapping[str, Any] | None = None,
        local_env_runner: bool = True,
        remote_worker_ids: Collection[int] | None = None,
        timeout_seconds: float | None = None,
        return_obj_refs: bool = False,
        **health: bool,
    ) -> list[Any]:
        """Returns a function's results for each runner that answers.

        Args:
            func: called with a runner, which has ``env``, ``config`` and ``worker_index``; or the name of a runner's
                method.
            kwargs: its further arguments.
            local_env_runner: include the runner of this process, if there is one.
            remote_worker_ids: numbers of the other runners, from 1; ``None``: all.
            timeout_seconds: must be ``None``.
            return_obj_refs: must be false.
            health: RLlib's ``healthy_only`` and ``mark_healthy``, which have no effect: only runners that answer are
                included.
        """
        fix = "runners have as long as sample_timeout_s says. Leave it out."
        require(timeout_seconds is None, "timeout_seconds", timeout_seconds, fix)
        require(not return_obj_refs, "return_obj_refs", True, "results themselves are returned. Leave it out.")
        if unknown := health.keys() - {"healthy_only", "mark_healthy"}:
            raise TypeError(f"foreach_env_runner() got unexpected arguments {sorted(unknown)}.")
        asked = methodcaller(func, **(kwargs or {})) if isinstance(func, str) else partial(func, **(kwargs or {}))
        here = self.local_env_runner if local_env_runner else None
        found = [] if here is None else [asked(here)]
        if self.num_remote_env_runners():
            chosen = None if remote_worker_ids is None else frozenset(remote_worker_ids)
            found += chain.from_iterable(self._elsewhere(partial(_of_chosen, asked, chosen)))
        return found

    def _elsewhere(self, function: Callable[[Any], list[Any]]) -> list[list[Any]]:
        """Returns a function's results for each runner in another process."""
        raise NotImplementedError

    def recreated(self) -> list[int]:
        """Returns the runners in other processes, numbered from 1, that were replaced since the last call."""
        return []


def _of_chosen(asked: Callable[[Any], Any], chosen: Collection[int] | None, runner: Any) -> list[Any]:
    return [asked(runner)] if chosen is None or runner.worker_index in chosen else []


class LocalRunner(RunnerGroup):
    """Collects experience and learns from it in this process: the iterations of a model's training, one by one, for
    programs that do not give their number.

    It expects as many steps as it has made, so that gradient steps are compiled once a run is long.

    Args:
        model: polyak's algorithm, with its environments.
        callback: called at each step, unless ``None``.
        restart: reset the counters.
        local_env_runner: the runner that programs get.
    """

    num_healthy_env_runners = num_restarts = 0
    _loop: Any = None

    def __init__(self, model: Any, callback: Any, restart: bool, local_env_runner: Any) -> None:
        self.model, self._here = model, local_env_runner
        self._callback, self._restart = callback, restart
        self._began: int | None = None
        """Environment steps before training."""

    @property
    def local_env_runner(self) -> Any:
        return self._here

    @property
    def env(self) -> Any:
        """The vector of environments; ``None`` without any."""
        return self.model.get_env()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """The context of the training steps of one iteration."""
        model = self.model
        if self._began is None:
            _, self._callback = model._setup_learn(1, self._callback, self._restart, type(model).__name__)
            model._total_timesteps, model._num_timesteps_at_start = HORIZON, 0
            self._callback.on_training_start(model._callback_locals(callback=self._callback), globals())
            self._began = model.num_timesteps
        model._total_timesteps = model.num_timesteps + max(model.num_timesteps - self._began, 1)
        model._prepare_to_learn(False)
        model._total_timesteps = HORIZON
        self._loop = type(model).loop(model, self._callback, None)
        with model._while_learning():
            yield

    def iterate(self) -> bool:
        """Collects one batch and learns from it. False if a callback stopped training."""
        return bool(self._loop.iterate())

    # -- methods for training steps of a program's own -----------------------------------------------------------------

    def sample(
        self, *, num_timesteps: int | None = None, num_episodes: int | None = None, explore: bool | None = None
    ) -> list[SingleAgentEpisode]:
        """Collects experience without learning.

        Args:
            num_timesteps: least number of steps of all environments together; ``None`` without ``num_episodes``: a
                rollout.
            num_episodes: number of complete episodes, all of them new; others are dropped.
            explore: must be ``None``, or the config's value.

        Returns:
            the stretches of episodes, with the module's outputs for each step.

        Raises:
            HyperparameterError: both are given; or the algorithm learns from no rollouts.
        """
        if self._loop is None:
            with self.under_way():
                return self.sample(num_timesteps=num_timesteps, num_episodes=num_episodes, explore=explore)
        fix = "give num_timesteps or num_episodes, and not both."
        require(num_timesteps is None or num_episodes is None, "num_timesteps", num_timesteps, fix)
        fix = "what is explored is decided by env_runners(explore=...). Leave it out."
        require(explore in (None, not self.model.runner.actor.deterministic), "explore", explore, fix)
        fix = "its training step replays. Only PPO, and algorithms of one's own, collect without learning."
        require(isinstance(self._loop, OnPolicyLoop), "training_step", type(self.model).__name__, fix)
        envs = int(self.model.n_envs)
        if num_episodes is not None and self._ever_sampled:
            self._going_on = {}
            self.model.runner.reset()
        self._ever_sampled = True
        steps = -(-num_timesteps // envs) if num_timesteps is not None else None
        writer = EpisodesWriter(self.model, steps, dict(self._going_on), num_episodes)
        self._loop.collector.collect(writer, writer)
        episodes, self._going_on = writer.taken()
        return episodes if num_episodes is None else [one for one in episodes if one.is_done][:num_episodes]

    _ever_sampled = False
    _going_on: Mapping[int, SingleAgentEpisode] = {}

    def sync_weights(self, **options: Any) -> None:
        """Does nothing: the learner's networks act, or runners get them before the next step."""

    def follow(self) -> None:
        """Count on from where the model has been brought."""
        self._restart = False

    def stop(self) -> None:
        """Close the environments."""
        if self._began is not None:
            self._callback.on_training_end()
            self.model._split.stop()
            self._began = None
        if self.env is not None:
            self.env.close()


def synchronous_parallel_sample(
    *,
    worker_set: Any,
    max_env_steps: int | None = None,
    max_agent_steps: int | None = None,
    concat: bool = True,
    sample_timeout_s: float | None = None,
    random_actions: bool = False,
    _uses_new_env_runners: bool = True,
    _return_metrics: bool = False,
) -> Any:
    """Collect experience by all runners.

    Args:
        worker_set: ``algo.env_runner_group``.
        max_env_steps, max_agent_steps: least number of steps.
        concat: return all episodes in one list; ``False``: in a list of lists.
        sample_timeout_s, _uses_new_env_runners: RLlib's; runners have the config's timeout.
        random_actions: must be false.
        _return_metrics: return a list of metrics, too: they are among the results by themselves.

    Returns:
        episodes; with ``_return_metrics`` these, and metrics.
    """
    require(not random_actions, "random_actions", True, "runners take the actions of their module. Leave it out.")
    steps = max_env_steps or max_agent_steps
    if steps is None:
        steps = worker_set.model.n_envs * worker_set.model.n_steps
    found = worker_set.sample(num_timesteps=steps)
    episodes = found if concat else [found]
    return (episodes, [{}]) if _return_metrics else episodes
