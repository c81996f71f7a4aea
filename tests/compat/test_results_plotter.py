import sys

import gymnasium as gym
import numpy as np
import pytest

from polyak.compat.sb3_face import results_plotter
from polyak.compat.sb3_face.results_plotter import (
    load_results,
    plot_curves,
    plot_results,
    rolling_window,
    ts2xy,
    window_func,
)
from polyak.envs.wrappers.monitor import LoadMonitorResultsError, Monitor

pytest.importorskip("pandas")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture
def folder(tmp_path):
    """A run of 120 episodes of four steps."""
    env = Monitor(gym.make("CartPole-v1", max_episode_steps=4), str(tmp_path / "run"))
    for _ in range(120):
        env.reset()
        while not env.needs_reset:
            env.step(0)
    env.close()
    return tmp_path


def test_rolling_window_and_window_func():
    array = np.arange(5.0)
    assert rolling_window(array, 3).tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert rolling_window(np.arange(6).reshape(2, 3), 2).tolist() == [[[0, 1], [1, 2]], [[3, 4], [4, 5]]]
    x, y = window_func(10 * array, array**2, 2, np.mean)
    assert x.tolist() == [10, 20, 30, 40]
    assert y.tolist() == [0.5, 2.5, 6.5, 12.5]


def test_ts2xy(folder):
    frame = load_results(str(folder))
    x, y = ts2xy(frame, "timesteps")
    np.testing.assert_array_equal(x, 4 * np.arange(1, 121))
    np.testing.assert_array_equal(y, 4.0)
    np.testing.assert_array_equal(ts2xy(frame, "episodes")[0], np.arange(120))
    np.testing.assert_allclose(ts2xy(frame, "walltime_hrs")[0] * 3600, frame.t)
    with pytest.raises(NotImplementedError, match="x_axis must be one of"):
        ts2xy(frame, "hours")


@pytest.mark.parametrize(("limit", "n_dots", "n_lines"), [(None, 120, 1), (399, 99, 0), (400, 100, 1), (0, 0, 0)])
def test_plot_results(folder, limit, n_dots, n_lines):
    figure = plot_results([str(folder)], limit, "timesteps", f"title {limit}")
    axes = figure.axes[0]
    assert [len(dots.get_offsets()) for dots in axes.collections] == [n_dots]
    assert len(axes.lines) == n_lines
    assert axes.get_title() == f"title {limit}"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("timesteps", "Episode Rewards")
    assert axes.get_xlim() == (0, 4 * n_dots or 1)
    if limit is None:
        np.testing.assert_array_equal(axes.lines[0].get_xdata(), 4 * np.arange(100, 121))
        np.testing.assert_array_equal(axes.lines[0].get_ydata(), 4.0)


def test_a_folder_without_runs(tmp_path):
    with pytest.raises(LoadMonitorResultsError):
        plot_results([tmp_path], None, "timesteps", "nothing")


def test_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"matplotlib is required for plotting: pip install 'polyak\[extra\]'"):
        plot_curves([(np.arange(3), np.arange(3))], results_plotter.X_TIMESTEPS, "t")
