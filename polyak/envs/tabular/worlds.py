"""Environments of the book as tables: Sutton and Barto 2018, "Reinforcement Learning: An Introduction", 2nd edition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

import numpy as np

from polyak.envs.tabular.process import FiniteProcess, Outcome
from polyak.envs.tabular.table_env import TableEnv

_Table = dict[int, dict[int, list[Outcome]]]

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
"""Up, right, down, left: rows and columns, in the order of the actions of grids."""

DYNA_MAZE = (
    ".......#G",
    "..#....#.",
    "S.#....#.",
    "..#......",
    ".....#...",
    ".........",
)
"""The maze of figure 8.2."""


def grid(rows: Sequence[str], step: float = 0.0, goal: float = 1.0) -> TableEnv:
    """A maze: ``S`` where episodes begin, ``G`` where they end, ``#`` walls; a move into a wall leaves all as it is.

    Args:
        rows: strings of the same length. Without an ``S`` episodes begin anywhere.
        step: reward of each move.
        goal: reward of the move that ends the episode, instead of it.

    Raises:
        ValueError: rows of different lengths, or no ``G``.
    """
    height, width = len(rows), len(rows[0]) if rows else 0
    if not width or any(len(row) != width for row in rows) or "G" not in "".join(rows):
        raise ValueError(f"rows={list(rows)} must be strings of one length, with a 'G' among them.")
    table: _Table = {}
    for state in range(height * width):
        row, column = divmod(state, width)
        table[state] = {}
        for action, (down, right) in enumerate(MOVES):
            new_row, new_column = row + down, column + right
            inside = 0 <= new_row < height and 0 <= new_column < width
            moves = inside and rows[new_row][new_column] != "#" and rows[row][column] not in "G#"
            there = new_row * width + new_column if moves else state
            ends = rows[there // width][there % width] == "G"
            reward = goal if ends and moves else 0.0 if rows[row][column] in "G#" else step
            table[state][action] = [(1.0, there, reward, ends)]
    fields = "".join(rows)
    wanted = "S" if "S" in fields else fields.replace("#", "").replace("G", "")
    starts = np.array([field in wanted for field in fields], float)
    return TableEnv(table, starts / starts.sum(), (height, width))


def random_walk(n_states: int = 19, left: float = -1.0, right: float = 1.0) -> TableEnv:
    """A random walk: equally likely steps to the left and to the right, from the middle to one of the ends (example
    7.1).

    There is a single action, so only values are learned. The exact value of state i is ``left + (right - left) (i + 1)
    / (n_states + 1)``.

    Args:
        n_states: number of states between the ends.
        left, right: reward of stepping off either end.
    """
    table: _Table = {}
    for state in range(n_states):
        ways = ((state - 1, left), (state + 1, right))
        table[state] = {0: [_step_to(way, reward, n_states) for way, reward in ways]}
    return TableEnv(table, np.eye(n_states)[n_states // 2])


def _step_to(state: int, reward: float, n_states: int) -> Outcome:
    if 0 <= state < n_states:
        return 0.5, state, 0.0, False
    return 0.5, min(max(state, 0), n_states - 1), reward, True


def max_bias(n_actions: int = 10, mean: float = -0.1, deviation: float = 1.0, n_rewards: int = 1000) -> TableEnv:
    """The example of maximisation bias (6.7): right ends the episode with reward 0; left leads, with reward 0, to a
    state whose actions all yield a normal reward of negative mean.

    States: 0 where episodes begin (actions 0 left, 1 right), 1 to the left, 2 the end.

    Args:
        n_actions: number of actions of the state to the left.
        mean, deviation: mean and standard deviation of its rewards.
        n_rewards: number of equally likely rewards that approximate the normal distribution: the middles of its
            quantiles.
    """
    normal = NormalDist(mean, deviation)
    rewards = [normal.inv_cdf((i + 0.5) / n_rewards) for i in range(n_rewards)]
    table: _Table = {
        0: {0: [(1.0, 1, 0.0, False)], 1: [(1.0, 2, 0.0, True)]},
        1: {action: [(1 / n_rewards, 2, reward, True) for reward in rewards] for action in range(n_actions)},
        2: {0: [(1.0, 2, 0.0, True)]},
    }
    return TableEnv(FiniteProcess.from_outcomes(table, np.eye(3)[0], max(2, n_actions)))


# -- blackjack ---------------------------------------------------------------------------------------------------------

STICK, HIT = 0, 1
CARDS = {card: (4 if card == 10 else 1) / 13 for card in range(1, 11)}
"""Chances of the cards, which are drawn with replacement; 1 is an ace."""


def blackjack(sab: bool = False) -> TableEnv:
    """Blackjack (example 5.1) as a table.

    States are numbered as the observations of ``Blackjack-v1`` of Gymnasium are, see
    :func:`blackjack_state`. Actions: 0 sticks, 1 hits.

    Args:
        sab: an ace and a ten as the first two cards win unless the dealer has such, too, as in the book. States from
            704 on are these hands, which observations do not distinguish from others of 21. ``False``: they count as
            any other 21.
    """
    table: _Table = {state: {STICK: [(1.0, state, 0.0, True)]} for state in range(32 * 11 * 2 + 11 * sab)}
    for total in range(4, 22):
        for dealer in CARDS:
            for ace in (False, True)[: 1 + (total >= 12)]:
                hit = [_hit(total, dealer, ace, card, chance) for card, chance in CARDS.items()]
                stick = _stick(total, dealer)
                table[blackjack_state(total, dealer, ace)] = {STICK: stick, HIT: hit}
    starts = np.zeros(len(table))
    for first, chance in CARDS.items():
        for second, its_chance in CARDS.items():
            ace = 1 in (first, second)
            total = first + second + 10 * ace
            for dealer, dealers_chance in CARDS.items():
                natural = sab and total == 21
                state = 704 + dealer if natural else blackjack_state(total, dealer, ace)
                starts[state] += chance * its_chance * dealers_chance
                if natural:
                    like = table[blackjack_state(21, dealer, True)]
                    table[state] = {STICK: _stick_natural(dealer), HIT: like[HIT]}
    return TableEnv(FiniteProcess.from_outcomes(table, starts, 2))


def blackjack_state(total: int, dealer: int, ace: bool) -> int:
    """The number of an observation: the player's sum, the dealer's card, and whether an ace counts 11."""
    return (total * 11 + dealer) * 2 + ace


def _hit(total: int, dealer: int, ace: bool, card: int, chance: float) -> Outcome:
    total += card
    if card == 1 and total + 10 <= 21:
        total, ace = total + 10, True
    elif total > 21 and ace:
        total, ace = total - 10, False
    if total > 21:
        return chance, blackjack_state(22, dealer, False), -1.0, True
    return chance, blackjack_state(total, dealer, ace), 0.0, False


def _stick(total: int, dealer: int) -> list[Outcome]:
    chances: dict[float, float] = defaultdict(float)
    for theirs, chance in dealers_sums(dealer, dealer == 1).items():
        chances[float(np.sign(total - (0 if theirs > 21 else theirs)))] += chance
    return [(chance, blackjack_state(22, dealer, False), reward, True) for reward, chance in chances.items()]


def _stick_natural(dealer: int) -> list[Outcome]:
    too = CARDS[10] if dealer == 1 else CARDS[1] if dealer == 10 else 0.0
    end = blackjack_state(22, dealer, False)
    return [(1 - too, end, 1.0, True), *([(too, end, 0.0, True)] if too else [])]


@cache
def dealers_sums(total: int, ace: bool) -> dict[int, float]:
    """Distribution of the dealer's final sum; the dealer hits below 17: sum -> probability.

    Args:
        total: of the dealer's cards, an ace counted as 1.
        ace: whether there is one among them.
    """
    worth = total + 10 if ace and total + 10 <= 21 else total
    if worth >= 17:
        return {worth: 1.0}
    sums: dict[int, float] = defaultdict(float)
    for card, chance in CARDS.items():
        for end, its_chance in dealers_sums(total + card, ace or card == 1).items():
            sums[end] += chance * its_chance
    return dict(sums)
