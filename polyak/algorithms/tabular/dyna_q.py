"""Dyna-Q: each step updates the values and a model, followed by planning steps in that model.

Sutton 1990, "Integrated architectures for learning, planning, and reacting based on approximating dynamic programming";
Sutton and Barto section 8.2. Prioritised sweeping: Moore and Atkeson 1993, Machine Learning 13; Peng and Williams 1993;
Sutton and Barto section 8.4. The model is the last outcome of each pair, which is exact for deterministic transitions.

Shapes: S states, A actions, P = S A pairs, M a power of two of at least P.
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.tabular.choosing import best, step_size
from polyak.algorithms.tabular.learning import Rule, TabularLearning, Walker
from polyak.algorithms.tabular.search import TABLE
from polyak.algorithms.tabular.walking import WIDTH, Kernel, TableTransition
from polyak.hyperparameters.declaration import Natural, NonNegative, require

# -- the model ---------------------------------------------------------------------------------------------------------


class DynaTables(NamedTuple):
    """The table, the model and the priorities."""

    q: np.ndarray  # [1, S, A]
    legal: np.ndarray  # [S, A] bool
    visits: np.ndarray  # [1, S, A] int64
    successors: np.ndarray  # [P] int64 the last successor; -1: never tried
    rewards: np.ndarray  # [P]
    ends: np.ndarray  # [P] bool
    seen: np.ndarray  # [S] int64 visited states, n_seen of them
    n_seen: np.ndarray  # [1] int64
    tried: np.ndarray  # [S, A] int64 actions tried in each state, n_tried of them
    n_tried: np.ndarray  # [S] int64
    priorities: np.ndarray  # [2 M] a max-tree: leaf p at M + p, the root at 1
    heads: np.ndarray  # [S] int64 the first pair that leads to each state; -1: none
    nexts: np.ndarray  # [P] int64 the next pair that leads to the same state
    before: np.ndarray  # [P] int64 the previous one
    gamma: float
    n_plans: int
    sweeps: bool
    threshold: float


def target(tables: DynaTables, pair: int) -> float:
    """R + gamma max_a q(S', a) by the model. rewards, successors [P] -> []"""
    if tables.ends[pair]:
        return tables.rewards[pair]
    value, _, _ = best(tables.q, tables.legal, tables.successors[pair])
    return tables.rewards[pair] + tables.gamma * value


def store(tables: DynaTables, moment: TableTransition) -> int:
    """Store the transition in the model, and link its pair to the new successor. successors [P]"""
    n_actions = tables.q.shape[2]
    pair = moment.state * n_actions + moment.action
    known = tables.successors[pair]
    if known < 0:
        if tables.n_tried[moment.state] == 0:
            tables.seen[tables.n_seen[0]] = moment.state
            tables.n_seen[0] += 1
        tables.tried[moment.state, tables.n_tried[moment.state]] = moment.action
        tables.n_tried[moment.state] += 1
    tables.rewards[pair], tables.ends[pair] = moment.reward, moment.terminated
    if known == moment.next_state:
        return pair
    if known >= 0:
        after, previous = tables.nexts[pair], tables.before[pair]
        if previous >= 0:
            tables.nexts[previous] = after
        else:
            tables.heads[known] = after
        if after >= 0:
            tables.before[after] = previous
    head = tables.heads[moment.next_state]
    tables.nexts[pair], tables.before[pair], tables.heads[moment.next_state] = head, -1, pair
    if head >= 0:
        tables.before[head] = pair
    tables.successors[pair] = moment.next_state
    return pair


def put_priority(tables: DynaTables, pair: int, priority: float) -> None:
    """Set a leaf and its ancestors. priorities [2 M]"""
    node = len(tables.priorities) // 2 + pair
    tables.priorities[node] = priority
    while node > 1:
        node //= 2
        tables.priorities[node] = max(tables.priorities[2 * node], tables.priorities[2 * node + 1])


def most_urgent(tables: DynaTables) -> int:
    """Returns the first pair of the largest priority; -1 if all are 0. priorities [2 M] -> []"""
    if tables.priorities[1] <= 0.0:
        return -1
    node, leaves = 1, len(tables.priorities) // 2
    while node < leaves:
        node *= 2
        if tables.priorities[node] < tables.priorities[node + 1]:
            node += 1
    return node - leaves


# -- the rule ----------------------------------------------------------------------------------------------------------


def move(tables: DynaTables, pair: int, alpha: float) -> None:
    """q(S, A) <- q + alpha [R + gamma max_a q(S', a) - q] by the model (Sutton and Barto 8.2). q [1, S, A]"""
    n_actions = tables.q.shape[2]
    state, action = pair // n_actions, pair % n_actions
    size = alpha if alpha >= 0.0 else 1.0 / tables.visits[0, state, action]
    tables.q[0, state, action] += size * (target(tables, pair) - tables.q[0, state, action])


def sweep(tables: DynaTables, pair: int, alpha: float) -> None:
    """Update the pairs in order of priority, and set the priorities of their predecessors. As in Sutton and Barto
    section 8.4, a real step sets a priority by its error, and does not update q itself. priorities [2 M]"""
    n_actions = tables.q.shape[2]
    error = abs(target(tables, pair) - tables.q[0, pair // n_actions, pair % n_actions])
    if error > tables.threshold:
        put_priority(tables, pair, error)
    for _ in range(tables.n_plans):
        urgent = most_urgent(tables)
        if urgent < 0:
            break
        put_priority(tables, urgent, 0.0)
        move(tables, urgent, alpha)
        before = tables.heads[urgent // n_actions]
        while before >= 0:
            if not tables.ends[before]:
                error = abs(target(tables, before) - tables.q[0, before // n_actions, before % n_actions])
                if error > tables.threshold:
                    put_priority(tables, before, error)
            before = tables.nexts[before]


def learn(tables: DynaTables, moment: TableTransition, draws: np.ndarray) -> None:
    """Learn from the step as in Q-learning, then from ``n_plans`` planned steps: a random visited state and a random
    action taken there; or by priority. draws [W]: two from ``WIDTH`` on for each planned step."""
    step_size(tables.visits, 0, moment.state, moment.action, moment.alpha)
    pair = store(tables, moment)
    if tables.sweeps:
        sweep(tables, pair, moment.alpha)
        return
    move(tables, pair, moment.alpha)
    for plan in range(tables.n_plans):
        place = WIDTH + 2 * plan
        state = tables.seen[int(draws[place] * tables.n_seen[0])]
        action = tables.tried[state, int(draws[place + 1] * tables.n_tried[state])]
        move(tables, state * tables.q.shape[2] + action, moment.alpha)


class Dyna(Rule):
    """Learns from a step, and from planned steps in a model of the environment."""

    kernel = Kernel(learn, (target, store, put_priority, most_urgent, move, sweep), DynaTables)

    def check(self) -> None:
        fix = "prioritised sweeping learns by planning alone. Use planning_steps of at least 1."
        idle = self.model.prioritized and self.model.planning_steps == 0
        require(not idle, "prioritized", self.model.prioritized, fix)

    @property
    def n_draws(self) -> int:
        return WIDTH + (0 if self.model.prioritized else 2 * self.model.planning_steps)

    def numbers(self) -> dict[str, Any]:
        plan = {"n_plans": int(self.model.planning_steps), "sweeps": bool(self.model.prioritized)}
        return {**super().numbers(), **plan, "threshold": float(self.model.priority_threshold)}

    def arrays(self) -> dict[str, np.ndarray]:
        (n_states, _), pairs = self.model.legal.shape, self.model.legal.size
        leaves = 1 << (pairs - 1).bit_length()
        none = {"successors": pairs, "heads": n_states, "nexts": pairs, "before": pairs}
        zero = {"seen": n_states, "n_seen": 1, "tried": self.model.legal.shape, "n_tried": n_states}
        more = {"rewards": np.zeros(pairs), "ends": np.zeros(pairs, bool), "priorities": np.zeros(2 * leaves)}
        more |= {name: np.full(size, -1, np.int64) for name, size in none.items()}
        more |= {name: np.zeros(size, np.int64) for name, size in zero.items()}
        return {**super().arrays(), **more}


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DynaQ(TabularLearning):
    """Dyna-Q with a table: learning, and planning in a learned model, Sutton and Barto 8.2 and 8.4 (Sutton 1990)."""

    _: KW_ONLY
    planning_steps: Natural = 10
    """Planning updates after each step; 0 is Q-learning."""
    prioritized: bool = False
    """Prioritised sweeping: plan first for pairs whose values would change most, then for their predecessors."""
    priority_threshold: NonNegative = 1e-4
    """Smallest change of a value that gets a priority. Only with ``prioritized``."""

    made_of: ClassVar = {"solver": partial(Walker, Dyna)}
    card: ClassVar[Card] = Card(
        idea="a table, and planning with what was seen",
        learns_from="its own steps",
        search=Search(TABLE, tune.power_of_two("planning_steps", 1, 64), tune.choice("prioritized")),
    )
