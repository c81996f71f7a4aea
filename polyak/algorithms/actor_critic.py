"""One-step actor-critic: the critic's temporal-difference error is the actor's advantage, at every step.

Sutton and Barto 2018, "Reinforcement Learning: An Introduction", section 13.5, in several environments at once as in
Mnih et al. 2016, arXiv:1602.01783:

    delta = r + gamma V(s') - V(s),    w += rate_w delta grad V(s),    theta += rate_theta delta grad log pi(a|s)

with V(s') = 0 if the episode has terminated, but not if it was truncated by a time limit. Over several environments it
is the mean. The algorithm in the book also weights step t of an episode by gamma^t; as usual, later states have full
weight here.

Differences from A2C: one step instead of five, bootstrapped at once; actor and critic share neither loss, optimizer nor
layers.

Shapes: B rows, one of each environment.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.a2c import LaggingValues, policy_gradient_loss, value_loss
from polyak.experience import RolloutSamples
from polyak.fields.on_policy import OnPolicyAlgorithm
from polyak.hyperparameters.declaration import Count, Fraction, LearningRate, Scheduled
from polyak.hyperparameters.settled import Settled
from polyak.learning.lagging_critic import LaggingCriticLearner
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update, set_rate
from polyak.learning.rollout_learner import entropy_loss
from polyak.nn.catalog import policy_aliases
from polyak.nn.distributions.choice import SINGLE_SPACES
from polyak.nn.policies.actor_critic import ActorCriticPolicy

# -- one gradient step -------------------------------------------------------------------------------------------------


class ActorCriticLearner(LaggingCriticLearner):
    """A stochastic actor and a state-value function, each with its own loss and optimizer."""

    policy: ActorCriticPolicy
    critic_learning_rate: Tunable[Tensor | None]
    ent_coef: Tunable[Tensor]
    entropy_index: Tunable[float]
    max_grad_norm: Tunable[Tensor | None]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.add_optimizer("actor", self.policy.actor_parameters(), recipe.make_optimizer, recipe.lr)
        self.add_optimizer("critic", self.policy.critic_parameters(), recipe.make_optimizer, recipe.lr)

    def set(self, **values: float) -> None:
        super().set(**values)
        if (rate := self.tunables["critic_learning_rate"]) is not None:
            set_rate(self.optimizers["critic"], rate)

    def gradient_step(self, batch: RolloutSamples) -> Update:
        """Makes a gradient step on both objectives, which share no gradients."""
        values, log_prob, entropy = self.evaluated(batch)
        batch = self.with_advantages(batch, values)
        actor = self.actor_objective(batch, log_prob, entropy)
        critic = self.critic_objective(batch, values.flatten())
        self.minimise("actor", actor.loss, self.max_grad_norm)
        self.minimise("critic", critic.loss, self.max_grad_norm)
        return Update({**actor.metrics, **critic.metrics})

    def actor_objective(self, batch: RolloutSamples, log_prob: Tensor, entropy: Tensor | None) -> Objective:
        """Returns -E[A log pi(a|s)] minus the entropy bonus. Under the current policy: log_prob [B], entropy [B]"""
        loss_pi, loss_s = policy_gradient_loss(log_prob, batch.advantages), entropy_loss(entropy, log_prob)
        metrics = {"policy_loss": loss_pi.detach(), "entropy_loss": loss_s.detach()}
        return Objective(loss_pi + self.ent_coef * loss_s, metrics)

    def critic_objective(self, batch: RolloutSamples, values: Tensor) -> Objective:
        """Returns E[(G - V(s))^2]. values [B] of the current critic"""
        loss = value_loss(values, batch.returns)
        return Objective(loss, {"value_loss": loss.detach()})


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class ActorCritic(LaggingValues, OnPolicyAlgorithm):
    """One-step actor-critic of section 13.5: both are updated at every step (Sutton and Barto 2018)."""

    learning_rate: LearningRate = 1e-3
    _: KW_ONLY
    critic_learning_rate: Scheduled[LearningRate | None] = None
    """Learning rate of the critic; ``None``: ``learning_rate``, which is the actor's."""
    n_steps: Count = 1
    """Steps per environment in one update."""
    gae_lambda: Fraction = 0.0
    """Trace decay, in [0, 1], for updates of several steps: 0 uses one-step TD errors, 1 the rewards of all steps."""

    vf_coef: Settled[float] = 0.5
    normalize_advantage: Settled[bool] = False
    learner_class: ClassVar[type[Learner]] = ActorCriticLearner
    policies: ClassVar = policy_aliases(ActorCriticPolicy, share_features_extractor=False)
    action_spaces: ClassVar = SINGLE_SPACES

    card: ClassVar[Card] = Card(
        idea="one step of actor and critic at each step of the environments",
        learns_from="its own steps",
        search=Search(tune.rate(), tune.rate(name="critic_learning_rate"), tune.short_rollouts(2, tune.entropy())),
    )
