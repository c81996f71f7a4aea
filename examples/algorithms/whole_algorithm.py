"""Advantage-weighted regression (AWR) on fresh rollouts: imitate one's own actions, the better ones more so.

Peng et al. 2019, "Advantage-Weighted Regression: Simple and Scalable Off-Policy Reinforcement Learning",
arXiv:1910.00177.

Shapes: B rows of a rollout.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from gymnasium import spaces
from torch import Tensor

from polyak import custom
from polyak.custom import Card, Count, Objective, Positive, Search, Tunable, Update, tune
from polyak.experience import RolloutSamples
from polyak.nn import ActorCriticPolicy


def imitation_loss(log_prob: Tensor, advantages: Tensor, temperature: Tensor, largest: float) -> Tensor:
    """-E[min(exp(A / beta), w_max) log pi(a|s)], eq. 10 and section 4.3. log_prob [B], advantages [B] -> []"""
    return -((advantages / temperature).exp().clamp(max=largest) * log_prob).mean()


class AWRLearner(custom.OnPolicyLearner):
    """A stochastic actor with a value function, under one optimizer."""

    optimized = ("policy",)
    temperature: Tunable[Tensor]
    largest_weight: Tunable[float]
    normalize_advantage: Tunable[bool]
    vf_coef: Tunable[Tensor]
    ent_coef: Tunable[Tensor]
    entropy_index: Tunable[float]
    max_grad_norm: Tunable[Tensor | None]

    def gradient_step(self, batch: RolloutSamples) -> Update:
        """One step on the whole rollout; compiled where that pays."""
        values, log_prob, entropy = self.evaluated(batch)
        objective = self.objective(batch, values.flatten(), log_prob, entropy)
        self.minimise("policy", objective.loss, self.max_grad_norm)
        return Update(objective.metrics)

    def objective(self, batch: RolloutSamples, values: Tensor, log_prob: Tensor, entropy: Tensor | None) -> Objective:
        """Imitation, value and entropy loss. Of the policy as it is: values [B], log_prob [B], entropy [B]"""
        advantages = self.normalized(batch.advantages) if self.normalize_advantage else batch.advantages
        imitation = imitation_loss(log_prob, advantages, self.temperature, self.largest_weight)
        value, bonus = (values - batch.returns).square().mean(), custom.entropy_loss(entropy, log_prob)
        metrics = {"imitation_loss": imitation.detach(), "value_loss": value.detach()}
        return Objective(imitation + self.vf_coef * value + self.ent_coef * bonus, metrics)


@dataclass(eq=False, repr=False)
class AWR(custom.OnPolicyAlgorithm):
    """Advantage-weighted regression on fresh rollouts (arXiv:1910.00177)."""

    _: KW_ONLY
    n_steps: Count = 16
    """Steps per environment in one rollout."""
    temperature: Positive = 1.0
    """beta: how much better an action must be to be imitated much more."""
    largest_weight: Positive = 20.0
    """w_max: the weight that no action exceeds."""

    learner_class: ClassVar = AWRLearner
    policies: ClassVar = custom.policy_aliases(ActorCriticPolicy)
    action_spaces: ClassVar = (spaces.Box, spaces.Discrete)
    card: ClassVar = Card(
        idea="imitate one's own actions, the better ones more so",
        learns_from="its own rollouts",
        search=Search(
            tune.rate(), tune.discount(), tune.rollout(per_env=4), tune.log_uniform("temperature", 0.1, 10.0)
        ),
        settings={"default": {"n_timesteps": 50_000, "n_envs": 8, "learning_rate": 1e-3}},
    )


custom.register(AWR)
