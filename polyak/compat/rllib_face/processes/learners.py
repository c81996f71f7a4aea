"""Learners in separate processes, by the settings of a config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polyak.compat.rllib_face.config.base import AlgorithmConfig
from polyak.compat.rllib_face.learner_groups import LearnerGroup
from polyak.distributed.learners import LearnersElsewhere
from polyak.distributed.placement import Reservation
from polyak.fields.off_policy import OffPolicyAlgorithm


class RemoteLearners(LearnerGroup):
    """Learners of a model in other processes: see :class:`~polyak.distributed.learners.LearnersElsewhere`.

    The model is updated after each ``train()``; one that replays without a seed, only at the end of an iteration.

    Args:
        config: the config.
    """

    is_local, is_remote = False, True

    def __init__(self, *, config: AlgorithmConfig, **options: Any) -> None:
        super().__init__(config=config, **options)
        model = self.model
        replays = isinstance(model, OffPolicyAlgorithm)
        self._settles = config.seed is not None or not replays
        processors = 1 if config.num_cpus_per_learner == "auto" else config.num_cpus_per_learner
        self._group = LearnersElsewhere(
            config.num_learners,
            config.seed,
            replays and config.seed is not None,
            "cuda:0" if config.num_gpus_per_learner > 0 else "cpu",
            max(int(processors), 1),
            Reservation(processors, config.num_gpus_per_learner, wait=config.env_runner_restore_timeout_s),
        )
        self._compiled = False
        """Whether their gradient steps are programs."""
        self._train, model.train = model.train, self.train

    @property
    def processes(self) -> list[int]:
        """Process ids of the learners."""
        return self._group.processes

    @property
    def restarts(self) -> int:
        """Number of times that all learners were restarted."""
        return self._group.restarts

    def train(self, *how: Any, **named: Any) -> None:
        """Run the model's own ``train()``; the remote learners make its gradient steps."""
        self._begin()
        try:
            self._train(*how, **named)
        except BaseException:
            self.follow()
            raise
        if self._settles:
            self.settle()

    def _begin(self) -> None:
        """Let them learn from where the model here is, unless they do, and compile as soon as it would."""
        learner = self.model.learner
        compiles = learner.engine is not None and learner.engine.compiles
        if learner.fellows is None or compiles != self._compiled:
            self.settle()
            self._group.begin(learner)
            self._compiled = compiles

    def set_weights(self, weights: Mapping[str, Mapping[str, Any]]) -> None:
        self.settle()
        super().set_weights(weights)
        self.follow()

    def follow(self) -> None:
        self.model.learner.lead(None)
        self._group.forget()

    def settle(self) -> None:
        self._group.settle()

    def foreach_learner(self, func: Callable[[Any], Any]) -> list[Any]:
        self._begin()
        return self._group.apply(func)

    def stop(self) -> None:
        """End all learners."""
        self._group.close()
