"""FastTD3: TD3 for many parallel environments and short training times.

Seo et al. 2025, "FastTD3: Simple, Fast, and Capable Reinforcement Learning for Humanoid Control", arXiv:2505.22642.
Many environments in parallel, large batches, a few updates per step, critics that learn return distributions, wide
networks with weight decay, and exploration noise of a different size in every environment. Observations should be
normalised (``VecNormalize(env, norm_reward=False)``).

Shapes: B batch rows, A action dimensions, K critics, N atoms. Actions are in units of the action space scaled to
[-1, 1].
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, tune
from polyak.algorithms.c51 import Atoms
from polyak.algorithms.td3 import TD3, TD3Learner, smoothed
from polyak.collecting.exploration import Exploration, MixedNoise
from polyak.experience import Transition
from polyak.hyperparameters.changing import WithNetworks, WithOptimizer
from polyak.hyperparameters.declaration import (
    AtLeastTwo,
    Count,
    Fraction,
    LearningRate,
    Natural,
    NonNegative,
    require,
)
from polyak.learning.learner import Learner, Objective, OptimizerRecipe, Tunable
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.categorical_critic import CategoricalCritic
from polyak.nn.policies.continuous import ContinuousPolicy
from polyak.ops.distributional import clamped_share, project
from polyak.parts.part import MadeOf
from polyak.parts.replay import ExperienceReplay

# -- losses ------------------------------------------------------------------------------------------------------------


def smaller(probs: Tensor, q: Tensor) -> Tensor:
    """Selects each row's distribution of the smallest mean. probs [K, B, N], means q [K, B] -> [B, N]"""
    chosen = q.argmin(0)
    return probs.gather(0, chosen[None, :, None].expand(1, *probs.shape[1:])).squeeze(0)


def critic_loss(log_probs: Tensor, target: Tensor, weights: Tensor) -> Tensor:
    """sum_k E[-sum_n m_n log p_kn], as in C51 (arXiv:1707.06887). [K, B, N], target m [B, N], weights [B] -> []"""
    return -(weights * (target * log_probs).sum(2)).mean(1).sum()


# -- one gradient step -------------------------------------------------------------------------------------------------


class FastTD3Learner(TD3Learner):
    """TD3's gradient steps with return distributions."""

    clipped_double_q: Tunable[bool]

    def estimates(self, batch: Transition) -> Tensor:
        """Returns the critics' logits of the batch's actions. -> [K, B, N]"""
        critic: Any = self.policy.critic
        return critic.logits(batch.observations, batch.actions)

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns the target distributions. -> [B, N]"""
        critic: Any = self.policy.critic_target
        next_actions = self.policy.actor_target(batch.next_observations)
        next_actions = smoothed(next_actions, self.target_policy_noise, self.target_noise_clip)
        logits = critic.logits(batch.next_observations, next_actions)
        probs = logits.softmax(2)
        probs = smaller(probs, critic.mean(logits)) if self.clipped_double_q else probs.mean(0)
        atoms = batch.rewards[:, None] + batch.discounts[:, None] * critic.support
        return project(probs, atoms, critic.support)

    def critic_objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the critics' loss. Logits q [K, B, N] of the batch's actions, target [B, N]"""
        critic: Any = self.policy.critic
        td_error = (critic.mean(q.detach()) - target @ critic.support).abs().mean(0)
        clamped = clamped_share(target, batch.rewards, batch.discounts, critic.support)
        return Objective(critic_loss(q.log_softmax(2), target, batch.weights), {"clamped_share": clamped}, td_error)

    def q_of_policy(self, batch: Transition, actions: Tensor) -> Tensor:
        """Returns the smallest of the critics' Q-values, or their mean. -> [B]"""
        q = self.policy.critic.q_values(batch.observations, actions)
        return q.amin(0) if self.clipped_double_q else q.mean(0)


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class LargeBatches(ExperienceReplay):
    """Replays few, large batches."""

    few_updates: ClassVar = True
    explores_by: ClassVar = (*ExperienceReplay.explores_by, "noise_min", "noise_max")


@dataclass(eq=False, repr=False)
class FastTD3(TD3):
    """FastTD3: TD3 with distributional critics and large batches, for many environments (arXiv:2505.22642)."""

    learning_rate: LearningRate = 3e-4
    _: KW_ONLY
    batch_size: Count = 32_768
    """Transitions per gradient step."""
    learning_starts: Natural = 1_280
    """Environment steps of random actions before the first update."""
    gradient_steps: Count = 2
    """Gradient steps for each step of the vectorised environment."""
    tau: Fraction = 0.1
    """Update rate of the target networks, in [0, 1]; 1 copies."""
    target_policy_noise: NonNegative | None = 0.001
    """Standard deviation of the normal target policy smoothing noise; ``None``: noise is uniform in
    [-target_noise_clip, target_noise_clip]."""
    clipped_double_q: bool = True
    """Use the critic of the smaller mean for target and actor; ``False`` uses the mean of both."""
    noise_min: NonNegative = 0.001
    """Smallest standard deviation of exploration noise: each environment draws its own for every episode."""
    noise_max: NonNegative = 0.4
    """Largest standard deviation of exploration noise."""
    n_atoms: WithNetworks[AtLeastTwo] = 101
    """Number of atoms of a distribution."""
    v_min: WithNetworks[float] = -250.0
    """The first atom: lower discounted returns are clamped to it."""
    v_max: WithNetworks[float] = 250.0
    """The last atom: higher discounted returns are clamped to it."""
    weight_decay: WithOptimizer[NonNegative] = 0.1
    """Decoupled weight decay of the optimizers (AdamW)."""

    made_of: ClassVar[MadeOf] = {"atoms": Atoms, "replay": LargeBatches}
    learner_class: ClassVar[type[Learner]] = FastTD3Learner
    policies: ClassVar = policy_aliases(
        ContinuousPolicy,
        actor="deterministic",
        critic=CategoricalCritic,
        net_arch={"pi": [512, 256, 128], "qf": [1024, 512, 256]},
    )

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = f"it must not exceed noise_max={self.noise_max}."
        require(self.noise_min <= self.noise_max, "noise_min", self.noise_min, fix)

    def _default_optimizer(self) -> OptimizerRecipe:
        return OptimizerRecipe(torch.optim.AdamW, {"weight_decay": self.weight_decay})

    def _exploration(self) -> dict[str, Exploration]:
        return {"mixed_noise": MixedNoise(self.noise_min, self.noise_max), **super()._exploration()}

    card: ClassVar[Card] = Card(
        idea="TD3 for many environments: large batches, distributional critics",
        learns_from="replay",
        search=tune.actor_critic(
            tune.replay(smallest_batch=256, largest_batch=4096),
            tune.soft_target(high=0.2),
            tune.log_uniform("target_policy_noise", 1e-3, 0.4),
            tune.uniform("noise_max", 0.1, 1.0),
            tune.log_uniform("weight_decay", 1e-4, 0.2),
            how_often=tune.one_of("gradient_steps", [1, 2, 4, 8]),
        ),
    )
