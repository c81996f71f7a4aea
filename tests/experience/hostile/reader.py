"""``python -m tests.experience.hostile.reader FOLDER [part|all]``: reads the inputs, a line of JSON for each.

Each has so many seconds, and the process so much memory beyond what it has when everything is imported; what is run is
watched. The most memory that is in use at once is measured, where the system tells it.
"""

import json
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.experience.hostile import buffers, datasets, doors, good, runs  # noqa: F401  # which fill the table
from tests.experience.hostile.table import CASES, PART
from tests.harm import Late, forget_peak, late, status

SECONDS = 300
ADDRESSES = 3 * 2**30
"""Of address space, beyond what is taken before: far above what may be used, lest a failure here fill the machine."""
_RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "webbrowser.open")
_ran: list[str] = []


def _limit_memory() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (status("VmSize:") + ADDRESSES,) * 2)


def read(name: str, folder: Path) -> dict[str, Any]:
    """What came of one input."""
    case = CASES[name]
    folder.mkdir()
    path = case.make(folder)
    _ran.clear()
    forget_peak()
    before, begun = status("VmRSS:"), time.process_time()
    found: dict[str, Any] = {"name": name}
    signal.alarm(SECONDS)
    try:
        found |= {"kind": "accepted", "said": doors.read(case.door, path)}
        if found["said"].startswith("left out: ") and found["said"] != "left out: []":
            found["kind"] = "ZooError"
    except Late:
        found |= {"kind": "late", "said": ""}
    except Exception as error:
        found |= {"kind": type(error).__name__, "said": str(error), "trace": traceback.format_exc(limit=-6)}
    finally:
        signal.alarm(0)
    return found | {
        "seconds": time.process_time() - begun,
        "bytes": status("VmHWM:") - before,
        "ran": [*_ran, *(["MARK"] if list(folder.rglob("MARK")) else [])],
    }


def main(folder: Path, share: str = "all") -> None:
    """Read good files of every kind, so that all is imported, and then the hostile ones."""
    good.read_all(folder / "good")
    sys.addaudithook(lambda event, arguments: _ran.append(f"{event}{arguments!r:.100}") if event in _RUNS else None)
    signal.signal(signal.SIGALRM, late)
    _limit_memory()
    for number, name in enumerate(CASES):
        if share == "all" or name in PART:
            print(json.dumps({"begun": name}), flush=True)
            print(json.dumps(read(name, folder / str(number))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
