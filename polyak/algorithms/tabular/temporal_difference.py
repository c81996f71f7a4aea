"""n-step temporal differences, sampled, expected or mixed: the rule Q(sigma).

De Asis, Hernandez-Garcia, Holland and Sutton 2018, "Multi-step reinforcement learning: a unifying algorithm", AAAI,
arXiv:1703.01327; Sutton and Barto ch. 6 and 7. With n = 1 it is SARSA (sigma = 1), expected SARSA (sigma = 0) or, for
the greedy policy, Q-learning; with n > 1 n-step SARSA (sigma = 1) and tree backup (sigma = 0).

Shapes: N environments, S states, A actions, n steps.
"""

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np

from polyak.algorithms.tabular import traces
from polyak.algorithms.tabular.choosing import expected, probability, step_size, total
from polyak.algorithms.tabular.learning import Rule, TabularLearning, Walker, steps_of_episodes
from polyak.algorithms.tabular.walking import Kernel, TableTransition
from polyak.hyperparameters.changing import Fixed
from polyak.hyperparameters.declaration import Count, Fraction, require

# -- targets -----------------------------------------------------------------------------------------------------------


class TableWithSteps(NamedTuple):
    """The table, and the last n transitions of each environment."""

    q: np.ndarray  # [1, S, A]
    legal: np.ndarray  # [S, A] bool
    visits: np.ndarray  # [1, S, A] int64
    states: np.ndarray  # [N, n] int64, that of time t at t mod n
    actions: np.ndarray  # [N, n] int64
    chances: np.ndarray  # [N, n] probabilities with which the actions were chosen
    rewards: np.ndarray  # [N, n] rewards of the actions
    counts: np.ndarray  # [N] int64 transitions of the episode so far
    gamma: float
    sigma: float
    """1: sampled backups of the actions taken; 0: expected backups."""
    greedy: bool
    """Whether the target policy is the greedy policy or the behaviour policy."""


def backed_up(
    tables: TableWithSteps,
    epsilon: float,
    reward: float,
    state: int,
    action: int,
    chance: float,
    later: float,
    weighs: bool,
) -> float:
    """R + gamma [sigma rho G + (1 - sigma) (sum_a pi(a | S) q(S, a) + pi(A | S) (G - q(S, A)))], the target one step
    earlier: arXiv:1703.01327 and Sutton and Barto section 7.6, each step weighted by its own ratio rho.

    Args:
        tables: q [1, S, A].
        epsilon: of the behaviour policy.
        reward: [] R.
        state, action: [] S, A, reached with R.
        chance: [] probability with which A was chosen.
        later: [] G, from S and A on.
        weighs: whether G differs from q(S, A), which requires tree backup's second term.
    """
    target_epsilon = 0.0 if tables.greedy else epsilon
    value = 0.0
    if tables.sigma > 0.0:
        ratio = 1.0
        if tables.greedy:
            ratio = probability(tables.q, tables.legal, state, action, 0.0, False) / chance
        value += tables.sigma * ratio * later
    if tables.sigma < 1.0:
        mean = expected(tables.q, tables.legal, state, target_epsilon)
        if weighs:
            weight = probability(tables.q, tables.legal, state, action, target_epsilon, not tables.greedy)
            mean += weight * (later - total(tables.q, state, action))
        value += (1.0 - tables.sigma) * mean
    return reward + tables.gamma * value


def update(tables: TableWithSteps, moment: TableTransition, oldest: int) -> None:
    """Move q(S_tau, A_tau) towards the target of the transitions from tau = ``oldest`` [] to the newest."""
    n, env, newest = tables.states.shape[1], moment.env, tables.counts[moment.env] - 1
    target = tables.rewards[env, newest % n]
    if not moment.terminated:
        later = 0.0
        if moment.next_action >= 0:
            later = total(tables.q, moment.next_state, moment.next_action)
        target = backed_up(
            tables, moment.epsilon, target, moment.next_state, moment.next_action, moment.next_chance, later, False
        )
    for time in range(newest - 1, oldest - 1, -1):
        after, reward = (time + 1) % n, tables.rewards[env, time % n]
        state, action, chance = tables.states[env, after], tables.actions[env, after], tables.chances[env, after]
        target = backed_up(tables, moment.epsilon, reward, state, action, chance, target, True)
    state, action = tables.states[env, oldest % n], tables.actions[env, oldest % n]
    alpha = step_size(tables.visits, 0, state, action, moment.alpha)
    tables.q[0, state, action] += alpha * (target - tables.q[0, state, action])


# -- the rule ----------------------------------------------------------------------------------------------------------


def learn(tables: TableWithSteps, moment: TableTransition, draws: np.ndarray) -> None:
    """Store the transition, and update the pair of n - 1 steps before it; at the end of the episode all remaining
    pairs. Truncated episodes bootstrap from their last state.

    Args:
        tables: states, actions, chances, rewards [N, n].
        moment: the transition.
        draws: [W], unused.
    """
    n, env = tables.states.shape[1], moment.env
    place = tables.counts[env] % n
    tables.states[env, place], tables.actions[env, place] = moment.state, moment.action
    tables.chances[env, place], tables.rewards[env, place] = moment.chance, moment.reward
    tables.counts[env] += 1
    oldest = tables.counts[env] - n
    if moment.ended:
        for time in range(max(oldest, 0), tables.counts[env]):
            update(tables, moment, time)
        tables.counts[env] = 0
    elif oldest >= 0:
        update(tables, moment, oldest)


KERNEL = Kernel(learn, (backed_up, update), TableWithSteps)


class Differences(Rule):
    """Learns from the last n steps, or by traces. ``sigma`` is a hyper-parameter, or a constant of the class."""

    @property
    def kernel(self) -> Kernel:
        return traces.KERNEL if self.model.lambda_ > 0 else KERNEL

    @property
    def carries(self) -> bool:
        return self.model.sigma > 0 or self.model.lambda_ > 0

    def check(self) -> None:
        model = self.model
        fix = f"n_steps={model.n_steps} looks ahead already. Use n_steps=1 with traces, or lambda_=0."
        require(model.lambda_ == 0 or model.n_steps == 1, "lambda_", model.lambda_, fix)

    def numbers(self) -> dict[str, Any]:
        model = self.model
        numbers = {**super().numbers(), "sigma": float(model.sigma), "greedy": model.greedy_target}
        if model.lambda_ > 0:
            numbers |= {"lambda_": float(model.lambda_), "kind": traces.KINDS.index(model.traces)}
        return numbers

    def memory(self) -> dict[str, np.ndarray]:
        n, pairs = self.model.n_envs, self.model.legal.size
        if self.model.lambda_ == 0:
            return steps_of_episodes(n, self.model.n_steps)
        arrays = np.zeros((n, pairs)), np.zeros((n, pairs), np.int64), np.zeros(n, np.int64)
        return dict(zip(("traces", "pairs", "counts"), arrays, strict=True))


# -- hyper-parameters --------------------------------------------------------------------------------------------------

MEMORY = Fixed("the memory of episodes under way is built with it. Use load(path, {}=...).")


@dataclass(eq=False, repr=False)
class TemporalDifference(TabularLearning):
    """Base class of algorithms that learn one table by temporal differences."""

    _: KW_ONLY
    n_steps: Annotated[Count, MEMORY] = 1
    """Rewards that are summed before bootstrapping."""
    lambda_: Annotated[Fraction, MEMORY] = 0.0
    """Decay of eligibility traces, in [0, 1]; 0: only the last step is updated."""
    traces: Literal["accumulating", "replacing", "dutch"] = "accumulating"
    """Update of a trace at a visit: accumulating (add 1), replacing (set to 1) or dutch (add 1 after decay by the step
    size). Only with ``lambda_``."""

    made_of: ClassVar = {"solver": partial(Walker, Differences)}
    greedy_target: ClassVar[bool] = False
    """Whether the target policy is the greedy policy or the behaviour policy."""
