"""Drawings of grids: the values of their fields, and the directions of a policy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyak.zoo.plots.look import require_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ARROWS = {(-1, 0): "\N{UPWARDS ARROW}", (0, 1): "\N{RIGHTWARDS ARROW}"}
_ARROWS |= {(1, 0): "\N{DOWNWARDS ARROW}", (0, -1): "\N{LEFTWARDS ARROW}"}


def new_figure(width: float, height: float) -> Figure:
    """Return a figure of so many inches; ImportError naming the extra if matplotlib is missing."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def grid(
    axes: Axes, values: np.ndarray, policy: np.ndarray, shape: tuple[int, int], moves: Sequence[tuple[int, int]]
) -> None:
    """Draw the values of the fields of a grid as colours and numbers, and the policy's moves as arrows.

    Args:
        axes: the axes to draw on.
        values: [S], row after row; NaN leaves a field empty.
        policy: [S] actions; a negative one leaves a field without an arrow.
        shape: rows and columns.
        moves: rows and columns by which each action moves.
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
