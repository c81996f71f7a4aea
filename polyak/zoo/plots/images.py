"""Output of figures: files, windows, or both."""

from __future__ import annotations

from collections.abc import Mapping
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

    Raises ZooError if the two contradict each other, the format is none that is written, or no file can be there.
    """
    wanted = image_format.lower().removeprefix(".")
    if wanted and wanted not in FORMATS:
        close = did_you_mean(image_format, FORMATS)
        raise ZooError(f"--format must be one of {', '.join(FORMATS)}, got {image_format!r}.{close}")
    suffix = Path(output).suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        suffix, name = wanted or default, output
    elif wanted and wanted != suffix:
        raise ZooError(f"--output {output!r} and --format {image_format} contradict each other. Give one of them.")
    else:
        name = output[: -len(suffix) - 1]
    writable_file("--output", f"{name}.{suffix}")
    return name, suffix


def can_show() -> bool:
    """Return whether matplotlib can open a window here."""
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


def put_out(figures: Mapping[str, Figure], files: tuple[str, str] | None, window: bool) -> list[Path]:
    """Write figures, and show those that were made for a window until the user has closed them; return the files.

    Args:
        figures: figures by the distinguishing part of their files' names.
        files: prefix of the file names, and format; None writes no files.
        window: whether they were made for a window.
    """
    written = []
    if files is not None:
        name, image_format = files
        paths = {part: Path(f"{name}{part and '_' + part}.{image_format}") for part in figures}
        written = [write_image(figure, paths[part]) for part, figure in figures.items()]
        print("\n".join(f"Wrote {path}" for path in written))
    if window:
        import matplotlib.pyplot as plt

        plt.show()
        plt.close("all")
    return written
