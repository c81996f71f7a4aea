"""Dyna-Q: each step is learned from, remembered in a model, and followed by steps of planning in that model.

Sutton 1990, "Integrated architectures for learning, planning, and reacting based on approximating dynamic programming";
Sutton and Barto section 8.2. Prioritised sweeping: Moore and Atkeson 1993, Machine Learning 13; Peng and Williams 1993;
Sutton and Barto section 8.4. The model is the last outcome of each pair, which is all there is to know where outcomes
are certain.

Shapes: S states, A actions, P = S A pairs, M a power of two of at least P.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from polyak.algorithms.tabular.choosing import best, step_size
from polyak.algorithms.tabular.learning import TabularLearning
from polyak.algorithms.tabular.search import TABLE
from polyak.algorithms.tabular.walking import WIDTH, Moment, Rule
from polyak.cards import Card, Search, tune
from polyak.hyperparameters.declaration import Natural, NonNegative, require

# -- the model ---------------------------------------------------------------------------------------------------------


class Model(NamedTuple):
    """The table, what has been seen, and what is urgent."""

    q: np.ndarray  # [1, S, A]
    legal: np.ndarray  # [S, A] bool
    visits: np.ndarray  # [1, S, A] int64
    successors: np.ndarray  # [P] int64 what followed last; -1: never tried
    rewards: np.ndarray  # [P]
    ends: np.ndarray  # [P] bool
    seen: np.ndarray  # [S] int64 states that were seen, n_seen of them
    n_seen: np.ndarray  # [1] int64
    tried: np.ndarray  # [S, A] int64 actions that were tried in each, n_tried of them
    n_tried: np.ndarray  # [S] int64
    priorities: np.ndarray  # [2 M] a tree: leaf p at M + p, above two nodes the larger of them, the largest at 1
    heads: np.ndarray  # [S] int64 the first pair that leads to each state; -1: none
    nexts: np.ndarray  # [P] int64 the one after it
    before: np.ndarray  # [P] int64 the one before it
    gamma: float
    n_plans: int
    sweeps: bool
    threshold: float


def target(mind: Model, pair: int) -> float:
    """R + gamma max_a q(S', a) as the model says. rewards, successors [P] -> []"""
    if mind.ends[pair]:
        return mind.rewards[pair]
    value, _, _ = best(mind.q, mind.legal, mind.successors[pair])
    return mind.rewards[pair] + mind.gamma * value


def remember(mind: Model, moment: Moment) -> int:
    """Take the transition into the model; its pair is now among those that lead to the new successor. successors [P]"""
    n_actions = mind.q.shape[2]
    pair = moment.state * n_actions + moment.action
    known = mind.successors[pair]
    if known < 0:
        if mind.n_tried[moment.state] == 0:
            mind.seen[mind.n_seen[0]] = moment.state
            mind.n_seen[0] += 1
        mind.tried[moment.state, mind.n_tried[moment.state]] = moment.action
        mind.n_tried[moment.state] += 1
    mind.rewards[pair], mind.ends[pair] = moment.reward, moment.terminated
    if known == moment.next_state:
        return pair
    if known >= 0:
        after, previous = mind.nexts[pair], mind.before[pair]
        if previous >= 0:
            mind.nexts[previous] = after
        else:
            mind.heads[known] = after
        if after >= 0:
            mind.before[after] = previous
    head = mind.heads[moment.next_state]
    mind.nexts[pair], mind.before[pair], mind.heads[moment.next_state] = head, -1, pair
    if head >= 0:
        mind.before[head] = pair
    mind.successors[pair] = moment.next_state
    return pair


def put_priority(mind: Model, pair: int, priority: float) -> None:
    """Set a leaf and what is above it. priorities [2 M]"""
    node = len(mind.priorities) // 2 + pair
    mind.priorities[node] = priority
    while node > 1:
        node //= 2
        mind.priorities[node] = max(mind.priorities[2 * node], mind.priorities[2 * node + 1])


def most_urgent(mind: Model) -> int:
    """The pair of the largest priority, the first of them; -1 where nothing is urgent. priorities [2 M] -> []"""
    if mind.priorities[1] <= 0.0:
        return -1
    node, leaves = 1, len(mind.priorities) // 2
    while node < leaves:
        node *= 2
        if mind.priorities[node] < mind.priorities[node + 1]:
            node += 1
    return node - leaves


# -- the rule ----------------------------------------------------------------------------------------------------------


def move(mind: Model, pair: int, alpha: float) -> None:
    """q(S, A) <- q + alpha [R + gamma max_a q(S', a) - q] as the model says (Sutton and Barto 8.2). q [1, S, A]"""
    n_actions = mind.q.shape[2]
    state, action = pair // n_actions, pair % n_actions
    size = alpha if alpha >= 0.0 else 1.0 / mind.visits[0, state, action]
    mind.q[0, state, action] += size * (target(mind, pair) - mind.q[0, state, action])


def sweep(mind: Model, pair: int, alpha: float) -> None:
    """The most urgent pairs first; whatever leads to one of them may become urgent. Sutton and Barto section 8.4, where
    a real step is not learned from at once, but becomes as urgent as its error is large. priorities [2 M]"""
    n_actions = mind.q.shape[2]
    error = abs(target(mind, pair) - mind.q[0, pair // n_actions, pair % n_actions])
    if error > mind.threshold:
        put_priority(mind, pair, error)
    for _ in range(mind.n_plans):
        urgent = most_urgent(mind)
        if urgent < 0:
            break
        put_priority(mind, urgent, 0.0)
        move(mind, urgent, alpha)
        before = mind.heads[urgent // n_actions]
        while before >= 0:
            if not mind.ends[before]:
                error = abs(target(mind, before) - mind.q[0, before // n_actions, before % n_actions])
                if error > mind.threshold:
                    put_priority(mind, before, error)
            before = mind.nexts[before]


def learn(mind: Model, moment: Moment, draws: np.ndarray) -> None:
    """Learn from the step as Q-learning does, then from ``n_plans`` steps that were seen before: of any state, any
    action that was tried there; or by urgency. draws [W]: two from ``WIDTH`` on for each planned step."""
    step_size(mind.visits, 0, moment.state, moment.action, moment.alpha)
    pair = remember(mind, moment)
    if mind.sweeps:
        sweep(mind, pair, moment.alpha)
        return
    move(mind, pair, moment.alpha)
    for plan in range(mind.n_plans):
        place = WIDTH + 2 * plan
        state = mind.seen[int(draws[place] * mind.n_seen[0])]
        action = mind.tried[state, int(draws[place + 1] * mind.n_tried[state])]
        move(mind, state * mind.q.shape[2] + action, moment.alpha)


RULE = Rule(learn, (target, remember, put_priority, most_urgent, move, sweep), Model)

# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class DynaQ(TabularLearning):
    """Dyna-Q with a table: learning, and planning in a model of what was seen (Sutton and Barto 8.2 and 8.4)."""

    _: KW_ONLY
    planning_steps: Natural = 10
    """Updates by the model after each step; 0 is Q-learning."""
    prioritized: bool = False
    """Prioritised sweeping: plan first for pairs whose values would change most, and then for what leads there."""
    priority_threshold: NonNegative = 1e-4
    """Changes that are not worth planning for. Only with ``prioritized``."""

    def _check_hyperparameters(self) -> None:
        super()._check_hyperparameters()
        fix = "prioritised sweeping learns by planning alone. Use planning_steps of at least 1."
        require(not (self.prioritized and self.planning_steps == 0), "prioritized", self.prioritized, fix)

    def _rule(self) -> Rule:
        return RULE

    def _n_draws(self) -> int:
        return WIDTH + (0 if self.prioritized else 2 * self.planning_steps)

    def _numbers(self) -> dict[str, Any]:
        plan = {"n_plans": int(self.planning_steps), "sweeps": bool(self.prioritized)}
        return {**super()._numbers(), **plan, "threshold": float(self.priority_threshold)}

    def _tables(self) -> dict[str, np.ndarray]:
        n_states, pairs = len(self.legal), self.legal.size
        leaves = 1 << (pairs - 1).bit_length()
        none = {"successors": pairs, "heads": n_states, "nexts": pairs, "before": pairs}
        return {
            **super()._tables(),
            **{name: np.full(size, -1, np.int64) for name, size in none.items()},
            "rewards": np.zeros(pairs),
            "ends": np.zeros(pairs, bool),
            "seen": np.zeros(n_states, np.int64),
            "n_seen": np.zeros(1, np.int64),
            "tried": np.zeros(self.legal.shape, np.int64),
            "n_tried": np.zeros(n_states, np.int64),
            "priorities": np.zeros(2 * leaves),
        }

    card: ClassVar[Card] = Card(
        idea="a table, and planning with what was seen",
        learns_from="its own steps",
        reference="Sutton 1990",
        search=Search(TABLE, tune.power_of_two("planning_steps", 1, 64), tune.choice("prioritized")),
        settings="dyna_q.yml",
        page="classics.md",
    )
