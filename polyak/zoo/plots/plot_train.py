"""``polyak plot-train``: the episodes of training of one algorithm's runs, with the Zoo's flags."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from polyak.zoo.errors import ZooError
from polyak.zoo.options import option
from polyak.zoo.plots.image_files import can_show, image_file, show_windows, write_image
from polyak.zoo.plots.look import check_fontsize, look_of
from polyak.zoo.plots.plot import PlotOptions, check_axes, draw_panels, read_panels
from polyak.zoo.plots.selection import Selection

_DEFAULT_NAME = "plot_train.png"


@dataclass
class PlotTrainOptions:
    """Plot the episodes of training (monitor.csv), a line for each run; polyak plot compares several algorithms."""

    algo: str = option("", "--algo", "-a", help="The algorithm; her: all that replayed with hindsight. Required.")
    envs: Sequence[str] = option([], "--env", "-e", help="Environments, one panel each. Required.")
    folder: str = option("", "--log-folder", "--exp-folder", "-f", help="The folder of logs. Required.")
    figsize: Sequence[float] = option([6.4, 4.8], "--figsize", help="Width and height of one panel in inches.")
    fontsize: float = option(14.0, "--fontsize", help="Size of the type in points.")
    max_timesteps: int = option(-1, "--max-timesteps", "-max", help="Leave out what came after this step.")
    x_axis: str = option("steps", "--x-axis", "-x", help="steps, episodes or time.")
    y_axis: str = option("reward", "--y-axis", "-y", help="reward, success or length.")
    window: int = option(100, "--episode-window", "-w", help="Episodes in the moving mean.")
    output: str = option(
        "", "--output", "-o", help="Image to write: .png, .svg or .pdf; plot_train.png if there is no screen."
    )


def plot_train(options: PlotTrainOptions) -> Path | None:
    """Draw what `options` ask for; return the image that was written, or None when a window was opened instead.

    Raises ZooError when something required is missing, a choice is unknown, or no run has the wanted data.
    """
    selection = Selection([options.folder or "logs"], [options.algo] if options.algo else [])
    required = {"--algo": options.algo, "--env": options.envs, "--exp-folder": options.folder}
    if absent := [flag for flag, value in required.items() if not value]:
        raise ZooError(f"plot-train needs {' and '.join(absent)}.{selection.listing()}")
    check_axes(options.x_axis, options.y_axis, options.window)
    output = image_file("--output", options.output or _DEFAULT_NAME)
    window = not options.output and can_show()
    look = look_of(options.figsize, fontsize=check_fontsize(options.fontsize), window=window)
    panels = read_panels(
        PlotOptions(
            algos=[options.algo],
            envs=options.envs,
            folders=[options.folder],
            x_axis=options.x_axis,
            y_axis=options.y_axis,
            window=options.window,
            max_timesteps=options.max_timesteps,
            source="train",
        ),
        apart=True,
    )
    with look.applied():
        figure = draw_panels(panels, options.x_axis, options.y_axis, look)
        if window:
            show_windows()
            return None
        path = write_image(figure, output)
    print(f"Wrote {path}")
    return path
