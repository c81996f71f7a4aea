"""Behaviour cloning: an offline algorithm, which learns from a dataset and never sees an environment.

Pomerleau 1991, "Efficient Training of Artificial Neural Networks for Autonomous Navigation", Neural Computation 3.
Shapes: B rows.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.callbacks.callback import BaseCallback
from polyak.checkpoint.saved import Saved
from polyak.hyperparameters.declaration import Count
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Update
from polyak.loops.training import engine_checks
from polyak.loops.updates import record_means
from polyak.network_algorithm import NetworkAlgorithm
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.actor_critic import ActorCriticPolicy


class Demonstrations(NamedTuple):
    """What somebody did."""

    observations: np.ndarray
    """[R, ...]"""
    actions: np.ndarray
    """[R, ...]"""
    observation_space: spaces.Space
    action_space: spaces.Space


class Rows(NamedTuple):
    """A minibatch."""

    observations: Tensor
    actions: Tensor


class CloningLearner(Learner):
    """A policy that does as it was shown."""

    policy: ActorCriticPolicy

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.policy.value_net.requires_grad_(False)
        self.policy.mlp_extractor.value_net.requires_grad_(False)
        self.add_optimizer("policy", self.policy, recipe.make_optimizer, recipe.lr)

    def update(self, batch: Rows) -> Update:
        """One gradient step."""
        self.steps += 1
        update: Update = self.run(self.gradient_step, batch)
        return update

    def gradient_step(self, batch: Rows) -> Update:
        """Descend the objective."""
        loss, metrics, _ = self.objective(batch)
        self.minimise("policy", loss)
        return Update({"loss": loss.detach(), **metrics})

    def objective(self, batch: Rows) -> Objective:
        """-E[log pi(a|s)]."""
        return Objective(-self.policy.get_distribution(batch.observations).log_prob(batch.actions).mean())


class CloningLoop:
    """Makes one gradient step after another."""

    def __init__(self, model: Any, callback: BaseCallback, log_interval: int | None) -> None:
        self.model, self.callback, self.follow = model, callback, model._following()
        self.between = engine_checks(model)

    def iterate(self) -> bool:
        model, clock = self.model, self.model.clock
        self.follow()
        rows = torch.randint(len(model.dataset.actions), (model.batch_size,)).numpy()
        observations, actions = (torch.from_numpy(column[rows]) for column in model.dataset[:2])
        with model._split.update:
            update = model.learner.update(Rows(observations.to(model.device), actions.to(model.device)))
        clock.steps += 1
        clock.updates += 1
        record_means({name: [value] for name, value in update.metrics.items()}, model.logger, model.host)
        for check in self.between:
            check()
        return self.callback.on_step()


def shown() -> dict[str, Any]:
    """What a small model learns from."""
    rng = np.random.RandomState(0)
    observations = rng.randn(200, 3).astype(np.float32)
    actions = (observations[:, 0] > 0).astype(np.int64)
    space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    return {"env": None, "dataset": Demonstrations(observations, actions, space, spaces.Discrete(2))}


@dataclass(eq=False, repr=False)
class Cloning(NetworkAlgorithm):
    """Does what a dataset shows."""

    env: Any = None
    """None: there is none."""
    _: KW_ONLY
    batch_size: Count = 32
    """Rows of a minibatch."""
    dataset: Demonstrations | None = None
    """What to learn from; a model that only predicts needs none."""

    loop: ClassVar = CloningLoop
    learner_class: ClassVar[type[Learner]] = CloningLearner
    policies: ClassVar = policy_aliases(ActorCriticPolicy)

    steps_environments: ClassVar = False

    small = shown

    def __post_init__(self, _init_setup_model: bool) -> None:
        super().__post_init__(_init_setup_model)
        if self.dataset is not None:
            self.observation_space, self.action_space = self.dataset[2:]
            if _init_setup_model:
                self._setup_model()
                self._check_built()

    def _expected_updates(self, timesteps: int) -> tuple[int, int]:
        return timesteps, self.batch_size

    def hyperparameters(self) -> dict[str, Any]:
        return {name: value for name, value in super().hyperparameters().items() if name != "dataset"}

    def _enter(self, saved: Saved, env: Any) -> None:
        super()._enter(saved, env)
        if self.dataset is not None:
            assert self.dataset.observation_space == self.observation_space
