"""Learning curves from ``Monitor`` files, under the names of Stable-Baselines3's plotting module."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polyak.envs.wrappers.monitor import load_results

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

__all__ = [
    "EPISODES_WINDOW",
    "POSSIBLE_X_AXES",
    "X_EPISODES",
    "X_TIMESTEPS",
    "X_WALLTIME",
    "load_results",
    "plot_curves",
    "plot_results",
    "rolling_window",
    "ts2xy",
    "window_func",
]

X_TIMESTEPS = "timesteps"
X_EPISODES = "episodes"
X_WALLTIME = "walltime_hrs"
POSSIBLE_X_AXES = [X_TIMESTEPS, X_EPISODES, X_WALLTIME]
EPISODES_WINDOW = 100
"""Episodes that a plotted mean covers."""


def rolling_window(array: np.ndarray, window: int) -> np.ndarray:
    """Returns all windows of ``window`` neighbours along the last axis.

    Args:
        array: [..., n].
        window: from 1 to n.

    Returns:
        [..., n - window + 1, window], a read-only view.
    """
    return np.lib.stride_tricks.sliding_window_view(array, window, axis=-1)


def window_func(
    var_1: np.ndarray, var_2: np.ndarray, window: int, func: Callable[..., np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Applies a function to the last ``window`` values at each place that has as many.

    Args:
        var_1: [n] places, such as timesteps.
        var_2: [n] values.
        window: number of values.
        func: reduces ``axis=-1``, such as ``numpy.mean``.

    Returns:
        places and results, [n - window + 1] each.
    """
    return var_1[window - 1 :], func(rolling_window(var_2, window), axis=-1)


def ts2xy(data_frame: "pandas.DataFrame", x_axis: str) -> tuple[np.ndarray, np.ndarray]:
    """Converts episodes to their returns over one of three axes.

    Args:
        data_frame: a result of :func:`polyak.envs.load_results`.
        x_axis: ``"timesteps"`` (steps made by the end of each episode), ``"episodes"`` (its number, from 0) or
            ``"walltime_hrs"`` (hours since the start).

    Raises:
        NotImplementedError: another axis.
    """
    returns = data_frame.r.to_numpy()
    if x_axis == X_TIMESTEPS:
        return np.cumsum(data_frame.l.to_numpy()), returns
    if x_axis == X_EPISODES:
        return np.arange(len(data_frame)), returns
    if x_axis == X_WALLTIME:
        return data_frame.t.to_numpy() / 3600.0, returns
    raise NotImplementedError(f"x_axis must be one of {POSSIBLE_X_AXES}, got {x_axis!r}.")


def plot_curves(
    xy_list: Sequence[tuple[np.ndarray, np.ndarray]], x_axis: str, title: str, figsize: tuple[float, float] = (8, 2)
) -> "Figure":
    """Draw a dot for each episode and the mean of the last 100 as a line.

    Args:
        xy_list: curves as :func:`ts2xy` gives them.
        x_axis: label of the x axis.
        title: title of the figure.
        figsize: inches.

    Returns:
        the figure; show it with ``matplotlib.pyplot.show()``.

    Raises:
        ImportError: matplotlib is not installed.
    """
    pyplot = _pyplot()
    figure = pyplot.figure(title, figsize=figsize)
    for x, y in xy_list:
        dots = pyplot.scatter(x, y, s=2)
        if len(x) >= EPISODES_WINDOW:
            pyplot.plot(*window_func(x, y, EPISODES_WINDOW, np.mean), color=dots.get_facecolor()[0])
    longest = max((x[-1] for x, _ in xy_list if len(x)), default=0)
    pyplot.xlim(0, longest if longest > 0 else 1)
    pyplot.title(title)
    pyplot.xlabel(x_axis)
    pyplot.ylabel("Episode Rewards")
    pyplot.tight_layout()
    return figure


def plot_results(
    dirs: Sequence[str | os.PathLike[str]],
    num_timesteps: int | None,
    x_axis: str,
    task_name: str,
    figsize: tuple[float, float] = (8, 2),
) -> "Figure":
    """Draw the learning curves of several runs.

    Args:
        dirs: folders with monitor files, one per run.
        num_timesteps: number of steps to draw; ``None`` draws all.
        x_axis: see :func:`ts2xy`.
        task_name: title of the figure.
        figsize: inches.

    Raises:
        LoadMonitorResultsError: a folder without monitor files.
        NotImplementedError: an unknown axis.
        ImportError: pandas or matplotlib is not installed.
    """
    curves = []
    for folder in dirs:
        frame = load_results(os.fspath(folder))
        if num_timesteps is not None:
            frame = frame[frame.l.cumsum() <= num_timesteps]
        curves.append(ts2xy(frame, x_axis))
    return plot_curves(curves, x_axis, task_name, figsize)


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError("matplotlib is required for plotting: pip install 'polyak[extra]'") from error
    return pyplot
