"""Folders as LeRobot writes them, made here."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from polyak import BC, Dataset
from polyak.experience import DatasetError

pytest.importorskip("pyarrow")
import pyarrow as pa
import pyarrow.parquet as pq

LENGTHS = (3, 4)


def folder(path: Path, *, one_file: bool = False, **changes: Any) -> Path:
    """Two episodes, each in a file of its own (version 2) or both in one (version 3); ``None`` leaves a column out."""
    pieces = []
    for episode, length in enumerate(LENGTHS):
        step = np.arange(length)
        columns: dict[str, Any] = {
            "observation.state": [[float(10 * episode + i), i / 2] for i in step],
            "action": [[i / 4] for i in step],
            "next.reward": step + 1.0,
            "next.done": step == length - 1,
            "episode_index": np.full(length, episode),
            "frame_index": step,
            "timestamp": step / 30,
            **{name: values[episode] for name, values in changes.items() if values is not None},
        }
        for name in (name for name, values in changes.items() if values is None):
            del columns[name]
        pieces.append(pa.table(columns))
    chunk = path / "data" / "chunk-000"
    chunk.mkdir(parents=True)
    if one_file:
        pq.write_table(pa.concat_tables(pieces), chunk / "file-000.parquet")
    else:
        for episode, table in enumerate(pieces):
            pq.write_table(table, chunk / f"episode_{episode:06d}.parquet")
    (path / "meta").mkdir()
    features = {"observation.images.top": {"dtype": "video", "shape": [8, 8, 3]}, "action": {"dtype": "float32"}}
    about = {"codebase_version": "v2.1", "total_frames": sum(LENGTHS), "fps": 30, "features": features}
    (path / "meta" / "info.json").write_text(json.dumps(about))
    (path / "meta" / "episodes.jsonl").write_text('{"episode_index": 0, "length": 3}\n')
    return path


@pytest.mark.parametrize("one_file", [False, True])
@pytest.mark.filterwarnings("ignore:.*terminal state")
def test_a_folder_is_a_dataset(tmp_path: Path, one_file: bool) -> None:
    with pytest.warns(UserWarning, match=r"\['observation.images.top'\] are left out: films and images are not read"):
        dataset = Dataset.load(folder(tmp_path / "robot", one_file=one_file))
    assert dataset.lengths.tolist() == list(LENGTHS)
    assert dataset.returns.tolist() == [6.0, 10.0]
    assert dataset.episode(1).observations[:4].tolist() == [[10.0 + i, i / 2] for i in range(4)]
    assert dataset.episode(0).actions.tolist() == [[i / 4] for i in range(3)]
    assert dataset.columns["timestamp"].tolist() == [i / 30 for length in LENGTHS for i in range(length)]
    assert BC("MlpPolicy", dataset, batch_size=4).learn(2).predict(np.zeros(2))[0].shape == (1,)


@pytest.mark.filterwarnings("ignore:.*left out")
def test_several_observations_choices_time_limits_and_no_rewards(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "observation.force": [np.arange(length, dtype=np.float32) for length in LENGTHS],
        "action": [[[i % 2] for i in range(length)] for length in LENGTHS],
        "next.truncated": [np.arange(length) == length - 1 for length in LENGTHS],
        "next.reward": None,
    }
    with pytest.warns(UserWarning, match=r"has no 'next.reward': every reward is 0"):
        dataset = Dataset.load(folder(tmp_path / "robot", **changes))
    assert isinstance(dataset.observation_space, spaces.Dict)
    assert set(dataset.observation_space.spaces) == {"state", "force"}
    assert isinstance(dataset.action_space, spaces.Discrete)
    assert not dataset.terminated.any()
    assert dataset.returns.tolist() == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore:.*left out")
def test_what_is_damaged_is_named(tmp_path: Path) -> None:
    short = folder(tmp_path / "short")
    (short / "data" / "chunk-000" / "episode_000001.parquet").unlink()
    with pytest.raises(DatasetError, match="speaks of 7 steps, and its files have 3"):
        Dataset.load(short)
    with pytest.raises(DatasetError, match="has no column 'action'"):
        Dataset.load(folder(tmp_path / "idle", action=None))
    blind = folder(tmp_path / "blind", **{"observation.state": None})
    with pytest.raises(DatasetError, match=r"has no column observation.\* of numbers"):
        Dataset.load(blind)
    (blind / "meta" / "info.json").write_text("[")
    with pytest.raises(DatasetError, match="is not JSON"):
        Dataset.load(blind)
