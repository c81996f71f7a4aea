"""How the figures are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from polyak.zoo.book.experiments import DrawnLine, Hands

_CARDS = ("A", *map(str, range(2, 11)))


def new_figure(width: float, height: float) -> Figure:
    """A figure of so many inches; ImportError naming the extra if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plotting needs matplotlib: pip install 'polyak[zoo]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


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


# -- blackjack ---------------------------------------------------------------------------------------------------------


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


# -- grids -------------------------------------------------------------------------------------------------------------

_ARROWS = {(-1, 0): "\N{UPWARDS ARROW}", (0, 1): "\N{RIGHTWARDS ARROW}"}
_ARROWS |= {(1, 0): "\N{DOWNWARDS ARROW}", (0, -1): "\N{LEFTWARDS ARROW}"}


def grid(
    axes: Axes, values: np.ndarray, policy: np.ndarray, shape: tuple[int, int], moves: Sequence[tuple[int, int]]
) -> None:
    """Values of the fields of a grid as colours and numbers, and where the policy goes as arrows.

    Args:
        axes: where to.
        values: [S], row after row; NaN leaves a field empty.
        policy: [S] actions; a negative one leaves a field without an arrow.
        shape: rows and columns.
        moves: rows and columns that each action moves by.
    """
    axes.imshow(values.reshape(shape), cmap="viridis")
    low, high = np.nanmin(values), np.nanmax(values)
    for state, value in enumerate(values):
        if np.isnan(value):
            continue
        row, column = divmod(state, shape[1])
        how: dict[str, Any] = {"ha": "center", "color": "black" if value > (low + high) / 2 else "white"}
        arrow = _ARROWS[moves[policy[state]]] if policy[state] >= 0 else ""
        axes.text(column, row - 0.1, arrow, va="center", fontsize=13, **how)
        axes.text(column, row + 0.3, f"{value:.3g}", va="center", fontsize=6, **how)
    axes.set(xticks=[], yticks=[])


def grid_of(env: Any) -> tuple[tuple[int, int], Sequence[tuple[int, int]]]:
    """Rows and columns of an environment that is a grid, and how its actions move.

    Raises:
        ValueError: it is no grid.
    """
    from polyak.envs.tabular.worlds import MOVES

    inner = env.unwrapped
    if hasattr(inner, "desc") and hasattr(inner, "nrow"):  # FrozenLake: left, down, right, up
        return (inner.nrow, inner.ncol), ((0, -1), (1, 0), (0, 1), (-1, 0))
    if getattr(inner, "shape", None) is not None and inner.action_space.n == len(MOVES):
        return (int(inner.shape[0]), int(inner.shape[1])), MOVES
    raise ValueError(
        f"env={env} is no grid: FrozenLake and CliffWalking are, and TableEnv(..., shape=(rows, columns))."
    )


def best_values(env_id: str, gamma: float) -> Figure:
    """The values and the policy of a grid, by value iteration."""
    from polyak.algorithms.tabular.value_iteration import ValueIteration
    from polyak.envs import make_vec_env

    model = ValueIteration(make_vec_env(env_id), gamma=gamma)
    shape, moves = grid_of(model.get_env().envs[0])  # type: ignore[union-attr]
    model.learn(100_000)
    over = model.process.terminal
    figure = new_figure(0.7 * shape[1] + 1.5, 0.7 * shape[0] + 1)
    axes = figure.add_subplot()
    grid(axes, model.values, np.where(over, -1, model.greedy), shape, moves)
    axes.set_title(f"{env_id}, gamma {gamma:g}: {model.start_value:.4f} from the start", fontsize="small")
    return figure
