"""Figures of Sutton and Barto 2018, "Reinforcement Learning: An Introduction", computed and drawn.

    python benchmarks/book.py 7.2 --output figure_7_2.png      # a figure
    python benchmarks/book.py values --env CliffWalking-v1     # the best values and policy of a grid

Bands are 95 % intervals of the mean over runs. Shapes: R runs, E episodes.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit
from matplotlib.figure import Figure

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
from polyak.envs import make_vec_env
from polyak.envs.tabular.process import FiniteProcess
from polyak.envs.tabular.table_env import TableEnv
from polyak.envs.tabular.worlds import DYNA_MAZE, HIT, STICK, blackjack, blackjack_state, grid, max_bias, random_walk
from polyak.evaluation.intervals import mean_ends
from polyak.zoo.plots.grids import grid as draw_grid
from polyak.zoo.plots.grids import grid_of, new_figure

_CARDS = ("A", *map(str, range(2, 11)))


class DrawnLine(NamedTuple):
    """One line of a figure."""

    x: np.ndarray  # [X]
    y: np.ndarray  # [X] mean over runs
    label: str
    band: tuple[np.ndarray, np.ndarray]  # [X] ends of its intervals; NaN where they are unknown, as of a single run
    n_runs: int


def mean_curve(x: Any, values: np.ndarray, label: str) -> DrawnLine:
    """The mean of R runs with its interval. values [R, X]"""
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

        def table(ace: bool) -> np.ndarray:
            numbers = [[blackjack_state(total, dealer, ace) for dealer in range(1, 11)] for total in range(12, 22)]
            found: np.ndarray = by_state[np.array(numbers)]
            return found

        return cls(table(True), table(False))


def blackjack_prediction(episodes: tuple[int, ...], seed: int) -> list[Hands]:
    """Values of the policy that sticks on 20 and 21 only, after so many episodes: figure 5.1."""
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
    model = MonteCarloControl(blackjack(sab=True), gamma=1.0, epsilon=0.0, exploring_starts=True, seed=seed)
    model.learn_episodes(episodes)
    return Hands.of(model.greedy), Hands.of(model.values)


# -- chapter 6 ---------------------------------------------------------------------------------------------------------


def _cliff() -> Any:
    process = FiniteProcess.of(gym.make("CliffWalking-v1"))
    return TimeLimit(TableEnv(process, shape=(4, 12)), 10_000)  # an episode of that length holds enough to learn from


def _controls() -> dict[str, Any]:
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
    return PolicyIteration(walk.process, gamma=1.0).learn(2).values


def dyna_maze(runs: int, seed: int, episodes: int = 50) -> list[DrawnLine]:
    """Steps per episode with 0, 5 and 50 planning steps: figure 8.2, which leaves out the first episode."""
    maze = grid(DYNA_MAZE).process
    curves = []
    for plans in (0, 5, 50):
        models = (DynaQ(maze, 0.1, gamma=0.95, planning_steps=plans, seed=seed + run) for run in range(runs))
        lengths = np.stack([model.learn_episodes(episodes).lengths[1:] for model in models])
        curves.append(mean_curve(np.arange(2, episodes + 1), lengths.astype(float), f"{plans} planning steps"))
    return curves


# -- drawings ----------------------------------------------------------------------------------------------------------


def curves(
    found: Sequence[DrawnLine],
    x_label: str,
    y_label: str,
    title: str,
    *,
    lowest: float | None = None,
    highest: float | None = None,
    level: tuple[str, float] | None = None,
    percent: bool = False,
) -> Figure:
    """Means with their 95 % intervals; ``level`` is a name and a height for a dashed line."""
    figure = new_figure(6.8, 4.4)
    axes = figure.add_subplot()
    styles = {label.rpartition(", ")[0]: f"C{i}" for i, label in enumerate(_kinds(found)) if label.rpartition(", ")[0]}
    for curve in found:
        kind, _, what = curve.label.rpartition(", ")
        how: dict[str, Any] = {"color": styles[kind]} if kind else {}
        how |= {"linestyle": "--" if what == "interim" else "-"} if kind else {}
        (line,) = axes.plot(curve.x, curve.y, label=curve.label, **how)
        axes.fill_between(curve.x, *curve.band, color=line.get_color(), alpha=0.2, linewidth=0)
    if level is not None:
        axes.axhline(level[1], linestyle=":", color="grey", label=level[0])
    axes.set(xlabel=x_label, ylabel=y_label, ylim=(lowest, highest))
    axes.set_title(f"{title} ({found[0].n_runs} runs, 95 % intervals)", fontsize="medium")
    if percent:
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize="small")
    return figure


def _kinds(found: Sequence[DrawnLine]) -> list[str]:
    return list(dict.fromkeys(f"{curve.label.rpartition(', ')[0]}, " for curve in found))


# -- drawings of blackjack ---------------------------------------------------------------------------------------------


def blackjack_values(by_title: Mapping[str, Hands]) -> Figure:
    """Surfaces over the dealer's card and the player's sum; above with a usable ace, below without."""
    figure = new_figure(4.2 * len(by_title), 6.8)
    for column, (title, hands) in enumerate(by_title.items()):
        for row, (values, ace) in enumerate(((hands.with_ace, "usable ace"), (hands.without_ace, "no usable ace"))):
            place = row * len(by_title) + column + 1
            axes = figure.add_subplot(2, len(by_title), place, projection="3d")
            _surface(axes, values)
            axes.set_title(f"{ace}, {title}", fontsize="small")
    return figure


def _surface(axes: Any, values: np.ndarray) -> None:
    dealer, total = np.meshgrid(range(1, 11), range(12, 22))
    axes.plot_wireframe(dealer, total, values, linewidth=0.8)
    axes.set(xlabel="dealer shows", ylabel="player's sum", zlim=(-1, 1))


def blackjack_policy(policy: Hands, values: Hands) -> Figure:
    """The states in which to hit, and their values."""
    figure = new_figure(9.0, 6.8)
    rows = ((policy.with_ace, values.with_ace, "usable ace"), (policy.without_ace, values.without_ace, "no usable ace"))
    for row, (actions, worth, ace) in enumerate(rows):
        axes = figure.add_subplot(2, 2, 2 * row + 1)
        axes.imshow(
            actions, origin="lower", cmap="Greys", vmin=0, vmax=2, extent=(0.5, 10.5, 11.5, 21.5), aspect="auto"
        )
        for (i, j), hits in np.ndenumerate(actions):
            axes.text(j + 1, i + 12, "hit" if hits else "stick", ha="center", va="center", fontsize=5)
        axes.set(xlabel="dealer shows", ylabel="player's sum", title=f"policy, {ace}", yticks=range(12, 22))
        axes.set_xticks(range(1, 11), _CARDS)
        surface = figure.add_subplot(2, 2, 2 * row + 2, projection="3d")
        _surface(surface, worth)
        surface.set_title(f"values, {ace}")
    return figure


# -- diagrams ----------------------------------------------------------------------------------------------------------


def backup_diagrams() -> Figure:
    """Backup diagrams of Q-learning and expected SARSA: figure 6.4."""
    figure = new_figure(5.0, 3.2)
    for column, name in enumerate(("Q-learning", "expected SARSA")):
        axes = figure.add_subplot(1, 2, column + 1)
        lines = [((0.0, 2.0), (0.0, 1.0)), *(((0.0, 1.0), (x, 0.0)) for x in (-0.7, 0.0, 0.7))]
        for (x, y), (to_x, to_y) in lines:
            axes.plot((x, to_x), (y, to_y), color="black", linewidth=1, zorder=1)
        axes.scatter([0.0, -0.7, 0.0, 0.7], [2.0, 0.0, 0.0, 0.0], s=80, color="black", zorder=2)
        axes.scatter([0.0], [1.0], s=320, facecolor="white", edgecolor="black", zorder=2)
        if name == "Q-learning":  # the arc of a maximum
            angles = np.linspace(np.arctan2(-1, -0.7), np.arctan2(-1, 0.7), 30)
            axes.plot(0.45 * np.cos(angles), 1 + 0.45 * np.sin(angles), color="black", linewidth=1)
        axes.set(xlim=(-1.2, 1.2), ylim=(-0.4, 2.4), title=name, aspect="equal")
        axes.axis("off")
    return figure


def best_values(env_id: str, gamma: float) -> Figure:
    """The values and the policy of a grid, by value iteration."""
    model = ValueIteration(make_vec_env(env_id), gamma=gamma)
    shape, moves = grid_of(model.get_env().envs[0])  # type: ignore[union-attr]
    model.learn(100_000)
    over = model.process.terminal
    figure = new_figure(0.7 * shape[1] + 1.5, 0.7 * shape[0] + 1)
    axes = figure.add_subplot()
    draw_grid(axes, model.values, np.where(over, -1, model.greedy), shape, moves)
    axes.set_title(f"{env_id}, gamma {gamma:g}: {model.start_value:.4f} from the start", fontsize="small")
    return figure


def _figure_5_1(options: Namespace) -> Figure:
    few, many = blackjack_prediction((10_000, 500_000), options.seed)
    titles = ("after 10,000 episodes", "after 500,000 episodes")
    return blackjack_values(dict(zip(titles, (few, many), strict=True)))


def _figure_5_2(options: Namespace) -> Figure:
    return blackjack_policy(*blackjack_control(1_000_000 * max(1, options.runs), options.seed))


def _figure_6_3(options: Namespace) -> Figure:
    runs = options.runs if options.runs > 0 else 20
    curves = cliff_by_step_size(runs, options.seed)
    return curves(curves, "Step size", "Sum of rewards per episode", "Cliff walking", lowest=-160.0)


def _figure_6_5(options: Namespace) -> Figure:
    found = maximization_bias(options.runs if options.runs > 0 else 300, options.seed)
    return curves(found, "Episodes", "Left actions from A", "Maximisation bias", level=("optimal", 0.05), percent=True)


def _figure_6_6(options: Namespace) -> Figure:
    found = cliff_online(options.runs if options.runs > 0 else 50, options.seed)
    return curves(found, "Episodes", "Sum of rewards during episode", "Cliff walking", lowest=-100.0)


def _figure_7_2(options: Namespace) -> Figure:
    found = random_walk_errors(options.runs if options.runs > 0 else 10, options.seed)
    title = "19-state random walk: n-step TD"
    return curves(found, "Step size", "RMS error over the first 10 episodes", title, lowest=0.2, highest=0.55)


def _figure_8_2(options: Namespace) -> Figure:
    found = dyna_maze(options.runs if options.runs > 0 else 30, options.seed)
    return curves(found, "Episodes", "Steps per episode", "Dyna maze", highest=800.0, lowest=0.0)


#: Name of a figure -> the function that computes and draws it.
FIGURES: dict[str, Callable[[Namespace], Figure]] = {
    "5.1": _figure_5_1,
    "5.2": _figure_5_2,
    "6.3": _figure_6_3,
    "6.4": lambda options: backup_diagrams(),
    "6.5": _figure_6_5,
    "6.6": _figure_6_6,
    "7.2": _figure_7_2,
    "8.2": _figure_8_2,
    "values": lambda options: best_values(options.env, options.gamma),
}


def main() -> None:
    """Compute and draw the figure that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figure", choices=FIGURES, help="6.6 is the example; values: those of a grid, --env")
    parser.add_argument("--output", "-o", type=Path, help="image to write; figure_<number>.png by default")
    parser.add_argument("--runs", type=int, default=-1, help="runs that are averaged; -1: done in a minute or two")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first run")
    parser.add_argument("--env", default="FrozenLake-v1", help="for values: a grid of Gymnasium with a table P")
    parser.add_argument("--gamma", type=float, default=0.99, help="for values: discount factor")
    options = parser.parse_args()
    path = options.output or Path(f"figure_{options.figure.replace('.', '_')}.png")
    FIGURES[options.figure](options).savefig(path, dpi=150)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
