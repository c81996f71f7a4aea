"""Episodes as moving pictures: GIF for the web, MP4 for sharper and longer ones."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from polyak.zoo.errors import ZooError
from polyak.zoo.output import writable_file


def is_headless() -> bool:
    """Say whether there is no screen to open a window on."""
    return sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def draw_without_screen() -> None:
    """Let pygame draw on a machine without a display; has no effect when there is one."""
    if is_headless():
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")


def check_path(path: str) -> Path:
    """Return where to record; ZooError if the suffix is neither .gif nor .mp4, or no file can be written there."""
    if Path(path).suffix.lower() not in (".gif", ".mp4"):
        raise ZooError(f"--record {path!r} must end in .gif or .mp4.")
    return writable_file("--record", path)


def write_video(path: Path, frames: Sequence[np.ndarray], fps: float) -> None:
    """Write `frames`, each [height, width, 3] uint8, at `fps` pictures a second.

    A GIF shows at most 50 pictures a second, so faster ones are thinned out. Raises ImportError naming the extra when
    imageio or its ffmpeg is missing, and ZooError when there is no frame.
    """
    if not frames:
        raise ZooError(f"Nothing to record in {path}: the environment gave no picture. It needs render_mode rgb_array.")
    try:
        import imageio.v3 as imageio
    except ImportError as error:
        raise ImportError("Recording needs imageio: pip install 'polyak[video]'.") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".gif":
        step = max(1, int(np.ceil(fps / 50)))
        imageio.imwrite(path, list(frames[::step]), duration=1000 * step / fps, loop=0, plugin="pillow")
        return
    try:
        import imageio_ffmpeg  # noqa: F401  (imageio's own error does not say which extra brings it)
    except ImportError as error:
        raise ImportError("Recording MP4 needs ffmpeg: pip install 'polyak[video]', or record a .gif.") from error
    even = [frame[: frame.shape[0] // 2 * 2, : frame.shape[1] // 2 * 2] for frame in frames]
    imageio.imwrite(path, np.stack(even), fps=fps, codec="libx264", plugin="FFMPEG", macro_block_size=2)
