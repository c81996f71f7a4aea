"""Generative Adversarial Imitation Learning (GAIL).

Ho and Ermon 2016, "Generative Adversarial Imitation Learning", arXiv:1606.03476. Equation numbers are theirs, but for
the sign: here the discriminator D = sigmoid(logit) is the probability that a step was demonstrated.

Shapes: B rows of a minibatch, half of them demonstrated; F inputs of a network.
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

    It is least at D* = p_E / (p_E + p_G).
    """
    return softplus(torch.where(expert > 0, -logits, logits)).mean()


def gradient_at(score: Callable[..., Tensor], inputs: tuple[Tensor, ...], terminated: Tensor) -> Tensor:
    """|grad|^2 of a network by its inputs, differentiable: section 4 of arXiv:1704.00028. inputs [B, F] each -> [B]"""
    free = tuple(x.detach().requires_grad_() for x in inputs)
    with torch.enable_grad():
        found = torch.autograd.grad(score(free, terminated).sum(), free, create_graph=True)
    return torch.stack([gradient.square().sum(1) for gradient in found]).sum(0)


def interpolated_penalty(squares: Tensor) -> Tensor:
    """E[(|grad| - 1)^2] at points between demonstrated and generated ones, arXiv:1704.00028 eq. 3. squares [B] -> []"""
    return ((squares + 1e-12).sqrt() - 1).square().mean()


def expert_penalty(squares: Tensor) -> Tensor:
    """E[|grad|^2] / 2 at demonstrated points, R1 of arXiv:1801.04406 eq. 9. squares [B] -> []"""
    return 0.5 * squares.mean()


# -- one gradient step -------------------------------------------------------------------------------------------------


class GAILLearner(Learner):
    """A discriminator, whose logits are a network's outputs."""

    gradient_penalty: Tunable[float]
    penalty: Tunable[str]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        self.penalty = recipe.values["penalty"]
        self.add_optimizer("reward", self.policy, recipe.make_optimizer, recipe.lr)

    @property
    def network(self) -> RewardNet | ShapedRewardNet:
        """What is learned here: it takes the place of a policy."""
        network: Any = self.policy
        return network

    def update(self, batch: Comparison) -> Update:
        """One gradient step, after the statistics of observations have taken in the batch."""
        self.steps += 1
        self.network.observe(batch.observations)
        update: Update = self.run(self.gradient_step, batch)
        return update

    def gradient_step(self, batch: Comparison) -> Update:
        """Descend the objective, and the penalty."""
        inputs = self.network.inputs(batch.observations, batch.actions, batch.next_observations, batch.terminated)
        logits = self.logits(self.network.score(inputs, batch.terminated), batch)
        objective = self.objective(batch, logits)
        if self.gradient_penalty > 0:
            penalty = self.penalty_of(tuple(x.detach() for x in inputs), batch.terminated)
            objective = objective.plus(self.gradient_penalty * penalty, disc_penalty=penalty.detach())
        self.minimise("reward", objective.loss)
        return Update({"disc_loss": objective.loss.detach(), **objective.metrics})

    def logits(self, outputs: Tensor, batch: Comparison) -> Tensor:
        """log D - log(1 - D) of what the network says. outputs [B] -> [B]"""
        return outputs

    def objective(self, batch: Comparison, logits: Tensor) -> Objective:
        """Of the discriminator. logits [B]"""
        with torch.no_grad():
            shown, made = logits.chunk(2)
            metrics = {
                "disc_accuracy_expert": (shown > 0).float().mean(),
                "disc_accuracy_generator": (made < 0).float().mean(),
            }
        return Objective(discriminator_loss(logits, batch.expert), metrics)

    def penalty_of(self, inputs: tuple[Tensor, ...], terminated: Tensor) -> Tensor:
        """Of the network's gradients, at demonstrated inputs or between those and the generator's."""
        pairs, ends = [x.chunk(2) for x in inputs], terminated.chunk(2)
        if self.penalty == "expert":
            return expert_penalty(gradient_at(self.network.score, tuple(shown for shown, _ in pairs), ends[0]))
        share = torch.rand_like(ends[0])
        between = tuple(torch.lerp(made, shown, share[:, None]) for shown, made in pairs)
        return interpolated_penalty(gradient_at(self.network.score, between, torch.lerp(ends[1], ends[0], share)))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class GAIL(AdversarialImitation):
    """GAIL: an actor whose steps a discriminator cannot distinguish from demonstrated ones (arXiv:1606.03476)."""

    _: KW_ONLY
    reward_form: Reload[RewardForm] = "positive"
    """What the generator is rewarded with. ``"positive"``: -log(1 - D), never negative, so that long episodes pay
    whatever happens in them: wrong where success ends an episode. ``"negative"``: log D, never positive, so that it
    pays to end soon: wrong where failure does. ``"logit"``: log D - log(1 - D), of either sign. Where all episodes last
    equally long (:class:`~polyak.envs.FixedHorizon`) each will do."""
    penalty: Penalty = "expert"
    """Where the gradient of the discriminator is penalised: at demonstrated steps, for its squared norm (R1,
    arXiv:1801.04406), with which it comes to rest once the two cannot be distinguished; ``"interpolated"``: between
    demonstrated and generated steps, for its norm's distance from 1 (WGAN-GP, arXiv:1704.00028)."""

    learner_class: ClassVar[type[Learner]] = GAILLearner

    def make_policy(self) -> Callable[[], Any]:
        """A picklable recipe of the network that is learned here; the generator has the policy."""
        return partial(RewardNet, self.observation_space, self.action_space, **self._network_arguments())

    @property
    def reward(self) -> RewardFunction:
        """What the generator learns from, by the discriminator as it is."""
        network: Any = self.learner.policy
        return RewardFunction(network, self.reward_form, self._network_arguments())

    card: ClassVar[Card] = Card(
        idea="a reward that distinguishes demonstrations from one's own steps",
        learns_from="demonstrations, and acting",
        needs="demonstrations",
    )
