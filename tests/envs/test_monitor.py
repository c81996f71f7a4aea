import json
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from polyak.envs.gym_batch import DummyVecEnv
from polyak.envs.wrappers.monitor import (
    LoadMonitorResultsError,
    Monitor,
    ResultsWriter,
    get_monitor_files,
    load_results,
)
from polyak.envs.wrappers.vec_monitor import VecMonitor
from tests.worlds import World


class Rewards(World):
    """Gives the rewards 0.1, 0.2, ... and ends after ``length`` steps, with ``lucky`` in the info."""

    observation_space, length = spaces.Box(-1, 1, (1,)), 3
    render_mode = None

    def reset(self, *, seed=None, options=None, level=None):
        return super().reset(seed=seed)

    def act(self, action):
        return self.t / 10

    def info(self):
        return {"lucky": self.t * 7}


def play(env, **kwargs):
    env.reset(**kwargs)
    over = False
    while not over:
        _, _, over, _, info = env.step(0)
    return info["episode"]


def test_truncation_ends_an_episode_too():
    env = Monitor(gym.wrappers.TimeLimit(Rewards(length=100), 4))
    env.reset()
    infos = [env.step(0)[4] for _ in range(4)]
    assert infos[-1]["episode"]["l"] == 4
    assert env.needs_reset


def test_misuse():
    env = Monitor(Rewards(), allow_early_resets=False)
    with pytest.raises(RuntimeError, match="Tried to step environment that needs reset"):
        env.step(0)
    env.reset()
    with pytest.raises(RuntimeError, match="Tried to reset an environment before done"):
        env.reset()
    env = Monitor(Rewards())
    play(env)
    with pytest.raises(RuntimeError, match="Tried to step environment that needs reset"):
        env.step(0)
    with pytest.raises(ValueError, match="Expected you to pass keyword argument level into reset"):
        Monitor(Rewards(), reset_keywords=("level",)).reset()
    with pytest.raises(KeyError, match=r"info_keywords asks for 'nope'.*it has \['lucky'\]"):
        play(Monitor(Rewards(), info_keywords=("nope",)))


def test_file(tmp_path):
    path = tmp_path / "new" / "run.monitor.csv"
    env = Monitor(Rewards(), path, reset_keywords=("level",), info_keywords=("lucky",))
    episode = play(env, level="easy")
    assert episode == {"r": 0.6, "l": 3, "t": episode["t"], "lucky": 21, "level": "easy"}
    header, columns, row = path.read_text().splitlines()  # written at once, before close
    assert header.startswith('#{"t_start": ')
    assert json.loads(header[1:]) == {"t_start": env.t_start, "env_id": "None"}
    assert columns == "r,l,t,level,lucky"
    assert row == f"0.6,3,{episode['t']},easy,21"
    env.close()
    assert env.results_writer.file_handler.closed


def test_env_id_in_the_header(tmp_path):
    Monitor(gym.make("CartPole-v1"), tmp_path / "x").close()
    header = (tmp_path / "x.monitor.csv").read_text().splitlines()[0]
    assert json.loads(header[1:])["env_id"] == "CartPole-v1"


@pytest.mark.parametrize(
    ("given", "made"), [("", "monitor.csv"), ("/run", "run.monitor.csv"), ("/a.monitor.csv", "a.monitor.csv")]
)
def test_file_names(tmp_path, given, made):
    ResultsWriter(str(tmp_path) + given).close()
    assert [file.name for file in tmp_path.iterdir()] == [made]
    assert get_monitor_files(tmp_path) == [str(tmp_path / made)]


def test_override_or_append(tmp_path):
    path = tmp_path / "monitor.csv"
    for override, rows in ((False, 1), (False, 2), (True, 1)):
        env = Monitor(Rewards(), path, override_existing=override)
        play(env)
        env.close()
        lines = path.read_text().splitlines()
        assert [line.startswith("#") for line in lines] == [True] + [False] * (rows + 1)
        assert lines[1] == "r,l,t"


# --- reading --------------------------------------------------------------------------------------------------------


def write(path, start, rows, columns="r,l,t"):
    lines = [f'#{{"t_start": {start}, "env_id": "X"}}', columns, *rows]
    path.write_text("\n".join(lines) + "\n")


def test_load_results_merges_by_time(tmp_path):
    pytest.importorskip("pandas")
    write(tmp_path / "0.monitor.csv", 100, ["1.5,10,1.0", "2.5,20,9.0"])
    write(tmp_path / "1.monitor.csv", 103, ["3.5,30,1.0"])
    (tmp_path / "other.csv").write_text("not read")
    frame = load_results(str(tmp_path))
    assert list(frame.columns) == ["index", "r", "l", "t"]
    assert frame.r.tolist() == [1.5, 3.5, 2.5]
    assert frame.l.tolist() == [10, 30, 20]
    assert frame.t.tolist() == [1.0, 4.0, 9.0]
    assert frame["index"].tolist() == [0, 0, 1]


def test_load_results_errors(tmp_path, monkeypatch):
    pytest.importorskip("pandas")
    with pytest.raises(LoadMonitorResultsError, match=r"holds no files \*monitor.csv"):
        load_results(tmp_path)
    for text in ("", "r,l,t\n1,2,3\n", "#not json\nr,l,t\n", '#{"no": 1}\nr,l,t\n'):
        (tmp_path / "monitor.csv").write_text(text)
        with pytest.raises(LoadMonitorResultsError, match="monitor.csv is not a monitor file"):
            load_results(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pandas is required for loading results.*polyak\[extra\]"):
        load_results(tmp_path)


# --- VecMonitor -----------------------------------------------------------------------------------------------------


def act(venv):
    return venv.step(np.zeros(venv.num_envs, int))


def test_vec_monitor_reset_restarts():
    env = VecMonitor(DummyVecEnv([Rewards]))
    env.reset()
    act(env)
    env.reset()
    for _ in range(3):
        infos = act(env)[3]
    assert (infos[0]["episode"]["r"], infos[0]["episode"]["l"]) == (pytest.approx(0.6), 3)


def test_vec_monitor_over_monitor_warns():
    with pytest.warns(UserWarning, match="has a `Monitor` already"):
        VecMonitor(DummyVecEnv([lambda: Monitor(Rewards())]))
