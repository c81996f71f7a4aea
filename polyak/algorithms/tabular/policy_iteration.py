"""Policy iteration: evaluate a policy exactly, improve it, and repeat until it no longer changes.

Howard 1960, "Dynamic Programming and Markov Processes"; Sutton and Barto section 4.3. The values of a policy solve
linear equations. The first policy is uniform, under which most episodes end.

Shapes: S states, A actions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.tabular.planning import Planner, Planning
from polyak.checkpoint.saved import Saved
from polyak.hyperparameters.held import Held
from polyak.ops.dynamic_programming import greedy_actions, greedy_values


class PolicyPlanner(Planner):
    """Evaluates a policy exactly, and improves it.

    Args:
        rewarded: takes this planner and a policy [S, A], and returns the rewards [S, A] of its evaluation.
        improved: takes this planner, a policy and its action values, both [S, A], and returns a better policy [S, A]
            and its one-step state values [S].
        model: the algorithm.
    """

    def __init__(
        self, rewarded: Callable[..., Tensor], improved: Callable[..., tuple[Tensor, Tensor]], model: Any
    ) -> None:
        super().__init__(model)
        self.rewarded, self.improved = rewarded, improved

    def build(self) -> None:
        legal = self.model.legal
        self.policy = legal / legal.sum(1, keepdims=True)
        """[S, A] probabilities of actions."""
        if self.model.env is not None:  # terminal states have no choices
            over = self.process.terminal
            self.policy[over] = np.eye(legal.shape[1])[legal[over].argmax(1)]

    def preferences(self) -> np.ndarray:
        return self.policy

    def sweep(self) -> float:
        model, known, policy = self.model, self.known, torch.from_numpy(self.policy)
        values = known.policy_values(policy, self.rewarded(self, policy), model.gamma)
        q = known.action_values(values, model.gamma)
        improved, best = self.improved(self, policy, q)
        change = float((best - values).abs().max()) if not torch.equal(improved, policy) else 0.0
        model.q[0], self.policy = q.numpy(), improved.numpy()
        return change

    def save(self, saved: Saved, include: set[str]) -> None:
        saved.state["policy_table"] = self.policy.copy()

    def load(self, saved: Saved) -> None:
        self.policy = saved.state["policy_table"].copy()


def given_rewards(planner: PolicyPlanner, policy: Tensor) -> Tensor:
    """Returns the model's own rewards: [S, A] -> [S, A]"""
    return planner.known.mean_rewards


def greedily(planner: PolicyPlanner, policy: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the greedy policy of action values, and its state values: both [S, A] -> [S, A], [S]"""
    legal, tolerance = planner.known.legal, planner.model.tolerance
    best = greedy_values(q, legal)
    # A best action is kept: switching between equal actions might give a policy that never ends an episode.
    present = policy.argmax(1)
    stays = (policy.amax(1) == 1) & (q.gather(1, present[:, None])[:, 0] >= best - tolerance)
    actions = torch.where(stays, present, greedy_actions(q, legal, tolerance))
    return torch.nn.functional.one_hot(actions, q.shape[1]).to(q.dtype), best


@dataclass(eq=False, repr=False)
class PolicyIteration(Planning):
    """Policy iteration with a known model, Sutton and Barto 4.3: ``learn(n)`` improves up to n times (Howard 1960)."""

    made_of: ClassVar = {"solver": partial(PolicyPlanner, given_rewards, greedily)}
    policy_table = Held[np.ndarray]("solver.policy")
    """[S, A] probabilities of actions."""
    card: ClassVar[Card] = Card(
        idea="a policy evaluated exactly and improved until it does not change",
        learns_from="a known model",
        search=Search(tune.discount()),
    )
