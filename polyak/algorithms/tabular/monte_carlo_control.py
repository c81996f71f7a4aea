"""Monte Carlo control: values are averages of returns, updated at the end of each episode.

Sutton and Barto chapter 5; first-visit against every-visit: Singh and Sutton 1996. On-policy with epsilon-greedy
actions or exploring starts (sections 5.3 and 5.4), or off-policy for the greedy policy with weighted importance
sampling (section 5.7), which stops at the last action that is not greedy.

Shapes: N environments, S states, A actions, L allocated steps.
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from polyak.algorithm_info import Card, Search, tune
from polyak.algorithms.tabular.choosing import best, step_size
from polyak.algorithms.tabular.learning import Rule, TabularLearning, Walker, steps_of_episodes
from polyak.algorithms.tabular.search import EPSILON
from polyak.algorithms.tabular.walking import Kernel, TableTransition
from polyak.hyperparameters.changing import Fixed
from polyak.hyperparameters.declaration import Fraction, require
from polyak.schedules import Schedule

# -- returns -----------------------------------------------------------------------------------------------------------


class TableWithEpisodes(NamedTuple):
    """The table, and the running episodes."""

    q: np.ndarray  # [1, S, A]
    legal: np.ndarray  # [S, A] bool
    visits: np.ndarray  # [1, S, A] int64
    totals: np.ndarray  # [S, A] sums of importance weights
    times: np.ndarray  # [S, A] int64 first visit of the pair in the episode that has just ended
    states: np.ndarray  # [N, L] int64
    actions: np.ndarray  # [N, L] int64
    chances: np.ndarray  # [N, L] probabilities with which the actions were chosen
    rewards: np.ndarray  # [N, L] rewards of the actions
    counts: np.ndarray  # [N] int64 steps of the episode so far
    gamma: float
    every_visit: bool
    off_policy: bool


def first_best(tables: TableWithEpisodes, state: int) -> int:
    """Returns the greedy action of the off-policy target policy: the first of ties. q [1, S, A] -> []"""
    value, _, _ = best(tables.q, tables.legal, state)
    for action in range(tables.q.shape[2]):
        if tables.legal[state, action] and tables.q[0, state, action] == value:
            return action
    return 0


def look_back(tables: TableWithEpisodes, moment: TableTransition, later: float) -> None:
    """Update from the end of an episode to its beginning: G <- R + gamma G, and q(S, A) moves towards G (Sutton and
    Barto section 5.4), off-policy by W / C of the way, with W <- W / b(A | S) (section 5.7). rewards [N, L]"""
    env, weight = moment.env, 1.0
    for time in range(tables.counts[env] - 1, -1, -1):
        tables.times[tables.states[env, time], tables.actions[env, time]] = time
    for time in range(tables.counts[env] - 1, -1, -1):
        state, action = tables.states[env, time], tables.actions[env, time]
        later = tables.rewards[env, time] + tables.gamma * later
        if tables.every_visit or tables.times[state, action] == time:
            if tables.off_policy:
                tables.visits[0, state, action] += 1
                tables.totals[state, action] += weight
                alpha = weight / tables.totals[state, action]
            else:
                alpha = step_size(tables.visits, 0, state, action, moment.alpha)
            tables.q[0, state, action] += alpha * (later - tables.q[0, state, action])
        if tables.off_policy:
            if action != first_best(tables, state):
                break
            weight /= tables.chances[env, time]


# -- the rule ----------------------------------------------------------------------------------------------------------


def learn(tables: TableWithEpisodes, moment: TableTransition, draws: np.ndarray) -> None:
    """Store the transition; at the end of the episode, update. Truncated episodes bootstrap from the table. states,
    actions, chances, rewards [N, L], draws [W] (unused)."""
    env = moment.env
    place = tables.counts[env]
    tables.states[env, place], tables.actions[env, place] = moment.state, moment.action
    tables.chances[env, place], tables.rewards[env, place] = moment.chance, moment.reward
    tables.counts[env] += 1
    if moment.ended:
        later = 0.0
        if not moment.terminated:
            later, _, _ = best(tables.q, tables.legal, moment.next_state)
        look_back(tables, moment, later)
        tables.counts[env] = 0


class Returns(Rule):
    """Learns from an episode at its end."""

    kernel = Kernel(learn, (first_best, look_back), TableWithEpisodes)

    def check(self) -> None:
        model = self.model
        fix = 'weighted importance sampling takes averages: use learning_rate="1/n", or off_policy=False.'
        require(not model.off_policy or model.learning_rate == "1/n", "learning_rate", model.learning_rate, fix)
        fix = "the behaviour policy must take every action with some probability: use more than 0, or off_policy=False."
        require(not (model.off_policy and model.epsilon == 0), "epsilon", model.epsilon, fix)

    @property
    def explores_starts(self) -> bool:
        return bool(self.model.exploring_starts)

    def numbers(self) -> dict[str, Any]:
        every = self.model.visits == "every"
        return {**super().numbers(), "every_visit": every, "off_policy": bool(self.model.off_policy)}

    def arrays(self) -> dict[str, np.ndarray]:
        shape = self.model.legal.shape
        return {**super().arrays(), "totals": np.zeros(shape), "times": np.zeros(shape, np.int64)}

    def memory(self) -> dict[str, np.ndarray]:
        return steps_of_episodes(self.model.n_envs, 0)

    def with_room(self, tables: Any, steps: int) -> Any:
        """Returns arrays of double the size if an episode could exceed them."""
        needed, room = int(tables.counts.max(initial=0)) + steps, tables.states.shape[1]
        if needed <= room:
            return tables
        more = ((0, 0), (0, max(needed, 2 * room) - room))
        names = ("states", "actions", "chances", "rewards")
        return tables._replace(**{name: np.pad(getattr(tables, name), more) for name in names})


# -- hyper-parameters --------------------------------------------------------------------------------------------------


@dataclass(eq=False, repr=False)
class MonteCarloControl(TabularLearning):
    """Monte Carlo control with a table: averages of returns (Sutton and Barto chapter 5)."""

    learning_rate: Literal["1/n"] | Fraction | Schedule = "1/n"
    """Step size: ``"1/n"``, which makes values averages of returns; a number in [0, 1], or a function of the remaining
    progress (1 at the start, 0 at the end)."""
    _: KW_ONLY
    visits: Literal["first", "every"] = "first"
    """The visits of a pair in an episode that are counted: the first one or every one."""
    exploring_starts: Annotated[bool, Fixed("episodes have begun by it. Use load(path, {}=...).")] = False
    """Start episodes with a random action, and in a random state if the environment's transitions are known; then
    ``epsilon=0`` can suffice."""
    off_policy: bool = False
    """Learn about the greedy policy, by weighted importance sampling; requires ``epsilon`` above 0 and averages."""

    made_of: ClassVar = {"solver": partial(Walker, Returns)}
    card: ClassVar[Card] = Card(
        idea="averages of returns, in a table",
        learns_from="its own episodes",
        search=Search(
            tune.discount(),
            EPSILON,
            tune.choice("visits", ["first", "every"]),
            tune.choice("exploring_starts"),
            tune.choice("off_policy"),
        ),
    )
