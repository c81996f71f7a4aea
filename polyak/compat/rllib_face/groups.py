"""Experience collected, and learned from, in this process: what the groups of an algorithm are without
further processes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch

from polyak.checkpoint.parameters import load_optimizer
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.config.base import HORIZON
from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode
from polyak.compat.rllib_face.environments import has_channels_last
from polyak.compat.rllib_face.learners.base import TorchLearner
from polyak.compat.rllib_face.models.multi import MultiRLModule, of_one_agent
from polyak.compat.rllib_face.results import Means, named
from polyak.compat.rllib_face.rollouts import EpisodesWriter
from polyak.envs import DummyVecEnv
from polyak.hyperparameters.declaration import require
from polyak.loops.on_policy import OnPolicyLoop
from polyak.loops.training import tasks
from polyak.loops.updates import Gained, record_means

Weights = dict[str, np.ndarray]


def beside(learner: Any) -> dict[str, Any]:
    """Name -> module of those that only a learner has."""
    return dict(learner.beside.items()) if isinstance(learner, TorchLearner) else {}


class LocalRunner:
    """Experience collected in this process, and learned from as soon as it is there: the iterations of a model's
    training, one by one, for programs that never say how many.

    As many steps as were made are expected to follow, so that gradient steps are compiled once a run has become long.

    Args:
        model: polyak's algorithm, with its environments.
        callback: called at each step; ``None``: nothing is.
        restart: begin to count at zero.
        local_env_runner: as programs are shown it.
    """

    num_healthy_env_runners = num_restarts = 0
    _loop: Any = None

    def __init__(self, model: Any, callback: Any, restart: bool, local_env_runner: Any) -> None:
        self.model, self.local_env_runner = model, local_env_runner
        self._callback, self._restart = callback, restart
        self._began: int | None = None
        """Environment steps before training."""

    @property
    def env(self) -> Any:
        """The vector of environments; ``None`` where there are none."""
        return self.model.get_env()

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Around the training steps of one iteration."""
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
        """Collect one batch and learn from it. False: a callback asked to stop."""
        return bool(self._loop.iterate())

    # -- what training steps of a program's own call -------------------------------------------------------------------

    def sample(
        self, *, num_timesteps: int | None = None, num_episodes: int | None = None, explore: bool | None = None
    ) -> list[SingleAgentEpisode]:
        """Collect without learning.

        Args:
            num_timesteps: of all environments together, at least so many; ``None`` without ``num_episodes``: a rollout.
            num_episodes: as many that have ended, all of them begun anew; others are dropped.
            explore: must be ``None``, or as the config says.

        Returns:
            the stretches of episodes, with what the module has said of each step.

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
        """Nothing: what acts are the networks that learn, or is given them before the next step."""

    def num_remote_env_runners(self) -> int:
        """Runners in other processes."""
        return 0

    num_remote_workers = num_remote_env_runners

    def foreach_env_runner(self, func: Callable[[Any], Any], *, local_env_runner: bool = True, **how: Any) -> list[Any]:
        """What a function returns of the runner, unless ``local_env_runner`` is false."""
        return [func(self.local_env_runner)] if local_env_runner else []

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


_LEARNS: ContextVar[tuple[Any, Any] | None] = ContextVar("model and module", default=None)
"""What the learner group learns with that an algorithm is making."""


@contextmanager
def learns_with(model: Any, module: Any) -> Iterator[None]:
    """While this lasts, a new learner group is that of a model."""
    token = _LEARNS.set((model, module))
    try:
        yield
    finally:
        _LEARNS.reset(token)


class LearnerGroup:
    """The learner, in this process: that of an algorithm, or one by itself, which is given episodes.

    Args:
        config: of the algorithm.
        module_spec: the module, with its spaces, where there is no algorithm.
        placement_group: RLlib's, which must be ``None``.
    """

    is_local, is_remote = True, False

    def __init__(self, *, config: Any, module_spec: Any = None, placement_group: Any = None) -> None:
        require(placement_group is None, "placement_group", placement_group, "processes are placed by Ray itself.")
        self.config = config
        self.model, self._module = _LEARNS.get() or _alone(config, module_spec)

    def update(
        self,
        *,
        episodes: Any = None,
        timesteps: Mapping[str, Any] | None = None,
        num_epochs: int = 1,
        minibatch_size: int | None = None,
        shuffle_batch_per_epoch: bool = False,
        **others: Any,
    ) -> list[dict[str, Any]]:
        """Learn from episodes: see :meth:`~polyak.compat.rllib_face.learners.base.TorchLearner.learn_from_episodes`.

        Args:
            others: RLlib's, which must ask for nothing.

        Returns:
            one dict: name of a module -> what was measured.
        """
        for name, value in others.items():
            require(not value, name, value, "a learner here learns from episodes=[...]. Leave it out.")
        model, learner = self.model, self.model.learner
        fix = f"{type(learner).__name__} learns from no episodes. Use PPO's, or a TorchLearner of your own."
        require(getattr(learner, "pipeline", None) is not None, "learner_class", type(learner), fix)
        learner.policy.set_training_mode(True)
        model._following()()
        metrics = learner.learn_from_episodes(
            list(episodes or ()),
            timesteps=timesteps,
            num_epochs=num_epochs,
            minibatch_size=minibatch_size,
            shuffle_batch_per_epoch=shuffle_batch_per_epoch,
        )
        model.clock.updates += num_epochs
        record_means(metrics, model.logger, model.host)
        for watch in tasks(model, "watching"):
            watch(Gained(metrics, num_epochs))
        means = {name: float(torch.stack(values).mean()) for name, values in metrics.items()}
        return [{DEFAULT_MODULE_ID: named(means), "__all_modules__": {}}]

    def get_state(self, components: Any = None, **options: Any) -> dict[str, Any]:
        """``{"learner": {"rl_module": name -> arrays, "optimizer": name -> state}}``"""
        self.settle()
        learner = self.model.learner
        learner.adopt_optimizers()
        states = {name: copy.deepcopy(one.state_dict()) for name, one in learner.optimizers.items()}
        return {"learner": {"rl_module": self.get_weights(), "optimizer": states}}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Put back what :meth:`get_state` returned, or some of it.

        Raises:
            ValueError: another module, names or shapes.
        """
        found = state["learner"]
        self.set_weights(found.get("rl_module", {}))
        for name, kept in found.get("optimizer", {}).items():
            load_optimizer(self.model.learner, name, copy.deepcopy(kept))
        self.follow()

    def __len__(self) -> int:
        return 1

    @property
    def _learner(self) -> Any:
        """The learner, as programs reach its modules: ``learner_group._learner.module["default_policy"]``."""
        learner = self.model.learner
        return learner if isinstance(learner, TorchLearner) else ModulesOf(self.model)

    def get_weights(self, module_ids: Any = None) -> dict[str, Weights]:
        """Arrays by name, under the module's name: what its ``get_state()`` returns.

        Args:
            module_ids: of which modules; ``None``: of all.
        """
        modules = self._modules
        wanted = list(modules) if module_ids is None else list(module_ids)
        if unknown := sorted({*wanted} - {*modules}):
            raise ValueError(f"module_ids={unknown}: there is only {', '.join(map(repr, modules))}.")
        return {name: modules[name].get_state() for name in wanted}

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        """Put back what :meth:`get_weights` returned, or that of some modules.

        Raises:
            ValueError: another module, names or shapes. Nothing has changed then.
        """
        modules = self._modules
        if unknown := sorted(weights.keys() - {*modules}):
            raise ValueError(f"weights name the modules {unknown}, but there is only {', '.join(map(repr, modules))}.")
        for module_id, given in weights.items():
            own = modules[module_id].get_state()
            wrong = sorted(name for name in own.keys() | given.keys() if not _fits(own.get(name), given.get(name)))
            if wrong:
                raise ValueError(
                    f"weights do not fit the module {module_id!r}: {wrong} are missing, not its own, or of another "
                    "shape."
                )
        for module_id, given in weights.items():
            modules[module_id].set_state(given)

    @property
    def _modules(self) -> dict[str, Any]:
        """Name -> module."""
        return {DEFAULT_MODULE_ID: self._module, **beside(self.model.learner)}

    def follow(self) -> None:
        """Learn on from where the model has been brought: it is the learner's own."""

    def settle(self) -> None:
        """Bring the model to where the learner is: it is there."""

    def foreach_learner(self, func: Callable[[Any], Any]) -> list[Any]:
        """What a function returns of each learner."""
        return [func(self.model.learner)]

    def stop(self) -> None:
        """Let a learner of a program's own end what it has begun."""
        if isinstance(self.model.learner, TorchLearner):
            self.model.learner.shutdown()

    def shutdown(self) -> None:
        """As :meth:`stop`."""
        self.stop()


class ModulesOf:
    """A learner by its modules.

    Args:
        model: polyak's algorithm.
    """

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def module(self) -> MultiRLModule:
        """The modules that learn, by name, themselves and not copies.

        Raises:
            AttributeError: the networks are polyak's own.
        """
        module = getattr(self.model.policy, "rl_module", None)
        if module is None:
            raise AttributeError(f"{type(self.model).__name__} trains networks of polyak's: use algo.get_module().")
        return MultiRLModule({DEFAULT_MODULE_ID: module})


def _fits(own: Any, given: Any) -> bool:
    return own is not None and given is not None and tuple(own.shape) == np.shape(given)


class Unplayed(gym.Env[Any, Any]):
    """Environments that are never played, of which a model has the spaces.

    Args:
        observation_space, action_space: are these.
    """

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = observation_space, action_space


def _alone(config: Any, module_spec: Any) -> tuple[Any, Any]:
    """A model that has a learner and no environments, and its module."""
    from polyak.compat.rllib_face.places import made  # which has all processes

    spec = of_one_agent(module_spec or config.get_multi_rl_module_spec())
    spaces = spec.observation_space, spec.action_space
    fix = "a learner without an algorithm must know what its module reads: give get_multi_rl_module_spec(spaces=...)."
    require(None not in spaces, "module_spec", spec, fix)
    fix = "a learner without an algorithm learns in this process: set num_learners=0."
    require(config.num_learners == 0, "num_learners", config.num_learners, fix)
    own = config.copy(copy_frozen=False)
    own.__dict__["by_episodes"] = True
    own.freeze()
    env = DummyVecEnv([partial(Unplayed, *spaces)])
    model = made(own, own.plain(has_channels_last(env)), env)
    model.set_logger(Means())
    return model, model.policy.rl_module


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
        max_env_steps, max_agent_steps: at least so many steps.
        concat, sample_timeout_s, _uses_new_env_runners: RLlib's; runners have the config's timeout.
        random_actions: must be false.
        _return_metrics: return a list of metrics, too: they are among the results by themselves.

    Returns:
        episodes; with ``_return_metrics`` these, and metrics.
    """
    require(not random_actions, "random_actions", True, "runners take the actions of their module. Leave it out.")
    steps = max_env_steps or max_agent_steps
    if steps is None:
        steps = worker_set.model.n_envs * worker_set.model.n_steps
    episodes = worker_set.sample(num_timesteps=steps)
    return (episodes, [{}]) if _return_metrics else episodes
