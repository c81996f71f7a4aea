"""Files of data that were made to do harm: none runs code, hangs, fills the memory, or ends in an error of a library's.

All of them are read in one process, which measures each; see :mod:`tests.experience.hostile`.
"""

import io
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak.envs.reading import limits, npz, plain_json, tables
from polyak.experience import Dataset, DatasetError
from polyak.zoo.errors import ZooError
from polyak.zoo.links import check_file, check_inside
from tests.experience.hostile.zips import arrays, bomb, header
from tests.experience.hostile.zips import npz as write_npz
from tests.pairs import one_of_each
from tests.warm import python

for package in ("h5py", "minari", "pandas", "pyarrow", "optuna", "matplotlib", "plotly", "PIL"):
    pytest.importorskip(package)

from tests.experience.hostile import buffers, datasets, doors, good, runs  # noqa: E402, F401  # which fill the table
from tests.experience.hostile.table import CASES, PART  # noqa: E402

ROOT = Path(__file__).parents[2]
MOST_SECONDS = 20.0
"""Generous: what hangs does so for ever. The slowest takes about one second of an idle processor."""
MOST_BYTES = 512 * 2**20


def outcomes(folder: Path, share: str) -> dict[str, dict[str, Any]]:
    """What came of each input."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "agg"}
    environment |= {"MINARI_DATASETS_PATH": str(folder / "minari"), "PYTHONWARNINGS": "ignore"}
    ended = python(["-m", "tests.experience.hostile.reader", folder, share], folder, environment)
    lines = [json.loads(line) for line in ended.stdout.splitlines()]
    assert ended.returncode == 0, f"{lines[-1:]} ended it: {ended.stderr[-2000:]}"
    return {line["name"]: line for line in lines if "kind" in line}


@pytest.mark.parametrize("share", one_of_each(["part", "all"], "part"))
def test_none_does_harm(share: str, tmp_path: Path) -> None:
    """It is refused with what is wrong about it, or read as if nothing were."""
    read = outcomes(tmp_path, share)
    assert read.keys() == (PART if share == "part" else CASES.keys())
    assert len(read) > (500 if share == "all" else 350)
    assert {CASES[name].door for name in read} == {case.door for case in CASES.values()}
    assert not {name: reasons for name, found in read.items() if (reasons := list(_wrong(CASES[name], found)))}


def _wrong(case: Any, found: dict[str, Any]) -> Any:
    if found["ran"]:
        yield f"it ran {found['ran']}"
    if found["kind"] not in (*doors.REFUSALS, "accepted"):
        yield found.get("trace", found["kind"])
    if found["seconds"] > MOST_SECONDS:
        yield f"it took {found['seconds']:.0f} s"
    if found["bytes"] > MOST_BYTES:
        yield f"it took {found['bytes']:,} bytes"
    if "MemoryError" in found["said"] or "allocate" in found["said"]:
        yield f"it was refused only by the memory: {found['said']}"
    if case.says and (found["kind"] == "accepted" or not re.search(case.says, found["said"], re.DOTALL)):
        yield f"{found['kind']}: {found['said']!r} does not match {case.says!r}"


# -- the limits --------------------------------------------------------------------------------------------------------


def test_a_user_may_allow_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the message says, and to the byte."""
    path = tmp_path / "a.npz"
    write_npz(path, compression=zipfile.ZIP_DEFLATED, x=np.zeros(limits.ALWAYS_ALLOWED, bool))
    with pytest.raises(DatasetError, match=f"{limits.VARIABLE} to at least") as caught:
        Dataset.load(path)
    least = str(caught.value).rstrip(".").rpartition(" ")[2]
    monkeypatch.setenv(limits.VARIABLE, str(int(least) - 1))
    with pytest.raises(DatasetError, match="would unpack"):
        Dataset.load(path)
    monkeypatch.setenv(limits.VARIABLE, least)
    with pytest.warns(UserWarning, match="left out"):
        assert len(Dataset.load(path)) == len(arrays()["rewards"])
    monkeypatch.setenv(limits.VARIABLE, "much")
    with pytest.raises(DatasetError, match="POLYAK_MAX_UNPACKED='much' is not a number"):
        Dataset.load(path)


def test_what_is_not_compressed_is_read_whatever_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In memory and in the file; here beyond what a small file may unpack to."""
    monkeypatch.setattr(limits, "ALWAYS_ALLOWED", 1000)
    n = 3000
    observations = np.random.default_rng(0).normal(size=(n, 5)).astype(np.float32)
    ends = np.arange(n) % 100 == 99
    made = Dataset(observations, np.arange(n) % 2, np.ones(n), terminations=ends)
    path = made.save(tmp_path / "a.npz")
    for in_memory in (True, False):
        found = Dataset.load(path, in_memory=in_memory)
        np.testing.assert_array_equal(found.observations, made.observations)


def test_images_that_compress_well_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stacks of plain images with their successors shrink a hundredfold; that is within the limit."""
    monkeypatch.setattr(limits, "ALWAYS_ALLOWED", 1000)
    rng = np.random.default_rng(0)
    frames = np.zeros((203, 84, 84), np.uint8)
    for frame in frames:  # a ball, two bats and some more
        for height, width in ((4, 2), (16, 4), (16, 4), (8, 8), (8, 8), (8, 8)):
            y, x = rng.integers(0, 84 - height), rng.integers(0, 84 - width)
            frame[y : y + height, x : x + width] = 200
    stacks = np.stack([frames[i : i + 200] for i in range(4)], 1)
    path = tmp_path / "a.npz"
    ends = np.arange(199) == 198
    np.savez_compressed(
        path,
        observations=stacks[:-1],
        next_observations=stacks[1:],
        actions=np.arange(199) % 6,
        rewards=np.zeros(199),
        terminals=ends,
    )
    assert 2 * stacks.nbytes / path.stat().st_size > 50
    assert len(Dataset.load(path)) == 199


def test_only_what_is_asked_for_is_unpacked(tmp_path: Path) -> None:
    path = bomb(tmp_path / "a.npz", {"x.npy": (header("(500000000,)"), 2_000_000_000)})
    with zipfile.ZipFile(path, "a") as archive:
        write_npz(tmp_path / "b.npz")
        with zipfile.ZipFile(tmp_path / "b.npz") as other:
            archive.writestr("rewards.npy", other.read("rewards.npy"))
    assert npz.read(path, "it", {"rewards"})["rewards"].tolist() == [1.0] * 6
    with pytest.raises(ValueError, match="it would unpack to 2,000,000,024 bytes"):
        npz.read(path, "it")


def test_cells_are_counted_before_a_table_is_parsed() -> None:
    tables.check_table(io.BytesIO(b"a,b\n" + b"1,2\n" * 10**6), ",", "it")
    names = ",".join(f"x{i}" for i in range(2000)).encode()
    tables.check_table(io.BytesIO(names + b"\n" + b"," * 1999 + b"\n"), ",", "it")
    with pytest.raises(ValueError, match="it has 2,000 columns and some 1,001 lines"):
        tables.check_table(io.BytesIO(names + b"\n" * 1001), ",", "it")


def test_json_says_what_is_wrong_with_it() -> None:
    assert plain_json.parse('{"a": [1, {"b": []}]}', "it") == {"a": [1, {"b": []}]}
    assert plain_json.parse("[" * 64 + "]" * 64, "it")
    with pytest.raises(ValueError, match="it is nested more than 64 deep"):
        plain_json.parse("[" * 65 + "]" * 65, "it")
    assert plain_json.whole({"a": 3}, "a", "it") == 3
    for value in (True, "3", 3.0, -1, None):
        with pytest.raises(ValueError, match="it has a="):
            plain_json.whole({"a": value}, "a", "it")


# -- links -------------------------------------------------------------------------------------------------------------


def test_links_within_a_run_are_followed(tmp_path: Path) -> None:
    run = tmp_path / "logs" / "run"
    run.mkdir(parents=True)
    (run / "a.csv").write_text("")
    (run / "b.csv").symlink_to("a.csv")
    (tmp_path / "c.csv").write_text("")
    (run / "c.csv").symlink_to(tmp_path / "c.csv")
    (tmp_path / "scratch").symlink_to(run)  # the run's folder itself may be a link
    for folder in (run, tmp_path / "scratch"):
        check_file(folder / "b.csv", folder)
        with pytest.raises(ZooError, match=r"c\.csv is a link that leads out of"):
            check_file(folder / "c.csv", folder)
    os.mkfifo(run / "d.csv")
    check_inside(run / "d.csv", run)
    with pytest.raises(ZooError, match=r"d\.csv is a folder, a pipe or a device"):
        check_file(run / "d.csv", run)


@pytest.mark.parametrize(
    "name", ["X-v0/config.yml", "X-v0/vecnormalize.pkl", "0.monitor.csv", "evaluations.npz", "X-v0.zip"]
)
def test_what_is_linked_to_is_not_pushed(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from polyak.zoo.hub import push

    run = good.run(tmp_path / "logs")
    (run / "X-v0.zip").write_bytes(b"")
    (tmp_path / "secret").write_text("the secret")
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(tmp_path / "secret")
    monkeypatch.setattr(push, "connect", lambda: None)
    monkeypatch.setattr(push, "_check", lambda options: None)
    with pytest.raises(ZooError, match=f"{Path(name).name} is a link that leads out of"):
        push.push_to_hub(push.PushOptions(algo="ppo", env="X-v0", folder=str(tmp_path / "logs"), organization="me"))
