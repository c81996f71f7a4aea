"""A learner that learns, in another process. It does not know how it is reached."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

import numpy as np
import torch

from polyak.checkpoint.saved import Saved
from polyak.compat.ray.config.base import HORIZON, AlgorithmConfig
from polyak.compat.ray.plain import part_of
from polyak.compat.ray.processes.batches import Columns, batch_of
from polyak.compat.ray.processes.elsewhere import Elsewhere, Spaces
from polyak.compat.ray.processes.fragments import Fragment, given_to
from polyak.compat.ray.processes.state import bring, state_of, values_of
from polyak.compat.ray.results import Means
from polyak.distributed.exchange import own_address
from polyak.kinds.lessons import Lessons
from polyak.learning.data_parallel import ProcessGroup
from polyak.seeding import rng_state, set_rng_state


class Lesson(NamedTuple):
    """What a learner says of one ``train()``."""

    metrics: dict[str, float]
    state: Saved | None
    """Of all that it has learned; only the first of several is asked for it."""
    values: dict[str, Any]
    """Hyper-parameters that learning has moved, and counters."""


class Step(NamedTuple):
    """What a learner says of one gradient step."""

    metrics: dict[str, float]
    errors: np.ndarray | None
    """Temporal-difference errors of its rows."""
    streams: Any
    """Random numbers to continue from, if it was given some."""


class LearnerWorker:
    """Learns from rollouts or from batches, together with others.

    Args:
        config: what to make.
        spaces: of the environments.
        n_envs: how many a rollout is of.
        rank: which of the learners, from 0.
    """

    def __init__(self, config: AlgorithmConfig, spaces: Spaces, n_envs: int, rank: int) -> None:
        processors = config.num_cpus_per_learner
        torch.set_num_threads(1 if processors == "auto" else max(int(processors), 1))
        self.rank = rank
        device = "cuda:0" if config.num_gpus_per_learner > 0 else "cpu"
        self.model = part_of(config, Elsewhere(spaces, n_envs), spaces.turned, device=device)
        if rank > 0 and config.seed is not None:
            torch.manual_seed(config.seed + rank)  # rows of another learner, and draws of one's own
        self._lessons = Lessons(self.model, HORIZON)

    def describe(self) -> tuple[int, tuple[str, int]]:
        """Its process, and an address that is free where it is."""
        with socket.socket() as found:
            found.bind(("", 0))
            port = found.getsockname()[1]
        return os.getpid(), (own_address(), port)

    def join(self, address: tuple[str, int], size: int, state: Saved, values: dict[str, Any], timeout: float) -> None:
        """Continue from a state, as one with all that join at the same time."""
        self.load(state, values)
        if size > 1:
            torch.distributed.init_process_group(
                "nccl" if self.model.device.type == "cuda" else "gloo",
                init_method=f"tcp://{address[0]}:{address[1]}",
                rank=self.rank,
                world_size=size,
                timeout=timedelta(seconds=timeout),
            )
            self.model.learner.join(ProcessGroup())

    def load(self, state: Saved, values: dict[str, Any]) -> None:
        """Take a state back."""
        bring(self.model, state, values)

    def state(self) -> Saved:
        """All that it has learned."""
        return state_of(self.model)

    def train(self, fragments: list[Fragment], progress: float, whole: bool) -> Lesson:
        """Learn from rollouts.

        Args:
            fragments: its share.
            progress: what remains of training.
            whole: say what was learned.
        """
        model = self.model
        with self._lessons.under_way():
            model._current_progress_remaining = progress
            given_to(model, fragments)
            model.num_timesteps += sum(fragment.made for fragment in fragments)
            model.train()
        log = model.logger
        assert isinstance(log, Means)
        return Lesson(log.taken(), state_of(model) if whole else None, values_of(model))

    def update(self, columns: Columns, progress: float, streams: Any) -> Step:
        """One gradient step on rows of a replay buffer.

        Args:
            columns: its share.
            progress: what remains of training.
            streams: random numbers to continue from; ``None``: its own.
        """
        model = self.model
        if streams is not None:
            set_rng_state(*streams)
        model._current_progress_remaining = progress
        model.policy.set_training_mode(True)
        model._sync_hyperparameters()
        update = model.learner.update(batch_of(columns, model.device))
        errors = None if update.td_error is None else update.td_error.numpy(force=True)
        metrics = {name: float(value) for name, value in update.metrics.items()}
        return Step(metrics, errors, None if streams is None else rng_state())

    def update_target(self) -> None:
        """Move the target network."""
        self.model._update_target()

    def apply(self, function: Callable[[Any], Any]) -> Any:
        """What a function returns of the learner."""
        return function(self.model.learner)
