"""Hostile run folders, journals of studies, results of benchmarks and pickles of plots."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from tests.experience.hostile import good
from tests.experience.hostile.datasets import DEEP, DIGITS
from tests.experience.hostile.table import hostile
from tests.experience.hostile.zips import bomb, cut, header, npy, npz

CURVES = "report plot"
EVALUATED = "report plot_eval all_plots"


def _monitor(folder: Path, text: Any) -> Path:
    path = good.run(folder / "logs")
    (path / "0.monitor.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder / "logs"


_START = '#{"t_start": 1.0, "env_id": "X-v0"}\n'
_MONITORS: dict[str, tuple[Any, str]] = {
    "empty": ("", "left out|monitor"),
    "header nested": (f"#{DEEP}\nr,l,t\n1,10,1\n", "0.monitor.csv.*(header|first line)"),
    "header of 5,000 digits": (f'#{{"t_start": {DIGITS}}}\nr,l,t\n1,10,1\n', "0.monitor.csv"),
    "header of 400 digits": (f'#{{"t_start": {DIGITS[:400]}}}\nr,l,t\n1,10,1\n', "0.monitor.csv"),
    "header of no time": ('#{"t_start": 1e999}\nr,l,t\n1,10,1\n', "0.monitor.csv"),
    "header of text": ('#{"t_start": "x"}\nr,l,t\n1,10,1\n', "0.monitor.csv"),
    "header a list": ("#[1]\nr,l,t\n1,10,1\n", "0.monitor.csv"),
    "no header": ("r,l,t\n1,10,1\n", "0.monitor.csv"),
    "no time": (f"{_START}r,l\n1,10\n", "0.monitor.csv"),
    "texts": (f"{_START}r,l,t\na,b,c\n", "left out|0.monitor.csv"),
    "many columns over short lines": (
        _START + "r,l,t," + ",".join(f"x{i}" for i in range(19_000)) + "\n" + "1\n" * 30_000,
        "0.monitor.csv.*cells",
    ),
    "a million columns": (_START + "r,l,t," + "x," * 10**6 + "\n1,10,1\n", "0.monitor.csv"),
    "a giant first line": (b"#" + b"x" * 20_000_000, "0.monitor.csv"),
    "an open quote": (f'{_START}r,l,t\n"' + "1,2,3\n" * 1000, "0.monitor.csv"),
    "no text": (_START.encode() + b"r,l,t\n" + bytes(range(256)) * 10, "."),
    "lengths of 5,000 digits": (f"{_START}r,l,t\n1,{DIGITS},1\n", "."),
    "utf-16": (f"{_START}r,l,t\n1,10,1\n".encode("utf-16"), "0.monitor.csv"),
}
for _name, (_text, _says) in _MONITORS.items():
    hostile(CURVES, _says, f"monitor, {_name}")(lambda folder, _t=_text: _monitor(folder, _t))

_HARMLESS = {
    "infinite returns": f"{_START}r,l,t\n1e999,10,1\n-1e999,10,2\n",
    "returns beyond all": f"{_START}r,l,t\n1e308,10,1\n-1e308,10,2\n1e308,10,2\n",
    "lengths beyond all": f"{_START}r,l,t\n1,{2**62},1\n1,{2**62},2\n1,{2**62},3\n",
    "negative lengths": f"{_START}r,l,t\n1,-10,1\n1,-10,2\n",
    "no numbers": f"{_START}r,l,t\nnan,nan,nan\n",
    "cut row": f"{_START}r,l,t\n1,10,1\n1,1",
    "names only": f"{_START}r,l,t\n",
}
for _name, _text in _HARMLESS.items():
    hostile(CURVES, "", f"monitor, {_name}")(lambda folder, _t=_text: _monitor(folder, _t))


def _replaced(folder: Path, name: str, change: Any) -> Path:
    path = good.run(folder / "logs") / name
    if path.exists():
        path.unlink()
    change(path)
    return folder / "logs"


def _elsewhere(folder: Path, name: str) -> Path:
    """A file outside of the logs that could be read as one of them."""
    path = good.run(folder / "elsewhere") / name
    path.parent.mkdir(exist_ok=True)
    if name.endswith((".txt", ".yml")):
        path.write_text("the secret: 424242424242\n")
    if name.endswith(".csv"):
        path.write_text(path.read_text().replace("2.0", "424242424242").replace("0.5", "424242424242"))
    return path


_FILES = {"0.monitor.csv": CURVES, "progress.csv": "report", "evaluations.npz": EVALUATED}
_FILES |= {"X-v0/warnings.txt": "report", "X-v0/config.yml": "report", "X-v0/args.yml": "report"}
_FILES |= {"X-v0/system.yml": "report"}
for _file, _doors in _FILES.items():
    hostile(_doors, f"{_file}.* link that leads out", f"{_file}, a link to elsewhere")(
        lambda folder, _f=_file: _replaced(folder, _f, lambda path: path.symlink_to(_elsewhere(folder, _f)))
    )
    hostile(_doors, "", f"{_file}, a pipe")(lambda folder, _f=_file: _replaced(folder, _f, os.mkfifo))
    hostile(_doors, "", f"{_file}, a device")(
        lambda folder, _f=_file: _replaced(folder, _f, lambda path: path.symlink_to("/dev/zero"))
    )
    hostile(_doors, "", f"{_file}, a link to itself")(
        lambda folder, _f=_file: _replaced(folder, _f, lambda path: path.symlink_to(path))
    )


@hostile("report", "X-v0/config.yml.* link that leads out")
def folder_of_settings_elsewhere(folder):
    run = good.run(folder / "logs")
    other = good.run(folder / "elsewhere")
    (other / "X-v0" / "warnings.txt").write_text("the secret\n")
    for path in (run / "X-v0").iterdir():
        path.unlink()
    (run / "X-v0").rmdir()
    (run / "X-v0").symlink_to(other / "X-v0")
    return folder / "logs"


@hostile("report", "videos/a.mp4.* link that leads out")
def folder_of_videos_elsewhere(folder):
    run = good.run(folder / "logs")
    (folder / "home").mkdir()
    (folder / "home" / "a.mp4").write_bytes(b"the secret")
    (run / "videos").symlink_to(folder / "home")
    return folder / "logs"


@hostile("report", "a.gif.* link that leads out")
def video_elsewhere(folder):
    run = good.run(folder / "logs")
    (folder / "home.gif").write_bytes(b"the secret")
    (run / "a.gif").symlink_to(folder / "home.gif")
    return folder / "logs"


@hostile("report", "", "warnings without an end")
def _(folder):
    return _replaced(folder, "X-v0/warnings.txt", lambda path: path.write_text("x" * 30_000_000))


_SETTINGS = {
    "bool keys": "true: 1\nfalse: 2\nnull: 3\n1: 4\n2.5: {true: false}\n",
    "5,000 digits": f"n_steps: {DIGITS}\n",
    "no text": "\x01\x02",
    "a list": "- 1\n- 2\n",
    "dates": "2001-01-01: 2001-01-01\n? [1, 2]\n: 3\n",
    "nested": "a: " + DEEP[:300],
    "infinite": "n_steps: .inf\nseed: .nan\n",
}
for _name, _text in _SETTINGS.items():
    for _file in ("config.yml", "args.yml"):
        hostile("report", "", f"{_file}, {_name}")(
            lambda folder, _t=_text, _f=_file: _replaced(folder, f"X-v0/{_f}", lambda path: path.write_text(_t))
        )

_PROGRESS: dict[str, tuple[str, str]] = {
    "many columns over short lines": (
        "time/total_timesteps," + ",".join(f"x{i}" for i in range(19_000)) + "\n" + "1\n" * 30_000,
        "progress.csv.*cells",
    ),
    "a million columns": (",".join(f"x{i}" for i in range(10**6)) + "\n1\n", "progress.csv.*columns"),
    "names twice": ("a,a\n1,2\n", "progress.csv.*same name"),
    "no line": ("a,b", "progress.csv"),
    "steps beyond all": ("time/total_timesteps,a\n1e308,1e308\n-1e308,-1e308\n1e999,nan\n", ""),
}
for _name, (_text, _says) in _PROGRESS.items():
    hostile("report", _says, f"progress, {_name}")(
        lambda folder, _t=_text: _replaced(folder, "progress.csv", lambda path: path.write_text(_t))
    )


# -- evaluations -------------------------------------------------------------------------------------------------------


def _evaluated(folder: Path, **changes: Any) -> Path:
    found = {"timesteps": np.array([10, 20, 30]), "results": np.ones((3, 2)), **changes}
    none = dict.fromkeys(("observations", "actions", "rewards", "terminals", "timeouts"))
    npz(good.run(folder / "logs") / "evaluations.npz", **{**none, **found})
    return folder / "logs"


@hostile(EVALUATED, "evaluations.npz.*would unpack|holds", "evaluations, 0.3 MB that unpack to gigabytes")
def _(folder):
    run = good.run(folder / "logs")
    n = 300_000_000
    bomb(
        run / "evaluations.npz",
        {"timesteps.npy": (npy([10, 20, 30]), 0), "results.npy": (header(f"(3, {n // 3})", "'|b1'"), n)},
    )
    return folder / "logs"


@hostile(EVALUATED, "evaluations.npz.*numbers: at most", "evaluations, numbers that grow when they are read")
def _(folder):
    return _evaluated(folder, results=np.zeros((3, 20_000_000), bool))


_EVALUATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "objects": ({"results": header("(3, 2)", "'|O'")}, "Python objects"),
    "texts": ({"results": np.array([["a"], ["b"], ["c"]])}, "not numbers"),
    "complex": ({"results": np.ones((3, 2), complex)}, "not numbers"),
    "steps of nan": ({"timesteps": np.full(3, np.nan)}, "whole numbers"),
    "steps beyond all": ({"timesteps": np.array([10, 20, 1e300])}, "whole numbers"),
    "steps of texts": ({"timesteps": np.array(["a", "b", "c"])}, "not numbers"),
    "no steps": ({"timesteps": None}, "has no timesteps"),
    "other lengths": ({"results": np.ones((4, 2))}, "have the shape"),
    "a lone number": ({"timesteps": np.array(10), "results": np.array(1.0)}, ""),
    "no numbers": ({"results": np.full((3, 2), np.nan)}, ""),
    "infinite": ({"results": np.array([[np.inf], [-np.inf], [1e308]])}, ""),
    "steps below zero": ({"timesteps": np.array([-30, -20, -10])}, ""),
    "no episodes": ({"results": np.ones((3, 0))}, ""),
    "no evaluations": ({"timesteps": np.ones(0), "results": np.ones((0, 2))}, ""),
}
for _name, (_changes, _says) in _EVALUATIONS.items():
    hostile(EVALUATED, _says and f"evaluations.npz.*{_says}", f"evaluations, {_name}")(
        lambda folder, _c=_changes: _evaluated(folder, **_c)
    )
for _share in (0.0, 0.1, 0.6, 0.99):

    @hostile(EVALUATED, "evaluations.npz", f"evaluations, cut at {_share}")
    def _(folder, _share=_share):
        path = good.run(folder / "logs") / "evaluations.npz"
        cut(path, path, _share)
        return folder / "logs"


@hostile(EVALUATED, "evaluations.npz", "evaluations, a lone array")
def _(folder):
    return _replaced(folder, "evaluations.npz", lambda path: path.write_bytes(npy(np.ones(3))))


# -- journals, results, pickles of plots -------------------------------------------------------------------------------

_ENTRY = '{"op_code": 0, "worker_id": "a", "study_name": "s", "directions": [2]}\n'
_JOURNALS = {
    "no JSON": b"{\n",
    "no text": b"\xff\xfe\x00\n",
    "a list": b"[1]\n",
    "a number": b"3\n",
    "nested": DEEP.encode() + b"\n",
    "5,000 digits": f'{{"op_code": {DIGITS}}}\n'.encode(),
    "unknown entry": b'{"op_code": 99, "worker_id": "a"}\n',
    "entry of text": b'{"op_code": "x", "worker_id": "a"}\n',
    "entry true": b'{"op_code": true, "worker_id": "a"}\n',
    "nothing else": b'{"op_code": 0}\n',
    "directions of text": b'{"op_code": 0, "worker_id": "a", "study_name": "s", "directions": "x"}\n',
    "no such study": b'{"op_code": 4, "worker_id": "a", "study_id": 7}\n',
    "dates": _ENTRY.encode() + b'{"op_code": 4, "worker_id": "a", "study_id": 0, "datetime_start": "never"}\n',
    "dates of lists": _ENTRY.encode() + b'{"op_code": 4, "worker_id": "a", "study_id": 0, "datetime_start": []}\n',
    "no such trial": _ENTRY.encode() + b'{"op_code": 5, "worker_id": "a", "trial_id": 1e99, "param_name": 1}\n',
    "noise after an entry": _ENTRY.encode() + b"\x00\x01\n" + _ENTRY.encode(),
}
for _name, _bytes in _JOURNALS.items():

    @hostile(
        "journal",
        "" if _name in ("entry true", "no such study", "no such trial") else "not a journal",
        f"journal, {_name}",
    )
    def _(folder, _bytes=_bytes):
        (folder / "a.log").write_bytes(_bytes)
        return folder / "a.log"


def _result(folder: Path, content: Any) -> Path:
    path = folder / "ppo" / "X-v0_1" / "benchmark.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return folder


_RESULTS: dict[str, Any] = {
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "nested": DEEP.encode(),
    "5,000 digits": f'{{"algo": {DIGITS}}}'.encode(),
    "other names": {"a": 1},
    "nothing": {},
    "returns of text": {**good.result(), "returns": "abc"},
    "no returns": {**good.result(), "returns": []},
    "returns of texts": {**good.result(), "returns": ["a"]},
    "returns of nan": {**good.result(), "returns": [float("nan")]},
    "seed true": {**good.result(), "seed": True},
    "date of a number": {**good.result(), "finished": 3},
    "seconds of 400 digits": {**good.result(), "train_seconds": 10**400},
    "settings a list": {**good.result(), "settings": []},
}
for _name, _content in _RESULTS.items():
    hostile("benchmark", "no result of a benchmark", f"benchmark, {_name}")(
        lambda folder, _c=_content: _result(folder, _c)
    )


@hostile("benchmark", "link that leads out", "benchmark, a link to elsewhere")
def _(folder):
    (folder / "other.json").write_text(json.dumps(good.result()))
    logs = _result(folder / "logs", b"")
    path = logs / "ppo" / "X-v0_1" / "benchmark.json"
    path.unlink()
    path.symlink_to(folder / "other.json")
    return logs


@hostile("benchmark", "pipe or a device", "benchmark, a pipe")
def _(folder):
    logs = _result(folder / "logs", b"")
    path = logs / "ppo" / "X-v0_1" / "benchmark.json"
    path.unlink()
    os.mkfifo(path)
    return logs


_PICKLES: dict[str, tuple[dict[str, Any], str]] = {
    "steps of texts": ({"timesteps": np.array(["a", "b", "c"])}, "not laid out"),
    "steps of nan": ({"timesteps": np.full(3, np.nan)}, "not laid out"),
    "no runs": ({"mean_per_eval": np.ones((3, 0))}, "not laid out"),
    "other lengths": ({"mean_per_eval": np.ones((4, 1))}, "not laid out"),
    "texts": ({"mean_per_eval": np.array([["a"]] * 3)}, "not laid out"),
    "infinite": ({"mean_per_eval": np.full((3, 2), np.inf)}, ""),
    "beyond all": ({"mean_per_eval": np.full((3, 2), 1e308)}, ""),
    "no numbers": ({"mean_per_eval": np.full((3, 2), np.nan)}, ""),
}
for _name, (_changes, _says) in _PICKLES.items():
    hostile("from_file", _says, f"pickle of plots, {_name}")(
        lambda folder, _c=_changes: good.results(folder / "a.pkl", **_c)
    )
for _share in (0.0, 0.3, 0.9):
    hostile("from_file", "damaged|not laid out", f"pickle of plots, cut at {_share}")(
        lambda folder, _s=_share: cut(good.results(folder / "a.pkl"), folder / "b.pkl", _s)
    )
