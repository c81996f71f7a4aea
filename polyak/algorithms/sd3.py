"""Softmax Deep Double Deterministic policy gradients (SD3).

Pan, Cai and Huang 2020, "Softmax Deep Double Deterministic Policy Gradients", arXiv:2010.09177.

Shapes: B batch rows, A action dimensions, K noisy actions in each state, P pairs of actor and critic. Actions are in
units of the action space scaled to [-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.ddpg import actor_loss, critic_loss
from polyak.experience import Transition
from polyak.fields.actor_critic import Noisy, Soft
from polyak.fields.off_policy import OffPolicyAlgorithm
from polyak.hyperparameters.declaration import Count, LearningRate, NonNegative
from polyak.hyperparameters.held import Held
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update
from polyak.loops.updates import Updates, updates_of
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.pairs import PairedPolicy
from polyak.ops.soft_values import softmax_mean
from polyak.ops.updates import polyak_update
from polyak.parts.part import MadeOf
from polyak.parts.replay import ExperienceReplay

# -- targets; the losses are those of DDPG -----------------------------------------------------------------------------


def noisy_actions(actions: Tensor, draws: Tensor, sigma: Tensor, clip: Tensor) -> Tensor:
    """a + clip(sigma z, -c, c), clipped to [-1, 1]. actions [B, A], standard normal draws z [B, K, A] -> [B, K, A]"""
    return (actions.unsqueeze(1) + (sigma * draws).clamp(-clip, clip)).clamp(-1, 1)


def log_inverse_density(draws: Tensor) -> Tensor:
    """-log p(z) of standard normal draws up to a constant: sum_a z_a^2 / 2. [B, K, A] -> [B, K]

    This is the density of the noise before it is clipped: clipped noise has none at the bounds.
    """
    return 0.5 * draws.square().sum(2)


def softmax_value(q: Tensor, beta: Tensor, log_weights: Tensor | None = None) -> Tensor:
    """The softmax operator over sampled actions, of min_j Q_j(s', a). q [P, B, K], log_weights [B, K] -> [B]"""
    return softmax_mean(q.amin(0), beta, log_weights)


# -- one gradient step -------------------------------------------------------------------------------------------------


class SD3Learner(Learner):
    """Pairs of actor and critic, each with target networks. Every pair learns from its own rows, as in the authors'
    code.

    A batch of P x B rows is divided evenly among the P pairs.
    """

    policy: PairedPolicy
    tau: Tunable[Tensor]
    beta: Tunable[Tensor]
    target_policy_noise: Tunable[Tensor]
    target_noise_clip: Tunable[Tensor]
    n_noise_samples: Tunable[int]
    importance_sampling: Tunable[bool]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        for i, pair in enumerate(self.policy.pairs):
            self.add_optimizer(f"actor_{i}", pair.actor, recipe.make_optimizer, recipe.lr)
            self.add_optimizer(f"critic_{i}", pair.critic, recipe.make_optimizer, recipe.lr)

    def gradient_step(self, batch: Transition) -> Update:
        """Makes the steps of one pair of actor and critic after the other, without delay."""
        updates = [self.pair_step(rows, i) for i, rows in enumerate(batch.split(self.policy.n_pairs))]
        metrics = {name: torch.stack([each.metrics[name] for each in updates]).mean() for name in updates[0].metrics}
        return Update(metrics, torch.cat([each.td_error for each in updates if each.td_error is not None]))

    def pair_step(self, batch: Transition, i: int) -> Update:
        """Makes a step of the i-th critic, then of the i-th actor, then updates their targets."""
        pair = self.policy.pairs[i]
        target = self.td_target(batch, i)
        q = pair.critic.q_values(batch.observations, batch.actions)[0]
        critic = self.critic_objective(batch, q, target)
        self.minimise(f"critic_{i}", critic.loss)

        actions = pair.actor(batch.observations)
        q_now = pair.critic.q_values(batch.observations, actions)[0]
        actor = self.actor_objective(batch, actions, q_now)
        self.minimise(f"actor_{i}", actor.loss)
        polyak_update(pair, self.policy.pairs_target[i], self.tau)
        metrics = {"actor_loss": actor.loss.detach(), "critic_loss": critic.loss.detach()}
        return Update({**metrics, **critic.metrics, **actor.metrics}, critic.td_error)

    @torch.no_grad()
    def td_target(self, batch: Transition, i: int) -> Tensor:
        """Returns the i-th critic's target Q-values: the softmax value of noisy actions of the i-th target actor. ->
        [B]"""
        targets = self.policy.pairs_target
        next_actions = targets[i].actor(batch.next_observations)
        shape = (len(next_actions), self.n_noise_samples, next_actions.shape[1])
        draws = torch.randn(shape, dtype=next_actions.dtype, device=next_actions.device)
        around = noisy_actions(next_actions, draws, self.target_policy_noise, self.target_noise_clip)
        next_q = targets.q_values_of_many(batch.next_observations, around)
        log_weights = log_inverse_density(draws) if self.importance_sampling else None
        return batch.rewards + batch.discounts * softmax_value(next_q, self.beta, log_weights)

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns one critic's loss. Its q [B] of the batch's actions, target [B]"""
        return Objective(critic_loss(q, target, batch.weights), td_error=(q - target).detach().abs())

    def actor_objective(self, batch: Transition, actions: Tensor, q: Tensor) -> Objective:
        """Returns one actor's loss. Its own actions [B, A] and its own critic's q [B] of those"""
        return Objective(actor_loss(q))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class PairedReplay(ExperienceReplay):
    """Draws one minibatch for each pair of actor and critic."""

    def updates(self) -> Updates:
        updates = updates_of(self.model)
        updates.times = len(self.model.pairs)
        return updates

    def expected_updates(self, timesteps: int) -> tuple[int, int] | None:
        found = super().expected_updates(timesteps)
        assert found is not None
        updates, rows = found
        return updates, rows * (1 + self.model.n_noise_samples // 6)  # a noisy action costs a sixth of a row


@dataclass(eq=False, repr=False)
class SD3(Soft, Noisy, OffPolicyAlgorithm):
    """Softmax Deep Double Deterministic policy gradients: two deterministic actors with a critic each, whose targets
    are softmax-weighted means over nearby actions (arXiv:2010.09177).

    ``policy_kwargs={"n_pairs": 1}`` gives the paper's SD2, with a single actor and critic.
    """

    learning_rate: LearningRate = 1e-3
    _: KW_ONLY
    batch_size: Count = 256
    """Transitions per gradient step for each of the two pairs of actor and critic, which learn from different ones."""
    beta: NonNegative = 0.05
    """Inverse temperature of the softmax over target actions, per unit of return: 0 gives the mean value, a large
    number the maximum. The paper uses 0.001 (Ant) to 500 (Swimmer)."""
    n_noise_samples: Count = 50
    """Number of sampled target actions in each state."""
    importance_sampling: bool = False
    """Divide each target action's weight by the density of its noise, for an unbiased estimate of the softmax over all
    actions."""
    target_policy_noise: NonNegative = 0.2
    """Standard deviation of the noise of target actions."""
    target_noise_clip: NonNegative = 0.5
    """Bound of the noise of target actions."""

    made_of: ClassVar[MadeOf] = {"replay": PairedReplay}
    learner_class: ClassVar[type[Learner]] = SD3Learner
    policies: ClassVar = policy_aliases(PairedPolicy)
    pairs = Held("policy.pairs")
    """The pairs of actor and critic."""
    pairs_target = Held("policy.pairs_target")
    """Their target networks."""

    card: ClassVar[Card] = Card(
        idea="two actors with a critic each, targets that are softmax means over actions nearby",
        learns_from="replay",
        search=Search(
            tune.actor_critic(tune.action_noise()),
            tune.log_uniform("target_policy_noise", 1e-3, 0.4),
            tune.log_uniform("beta", 1e-3, 1.0),
            tune.one_of("n_noise_samples", [10, 50, 100]),
        ),
    )
