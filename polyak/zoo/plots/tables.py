"""``polyak plot --kind table``: evaluations of algorithms, environments and folders: a table, an image, a pickle."""

from __future__ import annotations

from dataclasses import replace

from polyak.envs.wrappers.monitor import get_monitor_files
from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError
from polyak.zoo.output import note, writable_file
from polyak.zoo.plots.curves import Curve, evaluation_keys, mean_of_runs, read_evaluations
from polyak.zoo.plots.drawing import draw_curves, step_axis
from polyak.zoo.plots.look import Drawn
from polyak.zoo.plots.options import PlotOptions
from polyak.zoo.plots.results import TABLE, Results, results_table, write_results
from polyak.zoo.plots.selection import Place, Selection, runs_at, say_left_out
from polyak.zoo.registry import env_name

_QUANTITIES = {"results": "Return", "successes": "Success rate", "ep_lengths": "Episode length (steps)"}
_MOST_STEPS = 2_000_000
"""Evaluations after these are left out unless --max-timesteps is given, as in RL Baselines3 Zoo."""


def draw_table(options: PlotOptions, name: str) -> Drawn:
    """Read the evaluations, print their table and write them as a pickle, NAME.pkl, if --output is given."""
    selection = Selection(options.folders, options.algos, options.labels)
    pickled = writable_file("--output", f"{name}.pkl") if options.output else None
    results = read_selected(options)
    if options.print_n_trials:
        for env, methods in results.items():
            for method, found in methods.items():
                print(f"{env}-{method}: {found.n_runs}")
    heads = {_method(place): (place.algo.upper(), place.label) for place in selection.places()}
    table = results_table(results, heads, options.median)
    print(f"# {TABLE}\n{table.markdown()}")
    if pickled is not None:
        write_results(pickled, results, table)
        print(f"Wrote {pickled}")
    names = {_method(place): selection.name_of(place) for place in selection.places()}
    panels = {
        env: [replace(found, label=names[method]) for method, found in methods.items()]
        for env, methods in results.items()
        if methods
    }
    steps, unit = step_axis(options.no_million, panels, selection.steps_of(options.envs))
    quantity = _QUANTITIES.get(options.key, options.key)
    return [pickled] if pickled else [], lambda look: {"": draw_curves(panels, steps, quantity, look, unit)}


def read_selected(options: PlotOptions) -> Results:
    """Read the evaluations that `options` select; missing ones are named on stderr. ZooError if all are missing."""
    selection = Selection(options.folders, options.algos, options.labels)
    last = options.max_timesteps or _MOST_STEPS
    results: Results = {}
    was_cut = False
    for text in options.envs:
        env = selection.environment(text)
        methods = results[env_name(text)] = {}
        for place in selection.places():
            runs: dict[str, Curve] = {}
            for number, run in runs_at(place, env).items():
                whole = read_evaluations(run, options.key)
                if whole is None or whole.x[-1] < options.min_timesteps:
                    continue
                cut = whole.until(last)
                was_cut |= cut is None or len(cut.x) < len(whole.x)
                if cut is not None:
                    runs[f"run {number}"] = cut
            if runs:
                joined = methods[_method(place)] = mean_of_runs(runs, place.algo, evaluated=True)
                if joined.remark:
                    note(f"{place.algo} on {env} under {place.folder}: {joined.remark}")
            else:
                say_left_out(place, env, f"evaluations ({options.key})")
    if was_cut:
        note(f"evaluations after {last:,} steps are left out (--max-timesteps).")
    if not any(results.values()):
        raise _nothing_to_plot(options, selection)
    return results


def _method(place: Place) -> str:
    return f"{place.algo.upper()}-{place.label}"


def _nothing_to_plot(options: PlotOptions, selection: Selection) -> ZooError:
    """Return the error of a key that no run has, or of runs that are not there."""
    runs = list(selection.runs(options.envs))
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
