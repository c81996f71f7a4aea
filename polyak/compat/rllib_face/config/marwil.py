"""The configs of MARWIL and behaviour cloning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.cloning import ModuleBC, ModuleMARWIL
from polyak.compat.rllib_face.config.base import Plain
from polyak.compat.rllib_face.config.fixed import To, fixed
from polyak.compat.rllib_face.config.modules import Networks
from polyak.compat.rllib_face.config.offline import WHOLE, OfflineConfig
from polyak.compat.rllib_face.config.settings import Points
from polyak.compat.rllib_face.models.catalog import PPOCatalog
from polyak.compat.rllib_face.models.cloning import (
    BCCatalog,
    CloningModulePolicy,
    DefaultBCTorchRLModule,
    ValuedCloningModulePolicy,
)
from polyak.compat.rllib_face.models.default_modules import DefaultPPOTorchRLModule
from polyak.compat.rllib_face.models.rl_module import RLModuleSpec
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative, Only, Positive, require


@dataclass(init=False, repr=False, eq=False)
@fixed
class MARWILConfig(OfflineConfig):
    """MARWIL's settings (Wang et al. 2018). Returns are summed over whole episodes."""

    lr: NonNegative | Points | None = 1e-4
    """Learning rate: a number, or points [[row that was learned from, value], ...]."""
    train_batch_size_per_learner: Count | None = 2000
    """Rows of one gradient step, for each learner."""
    train_batch_size: Count = 2000
    """Used if ``train_batch_size_per_learner`` is ``None``."""
    rollout_fragment_length: Annotated[Any, Only(WHOLE, lambda n: n in ("auto", 200))] = 200
    """Not used: no experience is collected."""
    postprocess_inputs: bool = True
    """Sum rewards up to the end of each episode, which ``beta`` above 0 needs."""
    beta: Annotated[Fraction, To("beta")] = 1.0
    """Weights of better actions: exp(beta * advantage / c); 0 clones, and learns no state values."""
    bc_logstd_coeff: Annotated[NonNegative, To("ent_coef")] = 0.0
    """Weight of the mean log standard deviation of continuous actions, which keeps them from becoming certain."""
    moving_average_sqd_adv_norm_update_rate: Annotated[Fraction, To("advantage_norm_rate")] = 1e-8
    """Rate at which c^2 follows the squared advantages of batches."""
    moving_average_sqd_adv_norm_start: Annotated[Positive, To("advantage_norm_start")] = 100.0
    """c^2 at first."""
    vf_coeff: Annotated[NonNegative, To("vf_coef")] = 1.0
    """Weight of the value loss."""

    name: ClassVar[str] = "MARWIL"

    @property
    def _clones(self) -> bool:
        return self.beta == 0

    def get_default_rl_module_spec(self) -> Any:
        return RLModuleSpec(module_class=DefaultPPOTorchRLModule, catalog_class=PPOCatalog)

    def get_default_learner_class(self) -> Any:
        return (ModuleBC if self._clones else ModuleMARWIL).learner_class

    def plain(self, image_channels_last: bool = False) -> Plain:
        fix = "returns are summed over episodes, which beta above 0 needs: set postprocess_inputs=True."
        require(self.postprocess_inputs or self._clones, "postprocess_inputs", False, fix)
        fix = "only behaviour cloning does without the last observation: set beta=0, or leave it out."
        require(not self.ignore_final_observation or self._clones, "ignore_final_observation", True, fix)
        kwargs: dict[str, Any] = {
            **self._of_data(),
            "stochastic": True,
            "policy_kwargs": {**self._networks().policy_kwargs(image_channels_last), "optimizer_kwargs": {"eps": 1e-8}},
        }
        if self._clones:
            for name in ("gamma", "beta", "vf_coef", "advantage_norm_rate", "advantage_norm_start"):
                kwargs.pop(name, None)
            return Plain(self._algorithm(ModuleBC), CloningModulePolicy, kwargs)
        return Plain(self._algorithm(ModuleMARWIL), ValuedCloningModulePolicy, kwargs)

    def _networks(self) -> Networks:
        builds = ("build_actor_critic_encoder", "build_pi_head", "build_vf_head")
        return Networks(self, DefaultPPOTorchRLModule, builds, not_called.OF["ppo_catalog"])


@dataclass(init=False, repr=False, eq=False)
@fixed
class BCConfig(MARWILConfig):
    """Behaviour cloning's settings (Pomerleau 1989)."""

    postprocess_inputs: bool = False
    """Rewards are not read."""

    name: ClassVar[str] = "BC"

    def get_default_rl_module_spec(self) -> Any:
        return RLModuleSpec(module_class=DefaultBCTorchRLModule, catalog_class=BCCatalog)

    def _networks(self) -> Networks:
        return Networks(self, DefaultBCTorchRLModule, ("build_encoder", "build_pi_head"), not_called.OF["preprocessor"])
