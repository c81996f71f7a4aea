"""``polyak all-plots``: evaluations of algorithms, environments and folders: a table, an image, a pickle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from polyak.envs.wrappers.monitor import get_monitor_files
from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError
from polyak.zoo.options import option
from polyak.zoo.output import note, writable_file
from polyak.zoo.plots.drawing import draw_curves, step_axis
from polyak.zoo.plots.evaluations import evaluation_keys, join_whole_runs, read_evaluations, until
from polyak.zoo.plots.image_files import can_show, image_file, name_and_format, show_windows, write_image
from polyak.zoo.plots.look import Look
from polyak.zoo.plots.results import TABLE, MethodEvaluations, Results, results_table, write_results
from polyak.zoo.plots.selection import Place, Selection, runs_at, say_left_out
from polyak.zoo.plots.tables import markdown
from polyak.zoo.registry import env_name
from polyak.zoo.run_folder import RunFolder, State

if TYPE_CHECKING:
    import pandas as pd

_QUANTITIES = {"results": "Return", "successes": "Success rate", "ep_lengths": "Episode length (steps)"}
_DEFAULT_NAME = "all_plots"


@dataclass
class AllPlotsOptions:
    """Compare the evaluations of algorithms, environments and folders: a table, learning curves, a file of both.

    The image is written beside the file of --output, or as all_plots.png where there is no screen for a window.
    """

    algos: Sequence[str] = option(
        [],
        "--algos",
        "-a",
        help="Algorithms; all that have runs by default. her: the runs of any algorithm whose config.yml has a "
        "HerReplayBuffer.",
    )
    envs: Sequence[str] = option([], "--env", "-e", help="Environments; Hopper stands for Hopper-v5 if it is the only.")
    folders: Sequence[str] = option(["logs"], "--log-folder", "--exp-folders", "-f", help="Folders of logs.")
    labels: Sequence[str] = option([], "--labels", "-l", help="A label for each folder; by default its path.")
    key: str = option("results", "--key", "-k", help="What to read from evaluations.npz: results, successes, ...")
    max_timesteps: int = option(2_000_000, "--max-timesteps", "-max", help="Leave out evaluations after this step.")
    min_timesteps: int = option(-1, "--min-timesteps", "-min", help="Leave out runs that ended before this step.")
    output: str = option("", "--output", "-o", help="Write NAME.pkl, for plot-from-file, and NAME.png.")
    median: bool = option(False, "--median", "-median", help="Median of the runs in the table, instead of the mean.")
    no_million: bool = option(False, "--no-million", help="Count steps, not millions of them.")
    no_display: bool = option(False, "--no-display", help="Open no window; write the image instead.")
    print_n_trials: bool = option(False, "--print-n-trials", "-print", help="Print how many runs there are of each.")
    image_format: str = option("", "--format", help="png, svg or pdf; png by default.")


def all_plots(options: AllPlotsOptions) -> Results:
    """Print the table, write or show the image and write the pickle; return what was read.

    What has no runs is named on stderr and left out. Raises ZooError when nothing at all is there, or a choice is
    impossible.
    """
    selection = Selection(options.folders, options.algos, options.labels)
    if not options.envs:
        raise ZooError(f"Which environment? Give --env.{selection.listing()}")
    name, image_format = name_and_format(options.output.removesuffix(".pkl"), options.image_format, "png")
    pickled = writable_file("--output", f"{name}.pkl") if name else None
    path = image_file("--output", f"{name or _DEFAULT_NAME}.{image_format}")
    results = read_selected(options, selection)
    if options.print_n_trials:
        for env, methods in results.items():
            for method, found in methods.items():
                print(f"{env}-{method}: {found.n_runs}")
    table = results_table(
        results, {_method(place): (place.algo.upper(), place.label) for place in selection.places()}, options.median
    )
    print(f"# {TABLE}\n{markdown(table)}")
    if pickled is not None:
        write_results(pickled, results, table)
        print(f"Wrote {pickled}")
    window = not options.no_display and can_show()
    _show_or_write(results, selection, options, path if pickled is not None or not window else None, window)
    return results


def _show_or_write(
    results: Results, selection: Selection, options: AllPlotsOptions, path: Path | None, window: bool
) -> None:
    names = {_method(place): selection.name_of(place) for place in selection.places()}
    panels = {
        env: [found.curve(names[method]) for method, found in methods.items()]
        for env, methods in results.items()
        if methods
    }
    steps, unit = step_axis(options.no_million, panels, selection.steps_of(options.envs))
    look = Look(window=window)
    with look.applied():
        figure = draw_curves(panels, steps, _QUANTITIES.get(options.key, options.key), look, unit)
        if path is not None:
            print(f"Wrote {write_image(figure, path)}")
        if window:
            show_windows()


def read_selected(options: AllPlotsOptions, selection: Selection) -> Results:
    """Read the evaluations that `options` ask for, and name on stderr what is missing; ZooError if all of it is."""
    results: Results = {}
    was_cut = False
    for text in options.envs:
        env = selection.environment(text)
        methods = results[env_name(text)] = {}
        for place in selection.places():
            runs = {f"run {name}": run for name, run in runs_at(place, env).items()}
            whole = _tables(runs, options)
            tables = {name: cut for name, table in whole.items() if len(cut := until(table, options.max_timesteps))}
            was_cut |= any(name not in tables or len(tables[name]) < len(table) for name, table in whole.items())
            if tables:
                states = {name: RunFolder.at(run).state for name, run in runs.items()}
                methods[_method(place)] = _joined(tables, states, f"{place.algo} on {env} under {place.folder}")
            else:
                say_left_out(place, env, f"evaluations ({options.key})")
    if was_cut:
        note(f"evaluations after {options.max_timesteps:,} steps are left out (--max-timesteps).")
    if not any(results.values()):
        raise _nothing_to_plot(options, selection)
    return results


def _method(place: Place) -> str:
    return f"{place.algo.upper()}-{place.label}"


def _tables(runs: Mapping[str, Path], options: AllPlotsOptions) -> dict[str, pd.DataFrame]:
    """Read those of `runs` that went far enough."""
    tables = {name: read_evaluations(run, options.key) for name, run in runs.items()}
    return {name: table for name, table in tables.items() if table is not None and _end(table) >= options.min_timesteps}


def _end(table: pd.DataFrame) -> int:
    return int(table.index[-1])


def _joined(tables: Mapping[str, pd.DataFrame], states: Mapping[str, State], where: str) -> MethodEvaluations:
    """Join runs, and say on stderr what was done to them."""
    joined, remark = join_whole_runs(tables, states)
    if remark:
        note(f"{where}: {remark}")
    return MethodEvaluations(joined.index.to_numpy(), joined.to_numpy())


def _nothing_to_plot(options: AllPlotsOptions, selection: Selection) -> ZooError:
    """Return the error of a key that no run has, or of runs that are not there."""
    envs = [selection.environment(text) for text in options.envs]
    runs = [run for env in envs for place in selection.places() for run in runs_at(place, env).values()]
    keys = sorted({key for run in runs for key in evaluation_keys(run)})
    if keys and options.key not in keys:
        return ZooError(
            f"--key {options.key!r} is not in the evaluations.{did_you_mean(options.key, keys)} They have "
            f"{', '.join(keys)}."
        )
    where = f"of {', '.join(options.envs)} under {', '.join(options.folders)}"
    if any(get_monitor_files(run) for run in runs):
        return ZooError(
            f"Nothing to plot: no evaluations {where}. The runs have episodes of training: polyak plot --source train"
        )
    return ZooError(f"Nothing to plot: no evaluations {where}.{selection.environments_with_runs(options.envs)}")
