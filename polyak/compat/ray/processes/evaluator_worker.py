"""Evaluation in another process. It does not know how it is reached."""

from __future__ import annotations

import numpy as np

from polyak.compat.ray.config.base import AlgorithmConfig
from polyak.compat.ray.evaluation import EvaluationOrder, Played, play
from polyak.compat.ray.filters import filter_around
from polyak.compat.ray.processes.acting import ActingWorker
from polyak.distributed.statistics import Moments, take_moments
from polyak.distributed.weights import put_back


class EvaluatorWorker(ActingWorker):
    """Plays episodes with the weights that it is given.

    Args:
        config: of evaluation.
        index: which of the evaluators, from 1.
    """

    def __init__(self, config: AlgorithmConfig, index: int) -> None:
        super().__init__(config, index, False, config.seed)

    def play(
        self, weights: np.ndarray, randomness: float | None, statistics: Moments | None, order: EvaluationOrder
    ) -> Played:
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
