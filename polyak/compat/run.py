"""``polyak run``: a program as ``python`` would run it, except that polyak answers Stable-Baselines3's import names.

The program runs in a Python of its own that takes the place of this process, so its ``__main__``, its exit status, its
tracebacks and Ctrl-C are those of plain ``python program.py``. What makes the names answered there is the environment:
a folder with a ``sitecustomize`` module comes first on ``PYTHONPATH``, and Python imports that module when it starts.
Environment variables are inherited, so this also reaches every Python that the program starts in turn: workers of
``multiprocessing`` by spawn and forkserver, which import what the program imports before any of its code could prepare
them, and ``subprocess`` calls of ``sys.executable``. Which names are answered, and what comes from installed packages
all the same, is said at :func:`polyak.compat.install`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from polyak.compat.notebooks import runner

STARTUP = Path(__file__).parent / "startup"
"""The folder of the ``sitecustomize`` module."""

MARK = "POLYAK_RUN"
"""The environment variable that names the installation (``sys.prefix``) whose processes answer the names."""

ONLY = "POLYAK_RUN_ONLY"
"""The environment variable that lists the packages to answer, separated by commas; empty for the usual ones."""

SAID = "POLYAK_RUN_SAID"
"""The environment variable that holds the lines which need not be printed again; ``all``: no line is."""

ANSWERED = ("stable_baselines3", "sb3_contrib", "ray")
"""The packages that can be answered; of ``ray``, ``ray.rllib`` and ``ray.tune.registry``."""

ZOO = "rl_zoo3."
"""The package of RL Baselines3 Zoo, whose modules are commands; polyak has these by the same flags."""

COMMANDS = {
    **dict.fromkeys(("train", "enjoy", "record_video", "record_training", "push_to_hub", "load_from_hub")),
    **dict.fromkeys(("plots.plot_train", "plots.plot_from_file", "plots.all_plots")),
    "benchmark": "benchmark-agents",
}
"""Modules of the Zoo -> polyak's commands; ``None``: of the same name."""

NOTEBOOK = ".ipynb"
"""The suffix of notebooks, whose code cells are run."""


def environment(inherited: Mapping[str, str], only: Sequence[str] = ()) -> dict[str, str]:
    """``inherited``, with variables that make Python processes answer the names of the packages ``only``.

    Without any they are Stable-Baselines3 and sb3-contrib, and RLlib once the program itself imports it: code of
    installed libraries that looks whether there is a Ray finds what is installed.
    """
    first, given = str(STARTUP), inherited.get("PYTHONPATH")
    rest = [entry for entry in given.split(os.pathsep) if entry != first] if given else []
    return {**inherited, "PYTHONPATH": os.pathsep.join([first, *rest]), MARK: sys.prefix, ONLY: ",".join(only)}


def hand_on(packages: Sequence[str]) -> None:
    """Let Python processes that this one starts from now on answer the names of ``packages`` too, without a word."""
    asked = os.environ.get(ONLY, "") if os.environ.get(MARK) == sys.prefix else None
    if asked == "":  # under `polyak run`, whose processes answer all of them
        return
    known = asked.split(",") if asked else []
    os.environ.update({**environment(os.environ, list(dict.fromkeys([*known, *packages]))), SAID: "all"})


def run(target: str, arguments: Sequence[str] = (), module: bool = False, only: Sequence[str] = ()) -> NoReturn:
    """Run a program in place of this process.

    Args:
        target: a script, a notebook (``.ipynb``), or a folder or zip file with a ``__main__``; the dotted name of a
            module with ``module``.
        arguments: its ``sys.argv[1:]``.
        module: find ``target`` as ``python -m`` does. One of the Zoo's :data:`COMMANDS` is polyak's command.
        only: which of :data:`ANSWERED` to answer; all by default, see :func:`environment`. With it the Zoo's commands
            are those of what is installed.

    Raises:
        FileNotFoundError: there is no such script.
        ValueError: ``only`` names another package; a notebook that is damaged or not in Python.
        RuntimeError: this Python was asked not to read the environment or not to run ``sitecustomize``.
    """
    if not module and not os.path.exists(target):
        raise FileNotFoundError(f"SCRIPT {target!r} does not exist. A module is run by its name with -m.")
    if unknown := [name for name in only if name not in ANSWERED]:
        raise ValueError(f"only={unknown} cannot be answered: name some of {list(ANSWERED)}.")
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise RuntimeError("polyak run needs PYTHONPATH and sitecustomize: start Python without -I, -E and -S.")
    # The options of this interpreter (-O, -W, -X dev ...) as multiprocessing hands them to its workers.
    options: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [] if only or not module else zoo_command(target)
    words = [sys.executable, *options, *(command or _program(target, module)), *arguments]
    if os.name == "nt":
        _wait_for(words, environment(os.environ, only))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execve(sys.executable, words, environment(os.environ, only))


def zoo_command(module: str) -> list[str]:
    """The command line of Python for polyak's command in place of a module of the Zoo; empty for other modules."""
    name = module.removeprefix(ZOO)
    if name == module or name not in COMMANDS:
        return []
    return ["-m", "polyak", COMMANDS[name] or name.rpartition(".")[2].replace("_", "-")]


def _program(target: str, module: bool) -> list[str]:
    """The command line of Python for the target."""
    if module:
        return ["-m", target]
    if not target.endswith(NOTEBOOK):
        return [target]
    runner.read_cells(target)
    return [runner.__file__, target]


def _wait_for(words: list[str], environ: Mapping[str, str]) -> NoReturn:
    """Run the command in a child process, for Windows, where replacing a process would let the caller continue at
    once."""
    with subprocess.Popen(words, env=environ) as process:
        while True:
            try:
                raise SystemExit(process.wait())
            except KeyboardInterrupt:  # the program gets it too, and decides
                continue
