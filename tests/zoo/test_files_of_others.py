"""Files of others are refused in words of ours, without running code, and in little time and memory."""

import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from polyak.zoo.errors import ZooError
from tests.harm import forget_peak, status
from tests.zoo.files_of_others import CASES

for package in ("optuna", "minari", "pyarrow", "ray"):
    pytest.importorskip(package)

SECONDS, BYTES = 5, 512 * 2**20
NAMES = ("this", "antigravity", "beside", "minigrid", "polyak.compat.startup.sitecustomize")
_met: list[str] | None = None


def _hook(event: str, arguments: Any) -> None:
    if _met is None:
        return
    if event == "import" and arguments[0] in NAMES:
        _met.append(f"import {arguments[0]}")
    elif event in ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn") or (
        event == "open" and Path(str(arguments[0])).name == "ran"
    ):
        _met.append(f"{event} {arguments}")


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is imported or started that may not be, from a current folder with modules of others."""
    global _met
    if not hasattr(sys, "_polyak_hook"):
        sys.addaudithook(_hook)  # which cannot be taken away again
        sys._polyak_hook = True  # type: ignore[attr-defined]
    for module in ("beside.py", "minigrid.py"):
        (tmp_path / module).write_text("open('ran', 'w').write('imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    _met = []
    yield _met
    _met = None


@pytest.mark.parametrize("name", CASES)
def test_it_is_refused(name: str, watched: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    forget_peak()
    before, began = status("VmRSS"), time.process_time()
    with warnings.catch_warnings(), pytest.raises((SystemExit, ValueError, ZooError)) as caught:
        warnings.simplefilter("ignore")
        CASES[name](tmp_path)
    seconds, grown = time.process_time() - began, status("VmHWM") - before
    assert not watched
    assert not (tmp_path / "ran").exists()
    error = caught.value
    message = capfd.readouterr().err if isinstance(error, SystemExit) else str(error)
    if isinstance(error, SystemExit):
        assert error.code == 2, message
        assert message.startswith("polyak: ")
    lines = message.strip().splitlines()
    assert lines
    assert all(line.isprintable() and "Traceback" not in line for line in lines)
    assert "weights_only" not in message
    assert any(named in message for named in ("of_others", "args.yml", "agents", "trial_0", "study")), message
    assert seconds < SECONDS
    assert grown < BYTES
