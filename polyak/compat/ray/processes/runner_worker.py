"""A runner that collects, in another process. It does not know how it is reached."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Any

import numpy as np

from polyak.compat.ray.config.base import HORIZON, AlgorithmConfig
from polyak.compat.ray.filters import filter_around
from polyak.compat.ray.processes.acting import ActingWorker
from polyak.compat.ray.processes.fragments import Fragment, taken_from
from polyak.compat.ray.rollouts import WholeEpisodes
from polyak.distributed.runner_process import seed_of_runner
from polyak.distributed.statistics import Moments, count_fresh, report_of, take_moments
from polyak.distributed.weights import put_back
from polyak.kinds.asynchronous import AsynchronousAlgorithm
from polyak.kinds.lessons import Lessons
from polyak.kinds.off_policy import OffPolicyAlgorithm
from polyak.seeding import rng_state, set_rng_state

_KEPT_INFOS = ("episode", "is_success", "TimeLimit.truncated")


class RunnerWorker(ActingWorker):
    """Collects experience with the weights that it is given.

    Args:
        config: what to make.
        index: which of the runners, from 1.
    """

    def __init__(self, config: AlgorithmConfig, index: int) -> None:
        super().__init__(config, index, True, None if config.seed is None else seed_of_runner(config.seed, index - 1))
        if (normalizer := filter_around(self.env)) is not None:
            count_fresh(normalizer)
        self.model._update_info_buffer = self._note
        self.model._update_target = lambda: None  # acting asks no target network
        self._lessons: Lessons | None = None
        self._ends: list[tuple[int, list[dict[str, Any]]]] = []
        self._name, self._made = uuid.uuid4().hex, 0

    def sample(
        self,
        weights: np.ndarray,
        version: int,
        statistics: Moments | None = None,
        steps: int | None = None,
        streams: Any = None,
    ) -> Fragment:
        """Experience of a policy with these weights.

        Args:
            weights: of the policy.
            version: of the weights.
            statistics: for its filter to continue from; ``None``: its own.
            steps: environment steps that all have made so far, by which exploration goes; ``None``: its own.
            streams: random numbers to continue from, which are then handed on with the fragment; ``None``: its own.
        """
        model, self._ends = self.model, []
        put_back(model.policy, weights)
        known = filter_around(model.get_env())
        if known is not None and statistics is not None:
            take_moments(known, statistics)
        if self._lessons is None:  # which resets environments, and the filter sees what they show
            self._lessons = Lessons(model, HORIZON)
        if streams is not None:
            set_rng_state(*streams)
        with self._lessons.under_way():
            fragment = self._collected(version, self._lessons, steps)
        fragment.dropped = model.dropped if isinstance(model, WholeEpisodes) else 0
        fragment.infos, fragment.source = self._ends, (self._name, self._made)
        fragment.report = None if known is None else report_of(known)
        fragment.streams = None if streams is None else rng_state()
        self._made += 1
        return fragment

    def _collected(self, version: int, lessons: Lessons, steps: int | None) -> Fragment:
        model = self.model
        if isinstance(model, OffPolicyAlgorithm):
            if steps is not None:
                model.num_timesteps = steps
                model._update_current_progress_remaining(steps, HORIZON)
                model._on_step()
            outbox: Any = model.replay_buffer
            model.collect(lessons.callback, model.train_freq, outbox)
            return outbox.taken(version)
        if isinstance(model, AsynchronousAlgorithm):
            rollout = model.collect_rollout(lessons.callback, version)
            return taken_from(model.rollout_buffer, version, rollout)
        model.collect(lessons.callback, model.rollout_buffer, model.n_steps)
        return taken_from(model.rollout_buffer, version)

    def _note(self, infos: Iterable[dict[str, Any]], dones: np.ndarray | None = None) -> None:
        if dones is not None and dones.any():
            kept = [{name: info[name] for name in _KEPT_INFOS if name in info} for info in infos]
            self._ends.append((self.model.num_timesteps, kept))
