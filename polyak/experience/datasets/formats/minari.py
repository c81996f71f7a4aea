"""Minari's datasets: folders of episodes with T + 1 observations, read and written by its own library.

A dataset is named by its folder, or by its id (``pointmaze/umaze-v2``), which is looked up on this machine first, and
downloaded if it is missing.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.envs.registration import spec as find_spec
from gymnasium.error import Error as GymnasiumError

from polyak.arrays import mapped
from polyak.envs.nested_spaces import SEPARATOR, by_name
from polyak.experience.datasets.episodes import DatasetError, Episode, Parts, RecordedData
from polyak.experience.datasets.formats.minari_checks import check
from polyak.experience.datasets.formats.source import Source
from polyak.experience.datasets.model_observations import named_space
from polyak.experience.datasets.named import numeric
from polyak.writing import unfinished

_DATA = "data"
_ABOUT = "metadata.json"
_ID = r"(?:[-\w]+/)*[-\w]+-v\d+"


def recognises(source: Source) -> bool:
    """A folder with Minari's metadata, its data file, or an id."""
    return _folder(source) is not None or (not source.exists and bool(re.fullmatch(_ID, str(source.given))))


def _folder(source: Source) -> Path | None:
    """Returns the folder of the metadata; ``None`` if there is none."""
    path = source.path
    around = (path / _DATA, path) if path.is_dir() else (path.parent,) if "episode_0" in source.keys else ()
    return next((folder for folder in around if (folder / _ABOUT).is_file()), None)


# -- reading -----------------------------------------------------------------------------------------------------------


def read(source: Source) -> RecordedData:
    """Read all episodes; infos that are numbers for each step of every episode become columns."""
    minari = _minari()
    folder = _folder(source)
    if folder is None:
        folder = Path(minari.storage.get_dataset_path(str(source.given))) / _DATA
        if not folder.is_dir():
            _download(minari, str(source.given))
    check(folder, str(source))
    data = minari.MinariDataset(folder)
    episodes = list(data.iterate_episodes())
    if not episodes:
        raise DatasetError(f"{source} has no episodes.")
    lengths = [len(episode.rewards) for episode in episodes]
    parts = Parts(
        mapped(lambda *arrays: np.concatenate(arrays), *(_named(episode.observations) for episode in episodes)),
        np.concatenate([_actions(source, episode.actions) for episode in episodes]),
        np.concatenate([episode.rewards for episode in episodes]),
        np.cumsum(lengths),
        np.array([bool(episode.terminations[-1]) for episode in episodes]),
        numeric(_columns([episode.infos or {} for episode in episodes], lengths), sum(lengths), str(source)),
    )
    env_id = None if data.env_spec is None else data.env_spec.id
    return RecordedData(parts, named_space(data.observation_space), data.action_space, env_id)


def _download(minari: Any, name: str) -> None:
    """Download a dataset into Minari's folder.

    Raises:
        DatasetError: there is no dataset of that id, or its server cannot be reached.
    """
    try:
        _check_reachable()
        minari.download_dataset(name)
    except Exception as error:  # of Minari, of the client of the Hub, of its transport
        folder = minari.storage.get_dataset_path("")
        raise DatasetError(
            f"path={name!r}: {folder} has no dataset of this id, and it cannot be downloaded: "
            f"{' '.join(str(error).split()).rstrip('.') or type(error).__name__}. Check the id and the connection, or "
            "give the path of a folder; MINARI_DATASETS_PATH says where datasets lie."
        ) from error


def _check_reachable() -> None:
    """Find out at once that there is no network: the Hub's client would try for half a minute."""
    proxies = getproxies()
    if "https" in proxies or "all" in proxies or os.environ.get("MINARI_REMOTE"):
        return  # not the Hub, or not by this machine's own name service
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    try:
        socket.getaddrinfo(host, 443)
    except OSError as error:
        raise ConnectionError(f"{host} is not found ({error.strerror or error})") from error


def _named(observations: Any) -> Any:
    if isinstance(observations, Mapping | tuple):
        return {name: np.asarray(array) for name, array in by_name(observations).items()}
    return np.asarray(observations)


def _actions(source: Source, actions: Any) -> np.ndarray:
    if isinstance(actions, Mapping | tuple):
        raise DatasetError(f"{source} has actions of several parts: datasets hold none such.")
    return np.asarray(actions)


def _columns(infos: list[dict[str, Any]], lengths: list[int]) -> dict[str, np.ndarray]:
    """Infos that every episode has, for each of its steps; those with one more begin with that of the reset."""
    flat = [{name: np.asarray(array) for name, array in by_name(info).items()} for info in infos]
    columns = {}
    for name in set.intersection(*(set(info) for info in flat)):
        arrays = [info[name] for info in flat]
        pairs = list(zip(arrays, lengths, strict=True))
        if all(a.ndim and len(a) - t in (0, 1) and a.shape[1:] == arrays[0].shape[1:] for a, t in pairs):
            columns[name.replace(SEPARATOR, "_")] = np.concatenate([array[len(array) - t :] for array, t in pairs])
    return columns


# -- writing -----------------------------------------------------------------------------------------------------------


def write(recording: RecordedData, path: Path) -> None:
    """Write a folder. Minari finds it by its id if it is in Minari's own folder.

    Raises:
        DatasetError: Minari does not accept the folder's name.
    """
    minari = _minari()
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    root, path = Path(minari.storage.get_dataset_path("")), path.absolute()
    name = str(path.relative_to(root)) if path.is_relative_to(root) else path.name
    if not re.fullmatch(_ID, name):
        raise DatasetError(f"path={str(path)!r}: Minari's names end in a version, such as {path.name}-v0.")
    pixels = {"jpeg_encoding": False}  # which would lose some
    with unfinished(path) as at:
        (at / _DATA).mkdir(parents=True)
        storage = MinariStorage.new(
            at / _DATA,
            _nested_space(recording.observation_space),
            recording.action_space,
            _spec(recording.env_id),
            **pixels,
        )
        storage.update_metadata({"dataset_id": name, "minari_version": minari.__version__})
        episodes = enumerate(recording.parts.episodes())
        storage.update_episodes(_buffer(EpisodeBuffer, number, episode) for number, episode in episodes)


def _buffer(kind: Any, number: int, episode: Episode) -> Any:
    ends = np.zeros((2, len(episode.actions)), bool)
    ends[0 if episode.terminated else 1, -1] = True
    return kind(
        id=number,
        observations=_nested(episode.observations),
        actions=episode.actions,
        rewards=episode.rewards,
        terminations=ends[0],
        truncations=ends[1],
        infos=dict(episode.columns) or None,
    )


def _nested(observations: Any) -> Any:
    """Nests ``{"camera/left": x}`` as ``{"camera": {"left": x}}``: a slash separates folders in Minari's files."""
    if not isinstance(observations, dict):
        return observations
    nested: dict[str, Any] = {}
    for name, array in observations.items():
        *above, key = name.split(SEPARATOR)
        inner = nested
        for part in above:
            inner = inner.setdefault(part, {})
        inner[key] = array
    return nested


def _nested_space(space: Any) -> Any:
    if not isinstance(space, spaces.Dict):
        return space

    def composed(entries: dict[str, Any]) -> spaces.Dict:
        return spaces.Dict({key: composed(part) if isinstance(part, dict) else part for key, part in entries.items()})

    return composed(_nested(dict(space.spaces)))


def _spec(env_id: str | None) -> EnvSpec | None:
    """Returns the registered spec of an environment; ``None`` if there is none."""
    try:
        return None if env_id is None else find_spec(env_id)
    except GymnasiumError:
        return None


def _minari() -> Any:
    try:
        import minari
        import minari.storage
    except ImportError as error:
        raise ImportError("Minari's datasets need minari: pip install 'polyak[offline]'.") from error
    return minari
