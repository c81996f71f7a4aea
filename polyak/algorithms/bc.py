"""Behaviour Cloning (BC).

Pomerleau 1989, "ALVINN: An Autonomous Land Vehicle in a Neural Network" (NeurIPS 1). Supervised learning of a policy:
the actions of a dataset are the labels of its observations.

Shapes: B batch rows, A action dimensions. Continuous actions are in units of the action space scaled to [-1, 1].
"""

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from polyak.algorithm_info import Card, Search, tune
from polyak.experience import Transition
from polyak.fields.offline import OfflineAlgorithm, RewardScaling
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import LearningRate, NonNegative, require
from polyak.hyperparameters.held import Held
from polyak.hyperparameters.settled import Settled
from polyak.learning.learner import Learner, LearnerRecipe, Objective, Tunable, Update
from polyak.nn.catalog import policy_aliases
from polyak.nn.distributions.choice import SINGLE_SPACES
from polyak.nn.policies.base import Policy
from polyak.nn.policies.cloning import CloningPolicy
from polyak.ops.updates import polyak_update
from polyak.parts.part import MadeOf, OfPolicy

# -- losses ------------------------------------------------------------------------------------------------------------


def squared_error(actions: Tensor, recorded: Tensor, weights: Tensor) -> Tensor:
    """E[mean_j (pi(s)_j - a_j)^2], the mean over dimensions. both actions [B, A], weights [B] -> []"""
    return (weights * ((actions - recorded) ** 2).mean(1)).mean()


def negative_log_likelihood(log_prob: Tensor, weights: Tensor) -> Tensor:
    """-E[log pi(a|s)]. log_prob [B] of recorded actions, weights [B] -> []"""
    return -(weights * log_prob).mean()


def squared_norm(parameters: Iterable[Tensor]) -> Tensor:
    """1/2 sum of the squares of all parameters. -> []"""
    return 0.5 * torch.stack([(p**2).sum() for p in parameters]).sum()


# -- one gradient step -------------------------------------------------------------------------------------------------


class BCLearner(Learner):
    """An actor that imitates recorded actions: of a cloning policy, or of another algorithm's policy."""

    policy: Any
    """A :class:`~polyak.nn.policies.base.Policy` with an ``actor``, or with ``actor_parameters`` beside a critic's."""
    stochastic: Tunable[bool]
    ent_coef: Tunable[Tensor]
    l2_coef: Tunable[Tensor]

    def __init__(self, recipe: LearnerRecipe) -> None:
        super().__init__(recipe)
        policy, name = self.policy, type(self.policy).__name__
        able = (hasattr(policy, "actor") or hasattr(policy, "actor_parameters")) and _replays(policy)
        fix = "it has no actor that recorded actions could train. Those of PPO, SAC, TD3 and their variants have one."
        require(able, "policy", name, fix)
        fix = f"the actor of {name} has no distribution. Use stochastic=False."
        require(not self.by_likelihood or hasattr(self.chooser, "get_distribution"), "stochastic", True, fix)
        actor = getattr(policy, "actor", None)
        params, owner = (policy.actor_parameters(), policy) if actor is None else (actor, actor)
        self.add_optimizer("actor", params, recipe.make_optimizer, recipe.lr, owner=owner)

    @property
    def by_likelihood(self) -> bool:
        """Whether a distribution is fitted by likelihood, rather than an action by squared error."""
        return self.stochastic or not self.policy.codec.continuous

    @property
    def chooser(self) -> Any:
        """The module with the action distribution: the policy, or its actor."""
        return self.policy if hasattr(self.policy, "get_distribution") else self.policy.actor

    def actor_parameters(self) -> list[nn.Parameter]:
        """Returns the trained parameters."""
        actor = getattr(self.policy, "actor", None)
        found: list[nn.Parameter] = self.policy.actor_parameters() if actor is None else list(actor.parameters())
        return found

    def gradient_step(self, batch: Transition) -> Update:
        """Makes a gradient step towards the recorded actions."""
        actor = self.actor_objective(batch)
        self.minimise("actor", actor.loss)
        if "actor_target" in self.policy.targets:  # of TD3's policy: equal when TD3 starts
            polyak_update(self.policy.actor, self.policy.actor_target, 1.0)
        return Update({"actor_loss": actor.loss.detach(), **actor.metrics})

    def actor_objective(self, batch: Transition) -> Objective:
        """Returns the actor's loss: negative log-likelihood of a distribution, otherwise squared error."""
        penalty = self.l2_coef * squared_norm(self.actor_parameters())
        if not self.by_likelihood:
            actions = self.policy.act(batch.observations, True).flatten(1)
            return Objective(squared_error(actions, batch.actions.flatten(1), batch.weights)).plus(penalty)
        distribution = self.chooser.get_distribution(batch.observations)
        log_prob, entropy = distribution.log_prob(self.recorded(batch)), distribution.entropy()
        objective = Objective(negative_log_likelihood(log_prob, batch.weights), {"log_prob": log_prob.detach().mean()})
        if entropy is None:
            return objective.plus(penalty)
        bonus = self.ent_coef * (batch.weights * entropy).mean()
        return objective.plus(penalty - bonus, entropy=entropy.detach().mean())

    def recorded(self, batch: Transition) -> Tensor:
        """Returns the batch's actions in the distribution's shape: [B] for one choice, otherwise [B, A]."""
        codec = self.policy.codec
        return batch.actions.flatten(1) if codec.continuous or codec.shape else batch.actions.flatten()


def _replays(policy: Policy) -> bool:
    """Whether a policy's recurrent state, if it has one, can be computed from recorded sequences."""
    return policy.recurrence is not None or policy.initial_memory(1) is None


def policy_options(model: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the policy's arguments, with ``stochastic`` if it is a cloning policy."""
    cls = model.policy_class
    foreign = isinstance(cls, type) and issubclass(cls, Policy) and "stochastic" not in cls.keywords()
    return options if foreign else {**options, "stochastic": model.stochastic}


# -- hyper-parameters --------------------------------------------------------------------------------------------------


class Cloning(OfPolicy):
    """The kind of cloning: likelihood or squared error."""

    def __init__(self, model: Any) -> None:
        super().__init__(model, ("stochastic",))

    def policy_options(self, options: dict[str, Any]) -> dict[str, Any]:
        return policy_options(self.model, options)


@dataclass(eq=False, repr=False)
class BC(OfflineAlgorithm):
    """Behaviour cloning: imitate the actions of a dataset (Pomerleau 1989).

    It learns from a dataset only. To correct its mistakes by an expert online, use DAgger; to become better than the
    data, one of the other offline algorithms; or clone into the policy class of another algorithm,
    ``BC(ActorCriticPolicy, dataset)``, whose model continues from there.
    """

    learning_rate: LearningRate = 1e-3
    """Step size of the optimizer: a number, or a function of the remaining progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    stochastic: WithNetworks[bool] = False
    """For continuous actions: fit a Gaussian by likelihood, and sample from it, instead of one action by squared error.
    Discrete actions always use likelihood."""
    ent_coef: NonNegative = 0.0
    """Weight of an entropy bonus, for likelihood."""
    l2_coef: NonNegative = 0.0
    """Weight of a penalty on half the sum of squared weights."""

    # cloning ignores rewards
    reward_scaling: Settled[RewardScaling | tuple[float, float]] = "none"
    made_of: ClassVar[MadeOf] = {"cloning": Cloning}
    learner_class: ClassVar[type[Learner]] = BCLearner
    policies: ClassVar = policy_aliases(CloningPolicy, CloningPolicy)
    action_spaces: ClassVar = SINGLE_SPACES
    actor = Held("policy.actor")
    """The network that acts."""

    card: ClassVar[Card] = Card(
        idea="do what the data show",
        learns_from="a dataset",
        search=Search(tune.rate(), tune.batches(), tune.log_uniform("l2_coef", 1e-8, 1e-2), tune.network(widest=512)),
    )
