"""Advantage Actor-Critic (A2C): the synchronous form of A3C.

Mnih et al. 2016, "Asynchronous Methods for Deep Reinforcement Learning", arXiv:1602.01783.

Shapes: B rows, all of one short rollout.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, tune
from polyak.experience import RolloutSamples
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.changing import Fixed, WithOptimizer
from polyak.hyperparameters.declaration import Count, Fraction, LearningRate, Positive
from polyak.learning.lagging_critic import TARGET, LaggingCriticLearner, check_lagging_critic
from polyak.learning.learner import Learner, Objective, OptimizerRecipe, Tunable, Update
from polyak.learning.rollout_learner import entropy_loss
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.parts.part import MadeOf, Part

# -- losses ------------------------------------------------------------------------------------------------------------


def policy_gradient_loss(log_prob: Tensor, advantages: Tensor) -> Tensor:
    """-E[log pi(a|s) A], whose gradient is the policy gradient of section 4.2. log_prob [B], advantages [B] -> []"""
    return -(log_prob * advantages).mean()


def value_loss(values: Tensor, returns: Tensor) -> Tensor:
    """E[(R - V(s))^2], algorithm S3. values [B], returns [B] -> []"""
    return ((returns - values) ** 2).mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class A2CLearner(LaggingCriticLearner):
    """A stochastic actor with a value function, and one optimizer."""

    optimized = ("policy",)
    policy: ActorCriticPolicy
    ent_coef: Tunable[Tensor]
    entropy_index: Tunable[float]
    vf_coef: Tunable[Tensor]
    max_grad_norm: Tunable[Tensor | None]
    normalize_advantage: Tunable[bool]

    def gradient_step(self, batch: RolloutSamples) -> Update:
        """Makes a gradient step on the objective."""
        values, log_prob, entropy = self.evaluated(batch)
        batch = self.with_advantages(batch, values)
        objective = self.objective(batch, values.flatten(), log_prob, entropy)
        self.minimise("policy", objective.loss, self.max_grad_norm)
        return Update(objective.metrics)

    def objective(self, batch: RolloutSamples, values: Tensor, log_prob: Tensor, entropy: Tensor | None) -> Objective:
        """Returns the sum of policy, value and entropy losses, algorithm S3. Under the current policy: values [B],
        log_prob [B] of the batch's actions, entropy [B]"""
        advantages = batch.advantages
        if self.normalize_advantage and len(advantages) > 1:
            advantages = self.normalized(advantages)
        loss_pi = policy_gradient_loss(log_prob, advantages)
        loss_v = value_loss(values, batch.returns)
        loss_s = entropy_loss(entropy, log_prob)
        metrics = {"policy_loss": loss_pi.detach(), "value_loss": loss_v.detach(), "entropy_loss": loss_s.detach()}
        return Objective(loss_pi + self.vf_coef * loss_v + self.ent_coef * loss_s, metrics)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class LaggingCritic(Part):
    """Part of the optional target critic."""

    def check(self) -> None:
        check_lagging_critic(self.model)


@dataclass(eq=False, repr=False)
class LaggingValues:
    """Fields of algorithms with an optional target critic."""

    _: KW_ONLY
    tau: Annotated[Fraction | None, Fixed(TARGET)] = None
    """Bootstrap from a target critic, a lagging copy updated at this rate, in [0, 1]; 1 copies. ``None``: bootstrap
    from the critic itself."""
    target_update_interval: Count = 1
    """Updates between two updates of the target critic."""

    log_every = 100
    made_of: ClassVar[MadeOf] = {"lagging_critic": LaggingCritic}


@dataclass(eq=False, repr=False)
class A2C(LaggingValues, OnPolicyAlgorithm):
    """Advantage Actor-Critic: one step on each short rollout (arXiv:1602.01783)."""

    learning_rate: LearningRate = 7e-4
    _: KW_ONLY
    n_steps: Count = 5
    """Steps per environment in one rollout."""
    gae_lambda: Fraction = 1.0
    """Trace decay of generalised advantage estimation, in [0, 1]; 1 gives the paper's n-step returns."""
    normalize_advantage: bool = False
    """Scale advantages to mean 0 and standard deviation 1 within each rollout."""
    rms_prop_eps: WithOptimizer[Positive] = 1e-5
    """RMSprop's epsilon."""
    use_rms_prop: WithOptimizer[bool] = True
    """Optimize with RMSprop, as in the paper; ``False`` uses Adam."""

    learner_class: ClassVar[type[Learner]] = A2CLearner

    def _default_optimizer(self) -> OptimizerRecipe:
        if self.use_rms_prop:
            return OptimizerRecipe(torch.optim.RMSprop, {"alpha": 0.99, "eps": self.rms_prop_eps, "weight_decay": 0})
        return OptimizerRecipe(torch.optim.Adam, {"eps": 1e-5})

    card: ClassVar[Card] = Card(
        idea="one step on each short rollout",
        learns_from="its own rollouts",
        search=tune.short_rollouts(
            4,
            tune.uniform("vf_coef", 0.1, 1.0),
            tune.choice("normalize_advantage"),
            tune.choice("use_rms_prop"),
            tune.entropy(),
            tune.gsde(),
        ),
    )
