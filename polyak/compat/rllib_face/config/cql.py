"""The config of CQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from polyak.algorithms.cql import CQL
from polyak.compat.rllib_face.config.base import Plain
from polyak.compat.rllib_face.config.fixed import To, fixed
from polyak.compat.rllib_face.config.offline import OfflineConfig
from polyak.compat.rllib_face.config.sac import SACConfig
from polyak.compat.rllib_face.config.settings import Points
from polyak.compat.rllib_face.learners.values import ReportsConservativeCritics
from polyak.hyperparameters.declaration import Count, Natural, NonNegative, Positive, require


@dataclass(init=False, repr=False, eq=False)
@fixed
class CQLConfig(OfflineConfig, SACConfig):
    """CQL's settings (arXiv:2006.04779), with SAC's."""

    train_batch_size: Count = 256
    """Used if ``train_batch_size_per_learner`` is ``None``."""
    actor_lr: NonNegative | Points = 1e-4
    """Learning rate of the actor: a number, or points [[row that was learned from, value], ...]."""
    critic_lr: NonNegative | Points = 1e-3
    """Learning rate of the critics."""
    alpha_lr: NonNegative | Points = 1e-3
    """Learning rate of the temperature."""
    bc_iters: Annotated[Natural, To("bc_steps")] = 20_000
    """Gradient steps in which the actor clones the recorded actions, before it follows the critics."""
    temperature: Annotated[Positive, To("softmax_temperature")] = 1.0
    """Temperature of the soft maximum over actions."""
    num_actions: Annotated[Count, To("n_action_samples")] = 10
    """Actions drawn in each state: so many by the policy, by the policy at the next state, and uniformly."""
    lagrangian: bool = False
    """Learn a multiplier of the penalty, which grows where the gap is above ``lagrangian_thresh``."""
    lagrangian_thresh: NonNegative = 5.0
    """Gap that is allowed, times ``min_q_weight``."""
    min_q_weight: Annotated[NonNegative, To("conservative_weight")] = 5.0
    """Weight of the gap between other actions' values and the recorded ones', relative to squared errors."""
    deterministic_backup: bool = True
    """Targets leave the policy's entropy out."""
    target_network_update_freq: Natural = 0
    """Rows that are learned from between two updates of the target networks; 0: after each gradient step."""
    n_step: Count | tuple[int, int] = 1
    """Rewards summed before bootstrapping; ``(least, most)`` draws a number for each row."""

    defaults: ClassVar[Mapping[str, Any]] = {
        "train_batch_size_per_learner": 256,
        "min_sample_timesteps_per_iteration": 0,
        "min_train_timesteps_per_iteration": 100,
    }
    name: ClassVar[str] = "CQL"
    reports: ClassVar = ReportsConservativeCritics

    def get_default_learner_class(self) -> Any:
        return CQL.learner_class

    def plain(self, image_channels_last: bool = False) -> Plain:
        fix = "targets need the observation after each step. Leave it out."
        require(not self.ignore_final_observation, "ignore_final_observation", True, fix)
        fix = "returns of episodes are not read: targets are bootstrapped. Leave it out."
        require(not self.postprocess_inputs, "postprocess_inputs", True, fix)
        kwargs = {
            **self._of_data(),
            **self._of_losses(image_channels_last),
            "n_steps": tuple(self.n_step) if isinstance(self.n_step, list) else self.n_step,
            "target_update_interval": max(round(self.target_network_update_freq / self.total_train_batch_size), 1),
            "lagrange_threshold": self.lagrangian_thresh if self.lagrangian else None,
            "soft_q_backup": not self.deterministic_backup,
        }
        return Plain(self._algorithm(CQL), "MlpPolicy", kwargs)
