"""The appearance of images: sizes, type, colours and dashes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from polyak.zoo.plots.options import PlotOptions

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F3C8D", "#000000")
"""Distinct for colour-blind readers too (Okabe and Ito, 2008), without their yellow, which is invisible on white."""
_DASHES = ("-", "--", ":", "-.")


def require_matplotlib() -> Any:
    """Return the module; ImportError naming the extra if it is missing."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError("Plotting needs matplotlib: pip install 'polyak[zoo]'.") from error
    return matplotlib


@dataclass(frozen=True)
class Look:
    """The appearance of images.

    Fields: ``panel`` width and height of one panel in inches; ``fontsize`` in points; ``legend`` a location of
    matplotlib's for the legend of each panel, by default inside a single panel and below several; ``serif`` type;
    ``window`` whether figures are made for a window.
    """

    panel: tuple[float, float] = (6.4, 4.0)
    fontsize: float = 10.0
    legend: str = ""
    serif: bool = False
    window: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Draw and write figures so in this block; ImportError naming the extra if matplotlib is missing."""
        matplotlib = require_matplotlib()
        settings: dict[Any, Any] = {
            "font.size": self.fontsize,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
        }
        if self.serif:
            settings |= {"font.family": "STIXGeneral", "mathtext.fontset": "stix"}
        with matplotlib.rc_context(settings):
            yield


Drawn = tuple[list[Path], Callable[[Look], Mapping[str, "Figure"]]]
"""Files that were written already, and the function that draws the figures, by the distinguishing part of their
names."""


def chosen_look(options: PlotOptions, window: bool) -> Look:
    """Return the look that the options describe; ZooError for invalid sizes and places."""
    large = options.kind in ("training", "file")
    size = options.figsize or ((6.4, 4.8) if large else Look.panel)
    fontsize = options.fontsize if options.fontsize != -1 else 14.0 if large else 10.0
    if len(size) != 2 or min(size) <= 0:
        raise ZooError(f"--figsize takes a width and a height in inches, got {' '.join(map(str, size))}.")
    if not 0 < fontsize < 200:
        raise ZooError(f"--fontsize is in points, such as 14; got {fontsize:g}.")
    location = options.legend_loc
    if location:
        require_matplotlib()
        from matplotlib.legend import Legend

        if location not in Legend.codes:
            close = did_you_mean(location, Legend.codes)
            raise ZooError(f"--legend-loc must be one of {', '.join(Legend.codes)}; got {location!r}.{close}")
    return Look((size[0], size[1]), fontsize, location, options.latex, window)


def style_of(number: int) -> dict[str, Any]:
    """Return colour and dashes of line `number`: all colours, then all of them again with other dashes."""
    return {"color": COLOURS[number % len(COLOURS)], "linestyle": _DASHES[number // len(COLOURS) % len(_DASHES)]}
