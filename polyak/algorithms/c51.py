"""Categorical DQN (C51).

Bellemare, Dabney and Munos 2017, "A Distributional Perspective on Reinforcement Learning", arXiv:1707.06887. Equation
and algorithm numbers refer to it.

Shapes: B batch rows, A actions, K atoms.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.dqn import DQN, DQNLearner, allowed, taken
from polyak.experience import Transition
from polyak.hyperparameters.changing import WithNetworks
from polyak.hyperparameters.declaration import AtLeastTwo, require
from polyak.learning.learner import Learner, Objective
from polyak.nn.catalog import policy_aliases
from polyak.nn.policies.value import CategoricalQNetwork, ValuePolicy
from polyak.ops.distributional import clamped_share, project
from polyak.ops.soft_values import soft_log_policy
from polyak.parts.part import MadeOf, OfPolicy
from polyak.warning import advise

# -- losses ------------------------------------------------------------------------------------------------------------


def cross_entropy(log_probs: Tensor, target: Tensor) -> Tensor:
    """-sum_k m_k log p_k, the loss of algorithm 1. log_probs [B, K], target m [B, K] -> [B]"""
    return -(target * log_probs).sum(1)


def divergence(log_probs: Tensor, target: Tensor) -> Tensor:
    """KL(m || p), the priority of rows: Hessel et al. 2018 (arXiv:1710.02298). [B, K] each -> [B]"""
    return torch.xlogy(target, target).sum(1) + cross_entropy(log_probs, target)


# -- one gradient step -------------------------------------------------------------------------------------------------


class C51Learner(DQNLearner):
    """Distributions of returns on fixed atoms."""

    def predicted(self, batch: Transition) -> Tensor:
        """Returns the online network's logits: [B, K, A]"""
        logits: Tensor = self.policy.q_net.logits(batch.observations)
        return logits

    @torch.no_grad()
    def td_target(self, batch: Transition) -> Tensor:
        """Returns target distributions of the actions taken: shifted, discounted, projected, algorithm 1. [B, K]

        For Munchausen learning's softmax policy, they are mixtures over all next actions.

        Under a softmax policy, of Munchausen learning, they are mixtures of those of all next actions.
        """
        network = self.policy.q_net_target
        logits = network.logits(batch.next_observations)
        probs, next_q, support = logits.softmax(1), network.mean(logits), network.support
        if self.munchausen:
            next_q = allowed(next_q, batch.extras.get("next_masks"))
            scaled_log = soft_log_policy(next_q, self.munchausen_temperature)
            policy = (scaled_log / self.munchausen_temperature).exp()
            returns = (support[:, None] - scaled_log[:, None]).flatten(1)
            probs = (probs * policy[:, None]).flatten(1)
        else:
            returns, probs = support, taken(probs, self.next_actions(batch, next_q))
        atoms = self.rewards(batch)[:, None] + batch.discounts[:, None] * returns
        return project(probs, atoms, support)

    def objective(self, batch: Transition, q: Tensor, target: Tensor) -> Objective:
        """Returns the cross-entropy loss. Logits q [B, K, A] of every action, target [B, K] of those taken"""
        log_probs = taken(q.log_softmax(1), batch.actions.long())
        loss = (batch.weights * cross_entropy(log_probs, target)).mean()
        clamped = clamped_share(target, batch.rewards, batch.discounts, self.policy.q_net.support)
        return Objective(loss, {"clamped_share": clamped}, divergence(log_probs.detach(), target))


# -- hyper-parameters --------------------------------------------------------------------------------------------------


_LOOK_EVERY = 1_000
"""Gradient steps between two checks of the clamped share."""
_TOO_MUCH = 0.25
"""Share of the targets' probability beyond the atoms that causes a warning."""


def warn_of_clamping(model: Any, metrics: Mapping[str, list[Tensor]]) -> None:
    """Warn, once, if a large share of a model's targets lies outside of its atoms.

    Args:
        model: has ``v_min`` and ``v_max``, and has just made the gradient steps of ``metrics``.
        metrics: of these steps; ``"clamped_share"`` is [] each, see :func:`~polyak.ops.distributional.clamped_share`.
    """
    shares, made = metrics["clamped_share"], model._n_updates
    if made // _LOOK_EVERY == (made - len(shares)) // _LOOK_EVERY:  # rarely, since a GPU must synchronise
        return
    share = float(shares[-1])
    if share < _TOO_MUCH:
        return
    returns = [episode["r"] for episode in model.ep_info_buffer]
    met = f" Recent episodes returned {min(returns):.4g} to {max(returns):.4g} (undiscounted)." if returns else ""
    advise(
        "clamped returns",
        f"{share:.0%} of what {type(model).__name__} learns towards lies outside of its atoms, from "
        f"v_min={model.v_min:g} to v_max={model.v_max:g}, and counts as an end: it cannot distinguish such returns."
        f"{met} Set v_min and v_max so that discounted returns lie between them.",
    )


class Atoms(OfPolicy):
    """The positions of the atoms of return distributions."""

    watching: ClassVar = (warn_of_clamping,)

    def __init__(self, model: Any) -> None:
        super().__init__(model, ("n_atoms", "v_min", "v_max"))

    def check(self) -> None:
        super().check()
        least, most = self.model.v_min, self.model.v_max
        require(least < most, "v_min", least, f"it must lie below v_max={most}.")


@dataclass(eq=False, repr=False)
class OnAtoms:
    """Fields of algorithms that learn return distributions on fixed atoms."""

    _: KW_ONLY
    n_atoms: WithNetworks[AtLeastTwo] = 51
    """Number of atoms of a distribution."""
    v_min: WithNetworks[float] = -10.0
    """The first atom: lower discounted returns are clamped to it."""
    v_max: WithNetworks[float] = 10.0
    """The last atom: higher discounted returns are clamped to it."""

    made_of: ClassVar[MadeOf] = {"atoms": Atoms}
    learner_class: ClassVar[type[Learner]] = C51Learner


@dataclass(eq=False, repr=False)
class C51(OnAtoms, DQN):
    """Categorical DQN: learns distributions of returns on fixed atoms, and acts by their means (arXiv:1707.06887)."""

    policies: ClassVar = policy_aliases(ValuePolicy, ValuePolicy, network=CategoricalQNetwork)

    card: ClassVar[Card] = Card(
        idea="DQN with distributions of returns, on fixed atoms",
        learns_from="replay",
        search=Search(DQN.card.search, tune.one_of("n_atoms", [21, 51, 101])),
    )
