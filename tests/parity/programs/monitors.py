"""Files: monitors, evaluations, checkpoints, logs, run folders."""

import csv
import json
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import worlds
from stable_baselines3 import A2C, DQN, PPO, SAC
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback, EveryNTimesteps
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor, get_monitor_files, load_results
from stable_baselines3.common.results_plotter import ts2xy, window_func
from stable_baselines3.common.utils import configure_logger, get_latest_run_id
from stable_baselines3.common.vec_env import VecNormalize


def _files(folder: Any) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def monitor_reset_keywords(folder: Any) -> Any:
    """Arguments of reset that go into the file, and one that is missing."""

    class Told(worlds.Counting):
        def reset(self, *, why: str = "", **kwargs: Any) -> Any:
            return super().reset(**kwargs)

    env = Monitor(Told(1), str(folder / "here"), reset_keywords=("why",))
    env.reset(why="because")
    env.step(0)
    env.close()
    lines = (folder / "here.monitor.csv").read_text().splitlines()
    try:
        env.reset()
    except ValueError as error:
        return [lines[1], lines[2].split(",")[3:], "expected you to pass" in str(error).lower()]
    return [lines[1], lines[2].split(",")[3:]]


def monitor_rows(folder: Any) -> Any:
    """Header, columns and rows, times left out."""
    env = Monitor(worlds.Counting(3), str(folder / "here"), info_keywords=("time", "is_success"))
    infos = []
    for _ in range(2):
        env.reset()
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(0)
            over = terminated or truncated
        infos.append({key: value for key, value in info["episode"].items() if key != "t"})
    env.close()
    lines = (folder / "here.monitor.csv").read_text().splitlines()
    frame = load_results(str(folder))
    return {
        "header": [lines[0][0], sorted(json.loads(lines[0][1:]))],
        "columns": lines[1],
        "rows": [[line.split(",")[:2], line.split(",")[3:]] for line in lines[2:]],
        "infos": infos,
        "rounded": [len(line.split(",")[2].split(".")[1]) <= 6 for line in lines[2:]],
        "episodes": [env.get_episode_rewards(), env.get_episode_lengths(), len(env.get_episode_times())],
        "total": env.get_total_steps(),
        "frame": [list(frame.columns), frame["r"].tolist(), frame["l"].tolist()],
        "files": [path.split("/")[-1] for path in get_monitor_files(str(folder))],
        "curves": {axis: ts2xy(frame, axis)[1] for axis in ("timesteps", "episodes")},
        "steps": ts2xy(frame, "timesteps")[0],
    }


def monitor_options(folder: Any) -> Any:
    """A file name with the ending, and going on in an old file."""
    for _ in range(2):
        env = Monitor(worlds.Counting(1), str(folder / "x.monitor.csv"), override_existing=False)
        env.reset()
        env.step(0)
        env.close()
    lines = (folder / "x.monitor.csv").read_text().splitlines()
    rows = [line.split(",")[:2] for line in lines if line[0].isdigit()]
    return {"files": _files(folder), "rows": rows, "header": lines[0].startswith("#")}


def moving_mean() -> Any:
    """window_func."""
    return window_func(np.arange(8), np.arange(8.0) ** 2, 3, np.mean)


def evaluations(folder: Any) -> Any:
    """Files of an EvalCallback and what evaluations.npz holds."""
    callback = EvalCallback(
        Monitor(worlds.Counting(4)),
        eval_freq=40,
        n_eval_episodes=3,
        log_path=str(folder / "logs"),
        best_model_save_path=str(folder / "best"),
        verbose=0,
    )
    A2C("MlpPolicy", worlds.Counting(), device="cpu", seed=0).learn(100, callback=callback)
    with np.load(folder / "logs" / "evaluations.npz") as stored:
        arrays = {name: stored[name] for name in sorted(stored)}
    return {
        "files": _files(folder),
        "arrays": arrays,
        "attributes": [float(callback.best_mean_reward), float(callback.last_mean_reward), callback.n_calls],
        "lists": [callback.evaluations_timesteps, len(callback.evaluations_results), callback.evaluations_length],
    }


def checkpoints(folder: Any) -> Any:
    """Names of checkpoints, replay buffers and statistics; ``save_freq`` counts calls."""
    dqn = DQN("MlpPolicy", VecNormalize(make_vec_env(worlds.Counting, 2)), device="cpu", buffer_size=100)
    dqn.learn(
        100, callback=CheckpointCallback(20, str(folder / "dqn"), save_replay_buffer=True, save_vecnormalize=True)
    )
    ppo = PPO("MlpPolicy", make_vec_env(worlds.Counting, 4), n_steps=16, device="cpu")
    ppo.learn(200, callback=CheckpointCallback(20, str(folder / "ppo"), name_prefix="mine"))
    inner = CheckpointCallback(1, str(folder / "every"))
    ppo.learn(200, callback=EveryNTimesteps(64, inner))
    return _files(folder)


def csv_and_json(folder: Any) -> Any:
    """progress.csv and progress.json of fixed values; a key that comes later gives a new column."""
    logger = configure(str(folder), ["csv", "json", "log"])
    for step in range(3):
        logger.record("a/number", step + 0.5)
        logger.record("a/text", 'some, "text"')
        logger.record("b/none", None)
        logger.record("b/left out", 1, exclude=("csv",))
        logger.record_mean("b/mean", step)
        logger.record_mean("b/mean", step + 1)
        if step == 2:
            logger.record("c/late", np.float32(7.0))
        logger.dump(step)
    logger.close()
    with open(folder / "progress.csv", newline="") as file:
        rows = [{key: row[key] for key in sorted(row)} for row in csv.DictReader(file)]
    lines = [json.loads(line) for line in (folder / "progress.json").read_text().splitlines()]
    table = (folder / "log.txt").read_text().splitlines()[1:]  # the first names the folder
    return {"files": _files(folder), "csv": rows, "json": lines, "table": table}


def run_folders(folder: Any) -> Any:
    """Numbers of runs below ``tensorboard_log``."""
    place = str(folder)
    model = A2C("MlpPolicy", worlds.Counting(), tensorboard_log=place, device="cpu")
    model.learn(10)
    model.learn(10)
    model.learn(10, reset_num_timesteps=False)
    model.learn(10, tb_log_name="named")
    names = sorted(path.name for path in folder.iterdir())
    event = [path.name.split(".")[:3] for path in (folder / "A2C_1").iterdir()]
    return [names, event, get_latest_run_id(place, "A2C"), get_latest_run_id(place, "other")]


def first_run_folder_without_reset(folder: Any) -> Any:
    """A new name together with ``reset_num_timesteps=False``."""
    model = A2C("MlpPolicy", worlds.Counting(), tensorboard_log=str(folder), device="cpu").learn(10)
    model.learn(10, tb_log_name="second", reset_num_timesteps=False)
    return sorted(path.name for path in folder.iterdir())


def logger_of(folder: Any) -> Any:
    """Which outputs a logger has: by verbosity, folder and wish."""

    def outputs(logger: Any) -> list[str]:
        return [type(output).__name__ for output in logger.output_formats]

    return {
        "quiet": outputs(configure_logger(0, None)),
        "loud": outputs(configure_logger(1, None)),
        "board": outputs(configure_logger(1, str(folder), "run")),
        "default": outputs(configure(str(folder / "default"))),
        "all": outputs(configure(str(folder / "all"), ["stdout", "log", "json", "csv", "tensorboard"])),
        "folder": configure(str(folder / "given"), ["csv"]).get_dir().split("/")[-1],
    }


def saved_names(folder: Any) -> Any:
    """``.zip`` and ``.pkl`` are added where there is no ending."""
    model = SAC("MlpPolicy", worlds.Target(), device="cpu", buffer_size=20).learn(5)
    model.save(folder / "plain")
    model.save(str(folder / "deep" / "er" / "model"))
    model.save(folder / "other.end")
    model.save_replay_buffer(folder / "buffer")
    model.save_replay_buffer(folder / "buffer.other")
    env = VecNormalize(make_vec_env(partial(worlds.Counting, 3), 1))
    env.save(str(folder / "stats.pkl"))
    return _files(folder)


def gym_makes_a_monitor() -> Any:
    """A single environment is monitored, a vectorised one is not."""
    found = {}
    for name, env in (
        ("by name", "CartPole-v1"),
        ("single", gym.make("CartPole-v1")),
        ("vectorised", make_vec_env(worlds.Counting, 1)),
    ):
        model = A2C("MlpPolicy", env, device="cpu")
        wrappers = model.get_env().env_is_wrapped(Monitor)
        found[name] = [type(model.get_env()).__name__, wrappers]
    return found
