"""What runners and evaluators in other processes are alike in."""

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
    """The environments of a process, which takes as many threads as it has processors.

    Args:
        config: what to make.
        worker: what callbacks are shown for it.
        training: whether they are to learn in.
        index: of the process, from 1.
    """
    torch.set_num_threads(max(int(config.num_cpus_per_env_runner), 1))
    return make_environments(config, training, Hooks(config).created(worker), index)


def processes_of(
    cls: type, config: AlgorithmConfig, number: int, patience: float, tolerance: Tolerance, name: str
) -> Workers:
    """Processes for a config. Room for them may be made within ``env_runner_restore_timeout_s``.

    Args:
        cls: of what each holds.
        config: what each makes.
        number: how many.
        patience: seconds after which one that has not answered is lost.
        tolerance: which failures are put up with.
        name: of the setting that says how many.
    """
    sent = portable(config)
    resources = config.custom_resources_per_env_runner or None
    amounts = config.num_cpus_per_env_runner, config.num_gpus_per_env_runner, resources
    placement = Reservation(*amounts, wait=config.env_runner_restore_timeout_s)
    return Workers(cls, [(sent, index) for index in range(1, number + 1)], patience, tolerance, placement, name)


def tolerance_of(config: AlgorithmConfig, **more: Any) -> Tolerance:
    """What ``fault_tolerance()`` says of replacing, which counts all replacements.

    Args:
        config: with these settings.
        more: further fields of :class:`~polyak.distributed.ray_workers.Tolerance`.
    """
    most = config.max_num_env_runner_restarts if config.restart_failed_env_runners else 0
    in_a_row = config.num_consecutive_env_runner_failures_tolerance
    return Tolerance(most, math.inf, in_a_row, unmade=True, said=", as fault_tolerance() says", **more)
