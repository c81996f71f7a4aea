"""Double Q-learning: one table chooses actions, the other evaluates them, which removes the maximisation bias.

Van Hasselt 2010, "Double Q-learning", NeurIPS; Sutton and Barto section 6.7. Actions are chosen by the sum of the
tables.

Shapes: S states, A actions.
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np

from polyak.algorithm_info import Card
from polyak.algorithms.tabular.choosing import choose, step_size
from polyak.algorithms.tabular.learning import Rule, TabularLearning, Walker
from polyak.algorithms.tabular.search import TABLE
from polyak.algorithms.tabular.walking import COIN, TIE, Kernel, TableTransition

# -- the rule ----------------------------------------------------------------------------------------------------------


class TwoTables(NamedTuple):
    """Two tables of action values."""

    q: np.ndarray  # [2, S, A]
    legal: np.ndarray  # [S, A] bool
    visits: np.ndarray  # [2, S, A] int64
    gamma: float


def learn(tables: TwoTables, moment: TableTransition, draws: np.ndarray) -> None:
    """q_1(S, A) <- q_1 + alpha [R + gamma q_2(S', argmax_a q_1(S', a)) - q_1], Sutton and Barto eq. 6.10; the roles of
    the tables are drawn at random. q [2, S, A], draws [W]"""
    first = 0 if draws[COIN] < 0.5 else 1
    second = 1 - first
    target = moment.reward
    if not moment.terminated:
        own = tables.q[first : first + 1]
        action, _ = choose(own, tables.legal, moment.next_state, 0.0, 1.0, draws[TIE])
        target += tables.gamma * tables.q[second, moment.next_state, action]
    alpha = step_size(tables.visits, first, moment.state, moment.action, moment.alpha)
    tables.q[first, moment.state, moment.action] += alpha * (target - tables.q[first, moment.state, moment.action])


class DoubleLearning(Rule):
    """Updates one table by the other's value of its greedy action."""

    kernel = Kernel(learn, (), TwoTables)
    n_tables = 2


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DoubleQLearning(TabularLearning):
    """Double Q-learning with two tables, without maximisation bias, Sutton and Barto 6.7 (Van Hasselt 2010)."""

    made_of: ClassVar = {"solver": partial(Walker, DoubleLearning)}
    card: ClassVar[Card] = Card(
        idea="two tables: one chooses, the other evaluates the choice",
        learns_from="its own steps",
        search=TABLE,
    )
