"""Callbacks: a program's own code that runs during training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from polyak.checkpoint.may_be_named import MayBeNamed
from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.config.settings import CallbackSettings
from polyak.compat.rllib_face.env_runners import EnvRunner
from polyak.compat.rllib_face.metrics import MetricsLogger
from polyak.compat.sb3_face.overrides import refuse
from polyak.hyperparameters.declaration import require

HOOKS = tuple(name for name in CallbackSettings.__annotations__ if name.startswith("on_"))
"""The methods of a callback."""
STEPS = ("on_episode_created", "on_episode_start", "on_episode_step", "on_sample_end")
"""Methods that are called for episodes of this process only."""

UNLOGGED = ("on_env_runners_recreated", "on_checkpoint_loaded")
"""Methods that get no ``metrics_logger``, as in RLlib."""


class RLlibCallback(MayBeNamed):
    """The base class of callbacks; a subclass overrides some of its methods.

    All methods take keyword arguments only: those that are named here, for most of them ``metrics_logger``, and, for
    environments and episodes, ``env_runner``, ``env`` and ``rl_module``.
    """

    def on_algorithm_init(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Called once the algorithm is built."""

    def on_train_result(self, *, algorithm: Any, result: dict, **kwargs: Any) -> None:
        """Called after each ``train()``; it may change the result."""

    def on_evaluate_start(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Called before each evaluation."""

    def on_evaluate_end(self, *, algorithm: Any, evaluation_metrics: dict, **kwargs: Any) -> None:
        """Called after each evaluation."""

    def on_env_runners_recreated(
        self,
        *,
        env_runner_group: Any,
        env_runner_indices: list[int],
        is_evaluation: bool,
        **kwargs: Any,
    ) -> None:
        """Called before the training step or evaluation after runners in other processes have died and been replaced;
        indices are those of ``foreach_env_runner(..., remote_worker_ids=...)``."""

    def on_checkpoint_loaded(self, *, algorithm: Any, **kwargs: Any) -> None:
        """Called after ``restore_from_path()``."""

    def on_environment_created(self, *, env: Any, env_context: Any, **kwargs: Any) -> None:
        """Called for each environment that is made in this process."""

    def on_episode_created(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
        """Called for each :class:`~polyak.compat.rllib_face.episodes.PlayedEpisode`, including those of evaluations, at
        its first step."""

    def on_episode_start(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
        """Called after :meth:`on_episode_created`."""

    def on_episode_step(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
        """Called for each step of an episode."""

    def on_episode_end(self, *, episode: Any, env_index: int, **kwargs: Any) -> None:
        """Called for each episode that ends; of other processes only those of training."""

    def on_sample_end(self, *, samples: list, **kwargs: Any) -> None:
        """Called after each fragment of experience, and after each evaluation, with its episodes."""


DefaultCallbacks = RLlibCallback
"""Its name in earlier versions of RLlib."""


class Hooks:
    """All callbacks of a config.

    Args:
        config: the config.

    Raises:
        HyperparameterError: a value that is no class or function, or a method that is never called.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        given = config.callbacks_class
        classes = list(given) if isinstance(given, list | tuple) else [] if given is None else [given]
        self.metrics_logger, self.evaluation_logger = MetricsLogger(), MetricsLogger()
        self._functions: dict[str, list[Callable[..., Any]]] = {name: [] for name in HOOKS}
        for cls in classes:
            is_class = isinstance(cls, type) and issubclass(cls, RLlibCallback)
            require(is_class, "callbacks_class", cls, "give a subclass of RLlibCallback.")
            refuse("callbacks_class", cls, RLlibCallback, not_called.OF["callbacks"])
            one = cls()
            for name in HOOKS:
                if getattr(cls, name) is not getattr(RLlibCallback, name):
                    self._functions[name].append(getattr(one, name))
        for name in HOOKS:
            given = getattr(config, name)
            functions = list(given) if isinstance(given, list | tuple) else [] if given is None else [given]
            require(all(map(callable, functions)), name, given, "give a function, several in a list, or None.")
            self._functions[name] += functions

    def wants(self, name: str) -> bool:
        """Whether there is a function for it."""
        return bool(self._functions[name])

    def wants_steps(self) -> bool:
        """Whether any is to see more of episodes than their ends."""
        return any(map(self.wants, STEPS))

    def wants_episodes(self) -> bool:
        """Whether any is to see episodes, or their ends."""
        return self.wants_steps() or self.wants("on_episode_end")

    def created(self, env_runner: Any) -> Callable[..., None] | None:
        """Returns the function that calls callbacks with each environment that a runner makes; ``None`` if no callback
        has the method."""
        name = "on_environment_created"
        return partial(self, name, env_runner=env_runner) if self.wants(name) else None

    def __call__(self, name: str, evaluating: bool = False, **known: Any) -> None:
        """Calls all functions for an event."""
        if name not in UNLOGGED:
            known["metrics_logger"] = self.evaluation_logger if evaluating else self.metrics_logger
        for function in self._functions[name]:
            function(**known)

    def shown(self, algorithm: Any, evaluating: bool) -> Callable[..., None]:
        """Returns the function that passes the events of an algorithm's episodes to callbacks, see
        :class:`~polyak.compat.rllib_face.episodes.EpisodesForHooks`."""
        runner = EnvRunner(self, algorithm, evaluating)

        def show(name: str, **known: Any) -> None:
            if name != "on_sample_end":
                known["rl_module"] = runner.module
            if name == "on_episode_end":
                known |= {"algorithm": algorithm, "prev_episode_chunks": []}
            self(name, evaluating, env_runner=runner, **known)

        return show
