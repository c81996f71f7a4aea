"""The folder of compiled programs: broken entries are built again, and nothing is loaded that others may have written.

Libraries are texts here, and loading one is to read it.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from polyak import DQN
from polyak.learning.engine import cache, entries, private_folder
from polyak.learning.engine import shared_library as libraries

LIBRARY = libraries.LIBRARY
ARGUMENTS = [torch.ones(3)]
GRAPH = make_fx(lambda x: [x + 1])(*ARGUMENTS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    chosen = tmp_path / "programs"
    monkeypatch.setenv("POLYAK_CACHE", str(chosen))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir(mode=0o700)
    return chosen


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders that were built."""
    made: list[Path] = []

    def build(graph: Any, arguments: Any, folder: Path) -> None:
        folder.mkdir()
        (folder / LIBRARY).write_text("a library")
        (folder / "program.json").write_text("{}")
        made.append(folder)

    def load(library: Path) -> str:
        if (text := library.read_text()) != "a library":
            raise RuntimeError(f"not loadable: {text}")
        return text

    monkeypatch.setattr(libraries, "_build", build)
    monkeypatch.setattr(libraries, "load", load)
    return made


def loaded() -> Any:
    return libraries.loaded(GRAPH, ARGUMENTS)


def entry(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


def test_what_was_built_is_found_again(folder: Path, built: list[Path]) -> None:
    assert loaded() == loaded() == "a library"
    assert len(built) == 1
    assert entries.is_sound(entry(folder))


def truncated(entry: Path) -> None:
    (entry / LIBRARY).write_text("a lib")


def other_content(entry: Path) -> None:
    (entry / LIBRARY).write_text("a library of somewhere else")


def empty(entry: Path) -> None:
    (entry / LIBRARY).write_bytes(b"")


def missing(entry: Path) -> None:
    (entry / LIBRARY).unlink()


def a_folder_in_its_place(entry: Path) -> None:
    missing(entry)
    (entry / LIBRARY).mkdir()


def a_link_in_its_place(entry: Path) -> None:
    (entry / LIBRARY).rename(entry.parent.parent / "elsewhere.so")
    (entry / LIBRARY).symlink_to(entry.parent.parent / "elsewhere.so")


def without_a_seal(entry: Path) -> None:
    (entry / entries.SEAL).unlink()


def a_broken_seal(entry: Path) -> None:
    (entry / entries.SEAL).write_text('{"program.so": ')


def a_seal_of_another_kind(entry: Path) -> None:
    (entry / entries.SEAL).write_text("[1, 2]")


def a_file_in_place_of_the_entry(entry: Path) -> None:
    entry.rename(entry.parent.parent / "moved")
    entry.write_text("a file")


def a_link_in_place_of_the_entry(entry: Path) -> None:
    entry.rename(entry.parent.parent / "moved")
    entry.symlink_to(entry.parent.parent / "moved")


def unreadable(entry: Path) -> None:
    for path in (entry / LIBRARY, entry):
        path.chmod(0)
    if os.access(entry / LIBRARY, os.R_OK):  # as root, modes are ignored
        entry.chmod(0o700)
        missing(entry)


def wrong_abi(entry: Path) -> None:
    """Whole and sealed, but of a machine that only looks like this one."""
    other_content(entry)
    seal = {LIBRARY: entries._digest(entry / LIBRARY)}
    (entry / entries.SEAL).write_text(str(seal).replace("'", '"'))
    assert entries.is_sound(entry)


BROKEN = [
    truncated, other_content, empty, missing, a_folder_in_its_place, a_link_in_its_place, without_a_seal,
    a_broken_seal, a_seal_of_another_kind, a_file_in_place_of_the_entry, a_link_in_place_of_the_entry, unreadable,
    wrong_abi,
]  # fmt: skip


@pytest.mark.parametrize("damage", BROKEN)
def test_a_broken_entry_is_built_again_once(damage: Callable[[Path], None], folder: Path, built: list[Path]) -> None:
    loaded()
    damage(entry(folder))
    assert loaded() == loaded() == "a library"
    assert len(built) == 2
    assert entries.is_sound(entry(folder))  # and nothing lies beside it


def test_a_library_that_never_loads_is_an_error(
    folder: Path, built: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(library: Path) -> None:
        raise RuntimeError("undefined symbol")

    monkeypatch.setattr(libraries, "load", load)
    with pytest.raises(RuntimeError, match="undefined symbol"):
        loaded()
    assert len(built) == 2


def test_several_at_once_leave_one_entry(folder: Path, built: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    loaded()
    truncated(entry(folder))
    start, results = threading.Barrier(4), list[str]()
    build = libraries._build

    def together(*arguments: Any) -> None:
        build(*arguments)
        start.wait(60)

    monkeypatch.setattr(libraries, "_build", together)
    threads = [threading.Thread(target=lambda: results.append(loaded())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == ["a library"] * 4
    assert entries.is_sound(entry(folder))


def test_what_a_killed_process_was_writing_is_no_entry_and_goes_after_a_day(folder: Path, built: list[Path]) -> None:
    folder.mkdir(mode=0o700)
    code = (
        "import sys, time; from pathlib import Path; from polyak.learning.engine import entries\n"
        "def build(made):\n"
        "    made.mkdir(); (made / 'program.so').write_text('a lib'); print('half', flush=True); time.sleep(600)\n"
        "entries.add(Path(sys.argv[1]), build)"
    )
    path = folder / libraries._key(GRAPH, ARGUMENTS)
    killed = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert killed.stdout.readline() == "half\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (left,) = folder.iterdir()
    assert loaded() == "a library"
    assert left.exists()  # it may be another's that is still at work
    os.utime(left, (time.time() - 2 * entries.ABANDONED,) * 2)
    truncated(path)
    loaded()
    assert entry(folder) == path


# -- whose folder it is ------------------------------------------------------------------------------------------------

posix = pytest.mark.skipif(not hasattr(os, "getuid"), reason="modes and owners are POSIX's")


def private(tmp_path: Path) -> Path:
    return tmp_path / "temporary" / f"polyak-{os.getuid()}"


@posix
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o722])
def test_a_folder_that_others_may_write_is_not_used(mode: int, folder: Path, tmp_path: Path, built: list[Path]) -> None:
    loaded()
    other_content(entry(folder))
    folder.chmod(mode)
    with pytest.warns(UserWarning, match=r"programs is not used: every user may write to it.*POLYAK_CACHE") as said:
        assert loaded() == loaded() == "a library"
    assert len(said) == 1
    assert len(built) == 2
    assert private(tmp_path).stat().st_mode & 0o777 == 0o700
    assert cache.cache_folder() == private(tmp_path)


@posix
def test_nor_is_one_that_everyone_may_exchange(folder: Path, tmp_path: Path, built: list[Path]) -> None:
    loaded()
    tmp_path.chmod(0o777)
    assert private_folder.objection(folder) == f"every user may exchange what is in {tmp_path.resolve()}"
    tmp_path.chmod(0o1777)  # the sticky bit, as /tmp has it
    assert private_folder.objection(folder) is None


@posix
def test_nor_is_one_of_another_user_or_for_a_group_of_several(
    folder: Path, built: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded()
    folder.chmod(0o770)
    monkeypatch.setattr(private_folder, "_is_private", lambda group: False)
    assert f"its group (number {folder.stat().st_gid}) may write" in str(private_folder.objection(folder))
    monkeypatch.setattr(private_folder, "_is_private", lambda group: True)
    assert private_folder.objection(folder) is None
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    reason = private_folder.objection(folder)
    assert reason == (None if folder.stat().st_uid == 0 else f"it belongs to another user (number {os.getuid() - 1})")


@posix
def test_nor_is_an_entry_that_others_may_write(folder: Path, built: list[Path]) -> None:
    loaded()
    (entry(folder) / LIBRARY).chmod(0o666)
    loaded()
    assert len(built) == 2
    assert (entry(folder) / LIBRARY).stat().st_mode & 0o077 == 0


@posix
def test_a_folder_that_cannot_be_written_to_is_replaced_by_a_private_one(
    tmp_path: Path, folder: Path, built: list[Path]
) -> None:
    folder.write_text("a file")
    with pytest.warns(UserWarning, match=r"not used: it cannot be written to \(.*kept in .*polyak-"):
        assert loaded() == "a library"
    assert loaded() == "a library"
    assert len(built) == 1
    assert folder.read_text() == "a file"


@posix
def test_a_private_folder_that_another_process_has_made_first_is_left_alone(
    tmp_path: Path, folder: Path, built: list[Path]
) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    private(tmp_path).mkdir()
    private(tmp_path).chmod(0o777)
    with pytest.warns(UserWarning, match="not used"):
        loaded()
    assert list(private(tmp_path).iterdir()) == []
    assert built[0].parents[1] == private_folder._folder_of_this_process()


# -- the compiler's own ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_real_library_that_is_broken_is_built_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    expected = libraries.loaded(GRAPH, ARGUMENTS)(ARGUMENTS)
    (library,) = tmp_path.glob(f"*/{LIBRARY}")
    content = library.read_bytes()
    library.write_bytes(content[: len(content) // 2])
    assert torch.equal(libraries.loaded(GRAPH, ARGUMENTS)(ARGUMENTS)[0], expected[0])
    c_library = Path(torch.__file__).parent / "lib" / "libshm.so"
    library.write_bytes(c_library.read_bytes() if c_library.exists() else b"no library")
    seal = {LIBRARY: entries._digest(library)}
    (library.parent / entries.SEAL).write_text(str(seal).replace("'", '"'))
    assert torch.equal(libraries.loaded(GRAPH, ARGUMENTS)(ARGUMENTS)[0], expected[0])
    monkeypatch.setattr(libraries, "_build", None)
    assert torch.equal(libraries.loaded(GRAPH, ARGUMENTS)(ARGUMENTS)[0], expected[0])


@pytest.mark.slow
def test_training_survives_a_broken_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYAK_CACHE", str(tmp_path))
    options: dict[str, Any] = {"learning_starts": 50, "buffer_size": 500, "device": "cpu", "seed": 0, "compile": True}
    DQN("MlpPolicy", "CartPole-v1", **options).learn(100)
    (library,) = tmp_path.glob(f"*/{LIBRARY}")
    library.write_bytes(library.read_bytes()[:1000])
    assert DQN("MlpPolicy", "CartPole-v1", **options).learn(100).engine.status == "compiled"
    assert entries.is_sound(library.parent)
