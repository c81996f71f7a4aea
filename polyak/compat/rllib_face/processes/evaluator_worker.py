"""Evaluation in another process. It does not depend on the transport."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from polyak.collecting.exploration import RandomActions
from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.evaluation import EvaluationOrder, Played, play
from polyak.compat.rllib_face.filters import filter_around
from polyak.compat.rllib_face.processes.acting import begun
from polyak.distributed.statistics import Moments, take_moments
from polyak.nn.policies.base import Policy, n_rows


class EvaluatorWorker:
    """Plays episodes with the policy that it is given.

    Args:
        config: the config of evaluation.
        index: number of the evaluator, from 1.
    """

    def __init__(self, config: AlgorithmConfig, index: int) -> None:
        self.config, self.worker_index = config, index
        self.env = begun(config, self, False, index)

    def describe(self) -> int:
        """Returns the process id."""
        return os.getpid()

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """Returns the result of a function of this worker, which has ``env``, ``config`` and ``worker_index``."""
        return function(self)

    def play(self, policy: bytes, rate: float | None, statistics: Moments | None, order: EvaluationOrder) -> Played:
        """Plays episodes with a policy.

        Args:
            policy: the pickled policy.
            rate: probability of a random action; ``None``: no random actions.
            statistics: statistics of the filter, if there is one.
            order: the request.
        """
        own = filter_around(self.env)
        if own is not None and statistics is not None:
            take_moments(own, statistics)
        acting: Policy = pickle.loads(policy)
        return play(acting if rate is None else ExploringPolicy(acting, rate), self.env, order)


class ExploringPolicy:
    """A policy with random actions, unless it acts deterministically: in all environments or in none, as models that
    explore by epsilon-greedy predict.

    Args:
        policy: takes the others.
        rate: probability of random actions.
    """

    def __init__(self, policy: Policy, rate: float) -> None:
        self.policy, self.rate, self.supports_masks = policy, rate, policy.supports_masks
        self.action_space = policy.action_space
        self._random = RandomActions(policy.action_space, policy.codec)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False, **more: Any
    ) -> tuple[Any, Any]:
        """Returns actions for a batch of observations, and the next recurrent state."""
        explores = not deterministic and np.random.rand() < self.rate
        actions, then = self.policy.predict(observation, state, episode_start, deterministic, **more)
        if explores:
            actions = self.policy.to_env(self._random(n_rows(observation), more.get("action_masks")))
        return actions, then
