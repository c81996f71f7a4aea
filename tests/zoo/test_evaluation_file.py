"""``evaluations.npz``: what is read of it, and what a damaged one says."""

from pathlib import Path

import numpy as np
import pytest

from polyak.zoo.evaluation_file import read_evaluation_file


def test_of_two_evaluations_at_one_step_the_last_counts(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.npz"
    np.savez(path, timesteps=[20, 10, 20], results=[[1, 7], [2, 8], [3, 9]], ep_lengths=[[1], [2], [3]], note="mine")
    steps, tables, keys = read_evaluation_file(path, ["results", "successes"])
    assert steps.tolist() == [10, 20]
    assert {key: table.tolist() for key, table in tables.items()} == {"results": [[2.0, 8.0], [3.0, 9.0]]}
    assert keys == {"results", "ep_lengths", "note"}


def test_no_evaluations_yet(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.npz"
    np.savez(path, timesteps=np.empty(0), results=np.empty((0, 3)))
    steps, tables, keys = read_evaluation_file(path, ["results"])
    assert (steps.tolist(), tables, keys) == ([], {}, {"results"})


def ruin(path: Path, case: str) -> None:
    whole = path.with_name("whole.npz")
    np.savez_compressed(whole, timesteps=np.arange(1, 401), results=np.random.default_rng(0).normal(size=(400, 5)))
    content = whole.read_bytes()
    match case:
        case "empty":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "overwritten":
            middle = len(content) // 2
            path.write_bytes(content[:middle] + bytes(64) + content[middle + 64 :])
        case "pickle":
            np.savez(path, timesteps=np.array([{}], dtype=object), results=[[1.0]])
        case "lone array":
            with path.open("wb") as file:
                np.save(file, np.zeros(3))
        case "other shape":
            np.savez(path, timesteps=[1, 2], results=[[1.0], [2.0], [3.0]])
        case "other names":
            np.savez(path, steps=[1], results=[[1.0]])


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("empty", "it is empty"),
        ("cut", "File is not a zip file"),
        ("overwritten", "."),
        ("pickle", "Python objects"),
        ("lone array", "."),
        ("other shape", "results have the shape"),
        ("other names", "it has no timesteps; it holds steps, results"),
    ],
)
def test_a_damaged_file_is_a_value_error_with_its_reason(tmp_path: Path, case: str, reason: str) -> None:
    path = tmp_path / "evaluations.npz"
    ruin(path, case)
    with pytest.raises(ValueError, match=reason):
        read_evaluation_file(path, ["results"])


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_evaluation_file(tmp_path / "evaluations.npz", ["results"])
