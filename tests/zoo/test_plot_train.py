"""``polyak plot-train``: the Zoo's flags, a image or a window."""

from pathlib import Path
from typing import Any

import pytest

from polyak.zoo.errors import ZooError
from polyak.zoo.plots.plot_train import PlotTrainOptions, plot_train
from tests.zoo.written_runs import write_run


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of two environments, in a folder to work in, without a screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    for env in ("A-v0", "B-v0"):
        write_run(tmp_path / "logs/ppo" / f"{env}_1", [1.0, 2.0, 3.0, 4.0])
    return tmp_path / "logs"


def options(**others: Any) -> PlotTrainOptions:
    return PlotTrainOptions(**({"algo": "ppo", "envs": ["A-v0", "B-v0"], "folder": "logs"} | others))


def test_the_images(logs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: drawn.append(self))
    path = plot_train(options(x_axis="episodes", window=2, max_timesteps=30, figsize=[3.0, 2.0], fontsize=9.0))
    assert str(path) == "plot_train.png"
    assert "Wrote plot_train.png" in capsys.readouterr().out
    (figure,) = drawn
    assert [axes.get_title() for axes in figure.axes] == ["A-v0", "B-v0"]
    assert figure.get_size_inches()[0] == 6.0, "3 inches a panel"
    (line,) = figure.axes[0].lines
    assert line.get_xdata().tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert line.get_ydata().tolist() == [1.0, 1.5, 2.5]  # type: ignore[union-attr]
    assert figure.axes[0].xaxis.label.get_fontsize() == 9.0


def test_a_window_opens_where_there_is_a_screen(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    shown = []
    monkeypatch.setattr("polyak.zoo.plots.plot_train.can_show", lambda: True)
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.get_fignums()))
    assert plot_train(options()) is None
    assert len(shown[0]) == 1
    assert not plt.get_fignums(), "windows are closed afterwards"
    assert not list(logs.parent.glob("*.png"))
    path = plot_train(options(output="out/x.svg"))
    assert path is not None
    assert "<svg" in path.read_text()[:1000]
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"algo": "", "folder": ""}, "plot-train needs --algo and --exp-folder"),
        ({"envs": []}, r"plot-train needs --env.\nRuns found:\n  logs/ppo: A-v0 \(1\), B-v0 \(1\)"),
        ({"envs": ["C-v0"]}, "Nothing to plot"),
        ({"y_axis": "succes"}, "--y-axis must be one of .* Did you mean 'success'"),
        ({"x_axis": "epoch"}, "--x-axis must be one of steps, episodes, time"),
        ({"window": 0}, "--episode-window must be at least 1"),
        ({"fontsize": 0.0}, "--fontsize is in points"),
        ({"figsize": [1.0]}, "--figsize takes a width and a height"),
        ({"output": "x.docx"}, "--output 'x.docx': images end in .png, .svg, .pdf"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(logs: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ZooError, match=message):
        plot_train(options(**wrong))
    assert [path.name for path in logs.parent.iterdir()] == ["logs"]
