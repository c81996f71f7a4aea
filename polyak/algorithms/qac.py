"""QAC: an actor-critic whose critic learns action values by SARSA.

Sutton et al. 2000, "Policy Gradient Methods for Reinforcement Learning with Function Approximation", NeurIPS 12; Konda
and Tsitsiklis 2000, "Actor-Critic Algorithms", NeurIPS 12. The critic's rule is that of Sutton and Barto 2018,
"Reinforcement Learning: An Introduction", section 6.4, with a network as in section 10.1:

    delta = r + gamma Q(s', a') - Q(s, a),    w += rate_w delta grad Q(s, a),    theta += rate_theta Q(s, a) grad log pi

Q(s', a') is 0 if the episode has terminated. If no a' was taken, after truncation and after the last step of a rollout,
it is replaced by its expectation sum_a pi(a|s') Q(s', a).

Difference from ActorCritic: the actor follows the action value instead of the temporal-difference error. Optionally its
mean under the policy is subtracted, which does not change the expected gradient.

Shapes: B rows of a rollout, S successors, A actions.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.actor_critic import ActorCritic, ActorCriticLearner
from polyak.algorithms.dqn import taken
from polyak.experience import Experience, RolloutSamples
from polyak.hyperparameters.declaration import Count
from polyak.hyperparameters.settled import Settled
from polyak.learning.learner import Learner, Tunable
from polyak.nn.catalog import policy_aliases
from polyak.nn.networks.encoders import Obs
from polyak.nn.plain import plain
from polyak.nn.policies.actor_critic import ActorCriticPolicy

# -- values ------------------------------------------------------------------------------------------------------------


def expected_value(q: Tensor, probs: Tensor) -> Tensor:
    """V(s) = sum_a pi(a|s) Q(s, a). q [B, A], probs [B, A] -> [B]"""
    return (probs * q).sum(1)


# -- policy ------------------------------------------------------------------------------------------------------------


class ActionValuePolicy(ActorCriticPolicy):
    """An :class:`~polyak.nn.ActorCriticPolicy` for Discrete actions whose critic has a value for each action.

    Given an action, its value is Q(s, a); otherwise it is the mean under the policy.
    """

    def _build_networks(self) -> None:
        super()._build_networks()
        assert isinstance(self.action_space, spaces.Discrete)
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, int(self.action_space.n))
        if self.ortho_init:
            self.init_weights(self.value_net, 1.0)

    def q_values(self, obs: Obs) -> Tensor:
        """Returns Q(s, a) of every action [B, A]."""
        return super().predict_values(obs)

    def predict_values(self, obs: Obs, masks: Tensor | None = None) -> Tensor:
        """Returns sum_a pi(a|s) Q(s, a): [B, 1]. masks [B, A] bool, which actions pi may choose; ``None``: all."""
        distribution: Any = self.get_distribution(obs)
        if masks is not None:
            distribution = distribution.masked(masks)
        return expected_value(self.q_values(obs), distribution.probs)[:, None]

    @plain
    def forward(self, obs: Obs, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Returns actions [B], their values Q(s, a) [B, 1], and their log-probabilities [B]."""
        actions, q, log_prob = super().forward(obs, deterministic)
        return actions, taken(q, actions.flatten())[:, None], log_prob

    def _evaluated(
        self, latents: tuple[Tensor, Tensor], actions: Tensor, masks: Tensor | None, entropy_index: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        q, log_prob, entropy = super()._evaluated(latents, actions, masks, entropy_index)
        return taken(q, actions.long().flatten())[:, None], log_prob, entropy


# -- one gradient step -------------------------------------------------------------------------------------------------


class QACLearner(ActorCriticLearner):
    """ActorCritic's two losses with action values: E[(G - Q(s, a))^2], and -E[Q(s, a) log pi(a|s)].

    G = r + gamma (Q(s', a') + lambda (G' - Q(s', a'))): generalised advantage estimation with Q(s, a) as the value of a
    row.
    """

    policy: ActionValuePolicy
    baseline: Tunable[bool]

    def next_values(self, successors: Experience, acting: Any) -> Tensor:
        """Returns expected values [S] of states in which no action was taken."""
        critic = self.evaluator(acting)
        return critic.predict_values(successors.observations, successors.columns.get("masks")).flatten()

    def with_advantages(self, batch: RolloutSamples, values: Tensor) -> RolloutSamples:
        """Returns a batch whose advantages are the actor's weights."""
        if self.critic_target is not None:  # it evaluated the batch
            batch = batch._replace(old_values=values.detach().flatten())
        return batch._replace(advantages=self.action_values(batch))

    @torch.no_grad()
    def action_values(self, batch: RolloutSamples) -> Tensor:
        """Returns the actor's weights [B]: Q(s, a); with a baseline Q(s, a) - sum_b pi(b|s) Q(s, b)."""
        q = batch.old_values  # of the current critic: a rollout is used once
        if not self.baseline:
            return q
        return q - self.policy.predict_values(batch.observations, batch.extras.get("masks")).flatten()


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class QAC(ActorCritic):
    """Actor-critic with an action-value critic trained by SARSA (Sutton et al. 2000)."""

    _: KW_ONLY
    n_steps: Count = 8
    """Steps per environment in one rollout, for one update. The action after the last step is unknown: with 1 the
    critic learns by Expected SARSA only."""
    baseline: bool = False
    """Subtract the mean action value under the policy from the value of an action."""

    use_sde: Settled[bool] = False  # noise for continuous actions
    sde_sample_freq: Settled[int] = -1
    learner_class: ClassVar[type[Learner]] = QACLearner
    policies: ClassVar = policy_aliases(ActionValuePolicy, share_features_extractor=False)
    action_spaces: ClassVar = (spaces.Discrete,)

    card: ClassVar[Card] = Card(
        idea="the actor follows values of actions, which the critic learns by SARSA",
        learns_from="its own rollouts",
        search=Search(ActorCritic.card.search, tune.uniform("gae_lambda", 0.0, 1.0), tune.choice("baseline")),
    )
