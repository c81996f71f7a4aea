"""Generative Adversarial Imitation Learning (GAIL).

Ho and Ermon 2016, "Generative Adversarial Imitation Learning", arXiv:1606.03476. Equation numbers refer to it, with the
opposite sign: here the discriminator D = sigmoid(logit) is the probability that a step is a demonstration.

Shapes: B rows of a minibatch, half of them demonstrations; F inputs of a network.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from polyak.algorithm_info import Card
from polyak.algorithms.imitation.adversarial import AdversarialImitation, Penalty
from polyak.algorithms.imitation.reward import RewardForm, RewardFunction
from polyak.algorithms.imitation.rounds import Comparison
from polyak.hyperparameters.changing import Reload
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update
from polyak.nn.networks.rewards import RewardNet, ShapedRewardNet

# -- losses ------------------------------------------------------------------------------------------------------------


def discriminator_loss(logits: Tensor, expert: Tensor) -> Tensor:
    """-E_E[log D] - E_G[log(1 - D)], eq. 14, over 2 as the mean of all rows. logits [B], expert [B] 1 or 0 -> []

    Its minimum is at D* = p_E / (p_E + p_G).
    """
    return softplus(torch.where(expert > 0, -logits, logits)).mean()


def gradient_at(score: Callable[..., Tensor], inputs: tuple[Tensor, ...], terminated: Tensor) -> Tensor:
    """|grad|^2 of a network with respect to its inputs, differentiable: section 4 of arXiv:1704.00028. inputs [B, F]
    each -> [B]"""
    free = tuple(x.detach().requires_grad_() for x in inputs)
    with torch.enable_grad():
        found = torch.autograd.grad(score(free, terminated).sum(), free, create_graph=True)
    return torch.stack([gradient.square().sum(1) for gradient in found]).sum(0)


def interpolated_penalty(squares: Tensor) -> Tensor:
    """E[(|grad| - 1)^2] between demonstrated and generated inputs, arXiv:1704.00028 eq. 3. squares [B] -> []"""
    return ((squares + 1e-12).sqrt() - 1).square().mean()


def expert_penalty(squares: Tensor) -> Tensor:
    """E[|grad|^2] / 2 at demonstrated inputs, R1 of arXiv:1801.04406 eq. 9. squares [B] -> []"""
    return 0.5 * squares.mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class GAILLearner(Learner):
    """A discriminator; its logits are a network's outputs."""

    gradient_penalty: Tunable[float]
    penalty: Tunable[str]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.penalty = recipe.values["penalty"]
        self.add_optimizer("reward", self.policy, recipe.make_optimizer, recipe.lr)

    @property
    def network(self) -> RewardNet | ShapedRewardNet:
        """The reward network, which this learner has in place of a policy."""
        network: Any = self.policy
        return network

    def update(self, batch: Comparison) -> Update:
        """Makes a gradient step, after updating the statistics of observations by the batch."""
        self.steps += 1
        self.network.observe(batch.observations)
        update: Update = self.run(self.gradient_step, batch)
        return update

    def gradient_step(self, batch: Comparison) -> Update:
        """Makes a gradient step on the objective and the penalty."""
        inputs = self.network.inputs(batch.observations, batch.actions, batch.next_observations, batch.terminated)
        logits = self.logits(self.network.score(inputs, batch.terminated), batch)
        objective = self.objective(batch, logits)
        if self.gradient_penalty > 0:
            penalty = self.penalty_of(tuple(x.detach() for x in inputs), batch.terminated)
            objective = objective.plus(self.gradient_penalty * penalty, disc_penalty=penalty.detach())
        self.minimise("reward", objective.loss)
        return Update({"disc_loss": objective.loss.detach(), **objective.metrics})

    def logits(self, outputs: Tensor, batch: Comparison) -> Tensor:
        """Returns log D - log(1 - D) from the network's outputs [B]. -> [B]"""
        return outputs

    def objective(self, batch: Comparison, logits: Tensor) -> Objective:
        """Returns the discriminator's loss. logits [B]"""
        with torch.no_grad():
            shown, made = logits.chunk(2)
            metrics = {
                "disc_accuracy_expert": (shown > 0).float().mean(),
                "disc_accuracy_generator": (made < 0).float().mean(),
            }
        return Objective(discriminator_loss(logits, batch.expert), metrics)

    def penalty_of(self, inputs: tuple[Tensor, ...], terminated: Tensor) -> Tensor:
        """Returns the gradient penalty, at demonstrated inputs or between those and generated ones."""
        pairs, ends = [x.chunk(2) for x in inputs], terminated.chunk(2)
        if self.penalty == "expert":
            return expert_penalty(gradient_at(self.network.score, tuple(shown for shown, _ in pairs), ends[0]))
        share = torch.rand_like(ends[0])
        between = tuple(torch.lerp(made, shown, share[:, None]) for shown, made in pairs)
        return interpolated_penalty(gradient_at(self.network.score, between, torch.lerp(ends[1], ends[0], share)))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class GAIL(AdversarialImitation):
    """GAIL: a policy whose steps a discriminator cannot distinguish from demonstrations (arXiv:1606.03476)."""

    _: KW_ONLY
    reward_form: Reload[RewardForm] = "positive"
    """The generator's reward. ``"positive"``: -log(1 - D), never negative, so that long episodes are rewarded in any
    case: unsuitable if success ends an episode. ``"negative"``: log D, never positive, so that short episodes are
    better: unsuitable if failure ends an episode. ``"logit"``: log D - log(1 - D), of either sign. If all episodes have
    equal length (:class:`~polyak.envs.FixedHorizon`), each of them is suitable."""
    penalty: Penalty = "expert"
    """The discriminator's gradient penalty: ``"expert"``: squared norm at demonstrations (R1, arXiv:1801.04406), which
    lets the discriminator converge once the two are indistinguishable; ``"interpolated"``: squared distance of the norm
    from 1 between demonstrated and generated steps (WGAN-GP, arXiv:1704.00028)."""

    learner_class: ClassVar[type[Learner]] = GAILLearner

    def make_policy(self) -> Callable[[], Any]:
        """Returns a picklable recipe of the discriminator; the generator has the policy."""
        return partial(RewardNet, self.observation_space, self.action_space, **self._network_arguments())

    @property
    def reward(self) -> RewardFunction:
        """The generator's reward under the present discriminator."""
        network: Any = self.learner.policy
        return RewardFunction(network, self.reward_form, self._network_arguments())

    card: ClassVar[Card] = Card(
        idea="a reward that distinguishes demonstrations from one's own steps",
        learns_from="demonstrations, and acting",
        needs="demonstrations",
    )
