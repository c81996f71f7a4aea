"""Figures of the book: what they are made of has the shape that the book shows, and each is written as a image."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import book
from benchmarks.book import FIGURES
from tests.zoo.test_cli import run

QUICK = ("6.4", "values")


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in FIGURES])
def test_each_is_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "figure.png"
    monkeypatch.setattr(sys, "argv", ["book.py", name, "--output", str(path), "--runs", "2"])
    book.main()
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_random_walks_curves() -> None:
    """Few runs show already that n = 4 beats n = 1 and n = 64 (figure 7.2)."""
    curves = {curve.label: curve for curve in book.random_walk_errors(3, seed=0, steps=(1, 4, 64))}
    assert curves["n = 4"].y.min() < min(curves["n = 1"].y.min(), curves["n = 64"].y.min())
    assert np.isfinite(curves["n = 4"].band).all()


def test_blackjack_sticks_on_20_and_21() -> None:
    """Figure 5.1: what sticks is worth much, what hits little; many hands are smoother than few."""
    few, many = book.blackjack_prediction((300, 6_000), seed=0)
    assert many.without_ace[8:].mean() > 0.4
    assert many.without_ace[:8].mean() < 0
    assert np.abs(np.diff(many.without_ace[:8])).mean() < np.abs(np.diff(few.without_ace[:8])).mean()


def test_a_mean_has_an_interval() -> None:
    curve = book.mean_curve([1, 2], np.array([[0.0, 1.0], [2.0, 1.0]]), "x")
    assert curve.y.tolist() == [1.0, 1.0]
    half = 12.706204736  # Student's with one degree of freedom, times a standard error of 1; the others are equal
    np.testing.assert_allclose(curve.band, [[1 - half, np.nan], [1 + half, np.nan]])
    alone = book.mean_curve([1, 2], np.array([[0.0, 1.0]]), "x")
    assert np.isnan(alone.band).all()
    assert book.curves([curve, alone], "x", "y", "title").axes


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
        assert run(*command) == 0
    assert list((tmp_path / "logs" / algo).glob("*/*.zip"))
