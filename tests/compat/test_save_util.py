"""Stable-Baselines3's functions for files, called directly."""

from pathlib import Path

import pytest

from polyak.compat.sb3_face.save_util import open_path


def test_a_folder_in_the_way_is_named_and_gone_round(tmp_path: Path) -> None:
    (tmp_path / "model.zip").mkdir()
    with pytest.warns(UserWarning, match=r"model\.zip is a folder: writing .*model\.zip_2 instead"):
        open_path(tmp_path / "model", "w", suffix="zip").close()
    assert (tmp_path / "model.zip_2").is_file()
