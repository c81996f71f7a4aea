"""Plots beside RL Baselines3 Zoo's own, of the same folders: the same tables; each reads the file of the other."""

from pathlib import Path

import numpy as np
import pytest

from polyak.zoo.plots.results import Results, read_results
from tests.zoo.the_zoo import needs_the_zoo, ours, theirs
from tests.zoo.written_runs import write_run

pytestmark = [pytest.mark.slow, needs_the_zoo]

CHOICE = ["-a", "ppo", "sac", "-e", "A-v0", "B-v0", "-f", "logs/", "--no-display"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs of two algorithms on two environments, one of which ended early, and files of both."""
    folder = tmp_path_factory.mktemp("plots")
    rng = np.random.default_rng(0)
    for algo, level in (("ppo", 100.0), ("sac", 700.0)):
        for env in ("A-v0", "B-v0"):
            for number in (1, 2, 3):
                n_evaluations = 4 if (algo, env, number) == ("sac", "B-v0", 2) else 6
                values = level * np.arange(1, n_evaluations + 1)[:, None] + rng.normal(0, 20, (n_evaluations, 3))
                write_run(folder / "logs" / algo / f"{env}_{number}", [1.0], values.tolist())
    theirs("plots.all_plots", *CHOICE, "-o", "theirs", folder=folder)
    ours("all-plots", *CHOICE, "-o", "ours", folder=folder)
    return folder


def table(text: str) -> list[str]:
    """The lines of the table, as they were printed."""
    return [line for line in text.splitlines() if line.startswith(("|", "#"))]


def files(place: Path) -> tuple[Results, Results]:
    first, second = (read_results("--input", place / f"{name}.pkl") for name in ("ours", "theirs"))
    return first, second


@pytest.mark.parametrize(
    "flags",
    [[], ["-median"], ["-k", "ep_lengths"], ["-max", "350"], ["-min", "500"], ["-l", "mine", "--no-million"]],
    ids=" ".join,
)
def test_the_tables(place: Path, flags: list[str]) -> None:
    there = table(theirs("plots.all_plots", *CHOICE, *flags, folder=place))
    assert len(there) == 6
    assert table(ours("all-plots", *CHOICE, *flags, folder=place)) == there


def test_the_numbers_in_the_files(place: Path) -> None:
    mine, peers = files(place)
    assert {env: list(found) for env, found in mine.items()} == {env: list(found) for env, found in peers.items()}
    assert mine["B-v0"]["SAC-logs/"].n_runs == 2, "one ended early"
    for env, methods in mine.items():
        for method, values in methods.items():
            other = peers[env][method]
            np.testing.assert_array_equal(values.x, other.x)
            by_run = [np.sort(found.values, axis=1) for found in (values, other)]  # theirs in any order
            np.testing.assert_allclose(*by_run)
            np.testing.assert_allclose(values.y, other.y)
            np.testing.assert_allclose(values.std_error, other.std_error)


def test_each_draws_the_file_of_the_other(place: Path) -> None:
    words = ["--format", "png", "-b"]
    there = theirs("plots.plot_from_file", "-i", "ours.pkl", "-o", "x.png", *words, folder=place)
    here = ours("plot-from-file", "-i", "theirs.pkl", "-o", "y.png", *words, folder=place)
    assert table(here) == table(there)
    assert "keys: ['PPO-logs/', 'SAC-logs/']" in there
    assert (place / "x.png").is_file()
    assert (place / "y_boxplot.png").is_file()
