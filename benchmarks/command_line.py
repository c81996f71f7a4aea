"""What the command lines of several benchmarks have in common: options alike in each, and checks that name them."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from processes import HERE


def at_least(least: int) -> Callable[[str], int]:
    """For ``type=`` of an option: a whole number that is not smaller."""

    def integer(text: str) -> int:
        if (number := int(text)) < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, got {number}")
        return number

    return integer


def positive(text: str) -> float:
    """For ``type=`` of an option: a number above 0."""
    if not (number := float(text)) > 0:
        raise argparse.ArgumentTypeError(f"must be positive, got {text}")
    return number


def add_choice(
    parser: argparse.ArgumentParser, flag: str, names: Sequence[str], default: Sequence[str] | None = None
) -> None:
    """Some of ``names``, by default all of them.

    Args:
        parser: gets the option.
        flag: its name.
        names: what there is.
        default: a selection, if not all.
    """
    shown = f"any of: {', '.join(names)}" + ("" if default is None else f" (default: {', '.join(default)})")
    chosen = list(names if default is None else default)
    parser.add_argument(flag, nargs="+", choices=list(names), default=chosen, metavar="NAME", help=shown)


def add_repeats(parser: argparse.ArgumentParser, default: int, what: str) -> None:
    """``--repeats``: how many of ``what``."""
    parser.add_argument("--repeats", type=at_least(1), default=default, help=f"{what} (default {default})")


def add_threads(parser: argparse.ArgumentParser, default: int) -> None:
    """``--threads``: what :func:`processes.run_worker` forces on each run."""
    shown = default if default > 0 else "its own choice"
    parser.add_argument("--threads", type=int, default=default, help=f"compute threads of each run (default {shown})")


def add_wait(parser: argparse.ArgumentParser) -> None:
    """``--wait``: how long each run may wait for others to leave the machine alone."""
    parser.add_argument("--wait", type=float, default=60.0, help="longest wait for a quiet machine before a run, s")


def add_out(parser: argparse.ArgumentParser, name: str) -> None:
    """``--out``: where :func:`reports.write` puts its files."""
    default = HERE / "results" / name
    parser.add_argument("--out", type=Path, default=default, help="stem of the .json and .md files")
