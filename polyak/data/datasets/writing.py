"""Files and folders that appear only once they are whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polyak.envs.reading.folders import writing


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write a file or a folder to, which takes the name ``path`` when the block has ended without an error.

    A file of that name is replaced.

    Raises:
        FileExistsError: there is a folder of that name.
    """
    if path.is_dir():
        raise FileExistsError(f"path={str(path)!r} is a folder already: delete it, or give another path.")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield folder / path.name
        os.replace(folder / path.name, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
