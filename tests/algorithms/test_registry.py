"""Algorithms of one's own in the registry: by ``register``, by an entry point; and what a file alone may not do."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import polyak
from polyak import PPO, algorithms

SMALL = {"n_steps": 8, "batch_size": 8, "n_epochs": 1, "device": "cpu", "seed": 0}


class Mine(PPO):
    """A class of the program's own."""


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, type]]:
    """What is registered, emptied after each test."""
    registered: dict[str, type] = {}
    monkeypatch.setattr(algorithms, "_REGISTERED", registered)
    algorithms._offered.cache_clear()
    yield registered
    algorithms._offered.cache_clear()


@pytest.fixture
def offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What packages offer: ``theirs``, which says when it is imported; one that is broken, two that cannot be."""
    (tmp_path / "offering_package.py").write_text(
        "import pathlib, polyak\n"
        "(pathlib.Path(__file__).parent / 'was_run').touch()\n"
        "class Theirs(polyak.PPO):\n    '''Of another package.'''\n"
    )
    (tmp_path / "broken_package.py").write_text("raise KeyError('here')\n")
    points = [
        EntryPoint("theirs", "offering_package:Theirs", algorithms.GROUP),
        EntryPoint("broken", "broken_package:Broken", algorithms.GROUP),
        EntryPoint("PPO", "offering_package:Theirs", algorithms.GROUP),
        EntryPoint("json", "json:JSONDecoder", algorithms.GROUP),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [p for p in points if p.group == group])
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("offering_package", "broken_package"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_registered_class_is_found_and_its_files_are_read(tmp_path: Path) -> None:
    assert polyak.register(Mine) is Mine
    assert algorithms.get("MINE") is Mine is algorithms.get("mine")
    assert algorithms.names()[-1] == "mine"
    assert algorithms.registered_as(Mine) == "mine"
    Mine("MlpPolicy", "CartPole-v1", **SMALL).save(tmp_path / "model")
    assert type(polyak.load(tmp_path / "model", device="cpu")) is Mine


def test_a_file_of_one_that_is_not_registered_says_what_to_do(tmp_path: Path) -> None:
    Mine("MlpPolicy", "CartPole-v1", **SMALL).save(tmp_path / "model")
    with pytest.raises(ValueError, match=r"PPO\.load\(path\) for what polyak knows of it; or polyak.register\(Mine\)"):
        polyak.load(tmp_path / "model")


def test_as_a_decorator_and_defined_again() -> None:
    @polyak.register
    class Own(PPO):
        pass

    first = Own

    @polyak.register  # type: ignore[no-redef]
    class Own(PPO):
        pass

    assert algorithms.get("own") is Own is not first


@pytest.mark.parametrize(
    ("cls", "name", "message"),
    [
        (int, None, "cls=<class 'int'> is not a class of algorithms. Derive it from one of polyak's"),
        ("Mine", None, "cls='Mine' is not a class of algorithms"),
        (Mine, "Mine 2", "name='Mine 2' cannot be typed on the command line. Give lower-case letters"),
        (Mine, "ppo", "name='ppo' is taken by polyak.algorithms.ppo:PPO. Give another: register(Mine, name='my_ppo')"),
        (type("Other", (PPO,), {}), "held", "name='held' is taken by tests.algorithms.test_registry:Mine"),
        (type("SAC", (PPO,), {}), "soft", "is called like the class of 'sac', and saved models name their class"),
    ],
)
def test_what_cannot_be_registered(cls: Any, name: str | None, message: str) -> None:
    polyak.register(Mine, name="held")
    with pytest.raises(ValueError) as caught:
        polyak.register(cls, name)
    assert message in str(caught.value)
    assert algorithms.names()[-1] == "held"


def test_what_a_package_offers_is_imported_when_it_is_asked_for(offers: Path) -> None:
    with pytest.warns(UserWarning, match="offered as algorithm 'PPO', which is polyak's own: left out"):
        assert {"theirs", "broken"} <= set(algorithms.names())
    assert not (offers / "was_run").exists()
    theirs = algorithms.get("Theirs")
    assert theirs.__name__ == "Theirs"
    assert (offers / "was_run").exists()
    assert algorithms.get("theirs") is theirs
    with pytest.raises(ImportError, match="'broken' is offered .* as broken_package:Broken, .* KeyError: 'here'"):
        algorithms.get("broken")
    with pytest.raises(ValueError, match=r"<class 'json.decoder.JSONDecoder'> is not a class of algorithms"):
        algorithms.get("json")
    with pytest.raises(ValueError, match="algorithm 'thiers' is unknown.* Did you mean 'theirs'"):
        algorithms.get("thiers")


@pytest.mark.filterwarnings("ignore:offering_package")
def test_a_file_alone_imports_no_package(offers: Path, own: dict[str, type]) -> None:
    algorithms.get("theirs")("MlpPolicy", "CartPole-v1", **SMALL).save(offers / "model")
    own.clear()
    del sys.modules["offering_package"]
    (offers / "was_run").unlink()
    with pytest.raises(ValueError, match=r"of the installed package 'offering_package', which .* pass\s+trust=True"):
        polyak.load(offers / "model")
    assert not (offers / "was_run").exists()
    assert type(polyak.load(offers / "model", device="cpu", trust=True)).__name__ == "Theirs"
    assert (offers / "was_run").exists()
