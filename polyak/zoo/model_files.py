"""Models and normalisation statistics as files of polyak's own or of Stable-Baselines3's."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyak import formats

if TYPE_CHECKING:
    from polyak.envs import VecEnv

FORMATS = ("polyak", "sb3")


def check_writable(model: Any, file_format: str) -> None:
    """Raise ValueError with the reason if `model` cannot be written in `file_format`; writes no file."""
    if file_format == "sb3":
        if not hasattr(model, "save_sb3"):
            raise ValueError(f"{type(model).__name__} is unknown to Stable-Baselines3. Use --save-format polyak.")
        model.save_sb3(io.BytesIO())


def save(thing: Any, path: Path, file_format: str) -> None:
    """Write a model, or a VecNormalize, in `file_format`."""
    (thing.save_sb3 if file_format == "sb3" else thing.save)(str(path))


def has_no_statistics(model: Path) -> bool:
    """Return whether `model` is a file of Stable-Baselines3, whose normalisation statistics are in another file."""
    if not zipfile.is_zipfile(model):
        return False
    with zipfile.ZipFile(model) as archive:
        return not formats.MODELS.keys().isdisjoint(archive.namelist())


def load_statistics(path: Path, envs: VecEnv, *, trust: bool = False) -> VecEnv:
    """Put the VecNormalize that a file holds around `envs`, ready to continue learning."""
    from polyak.envs import VecNormalize

    normalizer = VecNormalize.load(path, envs, trust=trust)
    normalizer.training = True
    return normalizer
