"""The ``polyak`` command: ``polyak train``, ``enjoy``, ``plot`` and the others of `COMMANDS`, and ``run``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from typing import Any

from polyak.compat.run import ANSWERED
from polyak.compat.run import run as run_program
from polyak.warning import printable
from polyak.zoo.benchmark.agents import BenchmarkAgentsOptions, benchmark_agents
from polyak.zoo.benchmark.command import BenchmarkOptions, benchmark
from polyak.zoo.book.command import BookOptions, book
from polyak.zoo.data.collect import CollectOptions, collect
from polyak.zoo.data.convert import ConvertOptions, convert
from polyak.zoo.data.show import ShowOptions
from polyak.zoo.data.show import show as show_data
from polyak.zoo.demo import DemoOptions, demo
from polyak.zoo.doctor import DoctorOptions, doctor
from polyak.zoo.enjoy import EnjoyOptions, enjoy
from polyak.zoo.errors import TrainingFailed, ZooError, readable
from polyak.zoo.evaluate import EvaluateOptions, evaluate
from polyak.zoo.examples import epilogue
from polyak.zoo.export import ExportOptions, export
from polyak.zoo.hub.load import LoadOptions, load_from_hub
from polyak.zoo.hub.push import PushOptions, push_to_hub
from polyak.zoo.listing import ListOptions, show
from polyak.zoo.options import build_command, list_flags, spread_lists
from polyak.zoo.output import note
from polyak.zoo.play import PlayOptions, play
from polyak.zoo.plots.all_plots import AllPlotsOptions, all_plots
from polyak.zoo.plots.plot import PlotOptions, plot
from polyak.zoo.plots.plot_from_file import PlotFromFileOptions, plot_from_file
from polyak.zoo.plots.plot_train import PlotTrainOptions, plot_train
from polyak.zoo.record import RecordTrainingOptions, RecordVideoOptions, record_training, record_video
from polyak.zoo.report.board import BoardOptions, board
from polyak.zoo.report.page import ReportOptions, report
from polyak.zoo.train import TrainOptions, train
from polyak.zoo.tuning.command import tune
from polyak.zoo.tuning.options import TuneOptions

#: Name, options and function of each command.
COMMANDS: dict[str, tuple[type[Any], Callable[..., Any]]] = {
    "train": (TrainOptions, train),
    "tune": (TuneOptions, tune),
    "enjoy": (EnjoyOptions, enjoy),
    "evaluate": (EvaluateOptions, evaluate),
    "export": (ExportOptions, export),
    "record-video": (RecordVideoOptions, record_video),
    "record-training": (RecordTrainingOptions, record_training),
    "plot": (PlotOptions, plot),
    "book": (BookOptions, book),
    "play": (PlayOptions, play),
    "all-plots": (AllPlotsOptions, all_plots),
    "plot-train": (PlotTrainOptions, plot_train),
    "plot-from-file": (PlotFromFileOptions, plot_from_file),
    "report": (ReportOptions, report),
    "board": (BoardOptions, board),
    "benchmark": (BenchmarkOptions, benchmark),
    "benchmark-agents": (BenchmarkAgentsOptions, benchmark_agents),
    "push-to-hub": (PushOptions, push_to_hub),
    "load-from-hub": (LoadOptions, load_from_hub),
    "list": (ListOptions, show),
    "demo": (DemoOptions, demo),
    "doctor": (DoctorOptions, doctor),
    "data collect": (CollectOptions, collect),
    "data show": (ShowOptions, show_data),
    "data convert": (ConvertOptions, convert),
}
#: Meaning of the first word of commands of two words.
GROUPS = {"data": "Datasets of recorded experience: collect, show and convert them."}


def build_app() -> Any:
    """Build the typer application from `COMMANDS`; ImportError naming the extra if typer is missing."""
    try:
        import typer
    except ImportError as error:
        raise ImportError("The command line needs typer: pip install 'polyak[zoo]'.") from error
    app = typer.Typer(
        name="polyak",
        help="Train, watch and compare reinforcement-learning agents.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_version_option())
    groups = {"": app} | {name: typer.Typer(help=text, no_args_is_help=True) for name, text in GROUPS.items()}
    for group, commands in groups.items():
        if group:
            app.add_typer(commands, name=group)
    for name, (options_class, run) in COMMANDS.items():
        group, _, word = name.rpartition(" ")
        groups[group].command(word, epilog=epilogue(name))(build_command(options_class, run))
        if "-" in name:  # the Zoo's modules have underscores
            app.command(name.replace("-", "_"), hidden=True)(build_command(options_class, run))
    # What follows the script belongs to the script, flags included.
    own_words = {"allow_interspersed_args": False}
    app.command("run", context_settings=own_words, epilog=epilogue("run"))(_run_command())
    return app


_ONLY = f"Answer only this one of {', '.join(ANSWERED)}, and leave the others as they are installed."


def _run_command() -> Callable[..., None]:
    import typer

    def run(
        target: str = typer.Argument(
            metavar="SCRIPT", help="A Python file or a notebook (.ipynb); with -m, a module's name."
        ),
        arguments: list[str] = typer.Argument(None, metavar="ARGS", help="Arguments of the script."),  # noqa: B008
        module: bool = typer.Option(False, "-m", help="Run a module, as python -m does."),
        only: list[str] = typer.Option(  # noqa: B008
            None, "--only", metavar="PACKAGE", help=_ONLY
        ),
    ) -> None:
        """Run a program written for Stable-Baselines3 or RLlib: polyak answers its imports.

        The names are stable_baselines3, sb3_contrib, and ray.rllib and ray.tune.registry where the program imports
        these; a line on stderr says which it uses.
        """
        try:
            run_program(target, arguments or (), module, only or ())
        except (FileNotFoundError, RuntimeError, ValueError) as error:
            raise ZooError(str(error)) from None

    run.__annotations__ = {
        "target": str,
        "arguments": list[str],
        "module": bool,
        "only": list[str],
        "return": None,
    }
    return run


def _version_option() -> Callable[..., None]:
    import typer

    def show_version(wanted: bool) -> None:
        if wanted:
            print(f"polyak {metadata.version('polyak')}")
            raise typer.Exit()

    def polyak(
        version: bool = typer.Option(
            False, "--version", callback=show_version, is_eager=True, help="Print the version."
        ),
    ) -> None:
        """Train, watch and compare reinforcement-learning agents."""

    polyak.__annotations__ = {"version": bool, "return": None}
    return polyak


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line on `argv` (``sys.argv[1:]`` by default) and exit.

    Exit status: 0 when all went well, 2 for a mistake in what was asked (one line on stderr, no traceback unless the
    environment variable ``POLYAK_TRACEBACK`` is set), 3 for a training that failed and saved what it had learned, 1 for
    any other failure while running.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments and arguments[0].replace("_", "-") in COMMANDS:  # record_video, as the Zoo's modules are called
        arguments[0] = arguments[0].replace("_", "-")
    flags = list_flags(*(options_class for options_class, _ in COMMANDS.values()))
    try:
        words = arguments if arguments[:1] == ["run"] else spread_lists(arguments, flags)
        build_app()(args=words, prog_name="polyak")  # also for python -m polyak
    except (ZooError, ImportError) as error:
        if os.environ.get("POLYAK_TRACEBACK"):
            raise
        print(f"polyak: {printable(str(error), most=10_000)}", file=sys.stderr)
        raise SystemExit(2) from None
    except TrainingFailed as failure:
        with suppress(OSError):  # stderr may be closed
            print(readable(failure.cause), end="", file=sys.stderr)
        note(failure.outcome)
        raise SystemExit(failure.status) from None
