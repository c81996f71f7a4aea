"""Moving images."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from polyak.zoo.errors import ZooError
from polyak.zoo.recording import Film, captioned, check_path, draw_without_screen, write_video

imageio = pytest.importorskip("imageio.v3")


def frames(n: int) -> list[np.ndarray]:
    """Make `n` images that differ."""
    return [np.full((33, 47, 3), 5 * i, dtype=np.uint8) for i in range(n)]


def test_gif(tmp_path: Path) -> None:
    path = tmp_path / "new" / "episode.gif"
    write_video(path, frames(10), fps=50)
    assert imageio.imread(path, index=None).shape[:3] == (10, 33, 47)
    assert imageio.immeta(path)["duration"] == 20
    write_video(path, frames(10), fps=100)
    assert len(imageio.imread(path, index=None)) == 5


def test_mp4(tmp_path: Path) -> None:
    pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "episode.mp4"
    write_video(path, frames(10), fps=30)
    assert imageio.imread(path, plugin="FFMPEG", index=0).shape == (32, 46, 3)


def test_mistakes_are_named(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match=r"--record 'x.avi' must end in .gif or .mp4"):
        check_path("x.avi")
    with pytest.raises(ZooError, match="Nothing to record"):
        write_video(tmp_path / "x.gif", [], fps=30)


def test_a_film_that_is_cut_short_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "x.gif"
    with pytest.raises(KeyError), Film(path, 30) as film:
        film.extend(frames(3))
        raise KeyError
    assert list(tmp_path.iterdir()) == []


def test_captions_change_the_corner_only() -> None:
    frame = np.full((100, 200, 3), 99, np.uint8)
    marked = captioned(frame, "1,000 steps")
    assert (frame == 99).all()
    assert marked.shape == frame.shape
    changed = np.argwhere((marked != frame).any(axis=2))
    assert len(changed) > 50
    assert changed[:, 0].max() < 30
    assert (marked[changed[:, 0], changed[:, 1]] > 200).any(), "light letters"


@pytest.mark.parametrize(("screen", "driver"), [(None, "offscreen,dummy"), (":0", None)])
def test_without_a_screen_images_are_still_drawn(
    screen: str | None, driver: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.setenv(name, "")  # so that what is set here goes when the test ends
        monkeypatch.delenv(name)
    if screen is not None:
        monkeypatch.setenv("DISPLAY", screen)
    draw_without_screen()
    assert os.environ.get("SDL_VIDEODRIVER") == driver
    monkeypatch.setenv("SDL_VIDEODRIVER", "one's own")
    draw_without_screen()
    assert os.environ["SDL_VIDEODRIVER"] == "one's own"
