"""AlphaZero's games in processes on Ray: those of local processes, and what happens when one of them breaks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from polyak import AlphaZero
from polyak.algorithms.search.crew import Crew, PlayerError
from polyak.compat.rllib_face import RayCrew
from tests.algorithms.search.crew_players import Weights, crew
from tests.algorithms.search.test_crew import assert_equal_weights, in_this_process, play, small
from tests.compat.rllib_face.on_ray import session_of
from tests.processes import assert_gone

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow  # a process takes seconds to begin, and every test begins some
session = session_of(4)


def processes(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


def test_they_play_as_local_processes_do_and_go_on_where_they_were(tmp_path: Path) -> None:
    expected, weights = in_this_process(12), Weights()
    players = crew(weights, RayCrew, tmp_path)
    players.start()
    play(players, weights, expected, range(5))
    state = players.state()  # with a move under way
    play(players, weights, expected, range(5, 8))
    players.rest()
    assert ray.is_initialized(), "it is the program's"
    assert len(processes(tmp_path)) == 2
    assert_gone(processes(tmp_path))
    players.start()
    play(players, weights, expected, range(8, 12))
    players.rest()
    weights = Weights()
    for _ in range(5):
        weights.learn()
    players = crew(weights, RayCrew)
    players.load_state(state)
    players.start()
    play(players, weights, expected, range(5, 8))
    players.rest()


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (-1.0, r"raised in move\(\): ArithmeticError: no weight may be -1(.|\n)*crew.py"),
        (100.0, r"process [01] of those that play died: "),
    ],
)
def test_what_ends_a_process_is_raised_here_and_ends_all(tmp_path: Path, weight: float, message: str) -> None:
    weights = Weights()
    players = crew(weights, RayCrew, tmp_path)
    players.start()
    players.move()
    weights.version, weights.value = 1, weight
    with pytest.raises(PlayerError, match=message):
        for _ in range(3):
            players.move()
    assert_gone(processes(tmp_path))
    players.rest()


@pytest.mark.parametrize("options", [{}, {"opening_moves": 3, "selection": "gumbel"}], ids=str)
def test_a_model_learns_as_with_local_processes_and_resumes(tmp_path: Path, options: dict[str, Any]) -> None:
    learn = partial(AlphaZero.learn, log_interval=None)
    local = learn(small(**options), 160)
    model = learn(small(crew_class=RayCrew, **options), 80)
    model.save(tmp_path / "model", include=["replay_buffer"])
    assert_equal_weights(local, learn(model, 80, reset_num_timesteps=False))
    for custom in ({}, {"crew_class": Crew}):
        loaded = AlphaZero.load(tmp_path / "model", resume=True, force_reset=False, custom_objects=custom)
        assert loaded.crew_class is custom.get("crew_class", RayCrew)
        assert_equal_weights(local, learn(loaded, 80, reset_num_timesteps=False))


_SCRIPT = """
import signal, sys
from pathlib import Path
from polyak.compat.rllib_face import RayCrew
from tests.algorithms.search.crew_players import Weights, crew

signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start what runs behind them without
players = crew(Weights(), RayCrew, Path(sys.argv[1]))
players.start()
try:
    players.move()
    print("playing", flush=True)
    while True:
        players.move()
finally:
    players.rest()
    import ray
    print("left", ray.is_initialized(), flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_and_no_session_is_left_behind(how: signal.Signals, tmp_path: Path) -> None:
    script, folder = tmp_path / "script.py", tmp_path / "processes"
    script.write_text(_SCRIPT)
    folder.mkdir()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, str(script), str(folder)]
    errors = tmp_path / "errors"
    with (
        errors.open("wb") as file,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=file, start_new_session=True
        ) as parent,
    ):
        assert parent.stdout is not None
        while (line := parent.stdout.readline()) not in (b"playing\n", b""):
            pass
        assert line, errors.read_text()
        time.sleep(0.5)
        if how == signal.SIGINT:
            os.killpg(parent.pid, how)  # as a terminal's Ctrl-C does
        else:
            parent.kill()
        said = parent.stdout.read().decode()
    assert len(processes(folder)) == 2
    if how == signal.SIGINT:
        assert said == "left False\n", errors.read_text()
    assert_gone(processes(folder))
