"""The configs of IMPALA and of APPO, which adds PPO's clipping to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch

from polyak.algorithms.appo import APPO
from polyak.algorithms.impala import IMPALA
from polyak.compat.rllib_face.config.actor_critic import ActorCriticConfig
from polyak.compat.rllib_face.config.base import Plain
from polyak.compat.rllib_face.config.fixed import To, fixed
from polyak.compat.rllib_face.config.settings import Points
from polyak.compat.rllib_face.learners.actor_critic import APPOTorchLearner, IMPALATorchLearner
from polyak.compat.rllib_face.rollouts import with_part
from polyak.hyperparameters.declaration import Count, Fraction, NonNegative, Positive


@dataclass(init=False, repr=False, eq=False)
@fixed
class IMPALAConfig(ActorCriticConfig):
    """IMPALA's settings (arXiv:1802.01561)."""

    train_batch_size_per_learner: Count | None = 500
    """Environment steps of one gradient step."""
    train_batch_size: Count = 500
    """The same, where ``train_batch_size_per_learner`` is ``None``."""
    rollout_fragment_length: Count | Literal["auto"] = 50
    """The steps of an environment in a batch are a multiple of this; ``"auto"``: as many as make the batch."""
    max_requests_in_flight_per_env_runner: Count = 1
    """On Ray: batches that may be asked of a runner at once."""
    vtrace_clip_rho_threshold: Annotated[Positive, To("rho_bar")] = 1.0
    """Largest ratio of probabilities in a temporal difference; in a trace it is 1, or this if it is less."""
    vtrace_clip_pg_rho_threshold: Annotated[Positive, To("pg_rho_bar")] = 1.0
    """Largest ratio in the policy gradient."""
    learner_queue_size: Annotated[Count, To("queue_size")] = 3
    """Batches that may wait for the learner."""
    broadcast_interval: Annotated[Count, To("broadcast_interval")] = 1
    """Gradient steps between two broadcasts of weights to the actors."""
    vf_loss_coeff: Annotated[NonNegative, To("vf_coef")] = 0.5
    """Weight of the value loss, which is half the squared error."""
    entropy_coeff: Annotated[NonNegative | Points, To("ent_coef")] = 0.01
    """Weight of the entropy bonus: a number, or points [[environment step, value], ...]."""
    opt_type: Literal["adam", "rmsprop"] = "adam"
    """Optimizer."""
    decay: Fraction = 0.99
    """RMSprop's decay of its average of squared gradients."""
    momentum: Fraction = 0.0
    """RMSprop's momentum."""
    epsilon: Positive = 0.1
    """RMSprop's epsilon."""

    defaults: ClassVar[Mapping[str, Any]] = {"lr": 5e-4, "grad_clip": 40.0, "min_time_s_per_iteration": 10}
    name: ClassVar[str] = "IMPALA"

    def get_default_learner_class(self) -> Any:
        return IMPALATorchLearner

    def _algorithm(self, algorithm: type[Any]) -> type[Any]:
        found = super()._algorithm(algorithm)
        if not self.num_env_runners or self._is_whole:
            return found
        requests = self.max_requests_in_flight_per_env_runner
        return with_part(found, "rollouts", per_batch=self.num_env_runners, requests_per_runner=requests)

    def plain(self, image_channels_last: bool = False) -> Plain:
        policy, policy_kwargs = self._policy(image_channels_last)
        kwargs = {**self._off_policy(), "policy_kwargs": {**policy_kwargs, **self._optimizer()}}
        return Plain(self._algorithm(IMPALA), policy, kwargs)

    def _off_policy(self) -> dict[str, Any]:
        """Keyword arguments that both algorithms have."""
        return {
            **self._translated(),
            "n_steps": self._rollout()[0],
            "c_bar": min(1.0, self.vtrace_clip_rho_threshold),
            "asynchronous": self.seed is None and not self._is_whole,
        }

    def _optimizer(self) -> dict[str, Any]:
        """Returns the optimizer's entries of ``policy_kwargs``."""
        if self.opt_type == "adam":
            return {"optimizer_kwargs": {"eps": 1e-8}}
        options = {"alpha": self.decay, "momentum": self.momentum, "eps": self.epsilon}
        return {"optimizer_class": torch.optim.RMSprop, "optimizer_kwargs": options}


@dataclass(init=False, repr=False, eq=False)
@fixed
class APPOConfig(IMPALAConfig):
    """APPO's settings (arXiv:1912.00167)."""

    learner_queue_size: Count = 16
    """Batches that may wait for the learner before they come into the circular buffer."""
    use_gae: bool = True
    """``False`` takes ``lambda_`` as 1."""
    lambda_: Fraction = 1.0
    """Trace decay of V-trace."""
    clip_param: Annotated[Positive, To("clip_range")] = 0.4
    """Largest change of the ratio to the target network's probability for which it has a gradient."""
    use_kl_loss: bool = False
    """Penalise the divergence of the policy from the target network."""
    kl_coeff: NonNegative = 1.0
    """Weight of that penalty at first; it is halved where the divergence is less than ``kl_target`` / 1.5, and doubled
    where it exceeds 1.5 ``kl_target``, whenever the target network follows."""
    kl_target: Positive = 0.01
    """Divergence that is aimed at."""
    target_network_update_freq: Positive = 2
    """Between two updates of the target network, gradient steps in units of ``circular_buffer_num_batches`` times
    ``circular_buffer_iterations_per_batch``."""
    tau: Annotated[Fraction, To("tau")] = 1.0
    """Rate at which the target network follows; 1 copies."""
    target_worker_clipping: Annotated[Positive, To("target_worker_clip")] = 2.0
    """How many times likelier an action may have been for the policy that acted than by the target network before it
    counts for less."""
    circular_buffer_num_batches: Annotated[Count, To("circular_buffer_size")] = 8
    """Number of batches that the buffer holds."""
    circular_buffer_iterations_per_batch: Annotated[Count, To("uses_per_rollout")] = 2
    """Number of gradient steps on each batch."""

    name: ClassVar[str] = "APPO"
    own_model_options: ClassVar[Mapping[str, Any]] = {"vf_share_layers": False}

    def get_default_learner_class(self) -> Any:
        return APPOTorchLearner

    def plain(self, image_channels_last: bool = False) -> Plain:
        policy, policy_kwargs = self._policy(image_channels_last)
        buffered = self.circular_buffer_num_batches * self.circular_buffer_iterations_per_batch
        kwargs = {
            **self._off_policy(),
            "gae_lambda": self.lambda_ if self.use_gae else 1.0,
            "kl_coef": self.kl_coeff if self.use_kl_loss else None,
            "kl_target": self.kl_target if self.use_kl_loss else None,
            "target_update_interval": max(round(self.target_network_update_freq * buffered), 1),
            "policy_kwargs": {**policy_kwargs, **self._optimizer()},
        }
        return Plain(self._algorithm(APPO), policy, kwargs)
