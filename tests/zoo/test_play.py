"""A game in the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from polyak import AlphaZero
from polyak.zoo.errors import ZooError
from polyak.zoo.play import PlayOptions, play
from tests.zoo.test_cli import run


def types(monkeypatch: pytest.MonkeyPatch, answers: str) -> None:
    given: Iterator[str] = iter(answers.split())
    monkeypatch.setattr("builtins.input", lambda prompt: next(given))


def test_a_person_who_is_not_careful_loses(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The search begins, and takes what it is given: the person fills a column far away."""
    types(monkeypatch, " ".join("0123456" * 6))
    assert play(PlayOptions(simulations=60, second=True, seed=0)) == -1
    out = capsys.readouterr().out
    assert "You are O." in out
    assert "It thinks: " in out
    assert "of the points for the player to move" in out
    assert "It plays 3." in out or "It plays" in out
    assert "You have lost." in out


def test_advice_wrong_moves_and_leaving(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    types(monkeypatch, "9 ? 4 q")
    assert play(PlayOptions(game="tictactoe", simulations=50, quiet=True, seed=0)) is None
    out = capsys.readouterr().out
    assert "'9' is no move here. There are 0, 1, 2" in out
    assert "Advice: " in out
    assert "It thinks" not in out
    assert "3 X 5" in out or "X 5" in out
    assert "Until next time." in out


def test_go_is_played_by_the_names_of_its_points(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    types(monkeypatch, "j9 pass q")
    play(PlayOptions(game="go", simulations=1, quiet=True, seed=0))
    out = capsys.readouterr().out
    assert "   a b c d e f g h j" in out
    assert out.count("It plays ") == 2


def test_a_saved_model_plays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    AlphaZero("MlpPolicy", "tictactoe", n_games=2, seed=0).save(tmp_path / "model")
    types(monkeypatch, "q")
    assert run("play", "--game", "tictactoe", "--model", tmp_path / "model.zip", "-n", 20, "--second") == 0
    assert "It plays" in capsys.readouterr().out


def test_what_cannot_be_played(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="--game must be one of .* got 'conect4'. Did you mean 'connect4'"):
        play(PlayOptions(game="conect4"))
    with pytest.raises(ZooError, match="--simulations must be at least 1"):
        play(PlayOptions(simulations=0))
    with pytest.raises(ZooError, match="there is no such file"):
        play(PlayOptions(model=str(tmp_path / "none.zip")))
    AlphaZero("MlpPolicy", "tictactoe", n_games=2).save(tmp_path / "model")
    with pytest.raises(ZooError, match=r"Cannot play by --model .*its observation_space"):
        play(PlayOptions(model=str(tmp_path / "model")))
