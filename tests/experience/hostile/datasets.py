"""Hostile datasets: zips of arrays, HDF5, Minari's folders, tables."""

import json
import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.experience.hostile import good
from tests.experience.hostile.table import hostile
from tests.experience.hostile.zips import arrays, bomb, cut, edited, header, npy, npz, raw_header

DEEP = "[" * 100_000 + "]" * 100_000
DIGITS = "9" * 5_000


# -- zips of arrays ----------------------------------------------------------------------------------------------------


@hostile("dataset data_show", "would unpack to 10,")
def ten_megabytes_that_unpack_to_ten_gigabytes(folder):
    zeros = 3_400_000_000
    large = {name: (header(f"({zeros // 4},)"), zeros) for name in ("observations.npy", "x.npy", "y.npy")}
    good_ones = {f"{name}.npy": (npy(array), 0) for name, array in arrays().items() if name != "observations"}
    return bomb(folder / "a.npz", {**large, **good_ones})


@hostile("dataset", "would unpack to")
def own_file_that_unpacks_to_gigabytes(folder):
    zeros = 2_000_000_000
    with zipfile.ZipFile(good.own()) as archive:
        members = {name: (archive.read(name), 0) for name in archive.namelist()}
    return bomb(folder / "a.npz", {**members, "columns/x.npy": (header(f"({zeros // 4},)"), zeros)})


@hostile("dataset", "larger than|would unpack")
def description_of_gigabytes(folder):
    with zipfile.ZipFile(good.own()) as archive:
        members = {name: (archive.read(name), 0) for name in archive.namelist()}
    return bomb(folder / "a.npz", {**members, "dataset.json": (b"[", 1_000_000_000)})


@hostile("dataset", "a header of 3,|is damaged")
def header_of_gigabytes(folder):
    start = b"\x93NUMPY\x02\x00" + (3_000_000_000).to_bytes(4, "little")
    return bomb(folder / "a.npz", {"observations.npy": (start, 3_000_000_000)})


_HEADERS = {
    "shape beyond the bytes": (header("(1000000000,)"), "says that it is"),
    "shape beyond all numbers": (header("(4611686018427387904, 4)"), "says that it is"),
    "negative shape": (header("(-1, 3)"), "has the shape|cannot be understood"),
    "shape of a bool": (header("(True, 3)"), "has the shape|cannot be understood"),
    "rows without size": (header("(10000000000, 0)"), "would unpack"),
    "type without size": (header("(10000000000,)", "'|V0'"), "would unpack"),
    "giant texts": (header("(10,)", "'<U100000000'"), "says that it is"),
    "objects": (header("(3,)", "'|O'"), "Python objects"),
    "fields of objects": (header("(3,)", "[('a', '|O'), ('b', '<f4')]"), "Python objects"),
    "nested header": (raw_header("(" * 9_000 + ")" * 9_000), "cannot be understood"),
    "no dict": (raw_header("[1, 2]"), "cannot be understood"),
    "code for a header": (raw_header("__import__('os').system('touch MARK')"), "cannot be understood"),
    "unknown type": (header("(3,)", "'nonsense'"), "cannot be understood"),
    "unknown version": (header("(3,)", version=9), "is no array"),
    "no array": (b"nothing", "is no array"),
    "nothing": (b"", "is no array"),
    "cut header": (header("(3,)")[:20], "cannot be understood|is damaged"),
}
for _name, (_bytes, _says) in _HEADERS.items():
    hostile("dataset", _says, f"npz, {_name}")(lambda folder, _b=_bytes: npz(folder / "a.npz", observations=_b))

_ARRAYS: dict[str, tuple[dict[str, Any], str]] = {
    "complex": ({"observations": np.ones((6, 3), complex)}, "must hold numbers"),
    "not a number": ({"observations": np.full((6, 3), np.nan, np.float32)}, "is nan"),
    "fields": ({"observations": np.zeros(6, [("a", "f4")])}, "must hold numbers"),
    "texts as rewards": ({"rewards": np.array(list("abcdef"))}, "must hold numbers"),
    "a lone number": ({"rewards": np.float32(1)}, "."),
    "a lone number of actions": ({"actions": np.int64(1)}, "."),
    "lengths that differ": ({"rewards": np.ones(5)}, "rows"),
    "choices beyond all": ({"actions": np.full(6, 2**63 - 1)}, "."),
    "choices of uint64": ({"actions": np.full(6, 2**64 - 1, np.uint64)}, "."),
    "choices below zero": ({"actions": np.full(6, -5)}, "below 0"),
    "observations beyond all": ({"observations": np.array([-(2**63), 2**63 - 1] * 3)}, "."),
    "flags that are texts": ({"terminals": np.array(list("abcdef"))}, "one flag"),
    "flags of seven": ({"terminals": np.full(6, 7)}, "must be true or false"),
    "no rows": ({name: array[:0] for name, array in arrays().items()}, "."),
    "no observations": ({"observations": None}, "has no observations"),
    "many dimensions": ({"observations": np.zeros((6, *[1] * 60), np.float32)}, ""),
    "dates": ({"rewards": np.arange(6).astype("M8[s]")}, "."),
}
for _name, (_changes, _says) in _ARRAYS.items():
    hostile("dataset data_show", _says, f"npz, {_name}")(lambda folder, _c=_changes: npz(folder / "a.npz", **_c))


@hostile("dataset", "Python objects")
def npz_with_a_pickle(folder):
    import pickle

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {folder}/MARK",)

    content = header("(1,)", "'|O'") + pickle.dumps(Evil())
    return npz(folder / "a.npz", rewards=content)


@hostile("dataset", "cannot be understood|rename|.")
def npz_with_a_name_that_is_two_things(folder):
    return npz(folder / "a.npz", members={"observations/left.npy": npy(np.ones((6, 2)))})


@hostile("dataset", "")
def npz_with_names_that_lead_elsewhere(folder):
    return npz(folder / "a.npz", members={"../MARK.npy": npy(np.ones(6)), "/tmp/MARK.npy": npy(np.ones(6))})


@hostile("dataset", "twice")
def npz_with_a_member_twice(folder):
    path = npz(folder / "a.npz")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("rewards.npy", npy(np.zeros(6)))
    return path


@hostile("dataset", "compressed by a method")
def npz_of_another_compression(folder):
    return npz(folder / "a.npz", compression=zipfile.ZIP_LZMA)


@hostile("dataset", "encrypted")
def npz_that_is_encrypted(folder):
    content = bytearray(npz(folder / "a.npz").read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(mark) + flags] |= 1
    (folder / "a.npz").write_bytes(content)
    return folder / "a.npz"


@hostile("dataset", "none of the formats")
def zip_in_a_zip(folder):
    with zipfile.ZipFile(folder / "b.npz", "w") as archive:
        archive.write(npz(folder / "a.npz"), "a.npz")
    return folder / "b.npz"


for _share in (0.02, 0.3, 0.6, 0.95, 0.999):
    hostile("dataset", "none of the formats|damaged", f"npz, cut at {_share}")(
        lambda folder, _s=_share: cut(npz(folder / "a.npz"), folder / "b.npz", _s)
    )


@hostile("dataset", "damaged")
def npz_with_a_flipped_byte(folder):
    path = npz(folder / "a.npz", compression=zipfile.ZIP_DEFLATED)
    content = bytearray(path.read_bytes())
    content[60:70] = b"\xff" * 10
    path.write_bytes(content)
    return path


# -- descriptions of polyak's own --------------------------------------------------------------------------------------


def described(folder: Path, edit: Any) -> Path:
    def change(members: dict[str, bytes]) -> None:
        found = edit(json.loads(members["dataset.json"]))
        members["dataset.json"] = found if isinstance(found, bytes) else json.dumps(found).encode()

    return edited(good.own(), folder / "a.npz", change)


_TEXTS = {
    "no JSON": (b"{", "not JSON"),
    "no text": (b"\xff\xfe\x00", "not JSON"),
    "a list": (b"[1]", "instead of names and values"),
    "true": (b"true", "instead of names and values"),
    "nested": (DEEP.encode(), "nested more than"),
    "5,000 digits": (f'{{"format": "polyak-dataset", "version": {DIGITS}}}'.encode(), "not JSON"),
}
_ENTRIES: dict[str, tuple[dict[str, Any], str]] = {
    "version true": ({"version": True}, "version=True"),
    "version of text": ({"version": "1"}, "version='1'"),
    "version not a number": ({"version": float("nan")}, "version=nan"),
    "version to come": ({"version": 99}, "Upgrade polyak"),
    "env_id of no text": ({"env_id": {"a": 1}}, "env_id"),
    "no space": ({"observation_space": None}, "observation_space cannot be understood"),
    "unknown space": ({"action_space": ["Graph", {}]}, "unknown space"),
    "space of true": ({"action_space": ["Discrete", True]}, "action_space cannot be understood"),
    "no number of choices": ({"action_space": ["Discrete", {"n": "many", "start": 0}]}, "action_space cannot be"),
    "negative choices": ({"action_space": ["Discrete", {"n": -1, "start": 0}]}, "action_space cannot be understood"),
    "bounds of objects": (
        {"observation_space": ["Box", {"low": {"$array": ["O", [1], ""]}, "high": 1, "dtype": "<f4"}]},
        "observation_space cannot be understood",
    ),
    "bounds that differ": (
        {
            "observation_space": [
                "Box",
                {"low": {"$array": ["<f4", [1], "AAAAAA=="]}, "high": {"$array": ["<f4", [0], ""]}, "dtype": "<f4"},
            ]
        },
        "observation_space cannot be understood",
    ),
    "many bits": ({"action_space": ["MultiBinary", {"n": 10**12}]}, "."),
    "many choices": ({"action_space": ["Discrete", {"n": 10**30, "start": 0}]}, "."),
}
for _name, (_bytes, _says) in _TEXTS.items():
    hostile("dataset", _says, f"description, {_name}")(
        lambda folder, _b=_bytes: described(folder, lambda about, _b=_b: _b)
    )
for _name, (_changes, _says) in _ENTRIES.items():
    hostile("dataset", _says, f"description, {_name}")(
        lambda folder, _c=_changes: described(folder, lambda about, _c=_c: {**about, **_c})
    )

_PARTS: dict[str, tuple[dict[str, Any], str]] = {
    "ends of floats": ({"ends": npy([3.0, 6.0])}, "do not fit"),
    "ends that fall": ({"ends": npy([6, 3])}, "do not fit"),
    "ends beyond": ({"ends": npy([3, 10**12])}, "do not fit"),
    "ends of uint64": ({"ends": npy(np.array([2**63, 6], np.uint64))}, "do not fit"),
    "a lone end": ({"ends": npy(6)}, "no array of rows"),
    "flags of numbers": ({"terminated": npy([1, 1])}, "do not fit"),
    "columns without a name": ({"columns": npy(np.ones(6))}, "have no names"),
    "lone observation": ({"observations": npy(1.0)}, "no array of rows"),
    "rewards of two dimensions": ({"rewards": npy(np.ones((6, 6)))}, "do not fit"),
    "no rewards": ({"rewards": None}, "has no"),
}
for _name, (_changes, _says) in _PARTS.items():
    hostile("dataset", _says, f"own npz, {_name}")(
        lambda folder, _c=_changes: edited(
            good.own(),
            folder / "a.npz",
            lambda members, _c=_c: {
                name: content
                for name, content in {**members, **{f"{k}.npy": v for k, v in _c.items()}}.items()
                if content is not None
            },
        )
    )


# -- HDF5 --------------------------------------------------------------------------------------------------------------


def secret(folder: Path) -> Path:
    """A file of this machine that no dataset has any business with."""
    path = folder / "secret"
    path.write_bytes(np.full(6, 4242.0).tobytes())
    return path


@hostile("dataset", "'/rewards' is stored in another file")
def hdf5_with_external_storage(folder):
    with good.hdf5(folder / "a.hdf5", rewards=None) as file:
        file.create_dataset("rewards", (6,), "f8", external=[(str(secret(folder)), 0, 48)])
    return folder / "a.hdf5"


@hostile("dataset", "'/rewards' is a link to another file")
def hdf5_with_an_external_link(folder):
    import h5py

    with good.hdf5(folder / "other.hdf5"):
        pass
    with good.hdf5(folder / "a.hdf5", rewards=None) as file:
        file["rewards"] = h5py.ExternalLink(str(folder / "other.hdf5"), "/rewards")
    return folder / "a.hdf5"


@hostile("dataset", "'/infos/x' is a link to another file")
def hdf5_with_an_external_link_in_a_group(folder):
    import h5py

    with good.hdf5(folder / "other.hdf5"):
        pass
    with good.hdf5(folder / "a.hdf5") as file:
        file.create_group("infos")["x"] = h5py.ExternalLink(str(folder / "other.hdf5"), "/rewards")
    return folder / "a.hdf5"


@hostile("dataset", "'/rewards' is a link to '/infos/x'")
def hdf5_with_a_soft_link(folder):
    import h5py

    with good.hdf5(folder / "a.hdf5", rewards=None) as file:
        file["infos/x"] = np.ones(6)
        file["rewards"] = h5py.SoftLink("/infos/x")
    return folder / "a.hdf5"


@hostile("dataset", "'/rewards' is virtual")
def hdf5_with_a_virtual_array(folder):
    import h5py

    with good.hdf5(folder / "other.hdf5"):
        pass
    layout = h5py.VirtualLayout((6,), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "other.hdf5"), "rewards", (6,))
    with good.hdf5(folder / "a.hdf5", rewards=None) as file:
        file.create_virtual_dataset("rewards", layout)
    return folder / "a.hdf5"


@hostile("dataset", "stored in another file")
def hdf5_of_d3rlpy_with_external_storage(folder):
    import h5py

    with h5py.File(folder / "a.h5", "w") as file:
        file["num_episodes"], file["actions_0"], file["observations_0"] = 1, np.zeros((6, 1), int), np.ones((6, 3))
        file["terminated_0"] = True
        file.create_dataset("rewards_0", (6,), "f8", external=[(str(secret(folder)), 0, 48)])
    return folder / "a.h5"


@hostile("dataset", "would unpack to")
def hdf5_of_chunks_that_were_never_written(folder):
    with good.hdf5(folder / "a.hdf5", observations=None) as file:
        file.create_dataset("observations", (10**9,), "f4", chunks=(1000,))
    return folder / "a.hdf5"


@hostile("dataset", "would unpack to")
def hdf5_of_one_chunk_that_is_larger_than_its_array(folder):
    with good.hdf5(folder / "a.hdf5", observations=None) as file:
        file.create_dataset("observations", (6, 3), "f4", maxshape=(None, 3), chunks=(3 * 10**8, 1), compression="gzip")
    return folder / "a.hdf5"


@hostile("dataset", "would unpack to")
def hdf5_with_one_array_under_many_names(folder):
    with good.hdf5(folder / "a.hdf5") as file:
        file.create_dataset("x", (10**6,), "f8", compression="gzip", data=np.zeros(10**6))
        for number in range(200):
            file[f"infos/{number}"] = file["x"]
    return folder / "a.hdf5"


@hostile("dataset", "linked to from several places")
def hdf5_with_groups_in_a_circle(folder):
    with good.hdf5(folder / "a.hdf5") as file:
        file["infos/again"] = file.create_group("infos")
    return folder / "a.hdf5"


@hostile("dataset", "nested more than")
def hdf5_nested_deep(folder):
    with good.hdf5(folder / "a.hdf5") as file:
        file["infos/" + "/".join("a" * 500)] = 1
    return folder / "a.hdf5"


_HDF5: dict[str, tuple[dict[str, Any], str]] = {
    "texts": ({"observations": np.array([b"a"] * 6)}, "."),
    "fields": ({"observations": np.zeros(6, [("a", "f4")])}, "."),
    "lengths that differ": ({"rewards": np.ones(7)}, "."),
    "not a number": ({"rewards": np.full(6, np.inf)}, "is inf"),
    "a group for rewards": ({"rewards/x": np.ones(6), "rewards": None}, "has no rewards"),
}
for _name, (_changes, _says) in _HDF5.items():
    hostile("dataset", _says, f"hdf5, {_name}")(
        lambda folder, _c=_changes: (good.hdf5(folder / "a.hdf5", **_c).close(), folder / "a.hdf5")[1]
    )


@hostile("dataset", ".")
def hdf5_of_variable_lengths(folder):
    import h5py

    with good.hdf5(folder / "a.hdf5", observations=None) as file:
        file.create_dataset("observations", (6,), h5py.string_dtype())
    return folder / "a.hdf5"


@hostile("dataset", ".")
def hdf5_of_nothing(folder):
    import h5py

    with good.hdf5(folder / "a.hdf5", observations=None) as file:
        file["observations"] = h5py.Empty("f4")
    return folder / "a.hdf5"


for _share in (0.001, 0.1, 0.5, 0.9):
    hostile("dataset", "damaged|none of the formats", f"hdf5, cut at {_share}")(
        lambda folder, _s=_share: (good.hdf5(folder / "a.hdf5").close(), cut(folder / "a.hdf5", folder / "b.hdf5", _s))[
            1
        ]
    )


@hostile("dataset", "damaged")
def hdf5_signature_and_noise(folder):
    (folder / "a.hdf5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(range(256)) * 20)
    return folder / "a.hdf5"


_COUNTS: dict[str, Any] = {"many": 10**12, "negative": -1, "half": 0.5, "text": "x", "none": 0, "nan": np.nan}
_COUNTS |= {"two that are one": 2, "a list": [1, 2]}
for _name, _count in _COUNTS.items():

    @hostile("dataset", "num_episodes|damaged|no observations_1", f"d3rlpy, count of episodes {_name}")
    def _(folder, _count=_count):
        import h5py

        with h5py.File(folder / "a.h5", "w") as file:
            file["num_episodes"], file["actions_0"], file["observations_0"] = (
                _count,
                np.zeros((6, 1), int),
                np.ones((6, 3)),
            )
            file["rewards_0"], file["terminated_0"] = np.ones((6, 1)), True
        return folder / "a.h5"


# -- Minari ------------------------------------------------------------------------------------------------------------


def _minari(folder: Path, change: Any = None, **entries: Any) -> Path:
    path = folder / "x-v0"
    shutil.copytree(good.minari(), path)
    about = path / "data" / "metadata.json"
    content = {**json.loads(about.read_text()), **entries}
    about.write_text(json.dumps({name: value for name, value in content.items() if value is not ...}))
    if change is not None:
        change(path / "data")
    return path


_BOX = {"type": "Box", "dtype": "float32", "shape": [3], "low": [0, 0, 0], "high": [9, 9, 9]}
_ABOUTS: dict[str, tuple[dict[str, Any], str]] = {
    "many episodes": ({"total_episodes": 10**12}, "episodes"),
    "episodes true": ({"total_episodes": True}, "total_episodes=True"),
    "episodes of text": ({"total_episodes": "2"}, "total_episodes='2'"),
    "no episodes": ({"total_episodes": ...}, "total_episodes=None"),
    "format unknown": ({"data_format": "pickle"}, "."),
    "large shape": ({"observation_space": json.dumps({**_BOX, "shape": [10**5, 10**5], "low": 0, "high": 1})}, "shape"),
    "large inner shape": (
        {"observation_space": json.dumps({"type": "Dict", "subspaces": {"a": {**_BOX, "shape": [10**10]}}})},
        "shape",
    ),
    "space of no text": ({"observation_space": _BOX}, "not the text"),
    "space unknown": ({"action_space": '{"type": "Evil"}'}, "."),
    "space nested": ({"action_space": DEEP}, "nested more than"),
    "space lacks parts": ({"action_space": '{"type": "Box"}'}, "."),
    "space of 5,000 digits": ({"action_space": f'{{"type": "Discrete", "n": {DIGITS}}}'}, "not JSON"),
    "no space": ({"observation_space": ...}, "does not say its spaces"),
    "environment of no text": ({"env_spec": 3}, "."),
    "environment no JSON": ({"env_spec": "{"}, "."),
    "version unknown": ({"minari_version": "x"}, "."),
    "no id": ({"dataset_id": ...}, "."),
}
for _name, (_changes, _says) in _ABOUTS.items():
    hostile("dataset", _says, f"minari, {_name}")(lambda folder, _c=_changes: _minari(folder, **_c))

for _name, (_bytes, _says) in {
    "no JSON": (b"{", "not JSON"),
    "a list": (b"[]", "instead of names"),
    "nested": (DEEP.encode(), "nested"),
    "other encoding": ('{"a": "\u00e9"}'.encode("latin-1"), "not JSON"),
}.items():
    hostile("dataset", _says, f"minari, description {_name}")(
        lambda folder, _b=_bytes: _minari(folder, lambda data, _b=_b: (data / "metadata.json").write_bytes(_b))
    )


@hostile("dataset", "stored in another file")
def minari_with_external_storage(folder):
    def change(data: Path) -> None:
        import h5py

        with h5py.File(data / "main_data.hdf5", "a") as file:
            length = len(file["episode_0/rewards"])
            del file["episode_0/rewards"]
            file["episode_0"].create_dataset("rewards", (length,), "f8", external=[(str(secret(folder)), 0, 48)])

    return _minari(folder, change)


@hostile("dataset", "would unpack")
def minari_with_images_that_unpack(folder):
    def change(data: Path) -> None:
        import io

        import h5py
        from PIL import Image

        packed = io.BytesIO()
        Image.new("L", (9_000, 9_000)).save(packed, "JPEG")
        content = np.frombuffer(packed.getvalue()[:20_000], np.uint8)
        with h5py.File(data / "main_data.hdf5", "a") as file:
            del file["episode_0/observations"]
            rows = file["episode_0"].create_dataset("observations", (4,), h5py.vlen_dtype(np.uint8))
            for row in range(4):
                rows[row] = content

    return _minari(folder, change)


@hostile("dataset", "damaged")
def minari_cut(folder):
    def change(data: Path) -> None:
        cut(data / "main_data.hdf5", data / "main_data.hdf5", 0.5)

    return _minari(folder, change)


@hostile("dataset", ".")
def minari_without_data(folder):
    return _minari(folder, lambda data: (data / "main_data.hdf5").unlink())


# -- tables ------------------------------------------------------------------------------------------------------------

_HEAD = "obs_0,obs_1,action,reward,terminated,truncated"
_ROWS = "0.5,1,0,1,False,False\n1.5,2,1,1,True,False\n"

_TABLES: dict[str, tuple[Any, str]] = {
    "a million columns": (lambda: ",".join(f"x{i}" for i in range(10**6)) + "\n1\n", "columns: at most"),
    "many columns over short lines": (
        lambda: ",".join(f"x{i}" for i in range(19_000)) + "\n" + "1\n" * 50_000,
        "cells",
    ),
    "short lines of carriage returns": (
        lambda: ",".join(f"x{i}" for i in range(19_000)) + "\n" + "1\r" * 50_000,
        "cells",
    ),
    "a giant cell": (lambda: f"{_HEAD},x\n" + _ROWS.replace("\n", "," + "y" * 10**7 + "\n"), ""),
    "a giant name": (lambda: f"{_HEAD},{'a_1' * 10**6}\n{_ROWS}", "letters"),
    "a giant quoted cell": (lambda: f'{_HEAD}\n"' + "a,\n" * 10**6, "."),
    "a far index": (lambda: f"obs_999999999,{_HEAD}\n1,{_ROWS}", "but none of"),
    "far indices": (lambda: f"obs_9_9_9_9_9_9_9_9_9_9_9_9_9,{_HEAD}\n1,{_ROWS}", "different numbers of indices"),
    "an index of 5,000 digits": (lambda: f"obs_{DIGITS[:900]},{_HEAD}\n1,{_ROWS}", "."),
    "indices that differ": (lambda: f"obs_0_1,{_HEAD}\n1,{_ROWS}", "different numbers of indices"),
    "a name that is two things": (
        lambda: f"obs:a,{_HEAD.replace('obs_0', 'obs').replace('obs_1', 'z')}\n1,{_ROWS}",
        ".",
    ),
    "5,000 digits": (lambda: f"{_HEAD}\n{_ROWS}{DIGITS},1,0,1,False,False\n", "."),
    "a million digits": (lambda: f"{_HEAD}\n{_ROWS}{DIGITS * 200},1,0,1,False,False\n", "."),
    "an exponent": (lambda: f"{_HEAD}\n{_ROWS}1e999999,1,0,1,False,False\n", "."),
    "nothing but names": (lambda: f"{_HEAD}\n", "no rows"),
    "one byte order mark": (lambda: "\ufeff,", "."),
    "texts": (lambda: f"{_HEAD}\na,b,c,d,e,f\n", "."),
    "missing cells": (lambda: f"{_HEAD}\n1\n2\n", "."),
    "too many cells": (lambda: f"{_HEAD}\n{_ROWS}1,2,3,4,5,6,7,8,9\n", "no table"),
    "episodes of nan": (lambda: f"episode,{_HEAD}\nnan,{_ROWS}nan,{_ROWS}", "."),
    "steps beyond all": (
        lambda: f"episode,step,{_HEAD}\n1,{2**63 - 1},0,1,0,1,False,False\n1,{-(2**63)},0,1,1,1,True,False\n",
        ".",
    ),
    "zeros for columns": (lambda: f"{_HEAD}\n" + "0\x00" * 100, "."),
}
for _name, (_text, _says) in _TABLES.items():

    @hostile("dataset", _says, f"csv, {_name}")
    def _(folder, _text=_text):
        (folder / "a.csv").write_text(_text(), encoding="utf-8", newline="")
        return folder / "a.csv"


for _encoding in ("utf-16", "latin-1", "utf-32"):

    @hostile("dataset", ".", f"csv, in {_encoding}")
    def _(folder, _encoding=_encoding):
        (folder / "a.csv").write_bytes(f"{_HEAD},\u00e9t\u00e9\n{_ROWS}".encode(_encoding))
        return folder / "a.csv"


def parquet(path: Path, n: int = 6, groups: int = 1, metadata: Any = None, **changes: Any) -> Path:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = arrays(n)
    columns = {f"obs_{i}": found["observations"][:, i] for i in range(3)}
    columns |= {"action": found["actions"], "reward": found["rewards"], "terminated": found["terminals"], **changes}
    table = pa.table({name: column for name, column in columns.items() if column is not None})
    if metadata is not None:
        table = table.replace_schema_metadata({b"polyak": metadata})
    with pq.ParquetWriter(path, table.schema, store_schema=metadata is not None) as writer:
        for _ in range(groups):
            writer.write_table(table)
    return path


def _repeated(n: int) -> Any:
    """A long text n times, which is kept once."""
    import pyarrow as pa

    return pa.DictionaryArray.from_arrays(np.zeros(n, np.int32), ["the same" * 50_000])


@hostile("dataset", "would unpack")
def parquet_of_one_value_many_times(folder):
    n = 500_000
    same = {name: np.zeros(n) for name in ("obs_0", "obs_1", "obs_2", "action", "reward", "terminated")}
    return parquet(folder / "a.parquet", n, groups=40, **same)


@hostile("dataset", "")
def parquet_of_one_text_many_times(folder):
    return parquet(folder / "a.parquet", 30_000, note=_repeated(30_000))


@hostile("dataset", "")
def parquet_of_one_name_for_all_episodes(folder):
    n = 30_000
    return parquet(folder / "a.parquet", n, terminated=np.zeros(n), episode=_repeated(n))


_PARQUETS: dict[str, tuple[dict[str, Any], str]] = {
    "texts": ({"reward": list("abcdef")}, "."),
    "lists": ({"reward": [[1.0, 2.0]] * 6}, "."),
    "dates": ({"reward": np.arange(6).astype("M8[s]")}, "."),
    "missing values": ({"reward": [1.0, None, 1.0, 1.0, 1.0, 1.0]}, "."),
    "missing flags": ({"terminated": [True, None, True, True, True, True]}, "."),
    "metadata no JSON": ({"metadata": b"{"}, "not JSON"),
    "metadata nested": ({"metadata": DEEP.encode()}, "nested"),
    "metadata a list": ({"metadata": b"[1]"}, "metadata are"),
    "metadata lack spaces": ({"metadata": b"{}"}, "observation_space cannot be understood"),
    "no rows": ({"n": 0}, "no rows"),
    "no actions": ({"action": None}, "has no actions"),
}
for _name, (_changes, _says) in _PARQUETS.items():
    hostile("dataset", _says, f"parquet, {_name}")(lambda folder, _c=_changes: parquet(folder / "a.parquet", **_c))
for _share in (0.001, 0.3, 0.9, 0.99):
    hostile("dataset", "damaged|none of the formats", f"parquet, cut at {_share}")(
        lambda folder, _s=_share: cut(parquet(folder / "a.parquet"), folder / "b.parquet", _s)
    )


# -- no files at all ---------------------------------------------------------------------------------------------------


@hostile("dataset", "none of the formats.*empty file")
def empty_file(folder):
    (folder / "a.npz").write_bytes(b"")
    return folder / "a.npz"


@hostile("dataset journal from_file", "pipe or a device", "a pipe")
def a_pipe(folder):
    os.mkfifo(folder / "a.npz")
    return folder / "a.npz"


@hostile("dataset replay journal from_file", "device|no such file|there is no file", "a device")
def a_device(folder):
    (folder / "a.npz").symlink_to("/dev/zero")
    return folder / "a.npz"


@hostile("dataset replay from_file", ".", "a link to itself")
def a_link_to_itself(folder):
    (folder / "a.npz").symlink_to(folder / "a.npz")
    return folder / "a.npz"


@hostile("dataset", "none of the formats")
def a_folder_of_nothing(folder):
    return folder
