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


class Rewards(gym.Env):
    """Gives the rewards 0.1, 0.2, ... and ends after ``length`` steps, with ``lucky`` in the info."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)
    render_mode = None

    def __init__(self, length=3):
        self.length = length

    def reset(self, *, seed=None, options=None, level=None):
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        over = self.count >= self.length
        return np.zeros(1, np.float32), self.count / 10, over, False, {"lucky": self.count * 7}


def play(env, **kwargs):
    env.reset(**kwargs)
    over = False
    while not over:
        _, _, over, _, info = env.step(0)
    return info["episode"]


def test_episode_record():
    env = Monitor(Rewards())
    episode = play(env)
    assert list(episode) == ["r", "l", "t"]
    assert episode["r"] == 0.6  # rounded to six decimals: the sum is 0.6000000000000001
    assert episode["l"] == 3
    assert 0 <= episode["t"] < 10
    play(env)
    env.reset()
    env.step(0)
    assert env.get_total_steps() == 7
    assert env.get_episode_rewards() == pytest.approx([0.6, 0.6])
    assert env.get_episode_lengths() == [3, 3]
    assert len(env.get_episode_times()) == 2
    assert env.rewards == [0.1]
    assert not env.needs_reset


def test_no_record_within_the_episode():
    env = Monitor(Rewards())
    env.reset()
    assert "episode" not in env.step(0)[4]


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


def test_load_results_reads_what_monitor_wrote(tmp_path):
    pytest.importorskip("pandas")
    for name in "ab":
        env = Monitor(Rewards(), tmp_path / name, info_keywords=("lucky",))
        play(env)
        play(env)
        env.close()
    frame = load_results(tmp_path)
    assert frame.r.tolist() == [0.6] * 4
    assert frame.lucky.tolist() == [21] * 4
    assert frame.t.is_monotonic_increasing


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


def test_vec_monitor(tmp_path):
    venv = DummyVecEnv([lambda length=length: Rewards(length) for length in (2, 3)])
    env = VecMonitor(venv, str(tmp_path / "vec"), info_keywords=("lucky",))
    env.reset()
    assert all("episode" not in info for info in act(env)[3])
    infos = act(env)[3]
    assert infos[0]["episode"] == {"r": pytest.approx(0.3), "l": 2, "t": infos[0]["episode"]["t"], "lucky": 14}
    assert "episode" not in infos[1]
    infos = act(env)[3]
    assert (infos[1]["episode"]["r"], infos[1]["episode"]["l"]) == (pytest.approx(0.6), 3)
    infos = act(env)[3]
    assert (infos[0]["episode"]["r"], infos[0]["episode"]["l"]) == (pytest.approx(0.3), 2)
    assert env.episode_count == 3
    lines = (tmp_path / "vec.monitor.csv").read_text().splitlines()
    assert lines[1] == "r,l,t,lucky"
    assert [line.split(",")[1] for line in lines[2:]] == ["2", "3", "2"]
    env.close()
    assert env.results_writer.file_handler.closed


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
