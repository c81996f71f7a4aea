"""The config of PPO."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from polyak.algorithms.ppo import PPO
from polyak.compat.rllib_face.config.actor_critic import ActorCriticConfig
from polyak.compat.rllib_face.config.base import Plain, with_learner
from polyak.compat.rllib_face.config.fixed import To
from polyak.compat.rllib_face.config.settings import Points
from polyak.compat.rllib_face.learners.actor_critic import PPOTorchLearner
from polyak.compat.rllib_face.models.actor_critics import (
    DivergenceOfModule,
    UnclippedValueLoss,
    WholeModulePolicy,
    WithoutCritic,
)
from polyak.compat.rllib_face.rollouts import ByEpisodes, RowsInOrder, with_part
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative, Positive, require


@dataclass(init=False, repr=False, eq=False)
class PPOConfig(ActorCriticConfig):
    """PPO's settings (arXiv:1707.06347)."""

    train_batch_size_per_learner: Count | None = 4000
    """Environment steps of one rollout."""
    train_batch_size: Count = 4000
    """Used if ``train_batch_size_per_learner`` is ``None``."""
    num_epochs: Annotated[Count, To("n_epochs")] = 30
    """Passes over a rollout."""
    minibatch_size: Count | None = 128
    """Rows in one gradient step; ``None``: the whole rollout."""
    shuffle_batch_per_epoch: bool = True
    """Rows come in another order in each pass; ``False``: episode by episode, in minibatches that reach into the next
    pass where one ends."""
    use_critic: bool = True
    """State values are learned; ``False``: there is no value loss, and advantages are discounted returns of observed
    rewards, without bootstrapping. RLlib itself still subtracts and adds values that nothing trains."""
    use_gae: bool = True
    """``False`` takes ``lambda_`` as 1: advantages are returns less state values."""
    lambda_: Fraction = 1.0
    """Trace decay of generalised advantage estimation."""
    use_kl_loss: bool = True
    """Penalise the divergence of the new policy from the old, estimated from the actions taken (section 4)."""
    kl_coeff: NonNegative = 0.2
    """Weight of that penalty at first; it is halved where the divergence is less than ``kl_target`` / 1.5, and doubled
    where it exceeds 1.5 ``kl_target``."""
    kl_target: Positive = 0.01
    """Divergence in one update that is aimed at."""
    vf_loss_coeff: Annotated[NonNegative, To("vf_coef")] = 1.0
    """Weight of the value loss."""
    entropy_coeff: Annotated[NonNegative | Points, To("ent_coef")] = 0.0
    """Weight of the entropy bonus: a number, or points [[environment step, value], ...]."""
    clip_param: Annotated[Positive, To("clip_range")] = 0.3
    """Largest change of the probability ratio for which it has a gradient."""
    vf_clip_param: Positive | None = 10.0
    """Largest change of values in one update, in units of return; ``None``: unlimited."""

    defaults: ClassVar[Mapping[str, Any]] = {"lr": 5e-5}
    name: ClassVar[str] = "PPO"
    pieces_see: ClassVar = "rollouts"
    per_module: ClassVar[tuple[str, ...]] = (
        *ActorCriticConfig.per_module,
        *("clip_param", "entropy_coeff", "kl_coeff", "kl_target", "lambda_", "use_gae", "use_kl_loss"),
        *("vf_clip_param", "vf_loss_coeff"),
    )
    own_model_options: ClassVar[Mapping[str, Any]] = {"vf_share_layers": False}

    def get_default_learner_class(self) -> Any:
        return PPOTorchLearner

    def plain(self, image_channels_last: bool = False) -> Plain:
        steps, rows = self._rollout()
        minibatch = rows if self.minibatch_size is None else self.minibatch_size
        fix = f"a rollout has only {rows} rows (train_batch_size_per_learner). Use that many or less."
        require(minibatch <= rows, "minibatch_size", self.minibatch_size, fix)
        unlimited = self.vf_clip_param is None or math.isinf(self.vf_clip_param) or not self.use_critic
        policy, policy_kwargs = self._policy(image_channels_last)
        algorithm = self._algorithm(PPO)
        if issubclass(algorithm.learner_class, PPOTorchLearner):
            algorithm = with_part(algorithm, "rollouts", ByEpisodes)
        if not unlimited:
            algorithm = with_learner(algorithm, UnclippedValueLoss)
        if not self.use_critic:
            algorithm = with_learner(algorithm, WithoutCritic)
        if self.use_kl_loss and policy is WholeModulePolicy:
            policy_kwargs["measures_divergence"] = True
            algorithm = with_learner(algorithm, DivergenceOfModule)
        kwargs = {
            **self._translated(),
            "n_steps": steps,
            "batch_size": minibatch,
            "gae_lambda": self.lambda_ if self.use_gae and self.use_critic else 1.0,
            "clip_range_vf": None if unlimited else self.vf_clip_param,
            "kl_coef": self.kl_coeff if self.use_kl_loss else None,
            "kl_target": self.kl_target if self.use_kl_loss else None,
            "policy_kwargs": {**policy_kwargs, "optimizer_kwargs": {"eps": 1e-8}},
        }
        if not self.shuffle_batch_per_epoch:
            algorithm = with_part(algorithm, "rollouts", buffer_class=RowsInOrder)
            kwargs["rollout_buffer_kwargs"] = {"envs_per_runner": self.num_envs_per_env_runner}
        return Plain(algorithm, policy, kwargs)
