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
_WIDEST_INSIDE = 0.5
"""Largest width of a legend inside a panel, as a share of the panel's width."""
_BORDER = 0.1
"""Inches on both sides of a legend below the panels."""


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
    """Explain the labelled artists: in a single panel if they leave room there, else once below; the figure grows for
    that, in height and, where a single entry is wider than it, in width."""
    found = [axes.get_legend_handles_labels() for axes in panels]
    by_label = {label: handle for handles, labels in found for handle, label in zip(handles, labels, strict=True)}
    if not by_label:
        return
    is_small = len(by_label) <= _LEGEND_INSIDE and text_width(by_label, look) < _WIDEST_INSIDE * look.panel[0]
    if look.legend or (len(panels) == 1 and is_small):
        location: Any = look.legend or "best"
        for axes in panels:
            if axes.get_legend_handles_labels()[0]:
                axes.legend(loc=location)
        return
    width, height = figure.get_size_inches()
    columns, legend_width, legend_height = _columns_that_fit(figure, by_label, width - 2 * _BORDER)
    figure.set_size_inches(max(width, legend_width + 2 * _BORDER), height + legend_height)
    figure.legend(by_label.values(), by_label.keys(), loc="outside lower center", ncols=columns)


def _columns_that_fit(figure: Figure, by_label: Mapping[str, Any], width: float) -> tuple[int, float, float]:
    """Return how many columns a legend has that is no wider than `width`, 1 at least; and its size in inches."""
    for columns in range(len(by_label), 0, -1):
        legend = figure.legend(by_label.values(), by_label.keys(), ncols=columns)
        size = legend.get_window_extent()
        legend.remove()
        if size.width / figure.dpi <= width:
            break
    return columns, size.width / figure.dpi, size.height / figure.dpi


def text_width(texts: Iterable[str], look: Look) -> float:
    """Return how many inches the longest of `texts` takes."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    font = FontProperties(size=look.fontsize)
    return max(text_to_path.get_text_width_height_descent(text, font, False)[0] for text in texts) / 72


def step_axis(
    no_million: bool, panels: Mapping[str, Sequence[Curve]], name: str = "Environment steps"
) -> tuple[str, float]:
    """Return the label of an axis of steps, and one unit of it in steps: a million only if there are that many."""
    last = max((float(curve.x[-1]) for curves in panels.values() for curve in curves), default=0.0)
    return (name, 1.0) if no_million or last < 1e6 else (f"{name} (millions)", 1e6)


def draw_curves(
    panels: Mapping[str, Sequence[Curve]],
    x_label: str,
    y_label: str,
    look: Look,
    x_unit: float = 1.0,
    each_run: bool = False,
) -> Figure:
    """Draw one panel for each environment, a curve of one name in the same colour everywhere.

    Args:
        panels: titles, and the curves beneath each.
        x_label: of the axis of all panels.
        y_label: likewise.
        look: how it looks.
        x_unit: one unit of the axis in units of the curves' ``x``, such as 3600 for hours.
        each_run: draw each run as a thin line of the curve's colour, in place of its band.
    """
    figure, all_axes = new_panels(list(panels), look)
    names = _legend_names(panels)
    numbers = {label: number for number, label in enumerate(names)}
    for axes, curves in zip(all_axes, panels.values(), strict=True):
        for curve in curves:
            style = style_of(numbers[curve.label])
            if each_run:
                _draw_runs(axes, curve, x_unit, style)
            _draw_curve(axes, curve, x_unit, names[curve.label], style, has_band=not each_run)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.margins(x=0.02)
        _number_axes(axes, x_unit)
    add_legend(figure, all_axes, look)
    return figure


def _draw_runs(axes: Axes, curve: Curve, x_unit: float, style: Mapping[str, Any]) -> None:
    for run in curve.runs if len(curve.runs) > 1 else ():
        axes.plot(run.x / x_unit, run.y, marker="" if len(run.x) > 1 else "o", alpha=0.35, linewidth=0.8, **style)


def _draw_curve(
    axes: Axes, curve: Curve, x_unit: float, name: str, style: Mapping[str, Any], has_band: bool = True
) -> None:
    x = curve.x / x_unit
    axes.plot(x, curve.y, label=name, marker="" if len(x) > 1 else "o", **style)
    if curve.error is None or not has_band:
        return
    if len(x) == 1:  # a band of one point has no area
        axes.errorbar(x, curve.y, curve.error, capsize=4, **style)
    axes.fill_between(x, curve.y - curve.error, curve.y + curve.error, color=style["color"], alpha=0.2, linewidth=0)


def _legend_names(panels: Mapping[str, Sequence[Curve]]) -> dict[str, str]:
    """Return the legend's text for each label: with the number of runs, unless that is one."""
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


def _number_axes(axes: Axes, x_unit: float) -> None:
    """Write 20k for 20000 if such numbers occur, and whole numbers on axes of counts."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    if x_unit == 1.0:
        axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=[1, 2, 2.5, 5, 10]))
    for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if max(map(abs, limits)) >= 10_000:
            axis.set_major_formatter(EngFormatter(sep=""))
