"""Figures of the book: what they are made of has the shape that the book shows, and each is written as a image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from polyak.zoo.book import drawing, experiments
from polyak.zoo.book.command import FIGURES, BookOptions, book
from polyak.zoo.cli import main
from polyak.zoo.errors import ZooError

QUICK = ("6.4", "values")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in FIGURES])
def test_each_is_written(name: str, tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    main_arguments = ["book", name, "--output", str(path), "--runs", "2"]
    with pytest.raises(SystemExit) as ended:
        main(main_arguments)
    assert not ended.value.code
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (BookOptions("7.3"), r"There is no figure '7.3'.*There are 5.1, 5.2"),
        (BookOptions(), "Which figure"),
        (BookOptions("7.2", runs=0), "--runs must be at least 1"),
        (BookOptions("values", gamma=2.0), r"--gamma must lie in \[0, 1\]"),
        (BookOptions("values", env="Taxi-v4"), "is no grid"),
    ],
)
def test_what_is_no_figure(options: BookOptions, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ZooError, match=message):
        book(options)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_random_walks_curves() -> None:
    """Few runs show already that n = 4 beats n = 1 and n = 64 (figure 7.2)."""
    curves = {curve.label: curve for curve in experiments.random_walk_errors(3, seed=0, steps=(1, 4, 64))}
    assert curves["n = 4"].y.min() < min(curves["n = 1"].y.min(), curves["n = 64"].y.min())
    assert np.isfinite(curves["n = 4"].band).all()


def test_blackjack_sticks_on_20_and_21() -> None:
    """Figure 5.1: what sticks is worth much, what hits little; many hands are smoother than few."""
    few, many = experiments.blackjack_prediction((300, 6_000), seed=0)
    assert many.without_ace[8:].mean() > 0.4
    assert many.without_ace[:8].mean() < 0
    assert np.abs(np.diff(many.without_ace[:8])).mean() < np.abs(np.diff(few.without_ace[:8])).mean()


def test_a_mean_has_an_interval() -> None:
    curve = experiments.mean_curve([1, 2], np.array([[0.0, 1.0], [2.0, 1.0]]), "x")
    assert curve.y.tolist() == [1.0, 1.0]
    half = 12.706204736  # Student's with one degree of freedom, times a standard error of 1; the others are equal
    np.testing.assert_allclose(curve.band, [[1 - half, np.nan], [1 + half, np.nan]])
    alone = experiments.mean_curve([1, 2], np.array([[0.0, 1.0]]), "x")
    assert np.isnan(alone.band).all()
    assert drawing.curves([curve, alone], "x", "y", "title").axes


@pytest.mark.parametrize(
    ("algo", "env"),
    [("q_learning", "FrozenLake-v1"), ("monte_carlo_control", "Blackjack-v1"), ("value_iteration", "Taxi-v4")],
)
def test_tables_are_trained_and_watched_from_the_command_line(algo: str, env: str, tmp_path: Path) -> None:
    logs = str(tmp_path / "logs")
    words = ["--algo", algo, "--env", env, "-f", logs, "--seed", "1"]
    for command in (
        ["train", *words, "-n", "300", "--eval-freq", "100", "--eval-episodes", "2", "--verbose", "0"],
        ["enjoy", *words, "-n", "50", "--no-render"],
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert not ended.value.code
    assert list((tmp_path / "logs" / algo).glob("*/*.zip"))
