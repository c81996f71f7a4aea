"""``polyak plot-from-file``: images and comparisons from the files of all-plots."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polyak.zoo.errors import ZooError
from polyak.zoo.options import option
from polyak.zoo.output import note
from polyak.zoo.plots import statistics
from polyak.zoo.plots.comparisons import (
    SCALED,
    draw_aggregates,
    draw_boxes,
    draw_final_scores,
    draw_improvement,
    draw_lines,
)
from polyak.zoo.plots.drawing import draw_curves, step_axis
from polyak.zoo.plots.image_files import can_show, image_file, name_and_format, show_windows, write_image
from polyak.zoo.plots.look import Look, check_fontsize, check_location, look_of
from polyak.zoo.plots.results import (
    TABLE,
    Results,
    merge,
    methods_of,
    names_for_readers,
    read_results,
    rename,
    results_table,
    select,
)
from polyak.zoo.plots.tables import Table, latex, markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DEFAULT_NAME = "plot_from_file"
_THRESHOLDS = np.linspace(0.0, 1.0, 101)


@dataclass
class PlotFromFileOptions:
    """Plot and compare what all-plots -o wrote, here or by RL Baselines3 Zoo.

    Each image is a file: NAME for the final scores, NAME_curves, NAME_boxplot, NAME_aggregates, NAME_profiles,
    NAME_efficiency and NAME_improvement. Scores that are compared over environments are scaled: 0 is the lowest last
    evaluation of any run there, 1 the highest.
    """

    input: str = option("", "--input", "-i", help="The .pkl file of all-plots. Required.")
    skip_envs: Sequence[str] = option([], "--skip-envs", "-skip", help="Environments to leave out.")
    keep_envs: Sequence[str] = option([], "--keep-envs", help="Environments to keep; all by default.")
    skip_keys: Sequence[str] = option([], "--skip-keys", help="Methods to leave out, such as SAC-logs/.")
    keep_keys: Sequence[str] = option([], "--keep-keys", help="Methods to keep; all by default.")
    no_million: bool = option(False, "--no-million", help="Count steps, not millions of them.")
    skip_timesteps: bool = option(False, "--skip-timesteps", help="Draw no learning curves.")
    output: str = option(
        "",
        "--output",
        "-o",
        help="NAME of the images, with or without its suffix; plot_from_file if there is no screen.",
    )
    image_format: str = option("", "--format", help="png, svg or pdf; svg by default.")
    legend_loc: str = option("", "--legend-loc", "-loc", help="Where legends go (best, 'upper left', ...).")
    figsize: Sequence[float] = option([6.4, 4.8], "--figsize", help="Width and height of one panel in inches.")
    fontsize: float = option(14.0, "--fontsize", help="Size of the type in points.")
    labels: Sequence[str] = option([], "--labels", "-l", help="Names of the methods that are kept, in their order.")
    boxplot: bool = option(False, "--boxplot", "-b", help="Draw boxes of the final scores.")
    rliable: bool = option(
        False,
        "--rliable",
        "-r",
        help="Compare over environments: median, IQM, mean, optimality gap, performance profiles, sample efficiency.",
    )
    versus: bool = option(False, "--versus", "-vs", help="Draw the probability of improvement of each pair of methods.")
    iqm: bool = option(False, "--iqm", "-iqm", help="Draw the sample efficiency (IQM over steps); -r does so too.")
    ci_size: float = option(0.95, "--ci-size", "-ci", help="Level of the intervals.")
    latex: bool = option(
        False, "--latex", "-latex", help="Print the table as LaTeX too; serif type that goes with it in the images."
    )
    merge: Sequence[str] = option([], "--merge", help="More files of all-plots to put beside the first.")


def plot_from_file(options: PlotFromFileOptions) -> list[Path]:
    """Print the table, draw what `options` ask for and return the images that were written.

    Raises ZooError when a file cannot be read, a name is not in it, or the methods cannot be compared; then nothing is
    written.
    """
    if not options.input:
        raise ZooError("plot-from-file needs --input, a file that polyak all-plots ... -o NAME wrote.")
    if not 0 < options.ci_size < 1:
        raise ZooError(f"--ci-size is the level of the intervals, between 0 and 1; got {options.ci_size:g}.")
    name, image_format = name_and_format(options.output or _DEFAULT_NAME, options.image_format, "svg")
    image_file("--output", f"{name}.{image_format}")
    results = _read(options)
    window = not options.output and can_show()
    look = look_of(
        options.figsize,
        fontsize=check_fontsize(options.fontsize),
        legend=check_location(options.legend_loc),
        serif=options.latex,
        window=window,
    )
    for text in _tables(results, options.latex):
        print(text)
    with look.applied():
        figures = dict(_images(results, options, look))
        if window:
            show_windows()
            return []
        written = [
            write_image(figure, Path(f"{name}{part and '_' + part}.{image_format}")) for part, figure in figures.items()
        ]
    for path in written:
        print(f"Wrote {path}")
    return written


def _read(options: PlotFromFileOptions) -> Results:
    results = read_results("--input", Path(options.input))
    for path in options.merge:
        results = merge(results, read_results("--merge", Path(path)), Path(path).stem)
    results = select(results, options.keep_envs, options.skip_envs, options.keep_keys, options.skip_keys)
    return rename(results, options.labels) if options.labels else results


def _tables(results: Results, as_latex: bool) -> Iterator[str]:
    """Yield the table of last evaluations as Markdown and, if wanted, as LaTeX."""
    heads = {method: (method, "") for method in methods_of(results)}
    split = {method: method.partition("-") for method in heads}
    if all(separator for _, separator, _ in split.values()):  # TQC-logs/, as all-plots names them
        heads = {method: (algo, label) for method, (algo, _, label) in split.items()}
    table = results_table(results, heads)
    yield f"# {TABLE}\n{markdown(table)}"
    if as_latex:
        yield _latex(table)


def _latex(table: Table) -> str:
    has_labels = not table.rows[0][0]
    headers = [table.headers, table.rows[0]] if has_labels else [table.headers]
    return latex(headers, table.rows[1:] if has_labels else table.rows)


def _images(results: Results, options: PlotFromFileOptions, look: Look) -> Iterator[tuple[str, Figure]]:
    """Yield the figures, each with what distinguishes the name of its file."""
    names = {} if options.labels else names_for_readers(methods_of(results))
    results = {env: {names.get(key, key): found for key, found in known.items()} for env, known in results.items()}
    panels = {env: [found.curve(method) for method, found in known.items()] for env, known in results.items()}
    steps, unit = step_axis(options.no_million, panels)
    yield "", draw_final_scores(results, "Final score", options.ci_size, look)
    if not options.skip_timesteps:
        yield "curves", draw_curves(panels, steps, "Score", look, unit)
    if options.boxplot:
        yield "boxplot", draw_boxes(results, "Final score", look)
    if not (options.rliable or options.versus or options.iqm):
        return
    compared = statistics.comparable(results)
    scores = statistics.last_scores(compared)
    if options.rliable:
        yield "aggregates", draw_aggregates(statistics.aggregates(scores, options.ci_size), options.ci_size, look)
        shares = statistics.performance_profiles(scores, _THRESHOLDS, options.ci_size)
        yield (
            "profiles",
            draw_lines(_THRESHOLDS, shares, f"Threshold t\n{SCALED}", "Share of runs that score above t", look),
        )
    efficiency = statistics.sample_efficiency(compared, options.ci_size) if options.rliable or options.iqm else None
    if efficiency is not None:
        grid, curves = efficiency
        yield "efficiency", draw_lines(grid / unit, curves, steps, "IQM of the scaled score", look)
    if options.versus and len(scores) > 1:
        yield "improvement", draw_improvement(statistics.improvement(scores, options.ci_size), options.ci_size, look)
    elif options.versus:
        note("--versus: there is one method only, nothing to compare it with.")
