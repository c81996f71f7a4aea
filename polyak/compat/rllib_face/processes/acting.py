"""The common parts of runners and evaluators in other processes."""

from __future__ import annotations

import math
from typing import Any

import torch

from polyak.compat.rllib_face.callbacks import Hooks
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.environments import make_environments, portable
from polyak.distributed.placement import Reservation
from polyak.distributed.ray_workers import Tolerance, Workers
from polyak.envs import VecEnv


def begun(config: AlgorithmConfig, worker: Any, training: bool, index: int) -> VecEnv:
    """Makes the environments of a process, and sets its number of threads to that of its processors.

    Args:
        config: the config.
        worker: the runner for callbacks.
        training: whether they are for training.
        index: number of the process, from 1.
    """
    torch.set_num_threads(max(int(config.num_cpus_per_env_runner), 1))
    return make_environments(config, training, Hooks(config).created(worker), index)


def processes_of(
    cls: type, config: AlgorithmConfig, number: int, patience: float, tolerance: Tolerance, name: str
) -> Workers:
    """Starts processes for a config. It waits up to ``env_runner_restore_timeout_s`` for room.

    Args:
        cls: class of the object in each.
        config: the config.
        number: number of processes.
        patience: seconds after which a process without an answer is lost.
        tolerance: the failures that are tolerated.
        name: name of the setting with their number.
    """
    sent = portable(config)
    resources = config.custom_resources_per_env_runner or None
    amounts = config.num_cpus_per_env_runner, config.num_gpus_per_env_runner, resources
    placement = Reservation(*amounts, wait=config.env_runner_restore_timeout_s)
    return Workers(cls, [(sent, index) for index in range(1, number + 1)], patience, tolerance, placement, name)


def tolerance_of(config: AlgorithmConfig, **more: Any) -> Tolerance:
    """Returns the tolerance of ``fault_tolerance()``, which counts all replacements.

    Args:
        config: the config.
        more: further fields of :class:`~polyak.distributed.ray_workers.Tolerance`.
    """
    most = config.max_num_env_runner_restarts if config.restart_failed_env_runners else 0
    in_a_row = config.num_consecutive_env_runner_failures_tolerance
    return Tolerance(most, math.inf, in_a_row, unmade=True, said=", as fault_tolerance() says", **more)
