"""Hostile replay buffers: polyak's own, and pickles of Stable-Baselines3."""

import json
import struct
from pathlib import Path
from typing import Any

from tests.experience.hostile import good
from tests.experience.hostile.datasets import DEEP, DIGITS
from tests.experience.hostile.table import hostile
from tests.experience.hostile.zips import cut, edited

BOTH = "dataset replay"


def _info(folder: Path, edit: Any) -> Path:
    def change(members: dict[str, bytes]) -> None:
        found = edit(json.loads(members["polyak.json"]))
        members["polyak.json"] = found if isinstance(found, bytes) else json.dumps(found).encode()

    return edited(good.buffer_file(), folder / "a.pkl", change)


def _tensors(folder: Path, edit: Any) -> Path:
    """The header of the arrays goes through a function."""

    def change(members: dict[str, bytes]) -> None:
        content = members["replay.safetensors"]
        (size,) = struct.unpack("<Q", content[:8])
        found = json.dumps(edit(json.loads(content[8 : 8 + size]))).encode()
        members["replay.safetensors"] = struct.pack("<Q", len(found)) + found + content[8 + size :]

    return edited(good.buffer_file(), folder / "a.pkl", change)


_STATES: dict[str, tuple[dict[str, Any], str]] = {
    "pos of 1e9": ({"pos": 10**9}, "pos=1000000000"),
    "pos of 1e9 and a size to match": ({"pos": 10**9, "buffer_size": 2 * 10**9}, "pos=1000000000"),
    "pos below zero": ({"pos": -1}, "pos=-1"),
    "pos true": ({"pos": True}, "pos=True"),
    "pos of text": ({"pos": "12"}, "pos='12'"),
    "half a pos": ({"pos": 12.5}, "pos=12.5"),
    "pos nan": ({"pos": float("nan")}, "pos=nan"),
    "pos null": ({"pos": None}, "pos=None"),
    "pos a list": ({"pos": [1]}, r"pos=\[1\]"),
    "full of a number": ({"full": 1}, "full=1"),
    "full though it is not": ({"full": True}, "but 12 rows"),
    "size of 1e18": ({"buffer_size": 10**18}, ""),
    "size of 1e300": ({"buffer_size": 1e300}, "buffer_size=1e"),
    "size of zero": ({"buffer_size": 0}, "buffer_size=0"),
    "no environments": ({"n_envs": 0}, "n_envs"),
    "many environments": ({"n_envs": 10**9}, "n_envs=1000000000"),
    "version true": ({"version": []}, ""),
    "random state beyond its key": (
        {"rng": {"state": {"key": [0] * 624, "pos": 10**9}, "has_gauss": 0, "gauss": 0.0}},
        "pos=1000000000",
    ),
    "random state too short": (
        {"rng": {"state": {"key": [0], "pos": 1}, "has_gauss": 0, "gauss": 0.0}},
        "random state has a key",
    ),
    "random state of text": ({"rng": "x"}, "."),
    "random state of large numbers": (
        {"rng": {"state": {"key": [2**70] * 624, "pos": 1}, "has_gauss": 0, "gauss": 0.0}},
        ".",
    ),
    "no sampler": ({"sampler": None}, ""),
    "thrifty": ({"optimize_memory_usage": True}, "."),
    "thrifty of text": ({"optimize_memory_usage": "no"}, "."),
    "rewards of numbers": ({"rewards": 3}, ""),
    "rewards by tag": ({"pos": {"$array": ["<f4", [10**12], ""]}}, "."),
    "an unknown tag": ({"pos": {"$what": 1}}, "."),
}
for _name, (_changes, _says) in _STATES.items():
    hostile(BOTH, _says, f"buffer, {_name}")(
        lambda folder, _c=_changes: _info(folder, lambda info, _c=_c: {**info, "replay": {**info["replay"], **_c}})
    )

_INFOS: dict[str, tuple[Any, str]] = {
    "no JSON": (lambda info: b"{", "polyak.json"),
    "a list": (lambda info: b"[]", "polyak.json holds"),
    "nested": (lambda info: DEEP.encode(), "polyak.json.*nested more than 64 deep"),
    "5,000 digits": (lambda info: f'{{"format_version": {DIGITS}}}'.encode(), "is not JSON: a number has 5,000 digits"),
    "no replay": (lambda info: {**info, "replay": None}, "."),
    "replay a list": (lambda info: {**info, "replay": [1, 2]}, "."),
    "replay empty": (lambda info: {**info, "replay": {}}, "."),
    "another kind": (lambda info: {"format": "x"}, "."),
}
for _name, (_edit, _says) in _INFOS.items():
    hostile(BOTH, _says, f"buffer, {_name}")(lambda folder, _e=_edit: _info(folder, _e))

_SPACES: dict[str, Any] = {
    "null": None,
    "a number": 3,
    "no space": {"$space": ["Box", {}]},
    "a class": {"$class": "os:system"},
}
for _name, _space in _SPACES.items():
    hostile("dataset", ".", f"buffer, observation space {_name}")(
        lambda folder, _s=_space: _info(folder, lambda info, _s=_s: {**info, "observation_space": _s})
    )


def _typed(dtype: str) -> Any:
    return lambda tensors: {**tensors, "rewards": {**tensors["rewards"], "dtype": dtype}}


_HEADS: dict[str, tuple[Any, str]] = {
    "of BF16": (lambda t: {**t, "rewards": {**t["rewards"], "dtype": "BF16", "shape": [12, 2]}}, "."),
    "of F8": (lambda t: {**t, "rewards": {**t["rewards"], "dtype": "F8_E4M3", "shape": [12, 4]}}, "."),
    "of an unknown type": (_typed("X9"), "."),
    "of integers": (_typed("I32"), "."),
    "of another shape": (lambda t: {**t, "rewards": {**t["rewards"], "shape": [6, 2]}}, "."),
    "of one dimension": (lambda t: {**t, "rewards": {**t["rewards"], "shape": [12]}}, "."),
    "of a shape beyond all": (lambda t: {**t, "rewards": {**t["rewards"], "shape": [2**40, 2**40]}}, "."),
    "beyond the file": (lambda t: {**t, "rewards": {**t["rewards"], "data_offsets": [0, 10**12]}}, "."),
    "missing": (lambda t: {name: value for name, value in t.items() if name != "rewards"}, "."),
}
for _name, (_edit, _says) in _HEADS.items():
    hostile(BOTH, _says, f"buffer, rewards {_name}")(lambda folder, _e=_edit: _tensors(folder, _e))


@hostile(BOTH, ".", "buffer, header of arrays without an end")
def _(folder):
    def change(members: dict[str, bytes]) -> None:
        members["replay.safetensors"] = struct.pack("<Q", 2**63) + b"{}"

    return edited(good.buffer_file(), folder / "a.pkl", change)


for _share in (0.01, 0.3, 0.7, 0.99):
    hostile("replay", ".", f"buffer, cut at {_share}")(
        lambda folder, _s=_share: cut(good.buffer_file(), folder / "a.pkl", _s)
    )
    hostile(BOTH, ".", f"pickle, cut at {_share}")(lambda folder, _s=_share: cut(good.PICKLE, folder / "a.pkl", _s))

_BYTES = {
    "pos beyond": (b"\x8c\x03pos\x94K\x14", b"\x8c\x03pos\x94K\xff", "pos=255"),
    "pos of text": (b"\x8c\x03pos\x94K\x14", b"\x8c\x03pos\x94)\x94", "."),
    "full of nothing": (b"\x8c\x04full\x94\x89", b"\x8c\x04full\x94N", ""),
    "full": (b"\x8c\x04full\x94\x89", b"\x8c\x04full\x94\x88", ""),
    "no pos": (b"\x8c\x03pos\x94K", b"\x8c\x03sop\x94K", "lacks"),
    "no rewards": (b"\x8c\x07rewards", b"\x8c\x07sdrawer", "lacks|."),
    "a function": (b"DictReplayBuffer", b"DictReplayBuffer", ""),
    "another type": (b"\x8c\x02f4", b"\x8c\x02O8", "."),
}
for _name, (_old, _new, _says) in _BYTES.items():

    @hostile(BOTH, _says, f"pickle, {_name}")
    def _(folder, _old=_old, _new=_new):
        (folder / "a.pkl").write_bytes(good.PICKLE.read_bytes().replace(_old, _new, 1))
        return folder / "a.pkl"
