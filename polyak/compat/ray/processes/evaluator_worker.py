"""Evaluation in another process. It does not know how it is reached."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from polyak.compat.ray.callbacks import Hooks
from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.environments import make_environments
from polyak.compat.ray.evaluation import Order, Played, play
from polyak.compat.ray.filters import filter_around
from polyak.compat.ray.plain import acting_part_of
from polyak.compat.ray.processes.elsewhere import Spaces
from polyak.distributed.statistics import Moments, take_moments
from polyak.distributed.weights import put_back


class EvaluatorWorker:
    """Plays episodes with the weights that it is given.

    Args:
        config: of evaluation.
        index: which of the evaluators, from 1.
    """

    def __init__(self, config: AlgorithmConfig, index: int) -> None:
        torch.set_num_threads(max(int(config.num_cpus_per_env_runner), 1))
        self.config, self.worker_index = config, index
        hooks = Hooks(config)
        created: Callable[..., None] | None = None
        if hooks.wants("on_environment_created"):
            created = lambda **known: hooks("on_environment_created", env_runner=self, **known)  # noqa: E731
        self.env = make_environments(config, False, created, worker_index=index)
        self.model = acting_part_of(config, self.env, Spaces.of(self.env).turned, config.seed)

    def describe(self) -> int:
        """Its process."""
        return os.getpid()

    def play(self, weights: np.ndarray, randomness: float | None, statistics: Moments | None, order: Order) -> Played:
        """Episodes of a policy with these weights.

        Args:
            weights: of the policy.
            randomness: probability of a random action where it explores so; ``None``: it does not.
            statistics: of the filter, if there is one.
            order: what to play.
        """
        put_back(self.model.policy, weights)
        own = filter_around(self.env)
        if own is not None and statistics is not None:
            take_moments(own, statistics)
        if randomness is not None:
            self.model.exploration_rate = randomness
        return play(self.model, self.env, order)

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """What a function returns of this evaluator, which has ``env``, ``model``, ``config`` and ``worker_index``."""
        return function(self)
