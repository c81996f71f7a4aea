"""RLlib's recordings: episodes, columns and sample batches are read as the same steps."""

from __future__ import annotations

import base64
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from polyak.experience import Dataset
from polyak.experience.datasets.episodes import DatasetError
from polyak.experience.datasets.formats import rllib
from polyak.experience.datasets.formats.source import Source

pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

LENGTHS = (3, 2)
"""Of two episodes: the first ends in a terminal state, the second is cut short."""


def steps() -> list[dict[str, Any]]:
    """A row for each step: observations count up from 10 times the episode."""
    rows = []
    for episode, length in enumerate(LENGTHS):
        for t in range(length):
            seen = [10.0 * episode + t, -1.0]
            last = t == length - 1
            rows.append(
                {
                    "eps_id": f"episode {episode}",
                    "obs": seen,
                    "actions": (episode + t) % 2,
                    "rewards": float(t),
                    "new_obs": [seen[0] + 1, -1.0],
                    "terminateds": last and episode == 0,
                    "truncateds": last and episode == 1,
                }
            )
    return rows


def check(data: Dataset) -> None:
    assert data.lengths.tolist() == list(LENGTHS)
    assert data.terminated.tolist() == [True, False]
    assert data.observations[:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12]
    assert data.rewards.tolist() == [0, 1, 2, 0, 1]
    assert data.actions.tolist() == [0, 1, 0, 1, 0]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


# -- columns -----------------------------------------------------------------------------------------------------------


def test_columns_of_lists(tmp_path: Path) -> None:
    path = write(tmp_path / "steps.parquet", [{**row, "infos": None, "action_logp": -0.5} for row in steps()])
    data = Dataset.load(path)
    check(data)
    assert data.columns["action_logp"].tolist() == [-0.5] * 5


def test_a_folder_of_files_is_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number, row in enumerate(steps()):
        write(tmp_path / "env" / f"run-{number // 3}" / f"{number:04}.parquet", [row])
    check(Dataset.load(tmp_path))


def test_what_is_written_again_counts_once(tmp_path: Path) -> None:
    """RLlib's runners write all they have sampled so far at each iteration."""
    write(tmp_path / "run-1" / "a.parquet", steps()[:3])
    write(tmp_path / "run-2" / "a.parquet", steps())
    check(Dataset.load(tmp_path))


def test_columns_of_other_names(tmp_path: Path) -> None:
    names = {"obs": "o_t", "new_obs": "o_next", "actions": "a_t"}
    rows = [{names.get(name, name): value for name, value in row.items()} for row in steps()]
    data = Dataset.load(
        write(tmp_path / "a.parquet", rows), observations="o_t", next_observations="o_next", actions="a_t"
    )
    check(data)


def test_observations_of_several_parts_and_of_images(tmp_path: Path) -> None:
    rows = [
        {**row, "obs": {"x": row["obs"], "y": [0.5]}, "new_obs": {"x": row["new_obs"], "y": [0.5]}} for row in steps()
    ]
    data = Dataset.load(write(tmp_path / "parts.parquet", rows))
    assert data.observations["x"][:, 0].tolist() == [0, 1, 2, 3, 10, 11, 12]
    image = np.arange(5 * 36 * 36 * 3, dtype=np.uint8).reshape(5, 36, 36, 3)
    rows = [{**row, "obs": image[i].tolist(), "new_obs": image[i].tolist()} for i, row in enumerate(steps())]
    data = Dataset.load(
        write(tmp_path / "images.parquet", rows), observation_space=spaces.Box(0, 255, (36, 36, 3), np.uint8)
    )
    assert data.observation_space.shape == (3, 36, 36)


def test_tensors_of_ray_data_keep_their_shape(tmp_path: Path) -> None:
    """Ray Data flattens arrays, and notes their shape beside the column."""
    flat = pa.array([list(range(4))] * 5, pa.list_(pa.float32()))
    about = {b"ARROW:extension:name": b"ray.data.arrow_tensor_v2", b"ARROW:extension:metadata": b"[2, 2]"}
    table = pa.Table.from_pylist([{k: v for k, v in row.items() if "obs" not in k} for row in steps()])
    for name in ("obs", "new_obs"):
        table = table.append_column(pa.field(name, flat.type, metadata=about), flat)
    pq.write_table(table, tmp_path / "a.parquet")
    assert Dataset.load(tmp_path / "a.parquet").observation_space.shape == (2, 2)


# -- packed ------------------------------------------------------------------------------------------------------------


def packed(value: Any) -> str:
    lz4 = pytest.importorskip("lz4.frame")
    return base64.b64encode(lz4.compress(pickle.dumps(np.asarray(value, np.float32)))).decode()


def test_packed_columns(tmp_path: Path) -> None:
    rows = [{**row, "obs": packed(row["obs"]), "new_obs": packed(row["new_obs"])} for row in steps()]
    check(Dataset.load(write(tmp_path / "a.parquet", rows)))


class Runs:
    def __reduce__(self) -> Any:
        return (print, ("this must not run",))


def test_pickles_are_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lz4 = pytest.importorskip("lz4.frame")
    bad = base64.b64encode(lz4.compress(pickle.dumps(Runs()))).decode()
    with pytest.raises(ValueError, match="not among what is read"):
        Dataset.load(write(tmp_path / "a.parquet", [{**row, "obs": bad} for row in steps()]))
    assert capsys.readouterr().out == ""


# -- sample batches ----------------------------------------------------------------------------------------------------


def lines(path: Path, pack: Any = None, agents: bool = False) -> Path:
    """Two batches; the first ends within an episode."""
    with path.open("w") as file:
        for rows in (steps()[:2], steps()[2:]):
            batch: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
            batch["infos"] = [{} for _ in rows]
            if pack is not None:
                batch |= {name: pack(batch[name]) for name in ("obs", "new_obs")}
            if agents:
                batch = {"count": len(rows), "policy_batches": {"default_policy": batch}}
            kind = "MultiAgentBatch" if agents else "SampleBatch"
            file.write(json.dumps({"type": kind, **batch}) + "\n")
    return path


@pytest.mark.parametrize("agents", [False, True])
def test_sample_batches(agents: bool, tmp_path: Path) -> None:
    path = lines(tmp_path / "a.json", agents=agents)
    assert rllib.kind(Source(path)) == rllib.SAMPLE_BATCHES
    check(Dataset.load(path))


def test_packed_sample_batches(tmp_path: Path) -> None:
    check(Dataset.load(lines(tmp_path / "a.json", packed)))


# -- episodes ----------------------------------------------------------------------------------------------------------


def array(value: Any) -> dict[bytes, Any]:
    """An array as msgpack-numpy writes it."""
    found = np.asarray(value)
    return {b"nd": True, b"type": found.dtype.str, b"kind": b"", b"shape": found.shape, b"data": found.tobytes()}


def number(value: Any) -> dict[bytes, Any]:
    found = np.asarray(value)
    return {b"nd": False, b"type": found.dtype.str, b"data": found.tobytes()}


def episodes(path: Path, stacked: bool = False, objects: bool = False) -> Path:
    """Both episodes, the first in two pieces, the later one first."""
    msgpack = pytest.importorskip("msgpack")
    rows = steps()
    items = []
    for begin, end, started in ((2, 3, 2), (0, 2, 0), (3, 5, 0)):
        piece = rows[begin:end]
        seen = [row["obs"] for row in piece] + [piece[-1]["new_obs"]]
        taken = [row["actions"] for row in piece]
        back = 1 if started else 0
        seen, taken = [[9.0, 9.0]] * back + seen, [9] * back + taken
        rewards = [5.0] * back + [row["rewards"] for row in piece]
        infos = array([0])
        infos |= {b"kind": b"O", b"data": pickle.dumps(Runs())} if objects else {}
        state = {
            "id_": piece[0]["eps_id"],
            "observations": {"data": array(np.asarray(seen, np.float32)), "lookback": back}
            if stacked
            else {"data": [array(np.asarray(one, np.float32)) for one in seen], "lookback": back},
            "actions": {"data": [number(np.int64(one)) for one in taken], "lookback": back},
            "rewards": {"data": rewards, "lookback": back},
            "infos": {"data": infos, "lookback": 0},
            "is_terminated": piece[-1]["terminateds"],
            "is_truncated": piece[-1]["truncateds"],
            "t_started": started,
        }
        items.append({"item": msgpack.packb(state)})
    return write(path, items)


@pytest.mark.parametrize("stacked", [False, True])
def test_episodes_whose_pieces_come_in_any_order(stacked: bool, tmp_path: Path) -> None:
    path = episodes(tmp_path / "a.parquet", stacked)
    assert rllib.kind(Source(path)) == rllib.EPISODES
    check(Dataset.load(path))


def test_objects_in_episodes_are_not_unpickled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(Dataset.load(episodes(tmp_path / "a.parquet", objects=True)))
    assert capsys.readouterr().out == ""


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: [{k: v for k, v in row.items() if k != "actions"} for row in rows], "no 'actions'"),
        (lambda rows: [{**row, "obs": row["obs"][:1]} if i == 2 else row for i, row in enumerate(rows)], "rows of"),
        (lambda rows: [{**row, "obs": [np.nan, 0.0]} for row in rows], "nan"),
    ],
)
def test_what_cannot_be_learned_from_is_said(change: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=words):
        Dataset.load(write(tmp_path / "a.parquet", change(steps())))


def test_texts_that_repeat_do_not_fill_the_memory(tmp_path: Path) -> None:
    """In the file a text is written once."""
    rows = [{**steps()[0], "eps_id": "x" * 2**16, "t": t} for t in range(2000)]
    path = write(tmp_path / "a.parquet", rows)
    assert path.stat().st_size < 2**19
    with pytest.raises(ValueError, match="eps_id would unpack to 131,072,000 bytes"):
        Dataset.load(path)


def test_damage_is_said(tmp_path: Path) -> None:
    msgpack = pytest.importorskip("msgpack")
    for item in (b"\xc1", msgpack.packb({"id_": "a"}), msgpack.packb([1])):
        with pytest.raises(DatasetError, match="damaged"):
            Dataset.load(write(tmp_path / "a.parquet", [{"item": item}]))
    (tmp_path / "a.json").write_text('{"type": "SampleBatch", "obs": [[1.0]]')
    with pytest.raises(ValueError, match="line 1"):
        Dataset.load(tmp_path / "a.json")
    two = {"type": "MultiAgentBatch", "policy_batches": {"a": {}, "b": {}}}
    (tmp_path / "a.json").write_text(json.dumps(two))
    with pytest.raises(DatasetError, match="2 agents"):
        Dataset.load(tmp_path / "a.json")
