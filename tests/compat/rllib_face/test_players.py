"""AlphaZero's games in processes on Ray, without Ray: what the learner's side of them does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyak import AlphaZero
from polyak.algorithms.search import ray_crew as module
from polyak.algorithms.search.crew import Crew, PlayerError
from polyak.compat.rllib_face import RayCrew
from polyak.distributed import ray_workers
from tests.algorithms.search.crew_players import Weights, crew
from tests.algorithms.search.test_crew import in_this_process, play, small
from tests.compat.rllib_face.fake_ray import FakeRay


def assert_left(fake: FakeRay) -> None:
    assert not fake.running
    assert not any(actor.alive for actor in fake.actors)


def test_they_play_as_local_processes_do_and_go_on_where_they_were(fake: FakeRay) -> None:
    expected, weights = in_this_process(14), Weights()
    players = crew(weights, RayCrew)
    players.start()
    assert fake.options == {"max_restarts": 0, "num_cpus": 0, "num_gpus": 0.0, "resources": None}  # on this machine
    play(players, weights, expected, range(5))
    assert players.lag == 1
    state = players.state()  # with a move under way
    assert all(array.flags.writeable for array in state.values()), "nothing is left in Ray's store"
    play(players, weights, expected, range(5, 8))
    assert fake.puts == 8, "weights go there once, for both"
    players.rest()
    assert_left(fake)
    players.start()
    play(players, weights, expected, range(8, 14))
    players.rest()
    assert_left(fake)
    for cls in (RayCrew, Crew):  # the one's games are the other's
        weights = Weights()
        for _ in range(5):
            weights.learn()
        again = crew(weights, cls)
        again.load_state(state)
        again.start()
        play(again, weights, expected, range(5, 8))
        again.rest()
    assert_left(fake)


def test_a_session_of_the_program_stays(fake: FakeRay) -> None:
    fake.init()
    players = crew(Weights(), RayCrew)
    players.start()
    players.rest()
    players.rest()
    assert fake.running
    assert not any(actor.alive for actor in fake.actors)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, r"process 0 .*raised in move\(\): ArithmeticError: no weight may be -1(.|\n)*crew_players.py"),
        (100.0, r"process 0 .*died: The actor died(.|\n)*exit code 3"),
    ],
)
def test_what_ends_a_process_is_raised_here_and_ends_all(fake: FakeRay, weight: float, message: str) -> None:
    weights = Weights()
    players = crew(weights, RayCrew)
    players.start()
    players.move()
    weights.version, weights.value = 1, weight
    with pytest.raises(PlayerError, match=message):
        for _ in range(3):
            players.move()
    assert_left(fake)
    players.rest()
    weights.version, weights.value = 2, 0.5
    players.start()  # from where they were when they last rested
    assert len(players.move().lengths) == 0
    players.rest()
    assert_left(fake)


def test_one_that_was_killed_is_missed(fake: FakeRay) -> None:
    players = crew(Weights(), RayCrew)
    players.start()
    players.move()
    fake.actors[1].die("out of memory")
    with pytest.raises(PlayerError, match=r"process 1 of those that play died: (.|\n)*out of memory"):
        players.move()
    assert_left(fake)


def _interrupt(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("place", "kept"), [("has_answer", True), ("_result", False), ("ask", False)])
def test_an_interruption_loses_no_games_while_answers_are_waited_for(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch, place: str, kept: bool
) -> None:
    expected, weights = in_this_process(6), Weights()
    players = crew(weights, RayCrew)
    players.start()
    play(players, weights, expected, range(3))
    with monkeypatch.context() as patched:
        patched.setattr(ray_workers.Workers, place, _interrupt)
        with pytest.raises(KeyboardInterrupt):
            players.move()
    players.rest()
    assert_left(fake)
    assert bool(players.state()) == kept
    players.start()
    if kept:
        play(players, weights, expected, range(3, 6))
    else:
        assert len(players.move().lengths) == 0, "all begin anew"
    players.rest()


def test_where_there_is_no_room_it_says_so(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    fake.speed = 0
    with pytest.raises(PlayerError, match="process 0 .*has not begun within 0 seconds.*one processor"):
        crew(Weights(), RayCrew).start()
    assert_left(fake)


def test_a_process_that_is_interrupted_as_it_is_made_leaves_no_session(
    fake: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake, "_begun", _interrupt)
    with pytest.raises(KeyboardInterrupt):
        crew(Weights(), RayCrew).start()
    assert_left(fake)


# -- the model ---------------------------------------------------------------------------------------------------------


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    model = small(crew_class=RayCrew)
    with pytest.raises(ImportError, match=r"crew_class=RayCrew.*pip install 'polyak\[scale\]'"):
        model.learn(16)
    model.save(tmp_path / "model")
    loaded = AlphaZero.load(tmp_path / "model")
    assert loaded.crew_class is RayCrew
    assert loaded.predict(np.zeros((2, 3, 3), np.float32))[0] in range(9)
    assert AlphaZero.load(tmp_path / "model", custom_objects={"crew_class": None}).learn(16).num_timesteps == 16


class MyCrew(RayCrew):
    """A user's own."""


def test_a_file_names_classes_of_a_crew(tmp_path: Path) -> None:
    small(crew_class=MyCrew).save(tmp_path / "model")
    assert AlphaZero.load(tmp_path / "model").crew_class is MyCrew


def test_a_model_plays_there_as_its_options_say(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # of a process that is this one here
    model = small(crew_class=RayCrew, opening_moves=3, warm_moves=2, keeps_trees=False)
    before = [p.clone() for p in model.policy.parameters()]
    model.learn(120)
    assert_left(fake)
    assert not all(a.equal(b) for a, b in zip(before, model.policy.parameters(), strict=True))
    games = fake.actors[0].made._player.games
    assert (len(games.plies), games.opening_moves, games.warm_moves, games.keeps_trees) == (4, 3, 2, False)
