"""Episodes as moving images: GIF for the web, MP4 for sharper and longer ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from polyak.writing import Unfinished
from polyak.zoo.errors import ZooError
from polyak.zoo.output import writable_file


def is_headless() -> bool:
    """Return whether there is no screen for a window."""
    return sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def draw_without_screen() -> None:
    """Make pygame draw on a machine without a display; has no effect when there is one.

    Under SDL's "dummy" alone some environments see black where they read their window; "offscreen" keeps images, but
    not every build of SDL has it.
    """
    if is_headless():
        os.environ.setdefault("SDL_VIDEODRIVER", "offscreen,dummy")


def check_path(path: str) -> Path:
    """Return where to record; ZooError if the suffix is neither .gif nor .mp4, or no file can be written there."""
    if Path(path).suffix.lower() not in (".gif", ".mp4"):
        raise ZooError(f"--record {path!r} must end in .gif or .mp4.")
    return writable_file("--record", path)


class Film:
    """Writes images to a .gif or .mp4 file; the file appears when the film is complete.

    Used as a context; a film that an error cuts short leaves no file. A GIF shows at most 50 images a second, so faster
    ones are thinned out. MP4 frames go to the file at once, those of a GIF are kept, one byte a pixel. While
    ``caption`` is set, it is drawn in the upper left corner of the images.

    Args:
        path: the file; its suffix determines the format. Its folder is made if missing.
        fps: images a second.

    Raises:
        ImportError: imageio, or for MP4 its ffmpeg, is not installed; the message names the extra.
        ZooError: at the end, if there was no image.
    """

    def __init__(self, path: Path, fps: float) -> None:
        self.path = path
        self.caption = ""
        self.frames = 0
        _import_imageio(with_ffmpeg=path.suffix.lower() != ".gif")
        self._unfinished = Unfinished(path)
        self._writer: _Gif | _Mp4 = (_Gif if path.suffix.lower() == ".gif" else _Mp4)(self._unfinished.at, fps)

    def extend(self, frames: Iterable[np.ndarray]) -> None:
        """Add images, each [height, width, 3] uint8."""
        for frame in frames:
            self._writer.add(captioned(frame, self.caption) if self.caption else frame)
            self.frames += 1

    def __enter__(self) -> Film:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._writer.close()
            if kind is None and self.frames:
                self._unfinished.finish()
        finally:
            self._unfinished.drop()
        if kind is None and not self.frames:
            raise ZooError(
                f"Nothing to record in {self.path}: the environment gave no image. It needs render_mode rgb_array."
            )


class _Mp4:
    def __init__(self, path: Path, fps: float) -> None:
        imageio = _import_imageio(with_ffmpeg=True)
        self._file = imageio.get_writer(path, format="FFMPEG", fps=fps, codec="libx264", macro_block_size=2)

    def add(self, frame: np.ndarray) -> None:
        self._file.append_data(frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2])

    def close(self) -> None:
        self._file.close()


class _Gif:
    def __init__(self, path: Path, fps: float) -> None:
        self._path = path
        self._step = max(1, int(np.ceil(fps / 50)))
        self._milliseconds = 1000 * self._step / fps
        self._seen = 0
        self._images: list[Any] = []

    def add(self, frame: np.ndarray) -> None:
        from PIL import Image

        if self._seen % self._step == 0:
            self._images.append(Image.fromarray(frame).quantize())
        self._seen += 1

    def close(self) -> None:
        if self._images:
            first, *rest = self._images
            first.save(self._path, format="GIF", save_all=True, append_images=rest, duration=self._milliseconds, loop=0)


def write_video(path: Path, frames: Iterable[np.ndarray], fps: float) -> None:
    """Write `frames`, each [height, width, 3] uint8, at `fps` images a second; see `Film`."""
    with Film(path, fps) as film:
        film.extend(frames)


def captioned(frame: np.ndarray, text: str) -> np.ndarray:
    """Return a copy of an image [height, width, 3] with `text` on a dark ground in its upper left corner."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.fromarray(frame)
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=max(10, frame.shape[0] // 20))
    margin = max(2, frame.shape[0] // 80)
    left, top, right, bottom = draw.textbbox((2 * margin, 2 * margin), text, font=font)
    draw.rectangle((left - margin, top - margin, right + margin, bottom + margin), fill=(20, 20, 20))
    draw.text((2 * margin, 2 * margin), text, font=font, fill=(255, 255, 255))
    return np.asarray(image)


def _import_imageio(with_ffmpeg: bool) -> Any:
    try:
        import imageio.v2 as imageio
    except ImportError as error:
        raise ImportError("Recording needs imageio: pip install 'polyak[video]'.") from error
    if with_ffmpeg:
        try:
            import imageio_ffmpeg  # noqa: F401 (imageio's own error does not name the extra)
        except ImportError as error:
            raise ImportError("Recording MP4 needs ffmpeg: pip install 'polyak[video]', or record a .gif.") from error
    return imageio
