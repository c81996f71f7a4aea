"""Tables whose columns have names of the user's own."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from polyak import Dataset, DiscreteCQL
from polyak.experience import DatasetError

pd = pytest.importorskip("pandas")

NAMES: dict[str, Any] = {
    "observations": ["speed", "place"],
    "actions": ["force"],
    "rewards": "gain",
    "terminations": "over",
    "truncations": "late",
    "episodes": "ride",
    "steps": "tick",
}


def frame() -> Any:
    rows = np.arange(10)
    table = {
        "tick": rows % 5,
        "ride": rows // 5,
        "place": rows / 4,
        "speed": rows * 2.0,
        "force": rows % 3 - 0.5,
        "gain": rows + 1.0,
        "over": rows == 4,
        "late": rows == 9,
        "weather": ["rain"] * 10,
        "heat": rows * 0.5,
    }
    return pd.DataFrame(table).sample(frac=1.0, random_state=0)


def written(path: Path, suffix: str) -> Any:
    if not suffix:
        return frame()
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
        frame().to_parquet(path / "table.parquet", index=False)
    else:
        frame().to_csv(path / "table.csv", index=False)
    return path / f"table{suffix}"


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ""])
@pytest.mark.filterwarnings("ignore:.*left out")
def test_columns_are_what_they_are_said_to_be(suffix: str, tmp_path: Path) -> None:
    dataset = Dataset.load(written(tmp_path, suffix), **NAMES)
    assert dataset.n_episodes == 2
    first, second = dataset.episode(0), dataset.episode(1)
    assert first.observations[:5].tolist() == [[2.0 * i, i / 4] for i in range(5)]
    assert second.actions.tolist() == [[i % 3 - 0.5] for i in range(5, 9)]  # what followed the last is not there
    assert dataset.rewards.tolist() == [i + 1.0 for i in range(9)]
    assert [first.terminated, second.terminated] == [True, False]
    assert dataset.columns["heat"].tolist() == [i * 0.5 for i in range(9)]
    assert isinstance(dataset.action_space, spaces.Box)


@pytest.mark.filterwarnings("ignore:.*left out")
def test_one_name_is_a_number_and_a_dict_is_dict_observations(tmp_path: Path) -> None:
    parts = {"motion": ["speed"], "place": "place"}
    dataset = Dataset.load(written(tmp_path, ".csv"), **NAMES | {"observations": parts})
    assert isinstance(dataset.observation_space, spaces.Dict)
    assert {key: part.shape for key, part in dataset.observation_space.spaces.items()} == {"motion": (1,), "place": ()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": ["sped"]}, "has no column 'sped'. Did you mean 'speed'?"),
        ({"actions": ["speed"]}, "'speed' is named twice, for obs_0 and for action_0"),
        ({"observations": 3}, "observations=3 cannot be used"),
        ({"observations": []}, r"observations=\[\] cannot be used"),
        ({"observations": {"a": [1]}}, r"observations=\{'a': \[1\]\} cannot be used"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=message):
        Dataset.load(written(tmp_path, ".csv"), **NAMES | change)


def test_what_is_no_column_and_where_there_are_none(tmp_path: Path) -> None:
    path = written(tmp_path, ".csv")
    with pytest.raises(TypeError, match="unexpected keyword argument 'observation'. Did you mean 'observations'?"):
        Dataset.load(path, observation=["speed"])
    with pytest.raises(DatasetError, match=r"of a table, say which columns they are: .*observations=\[...\]"):
        Dataset.load(path)
    taken = frame().rename(columns={"heat": "obs_0"})
    taken.to_csv(path, index=False)
    with pytest.raises(DatasetError, match="a column 'obs_0' besides those that are named"):
        Dataset.load(path, **NAMES)
    observations = np.zeros((4, 2), np.float32)
    dataset = Dataset(
        observations, np.array([[0.0], [1.0], [0.0], [1.0]]), np.zeros(4), np.array([False, False, False, True])
    )
    dataset.save(tmp_path / "arrays.npz")
    with pytest.raises(DatasetError, match="of the format npz, not a table"):
        Dataset.load(tmp_path / "arrays.npz", observations=["a"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ""])
def test_a_column_of_words_is_named(suffix: str, tmp_path: Path) -> None:
    message = (
        r"(table[.]|<DataFrame of 10 rows>).*row 0: the column 'weather' is '(rain|<string>)', but {} must be numbers.*"
        r"table\['weather'\].astype\('category'\).cat.codes"
    )
    for change, meaning in (
        ({"observations": ["speed", "weather"]}, "observations"),
        ({"actions": "weather"}, "actions"),
    ):
        with pytest.raises(DatasetError, match=message.format(meaning)):
            Dataset.load(written(tmp_path, suffix), **NAMES | change)


@pytest.mark.filterwarnings("ignore:.*left out")
def test_episodes_that_are_only_numbered_end_with_their_number_and_a_warning() -> None:
    names = {name: NAMES[name] for name in ("observations", "actions", "rewards", "episodes", "steps")}
    with pytest.warns(UserWarning, match="every end is taken for a terminal state. Add 'truncations'"):
        dataset = Dataset.load(frame(), **names)
    assert dataset.lengths.tolist() == [5, 5]
    assert dataset.terminated.tolist() == [True, True]
    with warnings.catch_warnings(record=True) as record:
        known = Dataset.load(frame(), **names, truncations="late")
    assert not [warning for warning in record if "terminal state" in str(warning.message)]
    assert known.terminated.tolist() == [True, False]


@pytest.mark.filterwarnings("ignore:.*terminal state")
def test_cells_of_a_table_may_be_arrays() -> None:
    images = np.arange(4 * 6 * 5 * 3, dtype=np.uint8).reshape(4, 6, 5, 3)
    table = pd.DataFrame({"action": [0, 1, 1, 0], "reward": [0.0, 1.0, 2.0, 3.0], "done": [0, 1, 0, 1]})
    dataset = Dataset.load(table.assign(obs=list(images)).astype({"action": "Int64"}))
    assert dataset.observation_space == spaces.Box(0, 255, (3, 6, 5), np.uint8)
    assert np.array_equal(dataset.transitions().observations, np.moveaxis(images, -1, 1))
    with pytest.raises(DatasetError, match=r"the column 'obs' is \[0\], but observations must be numbers"):
        Dataset.load(table.assign(obs=[[0], [0, 1], [0], [0]]))


def test_a_frame_of_polars_is_a_table_as_one_of_pandas(tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    rows = frame().sort_values(["ride", "tick"]).drop(columns="weather")
    cells = rows.assign(both=[[a, b] for a, b in zip(rows["speed"], rows["place"], strict=True)])
    table = pl.DataFrame(cells.drop(columns=["speed", "place"]).to_dict("list"))
    dataset = Dataset.load(table, **NAMES | {"observations": "both"})
    other = Dataset.load(rows, **NAMES)
    assert np.array_equal(dataset.transitions().observations, other.transitions().observations)
    assert np.array_equal(dataset.rewards, other.rewards)
    assert dataset.terminated.tolist() == [True, False]
    with pytest.raises(DatasetError, match="<DataFrame of 10 rows> has no column 'gian'. Did you mean 'gain'?"):
        Dataset.load(table, **NAMES | {"observations": "both", "rewards": "gian"})


def test_what_is_neither_a_path_nor_a_table() -> None:
    with pytest.raises(
        TypeError, match=r"path=\[1\] is neither a path nor a DataFrame of pandas or polars. Arrays make a dataset by"
    ):
        Dataset.load([1])
    with pytest.raises(ValueError, match="A table of recorded steps is read by polyak.Dataset.load"):
        DiscreteCQL("MlpPolicy", frame())
