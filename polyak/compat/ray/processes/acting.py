"""What runners and evaluators in other processes are alike in."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from polyak.compat.ray.callbacks import Hooks
from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.environments import make_environments, portable
from polyak.compat.ray.plain import acting_part_of
from polyak.compat.ray.processes.elsewhere import Spaces
from polyak.distributed.ray_workers import Tolerance, Workers


class ActingWorker:
    """Environments, and a model that acts in them. It does not know how it is reached.

    Args:
        config: what to make.
        index: which of its kind, from 1.
        training: whether to act as for learning.
        seed: of the model; ``None``: none.
    """

    def __init__(self, config: AlgorithmConfig, index: int, training: bool, seed: int | None) -> None:
        torch.set_num_threads(max(int(config.num_cpus_per_env_runner), 1))
        hooks, self.config, self.worker_index = Hooks(config), config, index
        created: Callable[..., None] | None = None
        if hooks.wants("on_environment_created"):
            created = lambda **known: hooks("on_environment_created", env_runner=self, **known)  # noqa: E731
        self.env = make_environments(config, training, created, worker_index=index)
        self.spaces = Spaces.of(self.env)
        self.model = acting_part_of(config, self.env, self.spaces.turned, seed)

    def describe(self) -> tuple[int, Spaces]:
        """Its process and the spaces of its environments."""
        return os.getpid(), self.spaces

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """What a function returns of this worker, which has ``env``, ``model``, ``config`` and ``worker_index``."""
        return function(self)


def made(
    cls: type[ActingWorker], config: AlgorithmConfig, number: int, patience: float, tolerance: Tolerance
) -> tuple[Workers, list[tuple[int, Spaces]]]:
    """Processes for a config, and what each of them says of itself.

    Args:
        cls: of what each holds.
        config: what each makes.
        number: how many.
        patience: seconds after which one that has not answered is lost.
        tolerance: which failures are put up with.

    Raises:
        Exception: whatever an environment raises, with its traceback.
    """
    sent = portable(config)
    workers = Workers(
        cls,
        [(sent, index) for index in range(1, number + 1)],
        patience,
        tolerance,
        num_cpus=config.num_cpus_per_env_runner,
        num_gpus=config.num_gpus_per_env_runner,
        resources=config.custom_resources_per_env_runner or None,
    )
    try:
        return workers, workers.begin("describe", config.env_runner_restore_timeout_s)
    except BaseException:
        workers.stop()
        raise


def tolerance_of(config: AlgorithmConfig, **more: Any) -> Tolerance:
    """What ``fault_tolerance()`` says of replacing.

    Args:
        config: with these settings.
        more: further fields of :class:`~polyak.distributed.ray_workers.Tolerance`.
    """
    most = config.max_num_env_runner_restarts if config.restart_failed_env_runners else 0
    in_a_row = config.num_consecutive_env_runner_failures_tolerance
    return Tolerance(most, in_a_row, unmade=True, said=", as fault_tolerance() says", **more)
