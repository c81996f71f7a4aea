"""The options of ``polyak plot``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from polyak.zoo.errors import ZooError
from polyak.zoo.options import CommandOptions, default_of, option
from polyak.zoo.plots.selection import Selection

X_LABELS = {"steps": "Environment steps", "episodes": "Episodes", "time": "{unit} of wall time"}
Y_LABELS = {"reward": "Return", "success": "Success rate", "length": "Episode length (steps)"}
SOURCES = ("train", "eval")
KINDS = ("curves", "training", "table", "file")
_RUNS = ("curves", "training", "table")


@dataclass
class PlotOptions(CommandOptions):
    """Plot runs under logs/<algo>/<env>_<n>/: learning curves, a table of evaluations, comparisons with intervals.

    --kind curves: the mean of each algorithm's runs and its standard error. training: a line for each run (RL Zoo's
    plot_train). table: evaluations as a table, an image and a file (all_plots). file: such files (plot_from_file).
    """

    PANELS: ClassVar[dict[str, tuple[str, ...]]] = {
        "Options": ("kind", "algos", "envs", "folders", "input", "output"),
        "What is drawn": ("source", "x_axis", "y_axis", "window", "max_timesteps", "each_run", "labels"),
        "Images": ("image_format", "figsize", "fontsize", "legend_loc", "no_million", "no_display"),
        "Tables of evaluations": ("key", "min_timesteps", "median", "print_n_trials"),
        "Comparisons": (
            *("merge", "skip_envs", "keep_envs", "skip_keys", "keep_keys", "skip_timesteps", "boxplot", "rliable"),
            *("versus", "iqm", "ci_size", "latex"),
        ),
    }
    ONLY: ClassVar[dict[tuple[str, ...], tuple[str, ...]]] = {
        _RUNS: ("algos", "envs", "folders", "max_timesteps"),
        ("curves", "table", "file"): ("labels",),
        ("curves",): ("source", "each_run"),
        ("curves", "training"): ("x_axis", "y_axis", "window"),
        ("table",): PANELS["Tables of evaluations"],
        ("file",): ("input", *PANELS["Comparisons"]),
        ("table", "file"): ("no_million",),
        ("training", "table", "file"): ("no_display",),
    }
    """Kinds -> the options that mean something to these alone."""

    kind: str = option("curves", "--kind", help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.", choices=KINDS)
    algos: Sequence[str] = option(
        [],
        "--algos",
        "--algo",
        "-a",
        help="Algorithms; all that have runs by default. her: those with a HerReplayBuffer in config.yml.",
    )
    envs: Sequence[str] = option(
        [],
        "--env",
        "-e",
        help="Environments, a panel each; Hopper: Hopper-v5 if it is the only. Without any, runs are listed.",
    )
    folders: Sequence[str] = option(
        ["logs"], "--log-folder", "--exp-folders", "--exp-folder", "-f", help="Log folders to compare."
    )
    labels: Sequence[str] = option(
        [], "--labels", "-l", help="Names of the log folders; with --kind file, of the methods that are kept."
    )
    max_timesteps: int = option(
        0,
        "--max-timesteps",
        "-max",
        help="Leave out what came after this step; by default nothing, in tables what came after 2,000,000.",
    )
    source: str = option(
        "",
        "--source",
        "-s",
        help="train: episodes of training. eval: evaluations, and a table of the last ones. Without it, episodes of "
        "training where there are any, evaluations elsewhere.",
        choices=SOURCES,
    )
    x_axis: str = option("steps", "--x-axis", "-x", help="steps, episodes or time.", choices=tuple(X_LABELS))
    y_axis: str = option("reward", "--y-axis", "-y", help="reward, success or length.", choices=tuple(Y_LABELS))
    window: int = option(100, "--episode-window", "-w", help="Episodes in moving means of training.", at_least=1)
    input: str = option("", "--input", "-i", help="The .pkl file of --kind table, for --kind file.")
    output: str = option(
        "",
        "--output",
        "-o",
        help="NAME of what is written, with .png, .svg, .pdf or without. By default a window, but for curves.",
    )
    each_run: bool = option(False, "--each-run", help="Draw each run as a thin line, in place of the band of the mean.")
    image_format: str = option("", "--format", help="png, svg or pdf; by default png, or svg for --kind file.")
    figsize: Sequence[float] = option([], "--figsize", help="Width and height of one panel in inches (6.4 4.0).")
    fontsize: float = option(-1.0, "--fontsize", help="Size of the type in points; 14, but 10 for curves and tables.")
    legend_loc: str = option("", "--legend-loc", "-loc", help="Where legends go (best, 'upper left', ...).")
    no_million: bool = option(False, "--no-million", help="Count steps, not millions of them.")
    no_display: bool = option(False, "--no-display", help="Open no window; write the image instead.")
    key: str = option("results", "--key", "-k", help="What to read from evaluations.npz: results, successes, ...")
    min_timesteps: int = option(-1, "--min-timesteps", "-min", help="Leave out runs that ended before this step.")
    median: bool = option(False, "--median", "-median", help="Median of the runs in the table, instead of the mean.")
    print_n_trials: bool = option(False, "--print-n-trials", "-print", help="Print how many runs there are of each.")
    skip_envs: Sequence[str] = option([], "--skip-envs", "-skip", help="Environments to leave out.")
    keep_envs: Sequence[str] = option([], "--keep-envs", help="Environments to keep; all by default.")
    skip_keys: Sequence[str] = option([], "--skip-keys", help="Methods to leave out, such as SAC-logs/.")
    keep_keys: Sequence[str] = option([], "--keep-keys", help="Methods to keep; all by default.")
    skip_timesteps: bool = option(False, "--skip-timesteps", help="Draw no learning curves.")
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
    merge: Sequence[str] = option([], "--merge", help="More files of --kind table to put beside the first.")

    def check(self) -> None:
        """Raise ZooError for an option that means nothing to the kind."""
        kinds = {name: kinds for kinds, names in self.ONLY.items() for name in names}
        for item in fields(self):
            of = kinds.get(item.name, KINDS)
            if self.kind not in of and getattr(self, item.name) != default_of(item):
                flag = item.metadata["flags"][0]
                raise ZooError(f"{flag} means nothing to --kind {self.kind}, only to {' and '.join(of)}.")
        if self.kind in _RUNS and not self.envs:
            selection = Selection(self.folders, self.algos, self.labels)
            raise ZooError(f"Which environment? Give --env.{selection.listing()}")
