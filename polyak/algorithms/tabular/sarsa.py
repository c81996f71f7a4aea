"""SARSA: on-policy values from sampled actions.

Rummery and Niranjan 1994, "On-line Q-learning using connectionist systems"; Sutton and Barto section 6.4. The target
uses the action that is taken next, which is chosen before the update. With ``n_steps`` it is n-step SARSA (section
7.2), with ``sigma`` less than 1 targets mix samples and expectations (Q(sigma), arXiv:1703.01327), with ``lambda_`` it
has eligibility traces (section 12.7). Shapes and the update rule: see
:mod:`polyak.algorithms.tabular.temporal_difference`.
"""

from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.tabular.search import LOOKAHEAD, TABLE
from polyak.algorithms.tabular.temporal_difference import TemporalDifference
from polyak.hyperparameters.declaration import Fraction


@dataclass(eq=False, repr=False)
class SARSA(TemporalDifference):
    """SARSA, n-step SARSA, SARSA(lambda) and Q(sigma) with a table: Sutton and Barto 6.4, 7.2, 7.6, 12.7
    (Rummery and Niranjan 1994)."""

    _: KW_ONLY
    sigma: Fraction = 1.0
    """1 samples the next action, 0 takes the expectation over the policy (tree backup); in between a mixture."""

    card: ClassVar[Card] = Card(
        idea="temporal differences with a table: values of the policy that acts",
        learns_from="its own steps",
        search=Search(TABLE, LOOKAHEAD, tune.uniform("sigma", 0.0, 1.0)),
    )
