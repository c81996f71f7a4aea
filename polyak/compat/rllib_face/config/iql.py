"""The config of IQL."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, ClassVar

from polyak.algorithms.iql import IQL
from polyak.compat.rllib_face.config.base import Plain
from polyak.compat.rllib_face.config.fixed import To, fixed
from polyak.compat.rllib_face.config.marwil import MARWILConfig
from polyak.compat.rllib_face.config.sac import policy_kwargs_of
from polyak.compat.rllib_face.config.settings import Points
from polyak.compat.rllib_face.learners.values import ReportsExpectiles
from polyak.compat.rllib_face.models.catalog import Catalog
from polyak.compat.rllib_face.models.default_modules import DefaultSACTorchRLModule
from polyak.compat.rllib_face.models.rl_module import RLModuleSpec
from polyak.hyperparameters.declaration import Fraction, NonNegative, Only, Positive
from polyak.learning.part_rates import PartRates
from polyak.nn.policies.valued import ValuedPolicy


@dataclass(eq=False, repr=False)
class RatedIQL(IQL):
    """:class:`~polyak.algorithms.iql.IQL` with a rate for each of its three networks."""

    _: KW_ONLY
    learning_rates: PartRates | None = None
    """The learning rate of ``"value"``, if it differs from ``learning_rate``."""


@dataclass(init=False, repr=False, eq=False)
@fixed
class IQLConfig(MARWILConfig):
    """IQL's settings (arXiv:2110.06169)."""

    beta: Annotated[Positive, To("beta")] = 0.1
    """Weights of better actions for the actor: exp(beta * advantage), which is at most 100."""
    expectile: Annotated[float, Only("a number between 0 and 1", lambda x: 0 < x < 1), To("expectile")] = 0.8
    """The expectile of the recorded actions' values that estimates the value of a state."""
    actor_lr: Annotated[NonNegative | Points, To("actor_learning_rate")] = 3e-4
    """Learning rate of the actor: a number, or points [[row that was learned from, value], ...]."""
    critic_lr: Annotated[NonNegative | Points, To("learning_rate")] = 3e-4
    """Learning rate of the critics of actions."""
    value_lr: NonNegative | Points = 3e-4
    """Learning rate of the critic of states."""
    twin_q: bool = True
    """Two critics, of which the smaller counts; ``False``: one."""
    tau: Annotated[Fraction, To("tau")] = 1.0
    """Rate at which they do; 1 copies."""

    name: ClassVar[str] = "IQL"
    scales_actions: ClassVar[bool] = False
    reports: ClassVar = ReportsExpectiles

    def get_default_rl_module_spec(self) -> Any:
        return RLModuleSpec(module_class=DefaultSACTorchRLModule, catalog_class=Catalog)

    def get_default_learner_class(self) -> Any:
        return IQL.learner_class

    def plain(self, image_channels_last: bool = False) -> Plain:
        rates = {"learning_rates": {"value": self.schedule("value_lr")}}
        kwargs = {**self._of_data(), **rates, "policy_kwargs": policy_kwargs_of(self, image_channels_last)}
        return Plain(self._algorithm(RatedIQL), ValuedPolicy, kwargs)
