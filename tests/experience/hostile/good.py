"""Files of every kind with nothing wrong about them: what the hostile ones are made from."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.experience import Dataset, ReplayBuffer
from tests.experience.hostile import doors
from tests.experience.hostile.zips import arrays, npz

PICKLE = Path(__file__).parents[2] / "compat" / "data" / "thrifty_replay.pkl"


@cache
def folder() -> Path:
    """Where they are, for as long as the process lives."""
    import tempfile

    keeper = tempfile.TemporaryDirectory(prefix="polyak-hostile-")
    _kept.append(keeper)
    return Path(keeper.name)


_kept: list[Any] = []


def dataset() -> Dataset:
    found = arrays()
    ends = {"terminations": found["terminals"], "truncations": found["timeouts"]}
    space = spaces.Box(-1, 99, (3,), np.float32)
    return Dataset(
        found["observations"], found["actions"], found["rewards"], **ends, observation_space=space, env_id="X-v0"
    )


@cache
def own(suffix: str = ".npz") -> Path:
    """A dataset as polyak writes it."""
    return dataset().save(folder() / f"own{suffix}")


@cache
def minari() -> Path:
    """A folder of Minari's."""
    return dataset().save(folder() / "x-v0", format="minari")


def hdf5(path: Path, **changes: Any) -> Any:
    """An open file with D4RL's arrays, some of which are changed or left out."""
    import h5py

    file = h5py.File(path, "w")
    for name, array in {**arrays(), **changes}.items():
        if array is not None:
            file[name] = array
    return file


@cache
def buffer_file() -> Path:
    """A replay buffer of CartPole's as polyak writes it."""
    import gymnasium as gym

    from polyak.checkpoint.saved import save_buffer

    env = gym.make("CartPole-v1")
    buffer = ReplayBuffer(32, env.observation_space, env.action_space, "cpu", handle_timeout_termination=True)
    for step in range(12):
        observation = np.full((1, 4), step / 99, np.float32)
        buffer.add(observation, observation, np.array([[step % 2]]), np.ones(1), np.array([step == 5]), [{}])
    save_buffer(buffer, folder() / "replay.pkl")
    return folder() / "replay.pkl"


def run(logs: Path, algo: str = "ppo") -> Path:
    """A run's folder with two episodes and three evaluations."""
    path = logs / algo / "X-v0_1"
    (path / "X-v0").mkdir(parents=True)
    (path / "0.monitor.csv").write_text('#{"t_start": 1.0, "env_id": "X-v0"}\nr,l,t\n1.0,10,1.0\n2.0,10,2.0\n')
    (path / "progress.csv").write_text("time/total_timesteps,train/loss\n10,0.5\n20,0.25\n")
    (path / "X-v0" / "config.yml").write_text("n_steps: 8\n")
    (path / "X-v0" / "args.yml").write_text("algo: ppo\nenv: X-v0\nseed: 0\n")
    (path / "X-v0" / "warnings.txt").write_text("UserWarning: mind the gap\n")
    np.savez(path / "evaluations.npz", timesteps=[10, 20, 30], results=np.ones((3, 2)), ep_lengths=np.ones((3, 2)))
    return path


def result() -> dict[str, Any]:
    """What a run of the benchmark writes."""
    return {
        "algo": "ppo",
        "env": "X-v0",
        "n_timesteps": 10,
        "seed": 0,
        "settings": {},
        "returns": [1.0],
        "lengths": [10],
        "deterministic": True,
        "train_seconds": 1.0,
        "cpu_seconds": 1.0,
        "finished": "2026-01-01",
        "device": "cpu",
        "threads": 1,
        "machine": "m",
        "versions": {},
    }


def results(path: Path, **changes: Any) -> Path:
    """A pickle as ``all-plots`` writes it."""
    import pickle

    record = {"timesteps": np.arange(3), "mean_per_eval": np.ones((3, 2)), **changes}
    path.write_bytes(pickle.dumps({"X-v0": {"PPO-logs/": record}}, protocol=4))
    return path


def _files(place: Path) -> Iterator[tuple[str, Path]]:
    for path in (npz(place / "a.npz"), own(), own(".csv"), own(".parquet"), minari(), buffer_file(), PICKLE):
        yield "dataset", path
    with hdf5(place / "a.hdf5"):
        pass
    yield "dataset", place / "a.hdf5"
    yield "data_show", own()
    yield "replay", buffer_file()
    yield "replay", PICKLE
    run(place / "logs")
    for door in ("report", "plot", "plot_eval", "all_plots"):
        yield door, place / "logs"
    yield "from_file", results(place / "r.pkl")
    yield "journal", place / "journal.log"
    result_file = place / "results" / "a" / "b" / "benchmark.json"
    result_file.parent.mkdir(parents=True)
    result_file.write_text(json.dumps(result()))
    yield "benchmark", place / "results"


def read_all(place: Path) -> None:
    """Read all of them; each is accepted."""
    place.mkdir(parents=True)
    for door, path in _files(place):
        said = doors.read(door, path)
        assert said.count("left out: ") == said.count("left out: []"), (door, path, said)
