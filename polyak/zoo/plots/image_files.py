"""Output of figures: files or windows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from polyak.suggestions import did_you_mean
from polyak.writing import replacing
from polyak.zoo.errors import ZooError
from polyak.zoo.output import writable_file
from polyak.zoo.plots.look import require_matplotlib
from polyak.zoo.recording import is_headless

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")


def name_and_format(output: str, image_format: str, default: str) -> tuple[str, str]:
    """Return the name that images begin with and their format: that of ``--format``, of the suffix, or `default`.

    Raises ZooError if the two contradict each other, or the format is none that is written.
    """
    wanted = image_format.lower().removeprefix(".")
    if wanted and wanted not in FORMATS:
        close = did_you_mean(image_format, FORMATS)
        raise ZooError(f"--format must be one of {', '.join(FORMATS)}, got {image_format!r}.{close}")
    suffix = Path(output).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        return output, wanted or default
    if wanted and wanted != suffix:
        raise ZooError(f"--output {output!r} and --format {image_format} contradict each other. Give one of them.")
    return output[: -len(suffix) - 1], suffix


def image_file(flag: str, path: str) -> Path:
    """Return where an image can be written; ZooError if its suffix names no format, or no file can be there."""
    target = writable_file(flag, path)
    if target.suffix.lower().removeprefix(".") not in FORMATS:
        raise ZooError(f"{flag} {path!r}: images end in {', '.join('.' + name for name in FORMATS)}.")
    return target


def can_show() -> bool:
    """Say whether matplotlib can open a window here."""
    require_matplotlib()
    if is_headless():
        return False
    import matplotlib.pyplot as plt

    probe = plt.figure()
    try:
        return getattr(probe.canvas, "required_interactive_framework", None) is not None
    finally:
        plt.close(probe)


def write_image(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the path's suffix, a PNG with 150 dots an inch; the file appears when whole."""
    with replacing(path) as file:
        figure.savefig(file, dpi=150, format=path.suffix.lower().removeprefix("."))
    return path


def show_windows() -> None:
    """Show the figures that were made for a window, until the user has closed them."""
    import matplotlib.pyplot as plt

    plt.show()
    plt.close("all")
