"""Soft policy iteration: policy iteration with an entropy bonus.

Haarnoja et al. 2018, "Soft Actor-Critic" (arXiv:1801.01290) section 4.1: the tabular version of SAC, with a known
model. The objective is E[sum_t gamma^t (r_t + temperature H(pi(. | s_t)))], without entropy in terminal states. Soft
policy evaluation (lemma 1) is exact, by linear equations; soft policy improvement (lemma 2) is a softmax of action
values.

Shapes: N observations, S states, A actions.
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.tabular.planning import Planning
from polyak.algorithms.tabular.policy_iteration import PolicyPlanner
from polyak.hyperparameters.declaration import Positive
from polyak.hyperparameters.held import Held
from polyak.ops.dynamic_programming import rewards_with_entropy, soft_policy
from polyak.ops.soft_values import soft_value


def with_entropy(planner: PolicyPlanner, policy: Tensor) -> Tensor:
    """Returns the model's rewards plus the entropy of the policy: [S, A] -> [S, A]"""
    return rewards_with_entropy(planner.known.mean_rewards, policy, planner.model.temperature)


def softly(planner: PolicyPlanner, policy: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the softmax of action values, and its soft state values, 0 in terminal states: both [S, A] -> [S, A], [S]"""
    over, legal, temperature = planner.known.over, planner.known.legal, planner.model.temperature
    improved = soft_policy(q, legal, temperature)
    best = soft_value(q.masked_fill(~legal, -torch.inf), temperature)
    return torch.where(over[:, None], policy, improved), best.masked_fill(over, 0.0)


@dataclass(eq=False, repr=False)
class SoftPolicyIteration(Planning):
    """Soft policy iteration with a known model: ``learn(n)`` improves up to n times (arXiv:1801.01290).

    The policy is stochastic: ``predict(..., deterministic=False)`` samples from it. With ``gamma=1`` the optimum may be
    infinite, since the entropy bonus rewards episodes that do not end.
    """

    _: KW_ONLY
    temperature: Positive = 0.1
    """Weight of one nat of entropy, in units of reward. As it approaches 0, this becomes ordinary policy iteration."""

    made_of: ClassVar = {"solver": partial(PolicyPlanner, with_entropy, softly)}
    policy_table = Held[np.ndarray]("solver.policy")
    """[S, A] probabilities of actions."""

    @property
    def values(self) -> np.ndarray:
        """[S] soft state values: sum_a pi(a | s) [q(s, a) - temperature ln pi(a | s)]."""
        policy, q = torch.from_numpy(self.policy_table), torch.from_numpy(self.q[0])
        worth: np.ndarray = (policy * rewards_with_entropy(q, policy, self.temperature)).sum(1).numpy()
        return worth

    def _draw(self, preferences: np.ndarray, allowed: np.ndarray) -> np.ndarray:
        shares = np.where(allowed, preferences, 0.0).cumsum(1)
        drawn: np.ndarray = (np.random.rand(len(shares), 1) * shares[:, -1:] < shares).argmax(1)
        return drawn

    card: ClassVar[Card] = Card(
        idea="policy iteration where the entropy of the policy counts as reward",
        learns_from="a known model",
        search=Search(tune.discount(), tune.log_uniform("temperature", 1e-3, 1.0)),
    )
