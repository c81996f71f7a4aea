"""``polyak plot --kind file``: images, tables, and files that are refused."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak.zoo.errors import ZooError
from polyak.zoo.plots.curves import Curve
from polyak.zoo.plots.plot import PlotOptions, plot
from polyak.zoo.plots.results import Results, names_for_readers, read_results, results_table, write_results


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, without a screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr("polyak.zoo.plots.statistics.N_RESAMPLES", 50)
    return tmp_path


def write_file(name: str, methods: tuple[str, ...] = ("PPO-logs/", "SAC-logs/"), runs: int = 3, steps: int = 4) -> Path:
    rng = np.random.default_rng(0)
    results: Results = {
        env: {
            method: Curve(1000 * np.arange(1, steps + 1), rng.normal(scale, scale / 5, (steps, runs)))
            for method in methods
        }
        for env, scale in (("A_1-v0", 10.0), ("B-v0", 500.0))
    }
    heads = {method: (method.partition("-")[0], method.partition("-")[2]) for method in methods}
    write_results(Path(name), results, results_table(results, heads))
    return Path(name)


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_every_images(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_file("in.pkl")
    written = plot(PlotOptions("file", input="in.pkl", output="out/x", boxplot=True, rliable=True, versus=True))
    parts = ("", "_curves", "_boxplot", "_aggregates", "_profiles", "_efficiency", "_improvement")
    assert names(written) == [f"x{part}.svg" for part in parts]
    for path in written:
        assert "<svg" in path.read_text()[:1000]
    printed = capsys.readouterr().out
    assert printed.count("Wrote out/x") == 7
    assert "|Environments|" in printed


@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), pytest.param("pdf", b"%PDF", marks=pytest.mark.slow)]
)
def test_formats(here: Path, suffix: str, start: bytes) -> None:
    write_file("in.pkl")
    assert names(plot(PlotOptions("file", input="in.pkl", skip_timesteps=True, image_format=suffix))) == [
        f"plot_from_file.{suffix}"
    ]
    one = {"skip_timesteps": True} if suffix != "svg" else {"iqm": True}
    parts = ("",) if suffix != "svg" else ("", "_curves", "_efficiency")
    written = plot(PlotOptions("file", input="in.pkl", output=f"y.{suffix}", **one))  # type: ignore[arg-type]
    assert names(written) == [f"y{part}.{suffix}" for part in parts]
    assert Path(f"y.{suffix}").read_bytes().startswith(start)


def test_one_run_of_one_evaluation_is_drawn(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_file("in.pkl", runs=1, steps=1)
    written = plot(PlotOptions("file", input="in.pkl", boxplot=True, rliable=True, versus=True))
    assert len(written) == 7
    assert "only one run of PPO, SAC" in capsys.readouterr().err
    write_file("in.pkl", methods=("PPO-logs/",), runs=1)
    assert len(plot(PlotOptions("file", input="in.pkl"))) == 2


def test_choosing_naming_and_merging(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_file("a.pkl", ("PPO-logs/", "SAC-logs/", "TD3-logs/"))
    write_file("b.pkl", ("PPO-logs/", "DQN-more"))
    chosen = {"skip_keys": ["SAC-logs/"], "skip_envs": ["B-v0"], "skip_timesteps": True}
    plot(PlotOptions("file", input="a.pkl", merge=["b.pkl"], **chosen))  # type: ignore[arg-type]
    captured = capsys.readouterr()
    assert "PPO-logs/ on A_1-v0 is in both files; the one of b is called 'PPO-logs/ (b)'." in captured.err
    head, second = (captured.out.splitlines()[line].strip("|").split("|") for line in (1, 3))
    assert [cell.strip() for cell in head] == ["Environments", "PPO", "TD3", "PPO", "DQN"]
    assert [cell.strip() for cell in second] == ["", "logs/", "logs/", "logs/ (b)", "more"]
    assert "B-v0" not in captured.out
    plot(
        PlotOptions(
            "file", input="a.pkl", keep_keys=["TD3-logs/", "PPO-logs/"], keep_envs=["B-v0"], labels=["mine", "yours"]
        )
    )
    printed = capsys.readouterr().out
    assert [cell.strip() for cell in printed.splitlines()[1].split("|")[1:-1]] == ["Environments", "mine", "yours"]
    assert "A_1-v0" not in printed


def test_the_table_in_latex(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_file("in.pkl")
    plot(PlotOptions("file", input="in.pkl", latex=True, skip_timesteps=True))
    printed = capsys.readouterr().out
    found = read_results("--input", Path("in.pkl"))["A_1-v0"]["PPO-logs/"]
    assert r"\begin{tabular}" in printed
    assert r"A\_1-v0 & " + rf"{found.y[-1]:.0f} $\pm$ {found.std_error[-1]:.0f} & " in printed
    assert " & PPO & SAC " in printed
    assert " & logs/ & logs/ " in printed


class Evil:
    """Would make a file when unpickled."""

    def __reduce__(self) -> Any:
        return os.mkdir, ("made_by_the_pickle",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"A": {"PPO": Evil()}}), "is refused: the file names posix.mkdir"),
        (b"not a pickle", "is damaged, or no file of all-plots"),
        (pickle.dumps([1, 2]), "is not laid out as files of all-plots are"),
        (pickle.dumps({"A": {"PPO": {"timesteps": np.arange(3)}}}), "mean_per_eval"),
        (pickle.dumps({"results_table": {"headers": [], "value_matrix": []}}), "it holds no evaluations"),
        (
            pickle.dumps({"A": {"PPO": {"timesteps": np.arange(3), "mean_per_eval": np.zeros((2, 2))}}}),
            r"timesteps have the shape \(3,\), mean_per_eval \(2, 2\)",
        ),
    ],
)
def test_files_that_are_refused(here: Path, content: bytes, message: str) -> None:
    Path("in.pkl").write_bytes(content)
    with pytest.raises(ZooError, match=message):
        plot(PlotOptions("file", input="in.pkl"))
    assert [path.name for path in here.iterdir()] == ["in.pkl"], "nothing was run, nothing written"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"input": ""}, "needs --input"),
        ({"input": "no.pkl"}, "--input 'no.pkl' cannot be read: No such file"),
        ({"merge": ["no.pkl"]}, "--merge 'no.pkl' cannot be read"),
        ({"skip_keys": ["SAC-logs"]}, "--skip-keys 'SAC-logs' is not in the file. Did you mean 'SAC-logs/'"),
        ({"keep_envs": ["C-v0"]}, "--keep-envs 'C-v0' is not in the file"),
        ({"keep_envs": ["B-v0"], "skip_envs": ["B-v0"]}, "Nothing is left"),
        ({"labels": ["one"]}, "--labels takes a different name for each of 'PPO-logs/', 'SAC-logs/'; got 'one'"),
        ({"ci_size": 95}, "--ci-size is the level"),
        ({"legend_loc": "upper lift"}, "--legend-loc must be one of .*Did you mean 'upper left'"),
        ({"figsize": [1.0]}, "--figsize takes a width and a height"),
        ({"fontsize": 0}, "--fontsize is in points"),
        ({"image_format": "gif"}, "--format must be one of png, svg, pdf"),
        ({"output": "/proc/x"}, "--output '/proc/x.svg' cannot be written"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(here: Path, wrong: dict[str, Any], message: str) -> None:
    write_file("in.pkl")
    with pytest.raises(ZooError, match=message):
        plot(PlotOptions(**({"kind": "file", "input": "in.pkl"} | wrong)))
    assert [path.name for path in here.iterdir()] == ["in.pkl"]


def test_a_legend_below_several_panels_names_each_method_once(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: drawn.append(self))
    write_file("in.pkl")
    plot(PlotOptions("file", input="in.pkl", figsize=[3.0, 2.0], fontsize=8.0))
    curves = drawn[1]
    (legend,) = curves.legends
    assert [text.get_text() for text in legend.get_texts()] == ["PPO (3 runs)", "SAC (3 runs)"]
    assert [axes.get_title() for axes in curves.axes] == ["A_1-v0", "B-v0"]
    width, height = curves.get_size_inches()
    assert width == 6.0
    assert 2.0 < height < 2.5, "room for the legend is added"
    colours = {line.get_color() for axes in curves.axes for line in axes.lines}
    assert len(colours) == 2
    plot(PlotOptions("file", input="in.pkl", legend_loc="upper left"))
    assert all(axes.get_legend() is not None for axes in drawn[3].axes)


def test_methods_are_called_by_what_sets_them_apart() -> None:
    def names(*methods: str) -> list[str]:
        return list(names_for_readers(methods).values())

    assert names("PPO-logs/", "A2C-logs/") == ["PPO", "A2C"]
    assert names("PPO-old/", "PPO-new") == ["PPO old", "PPO new"]
    assert names("PPO-a/", "PPO-a") == ["PPO-a/", "PPO-a"], "two of one name would be one"
    assert names("PPO-logs/", "my method") == ["PPO-logs/", "my method"]
    assert names("ours-fast", "ours-slow") == ["ours-fast", "ours-slow"]
