"""What runners and evaluators in other processes are alike in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from polyak.compat.rllib_face.callbacks import Hooks
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.environments import portable
from polyak.distributed.ray_workers import Tolerance, Workers


def begin_process(config: AlgorithmConfig) -> None:
    """Take as many threads as a process has processors."""
    torch.set_num_threads(max(int(config.num_cpus_per_env_runner), 1))


def creation_hook(config: AlgorithmConfig, worker: Any) -> Callable[..., None] | None:
    """What calls callbacks with each environment that a process makes; ``None``: there are none."""
    hooks = Hooks(config)
    if not hooks.wants("on_environment_created"):
        return None
    return lambda **known: hooks("on_environment_created", env_runner=worker, **known)


def processes_of(cls: type, config: AlgorithmConfig, number: int, patience: float, tolerance: Tolerance) -> Workers:
    """Processes for a config.

    Args:
        cls: of what each holds.
        config: what each makes.
        number: how many.
        patience: seconds after which one that has not answered is lost.
        tolerance: which failures are put up with.
    """
    sent = portable(config)
    return Workers(
        cls,
        [(sent, index) for index in range(1, number + 1)],
        patience,
        tolerance,
        num_cpus=config.num_cpus_per_env_runner,
        num_gpus=config.num_gpus_per_env_runner,
        resources=config.custom_resources_per_env_runner or None,
    )


def tolerance_of(config: AlgorithmConfig, **more: Any) -> Tolerance:
    """What ``fault_tolerance()`` says of replacing.

    Args:
        config: with these settings.
        more: further fields of :class:`~polyak.distributed.ray_workers.Tolerance`.
    """
    most = config.max_num_env_runner_restarts if config.restart_failed_env_runners else 0
    in_a_row = config.num_consecutive_env_runner_failures_tolerance
    return Tolerance(most, in_a_row, unmade=True, said=", as fault_tolerance() says", **more)
