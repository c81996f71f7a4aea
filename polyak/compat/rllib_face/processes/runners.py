"""Runners in separate processes, by the settings of a config."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.groups import LocalRunner
from polyak.compat.rllib_face.processes.acting import processes_of, tolerance_of
from polyak.compat.rllib_face.processes.runner_worker import RunnerOfConfig
from polyak.distributed.runners import RemoteEnvs
from polyak.fields.asynchronous import AsynchronousAlgorithm
from polyak.learning.vtrace_learner import VTraceLearner


def environments_elsewhere(config: AlgorithmConfig) -> RemoteEnvs:
    """Returns the environments of ``num_env_runners`` processes.

    Raises:
        Exception: an environment's error, with its traceback.
    """
    tolerance = tolerance_of(
        config,
        delay=config.delay_between_env_runner_restarts_s,
        shrinks=config.ignore_env_runner_failures and not config.restart_failed_env_runners,
        errors=config.restart_failed_sub_environments,
    )
    number, name = config.num_env_runners, "num_env_runners"
    workers = processes_of(RunnerOfConfig, config, number, config.sample_timeout_s, tolerance, name)
    patience, as_one = config.env_runner_restore_timeout_s, config.batch_mode == "complete_episodes"
    return RemoteEnvs(config.env, config.num_env_runners, workers=workers, patience=patience, as_one=as_one)


class RemoteRunners(LocalRunner):
    """Runners of a model in other processes: see :class:`~polyak.distributed.runners.RunnerGroup`.

    Args:
        config: the algorithm's config.
        remote: their environments.
        model: polyak's algorithm.
        callback: called at each step, unless ``None``.
        restart: reset the counters.
    """

    def __init__(self, config: AlgorithmConfig, remote: RemoteEnvs, model: Any, callback: Any, restart: bool) -> None:
        super().__init__(model, callback, restart, None)
        self._remote = remote
        alone = config.num_env_runners == 1 and config.seed is not None
        model.runner.shares_streams = alone and not isinstance(model, AsynchronousAlgorithm)
        merges = config.merge_env_runner_states is not False
        model.runner.share_statistics(merges, merges and config.broadcast_env_runner_states)

    @property
    def processes(self) -> dict[int, int]:
        """The process id of each runner."""
        return dict(enumerate(self._remote.processes))

    @property
    def num_healthy_env_runners(self) -> int:  # type: ignore[override]
        """Number of runners that answer."""
        return self._remote.n_runners - len(self._remote.absent)

    @property
    def num_restarts(self) -> int:  # type: ignore[override]
        """Number of replacements so far."""
        return self._remote.workers.restarts

    def num_remote_env_runners(self) -> int:
        return self._remote.n_runners

    def _elsewhere(self, function: Callable[[Any], Any]) -> list[Any]:
        return self._remote.ask_present("apply", function)

    def recreated(self) -> list[int]:
        return [worker + 1 for worker in self._remote.newly_renewed()]

    def follow(self) -> None:
        """Act with the model's updated weights."""
        super().follow()
        if isinstance(self.model, AsynchronousAlgorithm):
            cast(VTraceLearner, self.model.learner).publish(self.model.policy)
