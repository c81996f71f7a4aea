"""The loop of tabular learning: act, sample the outcome from the process, learn.

It is plain Python over arrays, which numba compiles if installed (``polyak[fast]``): the same source, random numbers
and order of additions give bitwise equal results with and without it.

Shapes: N environments, T steps, S states, A actions; the random numbers of one step of one environment are a row [W] of
uniform numbers, with the positions named below.
"""

import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polyak.algorithms.tabular.choosing import PARTS, choose
from polyak.envs.tabular.known import World

EXPLORES, WHICH = 0, 1
"""Choose the action, unless it was chosen before: whether it is random, and which."""
OUTCOME = 2
"""Chooses the outcome."""
START = 3
"""Chooses the initial state of the next episode."""
NEXT_EXPLORES, NEXT_WHICH = 4, 5
"""Choose the next action, for rules that need it in advance."""
COIN, TIE = 6, 7
"""Further random numbers of a rule."""
WIDTH = 8
"""Position of the first further random number of rules that need more."""


class TableTransition(NamedTuple):
    """One transition, from which a rule learns."""

    env: int
    state: int
    action: int
    chance: float
    """Probability with which the action was chosen."""
    reward: float
    next_state: int
    next_action: int
    """The action that will be taken in the next state, if the rule chooses it in advance; otherwise -1."""
    next_chance: float
    terminated: bool
    """Whether the next state is terminal."""
    ended: bool
    """Whether the episode is over, terminated or truncated."""
    alpha: float
    """Step size; negative: one over the number of visits."""
    epsilon: float


class Places(NamedTuple):
    """The states of N environments."""

    states: np.ndarray  # [N] int64
    actions: np.ndarray  # [N] int64 next actions; -1: not chosen yet
    chances: np.ndarray  # [N] probabilities with which they were chosen
    lengths: np.ndarray  # [N] int64 steps of the episode so far
    returns: np.ndarray  # [N] returns of the episode so far


class EpisodeEnds(NamedTuple):
    """Preallocated arrays of the episodes that end during T steps, [T N] each."""

    steps: np.ndarray  # int64
    envs: np.ndarray  # int64
    returns: np.ndarray
    lengths: np.ndarray  # int64
    truncated: np.ndarray  # bool


class LastSteps(NamedTuple):
    """The last step of each environment, [N] each."""

    actions: np.ndarray  # int64
    rewards: np.ndarray
    successors: np.ndarray  # int64


Learn = Callable[[Any, TableTransition, np.ndarray], None]
"""A rule: updates its tables and stored steps (a NamedTuple of arrays) by a transition and random numbers."""
Walk = Callable[..., tuple[int, int]]


class Kernel(NamedTuple):
    """The compiled functions of a rule."""

    learn: Learn
    parts: tuple[Callable[..., Any], ...]
    """Functions that it calls, besides :mod:`polyak.algorithms.tabular.choosing`."""
    tables: type[Any]
    """The NamedTuple of its tables: ``q``, ``legal``, further arrays, numbers."""


def make_walk(learn: Learn, version: int = 0) -> Walk:
    """Returns the loop for a rule. ``version`` is part of numba's cache key of the compiled loop."""

    def walk(
        tables: Any,
        world: World,
        places: Places,
        ends: EpisodeEnds,
        last: LastSteps,
        alphas: np.ndarray,
        epsilons: np.ndarray,
        draws: np.ndarray,
        n_episodes: int,
        carries: bool,
        explores_starts: bool,
    ) -> tuple[int, int]:
        """Make up to T steps in each of N environments, or until ``n_episodes`` have ended.

        Args:
            tables: of the rule; changed in place, as are ``places``, ``ends`` and ``last``.
            world: the process.
            places, ends, last: see their classes.
            alphas, epsilons: [T] step sizes and exploration rates.
            draws: [T, N, W] uniform in [0, 1).
            n_episodes: at least 1.
            carries: choose the next action before learning; otherwise after.
            explores_starts: the first action of an episode is random.

        Returns:
            number of steps made, and of episodes that ended in them.
        """
        if version < 0:
            return 0, 0
        n_ended = 0
        for t in range(draws.shape[0]):
            for env in range(draws.shape[1]):
                draw, epsilon, state = draws[t, env], epsilons[t], places.states[env]
                if places.actions[env] < 0:
                    any_action = explores_starts and places.lengths[env] == 0
                    chance_of_any = 1.0 if any_action else epsilon
                    chosen = choose(tables.q, tables.legal, state, chance_of_any, draw[EXPLORES], draw[WHICH])
                    places.actions[env], places.chances[env] = chosen
                action, chance = places.actions[env], places.chances[env]

                pair = state * world.n_actions + action
                low, high = world.first[pair], world.first[pair + 1] - 1
                while low < high:  # the first outcome whose total exceeds the draw, or the last
                    middle = (low + high) // 2
                    if world.totals[middle] > draw[OUTCOME]:
                        high = middle
                    else:
                        low = middle + 1
                successor, reward, terminated = world.successors[low], world.rewards[low], world.ends[low]
                places.lengths[env] += 1
                places.returns[env] += reward
                ended = terminated or (world.time_limit > 0 and places.lengths[env] >= world.time_limit)

                next_action, next_chance = -1, 1.0
                if carries and not terminated:
                    explores, which = draw[NEXT_EXPLORES], draw[NEXT_WHICH]
                    next_action, next_chance = choose(tables.q, tables.legal, successor, epsilon, explores, which)
                moment = TableTransition(
                    env,
                    state,
                    action,
                    chance,
                    reward,
                    successor,
                    next_action,
                    next_chance,
                    terminated,
                    ended,
                    alphas[t],
                    epsilon,
                )
                learn(tables, moment, draw)

                last.actions[env], last.rewards[env], last.successors[env] = action, reward, successor
                places.states[env] = successor
                places.actions[env], places.chances[env] = next_action, next_chance
                if ended:
                    ends.steps[n_ended], ends.envs[n_ended] = t, env
                    ends.returns[n_ended], ends.lengths[n_ended] = places.returns[env], places.lengths[env]
                    ends.truncated[n_ended] = not terminated
                    n_ended += 1
                    low, high = 0, len(world.starts) - 1
                    while low < high:
                        middle = (low + high) // 2
                        if world.starts[middle] > draw[START]:
                            high = middle
                        else:
                            low = middle + 1
                    places.states[env], places.actions[env] = low, -1
                    places.lengths[env], places.returns[env] = 0, 0.0
            if n_ended >= n_episodes:
                return t + 1, n_ended
        return draws.shape[0], n_ended

    return walk


@cache
def compiled(kernel: Kernel) -> Walk | None:
    """Returns the loop for a rule as machine code, cached on disk; None without numba."""
    try:
        from numba import njit
        from numba.extending import register_jitable
    except ImportError:
        return None
    for part in (*PARTS, *kernel.parts, kernel.learn):
        if part not in _registered:
            register_jitable(part)
            _registered.add(part)
    # The loop creates no arrays, so numba need not count references: that saves a quarter of the time.
    walk: Walk = njit(cache=True, _nrt=False)(make_walk(kernel.learn, _version()))
    return walk


_registered: set[Any] = set()


@cache
def _version() -> int:
    """Returns a hash of this package's sources: numba checks only the file of a loop, not those of its functions."""
    return zlib.crc32(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
