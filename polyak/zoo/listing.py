"""``polyak list``: which algorithms there are, and for which environments settings are tuned."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from polyak.zoo.errors import ZooError
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.registry import algorithm_name, algorithm_names, find_algorithm, find_env, summary
from polyak.zoo.settings import tuned_blocks


@dataclass
class ListOptions(CommandOptions):
    """List the algorithms and what each is tuned for, or show the tuned settings or the arguments of one algorithm."""

    algo: str = option("", "--algo", "-a", help="Show the tuned settings of this algorithm.")
    env: str = option("", "--env", "-e", help="List only what is tuned for this environment.")
    arguments: bool = option(False, "--arguments/", help="Explain the arguments of --algo: type, default and meaning.")


def show(options: ListOptions) -> None:
    """Print the list that `options` select."""
    names = algorithm_names()
    if options.algo:
        find_algorithm(options.algo)
        names = [options.algo]
    if options.arguments:
        if not options.algo:
            raise ZooError("--arguments of which algorithm? Give --algo.")
        print(inspect.getdoc(find_algorithm(options.algo)))
        return
    env = find_env(options.env).name if options.env else ""
    tuned = {name: _tuned(name) for name in names}
    if options.algo:
        _show_settings(algorithm_name(options.algo), tuned[names[0]], env)
        return
    shown = [name for name in names if not env or env in tuned[name]]
    width = max(map(len, shown), default=0)
    for name in shown:
        print(f"{name:<{width}}  {_summary(name)}")
        if not env:
            print(f"{'':{width}}  tuned: {', '.join(tuned[name]) or 'nothing yet; give --conf-file'}")
    if env and not any(env in blocks for blocks in tuned.values()):
        print(f"No algorithm has settings tuned for {env}; `polyak train` takes its default settings.")


def _summary(name: str) -> str:
    """Return the summary of an algorithm, or the error of importing the package that offers it."""
    try:
        return summary(find_algorithm(name))
    except ZooError as error:
        return str(error)


def _tuned(name: str) -> dict[str, dict[str, Any]]:
    """Return the blocks of an algorithm's tuned settings; empty if its package or its file is broken."""
    try:
        return tuned_blocks(find_algorithm(name))[0]
    except ZooError:
        return {}


def _show_settings(name: str, blocks: dict[str, dict[str, Any]], env_id: str) -> None:
    if env_id and env_id not in blocks:
        raise ZooError(f"{name} has no settings tuned for --env {env_id!r}. Tuned: {', '.join(blocks)}.")
    if not blocks:
        print(f"{name} has no tuned settings; `polyak train` takes its defaults.")
    for key in [env_id] if env_id else blocks:
        print(f"{key}:")
        for parameter, value in blocks[key].items():
            print(f"  {parameter}: {value}")
