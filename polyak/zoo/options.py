"""Command-line options declared once, as dataclass fields, from which typer's commands are built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, field, fields
from types import GenericAlias
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from polyak.suggestions import did_you_mean
from polyak.zoo.completion import COMPLETIONS
from polyak.zoo.errors import ZooError
from polyak.zoo.interruption import ended_by_signals

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


def option(
    default: Any,
    *flags: str,
    help: str,
    at_least: float | None = None,
    at_most: int | None = None,
    choices: Sequence[str] = (),
) -> Any:
    """Declare a field of `CommandOptions` with the `flags` and the `help` text of the command line.

    Without flags it is a positional argument: ``polyak report LOGS``. Values other than the default are refused below
    `at_least`, above `at_most`, and if they are not among the `choices`.
    """
    metadata = {"flags": flags, "help": help, "at_least": at_least, "at_most": at_most, "choices": choices}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


class CommandOptions:
    """The base of a command's options: dataclasses whose fields are :func:`option`; checked at construction."""

    def __post_init__(self: Any) -> None:
        """Raise ZooError for a value that the declaration of an option does not allow."""
        for item in fields(self):
            value, default = getattr(self, item.name), default_of(item)
            least, most, choices = (item.metadata[name] for name in ("at_least", "at_most", "choices"))
            if value == default:
                continue
            flag = next(iter(item.metadata["flags"]), item.name).partition("/")[0]
            if choices and value not in choices:
                hint = did_you_mean(value, choices)
                raise ZooError(f"{flag} must be one of {', '.join(choices)}, got {value!r}.{hint}")
            if least is not None and value < least:
                way_out = " (or left out)" if default < least else ""
                raise ZooError(f"{flag} must be at least {least}{way_out}, got {value}.")
            if most is not None and value > most:
                raise ZooError(f"{flag} must be at most {most:,}, got {value}.")


def default_of(item: Any) -> Any:
    """Return the default of an option, a field of a dataclass."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def is_given(options: Any, name: str) -> bool:
    """Return whether an option differs from its default."""
    default = next(default_of(item) for item in fields(options) if item.name == name)
    return bool(getattr(options, name) != default)


def has_more(options_class: type[Any]) -> bool:
    """Return whether help first shows a part of these options: the first of their ``PANELS``."""
    return hasattr(options_class, "PANELS")


def build_command(
    options_class: type[Options], run: Callable[[Options], Any], everything: bool = True
) -> Callable[..., None]:
    """Make the function of a typer command: it fills `options_class` and passes it to `run`.

    Help shows options in the panels, and in the order, of ``options_class.PANELS``, if it has these: title -> names of
    fields. All others follow. The first title is ``Options``, so that ``--help`` itself stands there; without
    `everything`, that panel and the arguments are all that help shows.
    """
    import typer

    hints = get_type_hints(options_class)
    panels = {name: title for title, names in getattr(options_class, "PANELS", {}).items() for name in names}
    first = next(iter(panels.values()), None)
    places = {name: place for place, name in enumerate(panels)}
    parameters = []
    for item in sorted(fields(options_class), key=lambda item: places.get(item.name, len(places))):
        default = default_of(item)
        hint: Any = hints[item.name]
        metavar = None if item.metadata["flags"] else item.name.upper()
        if get_origin(hint) is Sequence:  # typer represents repeated options as lists
            hint, metavar = GenericAlias(list, get_args(hint)), "..."
        # The meaning of -1 is in the text.
        how = {"help": item.metadata["help"], "show_default": default not in (None, [], "", -1)}
        how |= {"rich_help_panel": panels.get(item.name), "autocompletion": COMPLETIONS.get(item.name)}
        flags = item.metadata["flags"]
        how |= {"metavar": metavar, "hidden": bool(flags) and not everything and panels.get(item.name) != first}
        info = typer.Option(*flags, **how) if flags else typer.Argument(**how)
        annotation: Any = Annotated[hint, info]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(item.name, kind, default=default, annotation=annotation))

    def command(**values: Any) -> None:
        options = options_class(**values)
        with ended_by_signals():
            run(options)

    command.__doc__ = options_class.__doc__
    command.__name__ = options_class.__name__.removesuffix("Options").lower()
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def to_arguments(options: Any) -> list[str]:
    """Return the words that give these `options` on the command line; options at their default are left out."""
    words: list[str] = []
    for item in fields(options):
        value = getattr(options, item.name)
        if value == default_of(item):
            continue
        flag, _, negation = item.metadata["flags"][0].partition("/")
        if isinstance(value, bool):
            words.append(flag if value else negation)
        elif isinstance(value, str | int | float):
            words.append(f"{flag}={value}")  # so that a value may begin with a dash
        else:
            words += [f"{flag}={word}" for word in value]
    return words


def list_flags(*options_classes: type[Any]) -> set[str]:
    """Return the flags of all options that hold a list."""
    return {
        flag
        for options_class in options_classes
        for item in fields(options_class)
        if item.default_factory is not MISSING
        for flag in item.metadata.get("flags", ())
    }


def spread_lists(arguments: list[str], flags: set[str]) -> list[str]:
    """Repeat the flag before each of its words: ``--env-kwargs a:1 b:2`` -> ``--env-kwargs a:1 --env-kwargs b:2``."""
    spread: list[str] = []
    current: str | None = None
    first = False
    for word in arguments:
        if word.startswith("-"):
            current, first = (word, True) if word in flags else (None, False)
        elif current is not None:
            if not first:
                spread.append(current)
            first = False
        spread.append(word)
    return spread
