"""``polyak data show``: the contents of a dataset, as a table and, optionally, as an image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces

from polyak.warning import printable
from polyak.zoo.data.files import load
from polyak.zoo.options import CommandOptions, option
from polyak.zoo.output import writable_file
from polyak.zoo.plots.grids import new_figure
from polyak.zoo.plots.images import write_image

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polyak.experience import Dataset

BINS = 20
"""Number of parts into which the range of an action is cut, to show how much of it is covered."""
MOST = 12
"""Dimensions that are shown, each in a line or a panel."""


@dataclass
class ShowOptions(CommandOptions):
    """Show the contents of a dataset: returns, lengths, ends, actions; as a table, and as an image with --output."""

    path: str = option("", help="File or folder, or the id of a Minari dataset.")
    output: str = option("", "--output", "-o", help="Image to write: .png, .svg or .pdf; none by default.")
    format: str = option("", "--format", help="Format of the file; by default found by what it holds.")
    env: str = option("", "--env", "-e", help="Environment whose spaces the data are compared with.")
    gym_packages: Sequence[str] = option([], "--gym-packages", help="Packages to import that register environments.")
    trust: bool = option(False, "--trust/", help="Also run pickled code in the file; for files that you trust only.")


def show(options: ShowOptions) -> Dataset:
    """Print the table, draw the image if requested, and return the dataset.

    Raises ZooError, naming the row, if it cannot be read.
    """
    output = writable_file("--output", options.output) if options.output else None
    dataset = load(
        options.path, format=options.format, env=options.env, gym_packages=options.gym_packages, trust=options.trust
    )
    for label, text in rows(dataset):
        print(f"{label:<20} {text}".rstrip())
    if output is not None:
        print(f"Wrote {draw(dataset, output)}")
    return dataset


# -- the table ---------------------------------------------------------------------------------------------------------


def rows(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Label and text of each line."""
    terminal, episodes = int(dataset.terminated.sum()), dataset.n_episodes
    yield "environment", dataset.env_id or "unknown"
    yield "transitions", f"{len(dataset):,}"
    yield "episodes", f"{episodes:,}"
    yield "  terminal", f"{terminal:,} ({terminal / episodes:.1%})"
    yield "  cut short", f"{episodes - terminal:,} ({1 - terminal / episodes:.1%}): time limits, or the recording's end"
    yield "", f"{'min':>12}{'25 %':>12}{'median':>12}{'75 %':>12}{'max':>12}{'mean':>12}"
    yield "returns", quartiles(dataset.returns)
    yield "lengths", quartiles(dataset.lengths)
    yield "rewards", quartiles(dataset.rewards)
    yield "numbers", "all finite"  # else it would have been refused
    for name, array, space in _observations(dataset):
        low, high = float(array.min()), float(array.max())
        yield name, f"{_of(space)} {array.dtype}, from {low:.4g} to {high:.4g}"
    yield "actions", str(dataset.action_space)
    for label, text in _coverage(dataset):
        yield f"  {label}", text
    if dataset.columns:
        yield "columns", printable(", ".join(dataset.columns))


def quartiles(values: np.ndarray) -> str:
    """Six numbers: least, quartiles, largest, and mean."""
    six = [*np.quantile(values, [0, 0.25, 0.5, 0.75, 1]), np.mean(values)]
    return "".join(f"{value:>12.5g}" for value in six)


def _observations(dataset: Dataset) -> Iterator[tuple[str, np.ndarray, Any]]:
    space = dataset.observation_space
    if isinstance(dataset.observations, dict):
        assert isinstance(space, spaces.Dict)
        for key, array in dataset.observations.items():
            yield f"observations[{printable(key)}]", array, space[key]
    else:
        yield "observations", dataset.observations, space


def _of(space: spaces.Space) -> str:
    return f"Box{list(space.shape)}" if isinstance(space, spaces.Box) else str(space)


def _coverage(dataset: Dataset) -> Iterator[tuple[str, str]]:
    """Yield the covered share of the action space, for each dimension."""
    space = dataset.action_space
    actions = dataset.actions.reshape(len(dataset), -1)
    width = actions.shape[1]
    for dim in range(min(width, MOST)):
        values = actions[:, dim]
        if not isinstance(space, spaces.Box):
            choices, counts = np.unique(values, return_counts=True)
            shares = ", ".join(f"{c}: {n / len(values):.1%}" for c, n in zip(choices[:MOST], counts, strict=False))
            more = "" if len(choices) <= MOST else f" and {len(choices) - MOST} more"
            yield f"[{dim}]" if width > 1 else "shares", shares + more
            continue
        low, high = space.low.reshape(-1)[dim], space.high.reshape(-1)[dim]
        text = f"from {values.min():.4g} to {values.max():.4g}, mean {values.mean():.4g}, deviation {values.std():.4g}"
        if np.isfinite([low, high]).all() and high > low:
            edge = 0.001 * (high - low)
            at_bounds = np.mean((values <= low + edge) | (values >= high - edge))
            filled = np.count_nonzero(np.histogram(values, BINS, (low, high))[0])
            text += f"; {filled / BINS:.0%} of [{low:.4g}, {high:.4g}] covered, {at_bounds:.1%} at its bounds"
        yield f"[{dim}]", text
    if width > MOST:
        yield "...", f"{width - MOST} more dimensions"


# -- the image -------------------------------------------------------------------------------------------------------


def draw(dataset: Dataset, path: Path) -> Path:
    """Draw returns, lengths, actions and the ranges of observations, and return the file."""
    actions = dataset.actions.reshape(len(dataset), -1)
    panels = min(actions.shape[1], MOST)
    columns = 3
    height = 1 + -(-panels // columns)
    figure = new_figure(4.2 * columns, 3.0 * height)
    axes = figure.subplots(height, columns, squeeze=False)
    _histogram(axes[0][0], dataset.returns, f"Returns of {dataset.n_episodes:,} episodes")
    _lengths(axes[0][1], dataset)
    _ranges(axes[0][2], dataset)
    for dim, place in enumerate(axes[1:].reshape(-1)):
        if dim >= panels:
            place.set_axis_off()
        elif isinstance(dataset.action_space, spaces.Box):
            _histogram(place, actions[:, dim], f"Actions [{dim}]")
        else:
            _choices(place, actions[:, dim], f"Actions [{dim}]" if panels > 1 else "Actions")
    figure.suptitle(f"{dataset.env_id or path.stem}: {len(dataset):,} transitions")
    return write_image(figure, path)


def _histogram(axes: Axes, values: np.ndarray, title: str) -> None:
    axes.hist(values, bins=2 * BINS)
    axes.set_title(title)


def _choices(axes: Axes, values: np.ndarray, title: str) -> None:
    choices, counts = np.unique(values, return_counts=True)
    axes.bar(choices.astype(str), counts)
    axes.set_title(title)


def _lengths(axes: Axes, dataset: Dataset) -> None:
    ends = {"terminal": dataset.terminated, "cut short": ~dataset.terminated}
    found = {name: dataset.lengths[flags] for name, flags in ends.items() if flags.any()}
    axes.hist(list(found.values()), bins=2 * BINS, stacked=True, label=list(found))
    axes.set_title("Lengths, by how episodes ended")
    axes.legend()


def _ranges(axes: Axes, dataset: Dataset) -> None:
    """Least and largest value, and the middle half, of the first dimensions of the observations."""
    name, array, _ = next(_observations(dataset))
    flat = array.reshape(len(array), -1)[:, : 2 * MOST]
    least, low, middle, high, most = np.quantile(flat[:: max(1, len(flat) // 50_000)], [0, 0.25, 0.5, 0.75, 1], axis=0)
    at = np.arange(flat.shape[1])
    axes.vlines(at, least, most, linewidth=1)
    axes.vlines(at, low, high, linewidth=5)
    axes.plot(at, middle, "_", color="black")
    axes.set_title(f"{name.capitalize()}: range and middle half")
    axes.set_xlabel("dimension")
