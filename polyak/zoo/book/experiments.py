"""The experiments behind the figures: numbers in, curves out.

Bands are 95 % intervals of the mean over runs. Shapes: R runs, E episodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from polyak.envs.tabular.table_env import TableEnv


class DrawnLine(NamedTuple):
    """One line of a figure."""

    x: np.ndarray  # [X]
    y: np.ndarray  # [X] mean over runs
    label: str
    band: tuple[np.ndarray, np.ndarray]  # [X] ends of its intervals; NaN where they are unknown, as of a single run
    n_runs: int


def mean_curve(x: Any, values: np.ndarray, label: str) -> DrawnLine:
    """The mean of R runs with its interval. values [R, X]"""
    from polyak.evaluation.intervals import mean_ends

    return DrawnLine(np.asarray(x), values.mean(0), label, mean_ends(values.T), len(values))


# -- chapter 5 ---------------------------------------------------------------------------------------------------------


class Hands(NamedTuple):
    """Values of blackjack's states: by the player's sum, 12 to 21, and the dealer's card, 1 to 10."""

    with_ace: np.ndarray  # [10, 10] a usable ace
    without_ace: np.ndarray  # [10, 10]

    @classmethod
    def of(cls, by_state: np.ndarray) -> Hands:
        """From values by number of state."""
        from polyak.envs.tabular.worlds import blackjack_state

        def grid(ace: bool) -> np.ndarray:
            numbers = [[blackjack_state(total, dealer, ace) for dealer in range(1, 11)] for total in range(12, 22)]
            found: np.ndarray = by_state[np.array(numbers)]
            return found

        return cls(grid(True), grid(False))


def blackjack_prediction(episodes: tuple[int, ...], seed: int) -> list[Hands]:
    """Values of the policy that sticks on 20 and 21 only, after so many episodes: figure 5.1."""
    from polyak.algorithms.tabular.monte_carlo_control import MonteCarloControl
    from polyak.envs.tabular.worlds import HIT, STICK, blackjack, blackjack_state

    process = blackjack(sab=True).process
    policy = np.where(process.legal[:, HIT], HIT, STICK)
    for dealer in range(1, 11):
        policy[[blackjack_state(total, dealer, ace) for total in (20, 21) for ace in (False, True)]] = STICK
        policy[704 + dealer] = STICK
    model = MonteCarloControl(process.under(policy), gamma=1.0, seed=seed)
    found, played = [], 0
    for number in episodes:
        model.learn_episodes(number - played)
        played = number
        found.append(Hands.of(model.values))
    return found


def blackjack_control(episodes: int, seed: int) -> tuple[Hands, Hands]:
    """The policy that Monte Carlo with exploring starts finds (1 hits), and its values: figure 5.2."""
    from polyak.algorithms.tabular.monte_carlo_control import MonteCarloControl
    from polyak.envs.tabular.worlds import blackjack

    model = MonteCarloControl(blackjack(sab=True), gamma=1.0, epsilon=0.0, exploring_starts=True, seed=seed)
    model.learn_episodes(episodes)
    return Hands.of(model.greedy), Hands.of(model.values)


# -- chapter 6 ---------------------------------------------------------------------------------------------------------


def _cliff() -> Any:
    import gymnasium as gym
    from gymnasium.wrappers import TimeLimit

    from polyak.envs.tabular.process import FiniteProcess
    from polyak.envs.tabular.table_env import TableEnv

    process = FiniteProcess.of(gym.make("CliffWalking-v1"))
    return TimeLimit(TableEnv(process, shape=(4, 12)), 10_000)  # an episode of that length holds enough to learn from


def _controls() -> dict[str, Any]:
    from polyak.algorithms.tabular.expected_sarsa import ExpectedSARSA
    from polyak.algorithms.tabular.q_learning import QLearning
    from polyak.algorithms.tabular.sarsa import SARSA

    return {"SARSA": SARSA, "Q-learning": QLearning, "expected SARSA": ExpectedSARSA}


def cliff_by_step_size(runs: int, seed: int, long: int = 5_000) -> list[DrawnLine]:
    """Mean return of the first 100 episodes, and of ``long`` of them (in a tenth of the runs), by step size: figure
    6.3, where the long ones are 100,000."""
    alphas = np.round(np.arange(0.1, 1.01, 0.1), 2)
    curves = []
    for episodes, share, what in ((100, runs, "interim"), (long, max(2, runs // 10), "asymptotic")):
        for name, control in _controls().items():
            means = np.zeros((share, len(alphas)))
            for run, column in np.ndindex(*means.shape):
                model = control(_cliff(), float(alphas[column]), gamma=1.0, seed=seed + run)
                means[run, column] = model.learn_episodes(episodes).returns.mean()
            curves.append(mean_curve(alphas, means, f"{name}, {what}"))
    return curves


def cliff_online(runs: int, seed: int, episodes: int = 500) -> list[DrawnLine]:
    """Returns while learning, with step size 0.5 and epsilon 0.1: example 6.6."""
    curves = []
    for name, control in _controls().items():
        models = (control(_cliff(), 0.5, gamma=1.0, seed=seed + run) for run in range(runs))
        returns = np.stack([model.learn_episodes(episodes).returns for model in models])
        curves.append(mean_curve(np.arange(1, episodes + 1), returns, name))
    return curves


def maximization_bias(runs: int, seed: int, episodes: int = 300) -> list[DrawnLine]:
    """Share of episodes that go left, which is a mistake: figure 6.5."""
    from polyak.algorithms.tabular.double_q_learning import DoubleQLearning
    from polyak.algorithms.tabular.q_learning import QLearning
    from polyak.envs.tabular.worlds import max_bias

    world = max_bias(n_rewards=200).process
    curves = []
    for name, control in (("Q-learning", QLearning), ("double Q-learning", DoubleQLearning)):
        models = (control(world, 0.1, gamma=1.0, seed=seed + run) for run in range(runs))
        left = np.stack([model.learn_episodes(episodes).lengths == 2 for model in models])
        curves.append(mean_curve(np.arange(1, episodes + 1), left.astype(float), name))
    return curves


# -- chapters 7 and 8 --------------------------------------------------------------------------------------------------


def random_walk_errors(
    runs: int, seed: int, steps: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512), episodes: int = 10
) -> list[DrawnLine]:
    """RMS error of the values of the random walk over the first episodes, by step size: figure 7.2."""
    from polyak.algorithms.tabular.sarsa import SARSA
    from polyak.envs.tabular.worlds import random_walk

    alphas, walk = (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0), random_walk()
    truth = exact_walk(walk)
    curves = []
    for n in steps:
        errors = np.zeros((runs, len(alphas)))
        for run in range(runs):
            for column, alpha in enumerate(alphas):
                model = SARSA(walk.process, alpha, gamma=1.0, n_steps=n, seed=seed + run)
                for _ in range(episodes):
                    model.learn_episodes(1)
                    errors[run, column] += np.sqrt(np.mean((model.values - truth) ** 2)) / episodes
        curves.append(mean_curve(alphas, errors, f"n = {n}"))
    return curves


def exact_walk(walk: TableEnv) -> np.ndarray:
    """[S] values of the states of a random walk."""
    from polyak.algorithms.tabular.policy_iteration import PolicyIteration

    return PolicyIteration(walk.process, gamma=1.0).learn(2).values


def dyna_maze(runs: int, seed: int, episodes: int = 50) -> list[DrawnLine]:
    """Steps per episode with 0, 5 and 50 planning steps: figure 8.2, which leaves out the first episode."""
    from polyak.algorithms.tabular.dyna_q import DynaQ
    from polyak.envs.tabular.worlds import DYNA_MAZE, grid

    maze = grid(DYNA_MAZE).process
    curves = []
    for plans in (0, 5, 50):
        models = (DynaQ(maze, 0.1, gamma=0.95, planning_steps=plans, seed=seed + run) for run in range(runs))
        lengths = np.stack([model.learn_episodes(episodes).lengths[1:] for model in models])
        curves.append(mean_curve(np.arange(2, episodes + 1), lengths.astype(float), f"{plans} planning steps"))
    return curves
