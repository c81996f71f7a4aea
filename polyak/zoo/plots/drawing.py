"""Figures, their panels and legends, and the curves on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from polyak.zoo.plots.curves import Curve
from polyak.zoo.plots.look import Look, style_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLUMNS = 3
"""Panels side by side before a new row begins."""
_LEGEND_INSIDE = 6
"""Entries of a legend that find room among the curves."""


def new_figure(width: float, height: float, look: Look) -> Figure:
    """Return an empty figure of so many inches, which needs no display unless it is made for a window."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08)
    if not look.window:
        return Figure(figsize=(width, height), layout=layout)
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(width, height), layout=layout)


def new_panels(titles: Sequence[str], look: Look) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel for each title, side by side in rows."""
    columns = min(len(titles), _COLUMNS)
    rows = ceil(len(titles) / columns)
    figure = new_figure(look.panel[0] * columns, look.panel[1] * rows, look)
    panels = [figure.add_subplot(rows, columns, number + 1) for number in range(len(titles))]
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title)
    return figure, panels


def add_legend(figure: Figure, panels: Sequence[Axes], look: Look) -> None:
    """Explain the labelled artists: in a single panel if there are few, else once below; the figure grows for that."""
    found = [axes.get_legend_handles_labels() for axes in panels]
    by_label = {label: handle for handles, labels in found for handle, label in zip(handles, labels, strict=True)}
    if not by_label:
        return
    if look.legend or (len(panels) == 1 and len(by_label) <= _LEGEND_INSIDE):
        location: Any = look.legend or "best"
        for axes in panels:
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc=location)
        return
    width, height = figure.get_size_inches()
    entry = text_width(by_label, look) + 3.5 * look.fontsize / 72  # the text, its line and the space around them
    columns = max(1, min(len(by_label), int(width // entry)))
    figure.set_size_inches(width, height + ceil(len(by_label) / columns) * 1.5 * look.fontsize / 72)
    figure.legend(by_label.values(), by_label.keys(), loc="outside lower center", ncols=columns)


def text_width(texts: Iterable[str], look: Look) -> float:
    """Return about how many inches the longest of `texts` takes; a letter is 0.6 of the size of its type."""
    return max(map(len, texts)) * 0.6 * look.fontsize / 72


def step_axis(no_million: bool) -> tuple[str, float]:
    """Return the name of an axis of steps, and one unit of it in steps."""
    return ("Environment steps", 1.0) if no_million else ("Environment steps (millions)", 1e6)


def draw_curves(
    panels: Mapping[str, Sequence[Curve]], x_label: str, y_label: str, look: Look, x_unit: float = 1.0
) -> Figure:
    """Draw one panel for each environment, a curve of one name in the same colour everywhere.

    Args:
        panels: titles, and the curves beneath each.
        x_label: of the axis of all panels.
        y_label: likewise.
        look: how it looks.
        x_unit: one unit of the axis in units of the curves' ``x``, such as 3600 for hours.
    """
    figure, all_axes = new_panels(list(panels), look)
    names = _legend_names(panels)
    numbers = {label: number for number, label in enumerate(names)}
    for axes, curves in zip(all_axes, panels.values(), strict=True):
        for curve in curves:
            _draw_curve(axes, curve, x_unit, names[curve.label], style_of(numbers[curve.label]))
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.margins(x=0.02)
        _shorten_large_numbers(axes)
    add_legend(figure, all_axes, look)
    return figure


def _draw_curve(axes: Axes, curve: Curve, x_unit: float, name: str, style: Mapping[str, Any]) -> None:
    x = curve.x / x_unit
    axes.plot(x, curve.y, label=name, marker="" if len(x) > 1 else "o", **style)
    if curve.error is None:
        return
    if len(x) == 1:  # a band of one point has no area
        axes.errorbar(x, curve.y, curve.error, capsize=4, **style)
    axes.fill_between(x, curve.y - curve.error, curve.y + curve.error, color=style["color"], alpha=0.2, linewidth=0)


def _legend_names(panels: Mapping[str, Sequence[Curve]]) -> dict[str, str]:
    """Return what the legend says for each label: with the number of runs behind it, where that is not one."""
    runs: dict[str, list[int]] = {}
    for curves in panels.values():
        for curve in curves:
            runs.setdefault(curve.label, []).append(curve.n_runs)
    names = {}
    for label, counts in runs.items():
        few, many = min(counts), max(counts)
        count = f"{many}" if few == many else f"{few} to {many}"
        names[label] = label if many == 1 else f"{label} ({count} runs)"
    return names


def _shorten_large_numbers(axes: Axes) -> None:
    """Write 20k below the axis for 20000, where such numbers occur."""
    from matplotlib.ticker import EngFormatter

    if axes.get_xlim()[1] >= 10_000:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
