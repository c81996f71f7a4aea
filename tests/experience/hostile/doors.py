"""What reads files of data, each as a function of a path that returns what is said of it; errors go through."""

import contextlib
import io
import json
import warnings
from pathlib import Path
from typing import Any

REFUSALS = (
    "ArgumentError",
    "MisfitError",
    "DatasetError",
    "ValueError",
    "ZooError",
    "UntrustedError",
    "LoadMonitorResultsError",
    "FileNotFoundError",
)
"""The kinds of errors that are for a person to read."""


def dataset(path: Path) -> str:
    from polyak.experience import Dataset

    return repr(Dataset.load(path))


def data_show(path: Path) -> str:
    """The command, with its table and its picture."""
    from polyak.zoo.data.show import ShowOptions, show

    return repr(show(ShowOptions(path=str(path), output=str(path.parent / "shown.png"))))


def replay(path: Path) -> str:
    from polyak import DQN

    model = DQN("MlpPolicy", "CartPole-v1", buffer_size=64, device="cpu", policy_kwargs={"net_arch": [4]})
    model.load_replay_buffer(path)
    assert model.replay_buffer is not None
    return f"{model.replay_buffer.size()} rows"


def report(logs: Path) -> str:
    """What the page says that could not be read; and the page."""
    from polyak.zoo.report.figures import read_page
    from polyak.zoo.report.page import render

    data = read_page(logs)
    problems = [f"{problem['file']}: {problem['reason']}" for problem in data.pop("problems")]
    page = json.dumps(data["figures"], allow_nan=False) + render({**data, "problems": []}, live=False)
    assert "the secret" not in page
    assert "424242424242" not in page
    return f"left out: {problems}"


def _plot(logs: Path, source: str) -> str:
    from polyak.zoo.errors import ZooError
    from polyak.zoo.plots.plot import PlotOptions, plot

    options: dict[str, Any] = {"envs": ["X-v0"], "folders": [str(logs)], "source": source}
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            plot(PlotOptions(output=str(logs.parent / "curve.png"), **options))
        except ZooError as error:
            return f"left out: {said.getvalue()} {error}"
    return f"accepted {said.getvalue()}"


def plot(logs: Path) -> str:
    return _plot(logs, "train")


def plot_eval(logs: Path) -> str:
    return _plot(logs, "eval")


def all_plots(logs: Path) -> str:
    from polyak.zoo.plots.plot import PlotOptions, plot

    options = PlotOptions("table", envs=["X-v0"], folders=[str(logs)], output=str(logs.parent / "all"))
    with contextlib.redirect_stderr(io.StringIO()) as said:
        try:
            plot(options)
        except Exception as error:
            if type(error).__name__ != "ZooError":
                raise
            return f"left out: {said.getvalue()} {error}"
    return f"accepted {said.getvalue()}"


def from_file(path: Path) -> str:
    from polyak.zoo.plots.plot import PlotOptions, plot

    return repr(plot(PlotOptions("file", input=str(path), output=str(path.parent / "drawn"))))


def journal(path: Path) -> str:
    from polyak.zoo.tuning.studies import open_storage

    return repr(open_storage(str(path)))


def benchmark(logs: Path) -> str:
    from benchmarks.suites.results import find_results

    return repr(find_results(logs))


def read(door: str, path: Path) -> str:
    """Read a path through the door of that name, quietly."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return str(globals()[door](path))
