"""Files that are written whole: what killed processes leave, power cuts, full disks."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import polyak
from polyak import writing
from polyak.writing import Unfinished, replacing, unfinished
from polyak.zoo.errors import ZooError
from polyak.zoo.output import writable_folder

ELSEWHERE = """
import os, sys
from pathlib import Path
from polyak.writing import {form}
with {form}(Path(sys.argv[1])) as at:
    at.write{text}(b"half")
    {then}
"""


def elsewhere(path: Path, then: str, form: str = "replacing") -> subprocess.Popen[str]:
    """Another process that writes a file, and does something before it is whole."""
    program = ELSEWHERE.format(form=form, text="" if form == "replacing" else "_bytes", then=then)
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def write(path: Path, text: bytes = b"whole") -> None:
    with replacing(path) as file:
        file.write(text)


@pytest.mark.parametrize("form", ["replacing", "unfinished"])
def test_what_a_killed_process_has_left_is_deleted_when_something_is_written_there(tmp_path: Path, form: str) -> None:
    assert elsewhere(tmp_path / "model.zip", "os._exit(9)", form).wait() == 9
    (left,) = os.listdir(tmp_path)
    assert re.fullmatch(r"\.model\.zip\..*\.partial", left)
    write(tmp_path / "another.npz")
    assert os.listdir(tmp_path) == ["another.npz"]


def test_what_another_process_is_writing_is_let_be(tmp_path: Path) -> None:
    other = elsewhere(tmp_path / "model.zip", "print(flush=True); input()")
    assert other.stdout is not None
    other.stdout.readline()
    write(tmp_path / "another.npz")
    assert len(os.listdir(tmp_path)) == 2
    other.communicate("go on\n")
    assert (tmp_path / "model.zip").read_bytes() == b"half"
    assert sorted(os.listdir(tmp_path)) == ["another.npz", "model.zip"]


def test_what_this_process_is_writing_is_let_be_and_an_earlier_one_of_its_number_is_not(tmp_path: Path) -> None:
    left = tmp_path / f".model.zip.{writing._place()}-{os.getpid()}-00c0ffee.partial"
    left.write_bytes(b"half")
    with replacing(tmp_path / "one"), unfinished(tmp_path / "two") as two:
        two.mkdir()
        write(tmp_path / "three")
    assert sorted(os.listdir(tmp_path)) == ["one", "three", "two"]


def test_what_another_machine_writes_is_let_be_for_a_day(tmp_path: Path) -> None:
    theirs = tmp_path / ".model.zip.ada_f3c1-4711-00c0ffee.partial"
    foreign = tmp_path / ".holiday.partial"
    for file in (theirs, foreign):
        file.write_bytes(b"half")
    write(tmp_path / "one")
    assert theirs.exists()
    for file in (theirs, foreign):
        os.utime(file, (time.time() - 2 * writing.ABANDONED,) * 2)
    write(tmp_path / "two")
    assert sorted(os.listdir(tmp_path)) == [".holiday.partial", "one", "two"]


def test_the_disk_has_a_file_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(os, "fsync", lambda file: seen.append(os.fstat(file).st_ino))
    own = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: seen.append(own(*paths)))
    write(tmp_path / "file")
    assert seen == [(tmp_path / "file").stat().st_ino, None, tmp_path.stat().st_ino]
    seen.clear()
    with unfinished(tmp_path / "folder") as at:
        at.mkdir()
        (at / "part").write_bytes(b"whole")
    assert seen == [(tmp_path / "folder" / "part").stat().st_ino, None, tmp_path.stat().st_ino]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EFBIG, errno.EROFS, errno.EACCES])
def test_a_refusal_names_the_file_and_what_is_there(tmp_path: Path, number: int) -> None:
    path = tmp_path / "model.zip"
    for earlier in ("", ", and the earlier one of that name is still there"):
        with (
            pytest.raises(OSError, match=re.escape(f"; it was not written{earlier}: '{path}'")) as caught,
            replacing(path),
        ):
            raise OSError(number, os.strerror(number))
        assert caught.value.errno == number
        assert os.strerror(number) in str(caught.value)
        assert os.listdir(tmp_path) == (["model.zip"] if earlier else [])
        write(path)


def test_a_file_that_is_too_large_leaves_the_earlier_one(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path = tmp_path / "model.zip"
    write(path)
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); at.write(bytes(5000))"
    other = elsewhere(path, limit)
    assert other.wait() == 1
    assert path.read_bytes() == b"whole"
    assert os.listdir(tmp_path) == ["model.zip"]
    assert resource


def test_a_url_is_refused_and_makes_no_folder_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("s3://bucket/logs/model", "file:///shared/model", "memory://model"):
        with pytest.raises(ValueError, match=r"is a URL.*Give the path of a folder"), replacing(Path(url)):
            pass
    with pytest.raises(ValueError, match=r"save_path='s3://bucket/logs' is a URL"):
        writing.make_folder("s3://bucket/logs", "save_path")
    with pytest.raises(ZooError, match=r"--log-folder 's3://bucket' is a URL"):
        writable_folder("--log-folder", "s3://bucket")
    assert not list(tmp_path.iterdir())
    (tmp_path / "s3:").mkdir()
    with replacing(Path("s3:/own")) as file:
        file.write(b"a folder that is there")


def test_other_errors_pass(tmp_path: Path) -> None:
    with pytest.raises(PermissionError, match="^.Errno 13. no: '/elsewhere'$"), replacing(tmp_path / "model.zip"):
        raise PermissionError(errno.EACCES, "no", "/elsewhere")
    with pytest.raises(ZeroDivisionError), unfinished(tmp_path / "model.zip"):
        _ = 1 / 0
    with pytest.raises(FileExistsError, match="is a folder already"):
        Unfinished(tmp_path)
    assert not os.listdir(tmp_path)


RENAMES = {
    "writing.py": "here",
    "callbacks/evaluating.py": "a whole file makes way",
    "learning/engine/entries.py": "sealed entries of a cache",
    "learning/engine/shared_library.py": "within such an entry",
    "zoo/benchmark_agents.py": "a folder of whole files",
    "zoo/hub/load.py": "a folder of whole files",
}
"""Modules that may rename, and what."""


def test_no_other_module_writes_a_file_beside_its_place() -> None:
    package = Path(polyak.__file__).parent
    renames = re.compile(r"os\.(replace|rename)\(|\.rename\(|mkstemp|NamedTemporaryFile")
    found = {str(file.relative_to(package)) for file in package.rglob("*.py") if renames.search(file.read_text())}
    assert found == set(RENAMES)
