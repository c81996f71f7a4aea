"""Expected SARSA: on-policy values with expected instead of sampled next actions.

Van Seijen, van Hasselt, Whiteson and Wiering 2009, "A theoretical and empirical analysis of Expected Sarsa", ADPRL;
Sutton and Barto section 6.6. With ``n_steps`` it is tree backup (section 7.5), with ``lambda_`` TB(lambda) (section
12.10), both for the behaviour policy. Shapes and the update rule: see
:mod:`polyak.algorithms.tabular.temporal_difference`.
"""

from dataclasses import dataclass
from typing import ClassVar

from polyak.algorithm_info import Card, Search
from polyak.algorithms.tabular.search import LOOKAHEAD, TABLE
from polyak.algorithms.tabular.temporal_difference import TemporalDifference


@dataclass(eq=False, repr=False)
class ExpectedSARSA(TemporalDifference):
    """Expected SARSA, tree backup and TB(lambda) with a table: Sutton and Barto 6.6, 7.5, 12.10 (Van Seijen,
    van Hasselt, Whiteson and Wiering 2009)."""

    sigma: ClassVar[float] = 0.0
    card: ClassVar[Card] = Card(
        idea="SARSA without the noise of its choices, tree backup",
        learns_from="its own steps",
        search=Search(TABLE, LOOKAHEAD),
    )
