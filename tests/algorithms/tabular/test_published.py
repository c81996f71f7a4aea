"""What learning comes to, beside exact values and published figures; a minute or two with numba (``polyak[fast]``).

Bounds are the reference and what its interval and ours allow for: see each test.
"""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from polyak import (
    SARSA,
    DoubleQLearning,
    DynaQ,
    ExpectedSARSA,
    MonteCarloControl,
    PolicyIteration,
    QLearning,
    ValueIteration,
)
from polyak.envs.tabular.process import FiniteProcess
from polyak.envs.tabular.worlds import DYNA_MAZE, blackjack, grid, max_bias, random_walk

pytestmark = pytest.mark.learn


def greedy_value(model: Any, process: FiniteProcess, gamma: float = 1.0) -> float:
    """What the greedy policy is worth from the start, exactly."""
    return PolicyIteration(process.under(model.greedy), gamma=gamma).learn(1).start_value


def greedy_return(model: Any, env: gym.Env, most: int = 100) -> float:
    """Of one episode that has nothing to do with chance."""
    observation, _ = env.reset(seed=0)
    total = 0.0
    for _ in range(most):
        observation, reward, terminated, _, _ = env.step(int(model.predict(observation, deterministic=True)[0]))
        total += float(reward)
        if terminated:
            break
    return total


@pytest.mark.parametrize(
    ("cls", "online", "deviation", "greedy"),
    [(QLearning, -50.5, 7.5, -13), (SARSA, -26.5, 6.0, -17), (ExpectedSARSA, -20.8, 2.1, -15)],
)
def test_cliff_walking(cls: Any, online: float, deviation: float, greedy: float) -> None:
    """Epsilon 0.1, alpha 0.5: mean return of the last 100 of 500 episodes, 20 seeds against 20 of the reference, within
    four standard errors of the difference; and the greedy path of most seeds: the cliff's edge, or the safe way."""
    process = FiniteProcess.of(gym.make("CliffWalking-v1"))
    returns, paths = [], []
    for seed in range(20):
        model = cls(process, 0.5, gamma=1.0, seed=seed)
        returns.append(model.learn_episodes(500).returns[-100:].mean())
        paths.append(greedy_return(model, gym.make("CliffWalking-v1")))
    assert abs(np.mean(returns) - online) < 4 * deviation * (2 / 20) ** 0.5
    assert np.median(paths) == greedy


def test_maximisation_bias() -> None:
    """Sutton and Barto example 6.7, 1,000 runs: the share of left actions within five standard errors."""
    world, runs = max_bias(n_rewards=200).process, 1000
    for cls, at_50, at_300 in ((QLearning, 0.82, 0.11), (DoubleQLearning, 0.14, 0.08)):
        left = np.zeros(300)
        for seed in range(runs):
            left += cls(world, 0.1, gamma=1.0, seed=seed).learn_episodes(300).lengths == 2
        for share, wanted in ((left[49] / runs, at_50), (left[299] / runs, at_300)):
            assert abs(share - wanted) < 5 * (wanted * (1 - wanted) / runs) ** 0.5 + 0.005  # the reference's rounding


def test_the_random_walks_u_shape() -> None:
    """Sutton and Barto figure 7.2 at the best step size of each n: RMS error over the first 10 episodes, 100 runs."""
    reference = {
        1: (0.8, 0.348),
        2: (0.6, 0.280),
        4: (0.4, 0.268),
        8: (0.3, 0.290),
        16: (0.2, 0.327),
        512: (0.03, 0.495),
    }
    truth, found = np.arange(-9, 10) / 10, {}
    for n, (alpha, error) in reference.items():
        errors = np.zeros(100)
        for seed in range(100):
            model = SARSA(random_walk().process, alpha, gamma=1.0, seed=1000 + seed, n_steps=n)
            for _ in range(10):
                model.learn_episodes(1)
                errors[seed] += np.sqrt(np.mean((model.values - truth) ** 2)) / 10
        found[n] = errors.mean()
        assert abs(found[n] - error) < 4 * errors.std() * (2 / 100) ** 0.5, (n, found[n])
    assert min(found, key=found.__getitem__) == 4
    order = [found[n] for n in reference]
    assert order[0] > order[1] > order[2] < order[3] < order[4] < order[5]


def test_taxi() -> None:
    """At least 7.8 of the 7.93 that are possible, after 5,000 episodes; over 200 steps, all first states, exactly."""
    process = FiniteProcess.of(gym.make("Taxi-v4"))
    for seed in range(3):
        model = QLearning("Taxi-v4", 0.5, gamma=0.99, seed=seed)
        model.learn_episodes(5000)
        found = ValueIteration(process.under(model.greedy), gamma=1.0, tolerance=0.0).learn(200).start_value
        assert found >= 7.8


def test_frozen_lake() -> None:
    """Tuned settings: the greedy policy is worth at least 0.53 of 0.5420 with gamma 0.99, three seeds."""
    from polyak.zoo.models import new_model
    from polyak.zoo.settings import load_settings

    process = FiniteProcess.of(gym.make("FrozenLake-v1"))
    settings = load_settings(QLearning, "q_learning", "FrozenLake-v1")
    for seed in range(3):
        model = new_model(QLearning, settings, gym.make("FrozenLake-v1"), seed=seed)  # type: ignore[arg-type]
        model.learn(settings.n_timesteps)
        assert greedy_value(model, process, 0.99) >= 0.53


def test_blackjack_with_exploring_starts() -> None:
    """5,000,000 hands: values within 0.01 where it matters, and the policy of figure 5.2 in 95 % of the states."""
    world = blackjack(sab=True)
    exact = ValueIteration(world, gamma=1.0).learn(100)
    model = MonteCarloControl(world, gamma=1.0, epsilon=0.0, exploring_starts=True, seed=0)
    model.learn_episodes(5_000_000)
    assert greedy_value(model, world.process) == pytest.approx(exact.start_value, abs=0.002)
    starts = world.process.starts
    assert starts @ model.values == pytest.approx(exact.start_value, abs=0.01)
    shown = [(total * 11 + dealer) * 2 + ace for total in range(12, 22) for dealer in range(1, 11) for ace in (0, 1)]
    assert np.mean(model.greedy[shown] == exact.greedy[shown]) > 0.95


def test_blackjack_off_policy() -> None:
    """A behaviour that often errs teaches the greedy policy, by weighted importance sampling."""
    world = blackjack()
    best = ValueIteration(world, gamma=1.0).learn(100).start_value
    for seed in range(3):
        model = MonteCarloControl(world, gamma=1.0, epsilon=0.5, off_policy=True, seed=seed)
        model.learn_episodes(1_000_000)
        assert greedy_value(model, world.process) >= best - 0.005


@pytest.mark.parametrize("prioritized", [False, True])
def test_planning_saves_experience(prioritized: bool) -> None:
    """Sutton and Barto figure 8.2: with 50 planning steps the third episode is nearly the shortest, 14 steps, which
    without takes about 25 episodes."""
    maze = grid(DYNA_MAZE).process
    thirds = {
        plans: np.mean(
            [
                DynaQ(maze, 0.1 if not prioritized else 0.5, gamma=0.95, seed=s, planning_steps=plans, prioritized=on)
                .learn_episodes(5)
                .lengths[2:]
                .mean()
                for s in range(20)
            ]
        )
        for plans, on in ((0, False), (50, prioritized))
    }
    assert thirds[50] < 30
    assert thirds[0] > 5 * thirds[50]


def test_traces_speed_learning_up() -> None:
    """In the maze, whose only reward is at its end, SARSA(0.9) needs half the steps of SARSA for 20 episodes."""
    maze = grid(DYNA_MAZE).process
    steps = {
        lam: np.mean(
            [SARSA(maze, 0.1, gamma=0.95, lambda_=lam, seed=s).learn_episodes(20).lengths.sum() for s in range(20)]
        )
        for lam in (0.0, 0.9)
    }
    assert steps[0.9] < 0.5 * steps[0.0]
