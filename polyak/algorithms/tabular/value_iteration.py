"""Value iteration: repeated application of Bellman's optimality operator.

Bellman 1957, "Dynamic Programming"; Sutton and Barto section 4.4. All states are updated at once from the values before
the sweep, so that after n sweeps the value of a state is the best n-step return.

Shapes: S states, A actions.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.tabular.planning import Planner, Planning
from polyak.ops.dynamic_programming import greedy_values


class GreedyBackups(Planner):
    """Backs up the values of the best actions."""

    def sweep(self) -> float:
        model, known = self.model, self.known
        values = greedy_values(torch.from_numpy(model.q[0]), known.legal)
        q = known.action_values(values, model.gamma)
        change = (greedy_values(q, known.legal) - values).abs().max()
        model.q[0] = q.numpy()
        return float(change)


@dataclass(eq=False, repr=False)
class ValueIteration(Planning):
    """Value iteration with a known model, Sutton and Barto 4.4: ``learn(n)`` makes up to n sweeps (Bellman 1957)."""

    made_of: ClassVar = {"solver": GreedyBackups}
    card: ClassVar[Card] = Card(
        idea="repeated application of Bellman's optimality operator",
        learns_from="a known model",
        search=Search(tune.discount()),
    )
