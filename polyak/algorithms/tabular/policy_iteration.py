"""Policy iteration: evaluate a policy exactly, improve it, and repeat until it does not change.

Howard 1960, "Dynamic Programming and Markov Processes"; Sutton and Barto section 4.3. The values of a policy are the
solution of linear equations. The first policy is uniform, under which most episodes end.

Shapes: S states, A actions.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from polyak.algorithms.tabular.planning import Planning
from polyak.cards import Card, Search, tune
from polyak.checkpoint.saved import Saved
from polyak.ops.dynamic_programming import greedy_actions, greedy_values


@dataclass(eq=False, repr=False)
class PolicyIteration(Planning):
    """Policy iteration on a known model (Howard 1960; Sutton and Barto 4.3): ``learn(n)`` improves up to n times."""

    def _setup_model(self) -> None:
        super()._setup_model()
        self.policy_table = self.legal / self.legal.sum(1, keepdims=True)
        """[S, A] probabilities of actions."""

    def _preferences(self) -> np.ndarray:
        return self.policy_table

    def _sweep(self) -> float:
        policy = torch.from_numpy(self.policy_table)
        values = self._evaluate(policy)
        q = self.model.action_values(values, self.gamma)
        improved, best = self._improve(policy, q)
        change = float((best - values).abs().max()) if not torch.equal(improved, policy) else 0.0
        self.q[0], self.policy_table = q.numpy(), improved.numpy()
        return change

    def _evaluate(self, policy: Tensor) -> Tensor:
        """Exact values of a policy: [S, A] -> [S]"""
        return self.model.policy_values(policy, self.model.mean_rewards, self.gamma)

    def _improve(self, policy: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
        """The greedy policy of action values, and its values of states: both [S, A] -> [S, A], [S]"""
        legal = self.model.legal
        best = greedy_values(q, legal)
        # A best action is kept: a change between equal actions might give a policy that never ends an episode.
        present = policy.argmax(1)
        stays = (policy.amax(1) == 1) & (q.gather(1, present[:, None])[:, 0] >= best - self.tolerance)
        actions = torch.where(stays, present, greedy_actions(q, legal, self.tolerance))
        return torch.nn.functional.one_hot(actions, q.shape[1]).to(q.dtype), best

    def _save_state(self, saved: Saved, include: set[str]) -> None:
        super()._save_state(saved, include)
        saved.state["policy_table"] = self.policy_table.copy()

    def _load_state(self, saved: Saved) -> None:
        super()._load_state(saved)
        self.policy_table = saved.state["policy_table"].copy()

    card: ClassVar[Card] = Card(
        idea="a policy evaluated exactly and improved until it does not change",
        learns_from="a known model",
        reference="Howard 1960",
        search=Search(tune.discount()),
        settings="policy_iteration.yml",
        page="classics.md",
    )
