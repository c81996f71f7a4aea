"""Stable-Baselines3's functions for files, for programs that call them directly.

polyak's own models are written by :mod:`polyak.checkpoint.saved`. Files are read by the unpickler with an allow-list;
``trust=True`` reads everything.
"""

from __future__ import annotations

import base64
import io
import json
import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import IO, Any

import cloudpickle
import torch

from polyak.archive import DAMAGED, check_members, name_of, open_zip
from polyak.checkpoint import saved as checkpoint
from polyak.checkpoint.damage import damage_named
from polyak.checkpoint.serialise import decode, warn_untrusted
from polyak.compat.sb3_face.files import model_zip, unpickle
from polyak.compat.sb3_face.functions import SB3_VERSION, get_system_info
from polyak.compat.sb3_face.parts import all_parameters
from polyak.envs.reading import plain_json
from polyak.envs.reading.limits import check_regular
from polyak.learning.engine.device import get_device
from polyak.warning import warn_user
from polyak.writing import replacing

_MODES = {"w": "w", "r": "r", "write": "w", "read": "r"}


# -- JSON with pickles in it -------------------------------------------------------------------------------------------


def is_json_serializable(item: Any) -> bool:
    """Whether ``json`` can write it."""
    try:
        json.dumps(item)
    except TypeError:
        return False
    return True


def data_to_json(data: Mapping[str, Any]) -> str:
    """Returns a dict as JSON; values that JSON cannot hold are pickled, with a readable summary beside them."""
    encoded: dict[str, Any] = {}
    for key, value in data.items():
        if is_json_serializable(value):
            encoded[key] = value
            continue
        entry = {":type:": str(type(value)), ":serialized:": base64.b64encode(cloudpickle.dumps(value)).decode()}
        shown = value if isinstance(value, dict) else getattr(value, "__dict__", {})
        encoded[key] = entry | {str(k): v if is_json_serializable(v) else str(v) for k, v in shown.items()}
    return json.dumps(encoded, indent=4)


def json_to_data(json_string: str, custom_objects: Mapping[str, Any] | None = None, trust: bool = False) -> Any:
    """Returns the dict that :func:`data_to_json` wrote.

    Args:
        json_string: a result of that function.
        custom_objects: values to use for these keys; their values in the file are not read.
        trust: also read pickles of anything, which can run any code.

    Raises:
        ValueError: ``custom_objects`` is not a dict, or the text is not JSON, or beyond the limits of reading.
    """
    if custom_objects is not None and not isinstance(custom_objects, dict):
        raise ValueError(f"custom_objects must be a dict or None, got {type(custom_objects).__name__}.")
    data: dict[str, Any] = {}
    for key, value in plain_json.parse_object(json_string, "json_string").items():
        if custom_objects is not None and key in custom_objects:
            data[key] = custom_objects[key]
        elif isinstance(value, dict) and ":serialized:" in value:
            try:
                data[key] = unpickle.loads(base64.b64decode(value[":serialized:"]), trust)
            except (pickle.UnpicklingError, RuntimeError, TypeError, AttributeError, ValueError) as error:
                warn_user(f"{key!r} could not be read: {error}. Give it through the custom_objects argument.")
        else:
            data[key] = value
    return data


# -- paths and open files ----------------------------------------------------------------------------------------------


def open_path(path: Any, mode: str, verbose: int = 0, suffix: str | None = None) -> Any:
    """Open a path, or check that a file is open in the needed mode.

    Args:
        path: a path, or an open binary file, which is returned as it is.
        mode: ``"r"`` or ``"w"``.
        verbose: 2 warns of files that are overwritten and folders that are made.
        suffix: added to a path without one: always to write, and to read if there is no file of that very name.

    Raises:
        TypeError: neither a path nor a file.
        ValueError: an unknown mode, a closed file, or one opened for the other direction.
    """
    if not isinstance(path, (str, PathLike, io.IOBase)) and not hasattr(path, "readable"):
        raise TypeError(f"path={path!r} is neither a path nor an open file.")
    if mode not in _MODES:
        raise ValueError(f"mode={mode!r}: expected 'r' or 'w'.")
    if isinstance(path, (str, PathLike)):
        return open_path_pathlib(Path(path), _MODES[mode], verbose, suffix)
    usable = path.writable() if _MODES[mode] == "w" else path.readable()
    if path.closed or not usable:
        raise ValueError(f"path={path!r} is closed, or not open for mode={mode!r}.")
    return path


def open_path_str(path: str, mode: str, verbose: int = 0, suffix: str | None = None) -> IO[bytes]:
    """Opens a path given as a string: see :func:`open_path`."""
    return open_path_pathlib(Path(path), mode, verbose, suffix)


def open_path_pathlib(path: Path, mode: str, verbose: int = 0, suffix: str | None = None) -> IO[bytes]:
    """Opens a path given as a ``pathlib.Path``: see :func:`open_path`.

    Raises:
        ValueError: another mode than ``"r"`` and ``"w"``.
        FileNotFoundError: nothing to read; a ValueError if it is a pipe or a device.
    """
    if mode not in ("r", "w"):
        raise ValueError(f"mode={mode!r}: expected 'r' or 'w'.")
    with_suffix = _with_suffix(path, suffix)
    if mode == "r":
        if not path.is_file() and with_suffix.is_file():
            if verbose >= 2:
                warn_user(f"{path} is not there: reading {with_suffix}.")
            path = with_suffix
        if not path.is_dir():  # Python raises the error about a folder
            check_regular(path, f"path={str(path)!r}")
        return path.open("rb")
    return _to_be_written(with_suffix, verbose).open("wb")


def _with_suffix(path: Path, suffix: str | None) -> Path:
    return path.with_name(f"{path.name}.{suffix}") if suffix and not path.suffix else path


def _to_be_written(path: Path, verbose: int) -> Path:
    """Returns the path of a file to write, with warnings about obstacles."""
    if path.is_dir():
        folder, path = path, path.with_name(path.name + "_2")
        warn_user(f"{folder} is a folder: writing {path} instead.")
    if path.exists() and verbose >= 2:
        warn_user(f"{path} exists and is overwritten.")
    if not path.parent.exists():
        warn_user(f"the folder {path.parent} does not exist: it is made.")
        path.parent.mkdir(parents=True, exist_ok=True)
    return path


@contextmanager
def _written(target: Any, verbose: int, suffix: str) -> Iterator[IO[bytes]]:
    """Yields a file that is open for writing; that of a path is renamed to it once it is complete."""
    if not isinstance(target, (str, PathLike)):
        yield open_path(target, "w", verbose, suffix)
        return
    with replacing(_to_be_written(_with_suffix(Path(target), suffix), verbose)) as file:
        yield file


def save_to_pkl(path: Any, obj: Any, verbose: int = 0) -> None:
    """Pickle an object."""
    with _written(path, verbose, "pkl") as file:
        pickle.dump(obj, file, protocol=pickle.HIGHEST_PROTOCOL)


def load_from_pkl(path: Any, verbose: int = 0, trust: bool = False) -> Any:
    """Read a pickled object.

    Args:
        path: a path or a file opened for reading.
        verbose: 2 warns if the suffix had to be added.
        trust: read whatever it is; a pickle can run any code.

    Raises:
        ValueError: it holds something that is not read without ``trust``.
    """
    file = open_path(path, "r", verbose, "pkl")
    try:
        if trust:
            return unpickle.loads(file.read(), trust)
        with damage_named(name_of(file, path)):
            return unpickle.loads(file.read())
    finally:
        if file is not path:
            file.close()


# -- the model's zip ---------------------------------------------------------------------------------------------------


def save_to_zip_file(
    save_path: Any,
    data: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    pytorch_variables: Mapping[str, Any] | None = None,
    verbose: int = 0,
) -> None:
    """Write a zip of Stable-Baselines3's layout: ``data``, one ``.pth`` for each entry of ``params``, versions."""
    with _written(save_path, verbose, "zip") as file, zipfile.ZipFile(file, "w") as archive:
        if data is not None:
            archive.writestr("data", data_to_json(data))
        tensors = {"pytorch_variables": pytorch_variables, **(params or {})}
        for name, value in tensors.items():
            if value is not None:
                with archive.open(f"{name}.pth", "w", force_zip64=True) as entry:
                    torch.save(value, entry)
        archive.writestr("_stable_baselines3_version", SB3_VERSION)
        archive.writestr("system_info.txt", get_system_info(print_info=False)[1])


def load_from_zip_file(
    load_path: Any,
    load_data: bool = True,
    custom_objects: Mapping[str, Any] | None = None,
    device: torch.device | str = "auto",
    verbose: int = 0,
    print_system_info: bool = False,
    trust: bool = False,
) -> tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any] | None]:
    """Read a model's zip, of Stable-Baselines3's layout or polyak's own: data, state dicts by name, further tensors.

    Raises:
        ValueError: not a zip, or not of a model.
    """
    file = open_path(load_path, "r", verbose, "zip")
    target, name = get_device(device), name_of(file, load_path)
    try:
        with damage_named(name):
            with open_zip(file, name) as archive:
                if "polyak.json" not in archive.namelist():
                    return _read_layout(archive, name, load_data, custom_objects, target, print_system_info, trust)
            if print_system_info:
                get_system_info()
            file.seek(0)
            return _read_own(file, load_data, custom_objects or {}, target, trust)
    except DAMAGED as error:
        raise ValueError(f"load_path={load_path!r} is not a zip file ({error}).") from error
    finally:
        if file is not load_path:
            file.close()


_Read = tuple[dict[str, Any] | None, dict[str, Any], dict[str, Any] | None]


def _read_layout(
    archive: zipfile.ZipFile,
    name: str,
    load_data: bool,
    custom_objects: Mapping[str, Any] | None,
    device: torch.device,
    print_system_info: bool,
    trust: bool,
) -> _Read:
    names = sorted(check_members(archive, name, compressed=True))
    if not any(member in ("data", "_stable_baselines3_version") or member.endswith(".pth") for member in names):
        raise ValueError(f"the zip holds no model, but {names[:8]}.")
    data, params, variables = None, {}, None
    if print_system_info:
        get_system_info()
        stored = archive.read("system_info.txt").decode() if "system_info.txt" in names else "unknown\n"
        print(f"== SAVED MODEL SYSTEM INFO ==\n{stored}")
    if load_data and "data" in names:
        data = json_to_data(archive.read("data").decode(), custom_objects, trust)
    for member in names:
        if member.endswith(".pth"):
            value = _moved_to(model_zip.load_tensors(archive.read(member), f"{name}: {member}"), device)
            if member in ("pytorch_variables.pth", "tensors.pth"):
                variables = value
            else:
                params[member.removesuffix(".pth")] = value
    return data, params, variables


def _read_own(
    file: IO[bytes], load_data: bool, custom_objects: Mapping[str, Any], device: torch.device, trust: bool
) -> _Read:
    """Returns a file of polyak in the other layout."""
    saved = checkpoint.read(file)
    data = None
    if load_data:
        info = saved.info
        values = {**info["hyperparameters"], "policy_class": info.get("policy"), "n_envs": info.get("n_envs", 1)}
        values |= {name: info[name] for name in ("observation_space", "action_space")}
        values |= info["extra_state"].get("attributes", {})
        values = {name: value for name, value in values.items() if name not in custom_objects}
        data = {
            **info["counters"],
            **warn_untrusted({name: decode(value, trust) for name, value in values.items()}),
            **custom_objects,
        }
    found = {name: _moved_to(value, device) for name, value in all_parameters(saved).items()}
    variables = {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}
    return data, {name: value for name, value in found.items() if name not in variables}, variables or None


def _moved_to(value: Any, device: torch.device) -> Any:
    """Returns a tensor, or a state dict with tensors in it, on ``device``."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return {key: _moved_to(item, device) for key, item in value.items()} if isinstance(value, dict) else value
