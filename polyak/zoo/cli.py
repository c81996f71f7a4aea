"""The ``polyak`` command: ``polyak train``, ``enjoy``, ``plot`` and the others of `COMMANDS`, and ``run``.

The modules of a command are imported when it runs, so that help and error messages are immediate.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from polyak.warning import printable
from polyak.zoo.errors import TrainingFailed, ZooError, readable
from polyak.zoo.interruption import leave_on_signals, usual_signals
from polyak.zoo.output import note

COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("train:TrainOptions", "train:train"),
    "replay-fault": ("replay_fault:ReplayFaultOptions", "replay_fault:replay_fault"),
    "tune": ("tuning.options:TuneOptions", "tuning.command:tune"),
    "enjoy": ("enjoy:EnjoyOptions", "enjoy:enjoy"),
    "evaluate": ("evaluate:EvaluateOptions", "evaluate:evaluate"),
    "export": ("export:ExportOptions", "export:export"),
    "record-video": ("record:RecordVideoOptions", "record:record_video"),
    "record-training": ("record:RecordTrainingOptions", "record:record_training"),
    "plot": ("plots.options:PlotOptions", "plots.plot:plot"),
    "play": ("play:PlayOptions", "play:play"),
    "report": ("report.page:ReportOptions", "report.page:report"),
    "status": ("status:StatusOptions", "status:status"),
    "board": ("report.board:BoardOptions", "report.board:board"),
    "benchmark-agents": ("benchmark_agents:BenchmarkAgentsOptions", "benchmark_agents:benchmark_agents"),
    "push-to-hub": ("hub.push:PushOptions", "hub.push:push_to_hub"),
    "load-from-hub": ("hub.load:LoadOptions", "hub.load:load_from_hub"),
    "list": ("listing:ListOptions", "listing:show"),
    "gallery": ("gallery:GalleryOptions", "gallery:gallery"),
    "demo": ("demo:DemoOptions", "demo:demo"),
    "doctor": ("doctor:DoctorOptions", "doctor:doctor"),
    "data collect": ("data.collect:CollectOptions", "data.collect:collect"),
    "data show": ("data.show:ShowOptions", "data.show:show"),
    "data convert": ("data.convert:ConvertOptions", "data.convert:convert"),
}
"""Name of each command -> its options and its function, as ``module:name`` below ``polyak.zoo``."""
ALIASES = {"plot-train": "training", "all-plots": "table", "plot-from-file": "file"}
"""Commands of RL Baselines3 Zoo -> the --kind of `polyak plot` that each is."""
RUN = "run"
HELP_ALL = "--help-all"
#: Meaning of the first word of commands of two words.
GROUPS = {"data": "Datasets of recorded experience: collect, show and convert them."}


def load_command(name: str) -> tuple[type[Any], Callable[..., Any]]:
    """Import the options and the function of a command."""
    from importlib import import_module

    options_class, run = (
        getattr(import_module(f"polyak.zoo.{module}"), attribute)
        for module, _, attribute in (place.partition(":") for place in COMMANDS[name])
    )
    return options_class, run


def build_app(command: str | None = None, everything: bool = True) -> Any:
    """Build the typer application.

    Args:
        command: of `COMMANDS`, or ``run``: the only one that is in it. None: all are. Empty: all are, but only with
            the sentence that help shows of each, for which nothing is imported.
        everything: whether help shows the options that a command is rarely given as well.

    Raises:
        ImportError: typer is missing; the message names the extra.
    """
    try:
        import typer
    except ImportError as error:
        raise ImportError("The command line needs typer: pip install 'polyak[zoo]'.") from error
    from polyak.zoo.examples import epilogue
    from polyak.zoo.options import build_command, has_more

    app = typer.Typer(
        name="polyak",
        help="Train, watch and compare reinforcement-learning agents.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": _HELP},
    )
    app.callback(invoke_without_command=True)(_version_option())
    names = [command] if command else [*COMMANDS, RUN]
    groups = {"": app} | {name: typer.Typer(help=text, no_args_is_help=True) for name, text in GROUPS.items()}
    for group, commands in groups.items():
        if group and any(name.startswith(f"{group} ") for name in names):
            app.add_typer(commands, name=group)
    for name in names:
        group, _, word = name.rpartition(" ")
        if name == RUN:  # the words after the script belong to the script, flags included
            own_words = {"allow_interspersed_args": False}
            app.command(RUN, context_settings=own_words, epilog=epilogue(RUN))(_run_command())
        elif command == "":
            groups[group].command(word)(_listed(name))
        else:
            options_class, run = load_command(name)
            more = has_more(options_class)
            settings = {"help_option_names": [*_HELP, HELP_ALL] if more else _HELP}
            epilog = epilogue(name, everything or not more)
            groups[group].command(word, epilog=epilog, context_settings=settings)(
                build_command(options_class, run, everything)
            )
    return app


_HELP = ["-h", "--help"]


def _listed(name: str) -> Callable[[], None]:
    """A command with nothing but its sentence, which is read from the source of its options."""
    import ast
    from importlib.resources import files

    module, _, options_class = COMMANDS[name][0].partition(":")
    *folders, file = module.split(".")
    source = files("polyak.zoo").joinpath(*folders, f"{file}.py").read_text(encoding="utf-8")

    def listed() -> None: ...

    (listed.__doc__,) = (
        ast.get_docstring(node)
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == options_class
    )
    return listed


def _run_command() -> Callable[..., None]:
    import typer

    def run(
        target: str = typer.Argument(
            metavar="SCRIPT", help="A Python file or a notebook (.ipynb); with -m, a module's name."
        ),
        arguments: list[str] = typer.Argument(None, metavar="ARGS", help="Arguments of the script."),  # noqa: B008
        module: bool = typer.Option(False, "-m", help="Run a module, as python -m does."),
        only: list[str] = typer.Option(  # noqa: B008
            None,
            "--only",
            metavar="PACKAGE",
            help="Answer only stable_baselines3, sb3_contrib or ray, and leave the others as they are installed.",
        ),
    ) -> None:
        """Run a program written for Stable-Baselines3 or RLlib: polyak answers its imports.

        The names are stable_baselines3, sb3_contrib, and ray.rllib and ray.tune.registry where the program imports
        these; a line on stderr says which it uses.
        """
        from polyak.compat.run import run as run_program

        usual_signals()  # the program gets Python's own handlers
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
            from importlib import metadata

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

    Exit status: 0 when all went well, 2 for a mistake in the command (one line on stderr, no traceback unless the
    environment variable ``POLYAK_TRACEBACK`` is set), 3 for a training that failed and saved what it had learned, 1 for
    any other failure while running.
    """
    leave_on_signals()
    if (reconfigure := getattr(sys.stdout, "reconfigure", None)) is not None:
        reconfigure(line_buffering=True)  # the log of a program that is killed ends where the program did
    try:
        command, words = _understood(list(sys.argv[1:] if argv is None else argv))
        completing = "_POLYAK_COMPLETE" in os.environ
        app = build_app(None if completing else command, everything=completing or HELP_ALL in words)
        app(args=words, prog_name="polyak")  # also for python -m polyak
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
    finally:
        usual_signals()


def _understood(words: list[str]) -> tuple[str, list[str]]:
    """Return the command that `words` begin with, empty for none, and the words as typer understands them.

    Raises ZooError if they begin with something else, naming the closest commands.
    """
    if not words or words[0].startswith("-"):
        return "", words
    words[0] = words[0].replace("_", "-")  # record_video, as the Zoo's modules are called
    if words[0] in ALIASES:
        words[:1] = ["plot", "--kind", ALIASES[words[0]]]
    length = 2 if words[0] in GROUPS else 1
    if len(words) < length or words[length - 1].startswith("-"):
        return "", words
    command = " ".join(words[:length])
    if command == RUN:
        return command, words
    if command not in COMMANDS:
        from polyak.suggestions import did_you_mean

        hint = did_you_mean(command, [*COMMANDS, *GROUPS, *ALIASES, RUN])
        raise ZooError(f"There is no command {command!r}.{hint} `polyak --help` lists all.")
    from polyak.zoo.options import list_flags, spread_lists

    return command, spread_lists(words, list_flags(load_command(command)[0]))
