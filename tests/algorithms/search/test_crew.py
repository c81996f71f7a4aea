"""Games against oneself in several processes: the same games, whatever happens to the processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from polyak import AlphaZero
from polyak.algorithms.search.crew import Crew, PlayerError
from polyak.algorithms.search.self_play import Ended
from tests.algorithms.search.crew_players import SEEDS, Weights, crew, make
from tests.pairs import one_of_each
from tests.trials import trial


def assert_same(ours: Ended, theirs: Ended) -> None:
    for name, a, b in zip(Ended._fields, ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=name)


def play(players: Crew, weights: Weights, expected: list[Ended], moves: range) -> list[int]:
    """Let a crew play what is expected, while the learner learns from each move; how old its weights were."""
    lags = []
    for move in moves:
        assert_same(players.move(), expected[move])
        lags.append(players.lag)
        weights.learn()
    return lags


def in_this_process(moves: int) -> list[Ended]:
    """What two processes should play, one after the other, with weights that are one round old."""
    found = []
    for seed, n_games in zip(SEEDS, (2, 3), strict=True):
        kept = np.random.get_state()
        np.random.seed(seed)
        player, weights, ended = make(n_games), Weights(), []
        for move in range(moves):
            player.take([np.array(weights.value)])
            ended.append(player.games.move())
            if move > 0:  # the second move is asked for before the first one is learned from
                weights.learn()
        found.append(ended)
        np.random.set_state(kept)
    return [Ended(*map(np.concatenate, zip(*both, strict=True))) for both in zip(*found, strict=True)]


def test_processes_play_as_this_one_would_and_resume_where_they_were() -> None:
    expected, weights = in_this_process(14), Weights()
    players = crew(weights)
    players.start()
    lags = play(players, weights, expected, range(5))
    state = players.state()  # with a move under way
    play(players, weights, expected, range(5, 8))
    players.rest()
    assert not multiprocessing.active_children()
    players.start()
    play(players, weights, expected, range(8, 14))
    players.rest()
    assert set(lags[1:5]) == {1}
    weights = Weights()
    players = crew(weights)
    for _ in range(5):
        weights.learn()
    players.load_state(state)
    players.start()
    play(players, weights, expected, range(5, 10))
    players.rest()
    with pytest.raises(ValueError, match="n_workers=1"):
        Crew(make, 5, 1, weights, [1]).load_state(state)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, r"raised in move\(\): ArithmeticError: no weight may be -1(.|\n)*crew.py"),
        (100.0, r"died \(exit code 3\)"),
    ],
)
def test_what_ends_a_process_is_raised_here_and_ends_all(weight: float, message: str) -> None:
    weights = Weights()
    players = crew(weights)
    players.start()
    players.move()
    weights.version, weights.value = 1, weight
    with pytest.raises(PlayerError, match=message):
        for _ in range(3):
            players.move()
    assert not multiprocessing.active_children()
    players.rest()


_SCRIPT = """
import multiprocessing, signal
from tests.algorithms.search.crew_players import Weights, crew
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs behind them without
    players = crew(Weights())
    players.start()
    try:
        players.move()
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        while True:
            players.move()
    finally:
        players.rest()
        print("left", len(multiprocessing.active_children()), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("how", one_of_each([signal.SIGINT, signal.SIGKILL], signal.SIGKILL))
def test_no_process_is_left_behind(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(script)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        parent.send_signal(how)
        said = parent.stdout.read().decode()
    assert len(children) == 2
    assert (said == "left 0\n") == (how == signal.SIGINT)
    deadline = time.monotonic() + 30
    while any(map(_alive, children)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def small(**options: Any) -> AlphaZero:
    return AlphaZero(**{**trial(AlphaZero), "n_workers": 2, "compile": False, "learning_starts": 16, **options})


def assert_equal_weights(one: AlphaZero, other: AlphaZero) -> None:
    for ours, theirs in zip(one.policy.parameters(), other.policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.slow
def test_a_model_with_processes_repeats_itself_and_resumes(tmp_path: Path) -> None:
    learn = partial(AlphaZero.learn, log_interval=None)
    straight = learn(small(), 160)
    model = learn(small(), 80)
    model.save(tmp_path / "model", include=["replay_buffer"])
    learn(model, 80, reset_num_timesteps=False)
    assert_equal_weights(straight, model)
    loaded = AlphaZero.load(tmp_path / "model", resume=True, force_reset=False)
    assert_equal_weights(straight, learn(loaded, 80, reset_num_timesteps=False))
    assert not multiprocessing.active_children()


def test_a_class_of_processes_needs_some() -> None:
    assert type(small(crew_class=Crew).self_play) is Crew
    with pytest.raises(ValueError, match=r"crew_class=<class .*Crew'> cannot be used: with n_workers=0 .*n_workers=2"):
        small(crew_class=Crew, n_workers=0)
    with pytest.raises(ValueError, match="crew_class='Crew'.*subclass of Crew or None.* Pass the class itself"):
        small(crew_class="Crew")
    with pytest.raises(ValueError, match="crew_class=.*subclass of Crew or None"):
        small(crew_class=dict)


def test_more_processes_than_games_are_refused() -> None:
    with pytest.raises(ValueError, match="n_workers=9 cannot be used: each needs a game to play"):
        small(n_workers=9, n_games=8)
