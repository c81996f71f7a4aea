"""BC and MARWIL on a module, trained by a single optimizer, since its parts may be shared by actor and critic."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from torch import Tensor

from polyak.algorithms.bc import BC, BCLearner
from polyak.algorithms.marwil import MARWIL, MARWILLearner
from polyak.compat.rllib_face.models.cloning import CloningModulePolicy, ValuedCloningModulePolicy
from polyak.experience import Transition
from polyak.hyperparameters.declaration import NonNegative
from polyak.learning.learner import Learner, Objective, Tunable, Update
from polyak.ops.returns import explained_variance_of_tensors


class BCModuleLearner(BCLearner):
    """Behaviour cloning of a module."""

    policy: CloningModulePolicy
    max_grad_norm: Tunable[Tensor | None]

    def gradient_step(self, batch: Transition) -> Update:
        """Towards the recorded actions."""
        actor = self.actor_objective(batch)
        self.minimise("actor", actor.loss, self.max_grad_norm)
        loss = actor.loss.detach()
        return Update({"actor_loss": loss, "loss": loss, **actor.metrics})

    def recorded(self, batch: Transition) -> Tensor:
        return self.policy._taken(batch.actions)


class MARWILModuleLearner(MARWILLearner):
    """MARWIL of a module: the sum of both losses is minimised."""

    optimized = ()
    policy: ValuedCloningModulePolicy  # type: ignore[assignment]
    max_grad_norm: Tunable[Tensor | None]

    def gradient_step(self, batch: Transition) -> Update:
        """Makes one gradient step of actor and critic, algorithm 1."""
        actor, value, metrics = self.objectives(batch)
        loss = actor.loss + value.loss
        self.minimise("actor", loss, self.max_grad_norm)
        squares = {"moving_avg_sqd_adv_norm": self.mean_square.clone()}
        return Update({"loss": loss.detach(), **metrics, **squares})

    def value_objective(self, batch: Transition, values: Tensor) -> Objective:
        explained = explained_variance_of_tensors(values.detach(), batch.extras["returns_to_go"])
        found = super().value_objective(batch, values)
        return found._replace(metrics={**found.metrics, "vf_explained_variance": explained})

    def recorded(self, batch: Transition) -> Tensor:
        return self.policy._taken(batch.actions)


@dataclass(eq=False, repr=False)
class Clipped:
    """Settings that both algorithms share."""

    _: KW_ONLY
    max_grad_norm: NonNegative | None = None
    """Largest norm of the gradient; ``None``: any."""


@dataclass(eq=False, repr=False)
class ModuleBC(Clipped, BC):
    """:class:`~polyak.algorithms.bc.BC` of a module."""

    learner_class: ClassVar[type[Learner]] = BCModuleLearner


@dataclass(eq=False, repr=False)
class ModuleMARWIL(Clipped, MARWIL):
    """:class:`~polyak.algorithms.marwil.MARWIL` of a module."""

    learner_class: ClassVar[type[Learner]] = MARWILModuleLearner
