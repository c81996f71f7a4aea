"""``polyak book``: a figure of Sutton and Barto's book, computed and drawn; or the values of a grid of your own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polyak.suggestions import did_you_mean
from polyak.writing import unfinished
from polyak.zoo.book import drawing, experiments
from polyak.zoo.errors import ZooError, usage_errors
from polyak.zoo.options import option
from polyak.zoo.output import writable_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class BookOptions:
    """Reproduce a figure of Sutton and Barto's book, or draw the best values and policy of a grid."""

    figure: str = option("", help="5.1, 5.2, 6.3, 6.4, 6.5, 6.6 (the example), 7.2, 8.2, or values (of --env).")
    output: str = option("", "--output", "-o", help="Image to write; figure_<number>.png by default.")
    runs: int = option(-1, "--runs", help="Runs that are averaged; -1: few enough to be done in a minute or two.")
    seed: int = option(0, "--seed", help="Seed of the first run.")
    env: str = option("FrozenLake-v1", "--env", "-e", help="For values: a grid of Gymnasium with a table P.")
    gamma: float = option(0.99, "--gamma", help="For values: discount factor.")


def _figure_5_1(options: BookOptions) -> Figure:
    few, many = experiments.blackjack_prediction((10_000, 500_000), options.seed)
    titles = ("after 10,000 episodes", "after 500,000 episodes")
    return drawing.blackjack_values(dict(zip(titles, (few, many), strict=True)))


def _figure_5_2(options: BookOptions) -> Figure:
    return drawing.blackjack_policy(*experiments.blackjack_control(1_000_000 * max(1, options.runs), options.seed))


def _figure_6_3(options: BookOptions) -> Figure:
    runs = options.runs if options.runs > 0 else 20
    curves = experiments.cliff_by_step_size(runs, options.seed)
    return drawing.curves(curves, "Step size", "Sum of rewards per episode", "Cliff walking", lowest=-160.0)


def _figure_6_5(options: BookOptions) -> Figure:
    found = experiments.maximization_bias(options.runs if options.runs > 0 else 300, options.seed)
    return drawing.curves(
        found, "Episodes", "Left actions from A", "Maximisation bias", level=("optimal", 0.05), percent=True
    )


def _figure_6_6(options: BookOptions) -> Figure:
    found = experiments.cliff_online(options.runs if options.runs > 0 else 50, options.seed)
    return drawing.curves(found, "Episodes", "Sum of rewards during episode", "Cliff walking", lowest=-100.0)


def _figure_7_2(options: BookOptions) -> Figure:
    found = experiments.random_walk_errors(options.runs if options.runs > 0 else 10, options.seed)
    title = "19-state random walk: n-step TD"
    return drawing.curves(found, "Step size", "RMS error over the first 10 episodes", title, lowest=0.2, highest=0.55)


def _figure_8_2(options: BookOptions) -> Figure:
    found = experiments.dyna_maze(options.runs if options.runs > 0 else 30, options.seed)
    return drawing.curves(found, "Episodes", "Steps per episode", "Dyna maze", highest=800.0, lowest=0.0)


#: Name of a figure -> the function that computes and draws it.
FIGURES: dict[str, Callable[[BookOptions], Figure]] = {
    "5.1": _figure_5_1,
    "5.2": _figure_5_2,
    "6.3": _figure_6_3,
    "6.4": lambda options: drawing.backup_diagrams(),
    "6.5": _figure_6_5,
    "6.6": _figure_6_6,
    "7.2": _figure_7_2,
    "8.2": _figure_8_2,
    "values": lambda options: drawing.best_values(options.env, options.gamma),
}


def book(options: BookOptions) -> Path:
    """Compute and draw the figure that `options` name, write it and return its path.

    Raises ZooError for an unknown figure, a number out of range, or an environment that is no grid.
    """
    name = options.figure.lower().removeprefix("figure").strip(" _-")
    if name not in FIGURES:
        what = f"There is no figure {options.figure!r}." if options.figure else "Which figure?"
        raise ZooError(f"{what}{did_you_mean(name, FIGURES)} There are {', '.join(FIGURES)}.")
    if options.runs != -1 and options.runs < 1:
        raise ZooError(f"--runs must be at least 1 (or -1), got {options.runs}.")
    if not 0 <= options.gamma <= 1:
        raise ZooError(f"--gamma must lie in [0, 1], got {options.gamma}.")
    default = f"{'figure_' if name != 'values' else ''}{name.replace('.', '_')}.png"
    path = writable_file("--output", options.output or default)
    with usage_errors(f"Cannot draw {options.figure}"):
        figure = FIGURES[name](options)
    try:
        with unfinished(path) as at:
            figure.savefig(at, dpi=150)
    except (ValueError, OSError) as error:
        raise ZooError(f"--output {str(path)!r}: {error}") from error
    print(f"Wrote {path}")
    return path
