"""Learning curves."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from polyak.zoo.errors import ZooError
from polyak.zoo.plots.curves import Curve, evaluation_curve, moving_mean, time_unit, training_curve
from polyak.zoo.plots.drawing import draw_curves, step_axis
from polyak.zoo.plots.look import Look
from polyak.zoo.plots.plot import PlotOptions, plot, read_panels
from tests.pairs import one_of_each
from tests.zoo.written_runs import write_run


def test_moving_mean() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    assert moving_mean(values, 2).tolist() == [1.0, 1.5, 2.5, 3.5, 4.5]
    assert moving_mean(values, 1).tolist() == values.tolist()
    assert moving_mean(values, 100).tolist() == [1.0, 1.5, 2.0, 2.5, 3.0]


def test_training_curve(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [1.0, 3.0, 5.0])
    curve = training_curve(run, "steps", "reward", window=2)
    assert curve is not None
    assert curve.x.tolist() == [10, 20, 30]
    assert curve.y.tolist() == [1.0, 2.0, 4.0]
    seconds = training_curve(run, "time", "length", window=1)
    assert seconds is not None
    assert seconds.x.tolist() == [36, 72, 108]
    assert seconds.y.tolist() == [10, 10, 10]
    cut = training_curve(run, "episodes", "reward", window=1, max_timesteps=20)
    assert cut is not None
    assert cut.x.tolist() == [1, 2]
    assert training_curve(run, "steps", "success", window=1) is None
    assert training_curve(tmp_path, "steps", "reward", window=1) is None


def test_evaluation_curve_over_runs(tmp_path: Path) -> None:
    a = write_run(tmp_path / "a", [1.0], [[0.0, 2.0], [4.0, 6.0], [9.0, 9.0]])
    b = write_run(tmp_path / "b", [1.0], [[3.0, 3.0], [7.0, 7.0], [9.0, 9.0]])
    c = write_run(tmp_path / "c", [1.0], [[70.0, 70.0]])
    curve = evaluation_curve([a, b, c, tmp_path], "reward")
    assert curve is not None
    assert curve.n_runs == 2
    assert curve.x.tolist() == [100, 200, 300]
    assert curve.y.tolist() == [2.0, 6.0, 9.0]
    assert curve.remark == "left out c (ended before the others)."
    assert curve.error == pytest.approx([0.5**0.5, 0.5**0.5, 0.0])  # means 1, 3 and 5, 7: of the population, as the Zoo
    assert [run.y.tolist() for run in curve.runs] == [[1.0, 5.0, 9.0], [3.0, 7.0, 9.0], [70.0]]
    single = evaluation_curve([a], "reward")
    assert single is not None
    assert single.error is None, "episodes of one run say nothing of other runs"
    assert evaluation_curve([a], "success") is None
    assert evaluation_curve([tmp_path], "reward") is None


def test_evaluations_are_joined_by_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs that both return a hundredth of the step: however their evaluations lie, so does their mean."""
    logs = tmp_path / "logs" / "ppo"
    write_run(logs / "X-v0_1", [1.0], [[1.0], [2.0], [3.0], [4.0]], every=100)
    write_run(logs / "X-v0_2", [1.0], [[1.5], [3.0], [4.5]], every=150)
    curve = evaluation_curve([logs / "X-v0_1", logs / "X-v0_2"], "reward")
    assert curve is not None
    assert curve.x.tolist() == [150, 200, 300, 400]
    np.testing.assert_allclose(curve.y, curve.x / 100)
    np.testing.assert_allclose(curve.error, 0, atol=1e-12)
    options = PlotOptions(
        envs=["X-v0"], folders=[str(tmp_path / "logs")], source="eval", output=str(tmp_path / "x.png")
    )
    plot(options)
    said = capsys.readouterr().err
    assert "X-v0_1: 4 from 100 to 400; X-v0_2: 3 from 150 to 450" in said
    assert "interpolated, and the curve goes from 150 to 400" in said

    write_run(logs / "X-v0_3", [1.0], [[6.0]], every=450)
    with pytest.raises(ZooError, match="no stretch in common, .*: X-v0_1: 4 from 100 .* X-v0_3: 1 from 450 "):
        plot(options)


@pytest.mark.parametrize(
    ("seconds", "unit"), [(30, "Seconds"), (119, "Seconds"), (121, "Minutes"), (7100, "Minutes"), (7300, "Hours")]
)
def test_the_unit_of_time_suits_the_longest_run(seconds: float, unit: str) -> None:
    curves = [Curve(np.array([1.0, 2.0]), np.zeros(2), "short"), Curve(np.array([5.0, seconds]), np.zeros(2), "long")]
    name, length = time_unit(curves)
    assert name == unit
    assert 1.9 < seconds / length < 120


def test_the_axis_of_time_is_drawn_in_its_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: drawn.append(self))
    write_run(tmp_path / "ppo" / "X-v0_1", [1.0] * 10)  # 360 s
    plot(PlotOptions(envs=["X-v0"], folders=[str(tmp_path)], x_axis="time", output=str(tmp_path / "x.png")))
    (axes,) = drawn[0].axes
    assert axes.get_xlabel() == "Minutes of wall time"
    assert axes.lines[0].get_xdata() == pytest.approx(np.arange(1, 11) * 0.6)


def test_what_is_missing_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "ppo" / "X-v0_1", [1.0, 2.0])
    write_run(tmp_path / "sac" / "X-v0_1", [1.0, 2.0])
    common = {"folders": [str(tmp_path)], "output": str(tmp_path / "x.png")}
    plot(PlotOptions(algos=["ppo", "sca"], envs=["X-v0", "Y-v0"], **common))  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert f"left out: no data of sca on X-v0 under {tmp_path}. Did you mean 'sac'?" in said
    assert "left out: no data on Y-v0" in said
    everything = f"\nRuns found:\n  {tmp_path}/ppo: X-v0 (1)\n  {tmp_path}/sac: X-v0 (1)"
    for envs, begin in ((["X-v0"], "Nothing to plot: no data (reward) of X-v0"), ([], "Which environment?")):
        with pytest.raises(ZooError) as raised:
            plot(PlotOptions(algos=["sca"], envs=envs, **common))  # type: ignore[arg-type]
        assert str(raised.value).startswith(begin)
        assert str(raised.value).endswith(f" There are none of sca. Did you mean 'sac'?{everything}")


# -- the mean of runs, and what the image shows of it ----------------------------------------------------------------


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are drawn; no file is written."""
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: figures.append(self))
    return figures


def options(folder: Path, *envs: str, **others: Any) -> PlotOptions:
    return PlotOptions(envs=list(envs or ["X-v0"]), folders=[str(folder)], output=str(folder / "x.png"), **others)


def table_of(folder: Path, algos: list[str] | None = None) -> PlotOptions:
    others: dict[str, Any] = {"algos": algos or [], "no_display": True, "output": str(folder / "t")}
    return PlotOptions("table", envs=["X-v0"], folders=[str(folder)], **others)


def inside(figure: Figure, artist: Any) -> bool:
    """Whether an artist lies within the image, once all is laid out."""
    figure.canvas.draw()
    box = artist.get_window_extent()
    width, height = figure.get_size_inches() * figure.dpi
    return bool(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height)


def legend_of(figure: Figure) -> Any:
    return figure.legends[0] if figure.legends else figure.axes[0].get_legend()


def test_one_curve_an_algorithm_with_its_error_over_runs(tmp_path: Path, drawn: list[Figure]) -> None:
    for number in range(10):
        write_run(tmp_path / "ppo" / f"X-v0_{number + 1}", [float(number), float(number + 10)])
    write_run(tmp_path / "sac" / "X-v0_1", [1.0, 2.0])
    plot(options(tmp_path, window=1))
    (axes,) = drawn[0].axes
    assert [text.get_text() for text in legend_of(drawn[0]).get_texts()] == ["PPO (10 runs)", "SAC"]
    ppo, sac = axes.lines
    assert ppo.get_xdata().tolist() == [10, 20]  # type: ignore[union-attr]
    assert ppo.get_ydata().tolist() == [4.5, 14.5]  # type: ignore[union-attr]
    assert ppo.get_color() != sac.get_color()
    (band,) = axes.collections  # a single run has none
    error = np.std(np.arange(10)) / 10**0.5
    heights = band.get_paths()[0].vertices[:, 1]  # type: ignore[index]
    assert (heights.min(), heights.max()) == pytest.approx((4.5 - error, 14.5 + error))


def test_each_run_is_a_thin_line_of_its_algorithms_colour(tmp_path: Path, drawn: list[Figure]) -> None:
    for algo in ("ppo", "sac"):
        for number in range(3):
            write_run(tmp_path / algo / f"X-v0_{number + 1}", [float(number), 5.0], [[1.0], [float(number)]])
    for source in ("train", "eval"):
        plot(options(tmp_path, each_run=True, source=source))
        (axes,) = drawn[-1].axes
        assert len(axes.lines) == 8, "three runs and their mean, twice"
        assert len({line.get_color() for line in axes.lines}) == 2
        assert not axes.collections
        assert len(legend_of(drawn[-1]).get_texts()) == 2


def test_runs_that_ended_early_are_left_out_of_the_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, count in enumerate((40, 40, 8), start=1):
        write_run(tmp_path / "ppo" / f"X-v0_{number}", [float(number)] * count)
    (curve,) = read_panels(options(tmp_path))["X-v0"]
    assert (curve.n_runs, curve.x[-1], curve.y[-1]) == (2, 400, 1.5)
    assert len(curve.runs) == 3
    assert "PPO: left out run PPO 3 (ended before the others)." in capsys.readouterr().err
    (curve,) = read_panels(options(tmp_path, max_timesteps=80))["X-v0"]
    assert curve.n_runs == 3, "all came so far"
    assert not capsys.readouterr().err


def test_a_mean_over_episodes_ends_with_the_run_that_had_fewest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, length in enumerate((10, 40), start=1):
        run = write_run(tmp_path / "ppo" / f"X-v0_{number}", [1.0] * (400 // length))
        file = run / "0.monitor.csv"
        file.write_text(file.read_text().replace(",10,", f",{length},"))
    (curve,) = read_panels(options(tmp_path, x_axis="episodes"))["X-v0"]
    assert (curve.n_runs, curve.x[-1]) == (2, 10)
    assert "PPO: the mean ends where the first run does, at 10 of 40." in capsys.readouterr().err
    (curve,) = read_panels(options(tmp_path))["X-v0"]
    assert (curve.n_runs, curve.x[0], curve.x[-1]) == (2, 40, 400)


def test_long_runs_are_drawn_from_as_many_points_as_show(tmp_path: Path) -> None:
    for number in (1, 2):
        write_run(tmp_path / "ppo" / f"X-v0_{number}", [float(i) for i in range(3000)])
    (curve,) = read_panels(options(tmp_path, window=1))["X-v0"]
    assert len(curve.x) == 1000
    np.testing.assert_allclose(curve.y, curve.x / 10 - 1)


@pytest.mark.parametrize(("n_algos", "fontsize"), [(12, 10.0), (7, 24.0)])
def test_a_legend_lies_within_the_images(n_algos: int, fontsize: float) -> None:
    curves = [Curve(np.arange(3.0), np.zeros(3), f"{'W' * (1 + 3 * i)}") for i in range(n_algos)]
    for panels in ({"A": curves}, {"A": curves, "B": curves}, {"A": [Curve(np.arange(3.0), np.zeros(3), "W" * 90)]}):
        look = Look(fontsize=fontsize)
        with look.applied():
            figure = draw_curves(panels, "x", "y", look)
            assert inside(figure, legend_of(figure))


@pytest.mark.parametrize(
    ("last", "no_million", "label", "ticks"),
    [
        (4000, False, "Environment steps", "4000"),
        (200_000, False, "Environment steps", "200k"),
        (2_000_000, False, "Environment steps (millions)", "2.00"),
        (2_000_000, True, "Environment steps", "2M"),
        (3, False, "Environment steps", "3"),
    ],
)
def test_steps_are_read_in_a_unit_that_suits_them(last: int, no_million: bool, label: str, ticks: str) -> None:
    panels = {"A": [Curve(np.linspace(0, last, 4), np.zeros(4), "PPO")]}
    name, unit = step_axis(no_million, panels)
    assert name == label
    look = Look()
    with look.applied():
        figure = draw_curves(panels, name, "y", look, unit)
        figure.canvas.draw()
    shown = [text.get_text() for text in figure.axes[0].get_xticklabels()]
    assert ticks in shown
    halves = [text for text in shown if "." in text and unit == 1.0 and text[-1] not in "kM"]
    assert not halves, "there are no halves of steps"


def test_what_learned_from_a_file_counts_gradient_steps(tmp_path: Path, drawn: list[Figure]) -> None:
    for algo, dataset in (("cql", "data.npz"), ("ppo", "")):
        run = write_run(tmp_path / algo / "X-v0_1", [1.0], [[1.0], [2.0]])
        (run / "X-v0").mkdir()
        (run / "X-v0" / "args.yml").write_text(f"dataset: '{dataset}'\n")
    for algos, label in (
        (["cql"], "Gradient steps"),
        (["ppo"], "Environment steps"),
        ([], "Environment or gradient steps"),
    ):
        plot(options(tmp_path, algos=algos, source="eval"))
        plot(table_of(tmp_path, algos))
        assert [figure.axes[0].get_xlabel() for figure in drawn[-2:]] == [label] * 2


def test_a_folder_is_named_where_there_are_several(tmp_path: Path, drawn: list[Figure]) -> None:
    for folder in ("old/", "new/"):
        write_run(tmp_path / folder / "ppo" / "X-v0_1", [1.0], [[1.0]])
    several = PlotOptions(
        envs=["X-v0"],
        folders=[f"{tmp_path}/old/", f"{tmp_path}/new/"],
        labels=["old/", "new/"],
        output=str(tmp_path / "x.png"),
    )
    plot(several)
    assert [text.get_text() for text in legend_of(drawn[0]).get_texts()] == ["PPO old", "PPO new"]


# -- several commands, one number --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_runs", [1, 2, 5])
def test_the_table_of_evaluations_says_what_all_plots_says(
    tmp_path: Path, n_runs: int, capsys: pytest.CaptureFixture[str], drawn: list[Figure]
) -> None:
    rng = np.random.default_rng(n_runs)
    for number in range(n_runs):
        write_run(tmp_path / "ppo" / f"X-v0_{number + 1}", [1.0], (200 + rng.normal(0, 40, (3, 10))).tolist())
    write_run(tmp_path / "ppo" / "X-v0_9", [1.0], [[9.0]])  # killed
    plot(options(tmp_path, source="eval"))
    ours = capsys.readouterr().out.splitlines()[2].split("|")[2]
    plot(table_of(tmp_path))
    theirs = capsys.readouterr().out.splitlines()[4].split("|")[2]
    if n_runs == 1:
        assert "+/-" not in ours + theirs, "one run has no error over runs"
        assert ours.strip().endswith("(1 run)")
        assert theirs.strip().endswith("(1 run)")
    numbers = [[float(word) for word in re.findall(r"[\d.]+", text.partition("(")[0])] for text in (ours, theirs)]
    assert [round(value) for value in numbers[0]] == pytest.approx(numbers[1], abs=1)  # 0.5 may be rounded twice
    assert len(drawn[0].axes[0].collections) == len(drawn[1].axes[0].collections) == (n_runs > 1)


def test_where_nothing_acted_its_evaluations_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "cql" / "X-v0_1", [], [[1.0], [2.0]])
    (run / "0.monitor.csv").unlink()
    write_run(tmp_path / "ppo" / "X-v0_1", [1.0, 2.0])
    cql, ppo = read_panels(options(tmp_path))["X-v0"]
    assert (cql.label, cql.x.tolist(), cql.y.tolist()) == ("CQL", [100, 200], [1.0, 2.0])
    assert ppo.x.tolist() == [10, 20]
    assert "CQL: there are no episodes of training; these are its evaluations" in capsys.readouterr().err
    with pytest.raises(ZooError, match=r"no train data \(reward\).*The runs have evaluations: try .*--source eval"):
        read_panels(options(tmp_path, algos=["cql"], source="train"))
    with pytest.raises(ZooError, match="The runs have evaluations"):
        plot(options(tmp_path, kind="training", algos=["cql"]))
    with pytest.raises(ZooError, match="The runs have episodes of training: try polyak plot --source train"):
        read_panels(options(tmp_path, algos=["ppo"], source="eval"))
    with pytest.raises(ZooError, match="polyak plot --source train"):
        plot(table_of(tmp_path, ["ppo"]))
    with pytest.raises(ZooError, match="or another --y-axis"):
        read_panels(options(tmp_path, algos=["ppo"], y_axis="success"))


@pytest.mark.parametrize("suffix", one_of_each(["png", "svg"], "png"))
def test_images(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs = tmp_path / "logs"
    write_run(logs / "ppo" / "CartPole-v1_1", [1.0, 2.0], [[1.0], [3.0]])
    write_run(logs / "ppo" / "CartPole-v1_2", [3.0, 4.0], [[3.0], [6.0]])
    write_run(logs / "ppo" / "CartPole-v10_1", [99.0], [[99.0]])
    output = tmp_path / "out" / f"curve.{suffix}"
    folders = [str(logs)]
    assert plot(PlotOptions(envs=["CartPole-v1"], folders=folders, output=str(output))) == [output]
    assert output.stat().st_size > 1000
    plot(PlotOptions(algos=["ppo"], envs=["CartPole-v1"], folders=folders, source="eval", output=str(output)))
    printed = capsys.readouterr().out
    assert "|CartPole-v1|4.5 +/- 1.1|" in printed
    assert f"Wrote {output}" in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"x_axis": "step"}, "--x-axis must be one of steps, episodes, time, got 'step'. Did you mean 'steps'"),
        ({"y_axis": "return"}, "--y-axis"),
        ({"source": "both"}, "--source must be one of train, eval"),
        ({"envs": []}, "Which environment"),
        ({"window": 0}, "--episode-window must be at least 1"),
        ({"source": "eval", "x_axis": "time"}, "knows only --x-axis steps"),
        ({"labels": ["a", "b"]}, "2 names for 1 folders"),
        ({"figsize": [1.0]}, "--figsize"),
        ({"envs": ["CartPole-v2"]}, r"Did you mean 'CartPole-v1'\?\nRuns found:\n  .*ppo: CartPole-v1 \(1\)"),
        ({"output": "x.docx"}, "--output 'x.docx': images end in .png, .svg, .pdf"),
        ({"kind": "curve"}, "--kind must be one of curves, training, table, file, got 'curve'. Did you mean 'curves'"),
        ({"key": "results_"}, "--key means nothing to --kind curves, only to table"),
        ({"kind": "file", "input": "x.pkl"}, "--env means nothing to --kind file, only to curves and "),
        ({"kind": "training", "source": "eval"}, "--source means nothing to --kind training, only to curves"),
        ({"fontsize": 0.0}, "--fontsize is in points"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, options: dict[str, object], message: str) -> None:
    write_run(tmp_path / "ppo" / "CartPole-v1_1", [1.0, 2.0])
    with pytest.raises(ZooError, match=message):
        plot(PlotOptions(**{"envs": ["CartPole-v1"], "folders": [str(tmp_path)], **options}))  # type: ignore[arg-type]


# -- a line for each run -----------------------------------------------------------------------------------------------


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of two environments, in a folder to work in, without a screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    for env in ("A-v0", "B-v0"):
        write_run(tmp_path / "logs/ppo" / f"{env}_1", [1.0, 2.0, 3.0, 4.0])
    return tmp_path / "logs"


def test_the_images_of_training(logs: Path, drawn: list[Figure], capsys: pytest.CaptureFixture[str]) -> None:
    how: dict[str, Any] = {"x_axis": "episodes", "window": 2, "max_timesteps": 30, "figsize": [3.0, 2.0]}
    assert plot(PlotOptions("training", ["ppo"], ["A-v0", "B-v0"], fontsize=9.0, **how)) == [Path("plot_train.png")]
    assert "Wrote plot_train.png" in capsys.readouterr().out
    (figure,) = drawn
    assert [axes.get_title() for axes in figure.axes] == ["A-v0", "B-v0"]
    assert figure.get_size_inches()[0] == 6.0, "3 inches a panel"
    (line,) = figure.axes[0].lines
    assert line.get_xdata().tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert line.get_ydata().tolist() == [1.0, 1.5, 2.5]  # type: ignore[union-attr]
    assert figure.axes[0].xaxis.label.get_fontsize() == 9.0
