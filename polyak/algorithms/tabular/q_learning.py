"""Q-learning: off-policy values of the greedy policy.

Watkins 1989, "Learning from delayed rewards"; Watkins and Dayan 1992, Machine Learning 8; Sutton and Barto section 6.5.
With ``n_steps`` it is tree backup for the greedy policy, or importance sampling by the share ``sigma`` (section 7.6,
arXiv:1703.01327); with ``lambda_`` Watkins's Q(lambda), whose traces end at the first action that is not greedy
(section 12.10). Shapes and the update rule: see :mod:`polyak.algorithms.tabular.temporal_difference`.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from polyak.algorithm_info import Card, Search
from polyak.algorithms.tabular.search import LOOKAHEAD, TABLE
from polyak.algorithms.tabular.temporal_difference import TemporalDifference
from polyak.hyperparameters.declaration import Fraction


@dataclass(eq=False, repr=False)
class QLearning(TemporalDifference):
    """Q-learning, tree backup and Watkins's Q(lambda) with a table: Sutton and Barto 6.5, 7.5, 12.10 (Watkins 1989)."""

    _: KW_ONLY
    sigma: Fraction = 0.0
    """0 backs up maxima; 1 backs up the actions taken, weighted by importance sampling; otherwise a mixture."""

    greedy_target: ClassVar[bool] = True
    card: ClassVar[Card] = Card(
        idea="temporal differences with a table: values of the greedy policy",
        learns_from="its own steps",
        search=Search(TABLE, LOOKAHEAD),
    )
