"""Runners of this process as programs are shown them, and the group of those that evaluate."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from polyak.compat.rllib_face.connectors.base import EnvToModulePipeline, ModuleToEnvPipeline
from polyak.compat.rllib_face.connectors.environments import BoundFilter, layers_of
from polyak.compat.rllib_face.evaluation import LocalEvaluators, order_of
from polyak.compat.rllib_face.filters import filter_around
from polyak.compat.rllib_face.groups import RunnerGroup
from polyak.compat.rllib_face.results import of_episodes
from polyak.evaluation.undisturbed import undisturbed
from polyak.hyperparameters.declaration import require

if TYPE_CHECKING:
    from polyak.compat.rllib_face.config.base import AlgorithmConfig
    from polyak.compat.rllib_face.metrics import MetricsLogger


class EnvRunner:
    """The runner of this process, which collects experience or evaluates.

    Args:
        hooks: hold the metrics.
        algorithm: its algorithm.
        evaluating: whether it evaluates.
    """

    worker_index = 0

    def __init__(self, hooks: Any, algorithm: Any, evaluating: bool) -> None:
        self._hooks, self._algorithm, self._evaluating = hooks, algorithm, evaluating

    @property
    def env(self) -> Any:
        """The vector of environments."""
        algorithm = self._algorithm
        return algorithm._evaluators.env if self._evaluating else algorithm.model.get_env()

    @property
    def _env_to_module(self) -> EnvToModulePipeline:
        """The pieces between the environments and the module, and the filter."""
        if layers := layers_of(self.env):
            return layers[0].whole
        known = filter_around(self.env)
        pieces = [] if known is None else [BoundFilter(known)]
        return EnvToModulePipeline(self.env.observation_space, self.env.action_space, connectors=pieces)

    @property
    def _module_to_env(self) -> ModuleToEnvPipeline:
        """The pieces between the module and the environments."""
        layers = layers_of(self.env)
        return layers[0].acting if layers else ModuleToEnvPipeline(self.env.observation_space, self.env.action_space)

    @property
    def num_envs(self) -> int:
        """Environments in it."""
        return int(self.env.num_envs)

    @property
    def module(self) -> Any:
        """The networks, themselves and not a copy."""
        return self._algorithm.get_module()

    @property
    def config(self) -> AlgorithmConfig:
        """The config of evaluation, with ``in_evaluation`` set, or of training."""
        config: AlgorithmConfig = self._algorithm.config
        return config.evaluation_settings() if self._evaluating else config

    @property
    def metrics(self) -> MetricsLogger:
        """The logger of callbacks."""
        return self._hooks.evaluation_logger if self._evaluating else self._hooks.metrics_logger

    def sample(
        self, *, num_timesteps: int | None = None, num_episodes: int | None = None, explore: bool | None = None
    ) -> list[Any]:
        """Play without learning; in training, collect for a program's own training step: see
        :meth:`~polyak.compat.rllib_face.groups.LocalRunner.sample`.

        Args:
            num_timesteps: environment steps, which the last episodes may exceed.
            num_episodes: episodes, without ``num_timesteps``; ``None``: one.
            explore: explore as in training; ``None``: by the config of evaluation.

        Returns:
            the :class:`~polyak.compat.rllib_face.episodes.PlayedEpisode` objects that were played to their end.
        """
        if not self._evaluating:
            both = {"num_timesteps": num_timesteps, "num_episodes": num_episodes}
            episodes: list[Any] = self._algorithm.env_runner_group.sample(**both, explore=explore)
            return episodes
        fix = "give num_timesteps or num_episodes, and not both."
        require(num_timesteps is None or num_episodes is None, "num_timesteps", num_timesteps, fix)
        algorithm = self._algorithm
        counters = algorithm._counters
        order = order_of(algorithm.config, int(counters["evaluations"]))
        duration = num_timesteps or num_episodes or 1
        asked = order._replace(duration=duration, in_steps=num_timesteps is not None)
        if explore is not None:
            asked = asked._replace(explores=explore)
        with undisturbed(algorithm.model):
            return list(algorithm._evaluators.sample(algorithm.model, asked))

    def get_metrics(self) -> dict[str, Any]:
        """Returns statistics of the episodes that :meth:`sample` has played since the last call, and metrics logged by
        callbacks; nothing for training, whose metrics are among the results."""
        if not self._evaluating:
            return {}
        played = self._algorithm._evaluators.taken()
        lengths = [len(episode) for episode in played]
        counts = {"num_episodes": len(played), "num_env_steps_sampled": sum(lengths)}
        returns = [episode.get_return() for episode in played]
        return {**of_episodes(returns, lengths), **counts, **self.metrics.reduced()}


class EvaluationRunners(RunnerGroup):
    """The evaluation runners, of this process or of others.

    Args:
        hooks: hold the metrics.
        algorithm: their algorithm.
    """

    def __init__(self, hooks: Any, algorithm: Any) -> None:
        self._hooks, self._algorithm = hooks, algorithm

    @property
    def local_env_runner(self) -> EnvRunner | None:
        if isinstance(self._algorithm._evaluators, LocalEvaluators):
            return EnvRunner(self._hooks, self._algorithm, evaluating=True)
        return None

    def num_remote_env_runners(self) -> int:
        return int(self._algorithm.config.evaluation_num_env_runners)

    def _elsewhere(self, function: Callable[[Any], Any]) -> list[Any]:
        found: list[Any] = self._algorithm._evaluators.foreach(function)
        return found

    def recreated(self) -> list[int]:
        return [worker + 1 for worker in self._algorithm._evaluators.renewed()]
