"""``polyak plot --kind table``: which runs it takes, what its table says, and the file that the Zoo reads as well."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from polyak.zoo.errors import ZooError
from polyak.zoo.plots.plot import PlotOptions, plot
from polyak.zoo.plots.results import Results, read_results
from polyak.zoo.plots.tables import read_selected
from tests.zoo.test_cli import run as polyak
from tests.zoo.written_runs import write_run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, without a screen."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    return tmp_path


def write_runs(logs: Path, algo: str, env: str, count: int, level: float, **options: Any) -> list[np.ndarray]:
    """Write `count` runs of 6 evaluations of 3 episodes; return their values."""
    rng = np.random.default_rng(int(level))
    values = [level + rng.normal(0, 20, (6, 3)) for _ in range(count)]
    for number, of_run in enumerate(values, start=1):
        write_run(logs / algo / f"{env}_{number}", [1.0], of_run.tolist(), **options)
    return values


def options(*envs: str, algos: list[str], **others: Any) -> PlotOptions:
    how: dict[str, Any] = {"folders": ["logs"], "no_display": True, **others}
    return PlotOptions("table", algos=algos, envs=list(envs), **how)


def plotted(options: PlotOptions) -> Results:
    """Run the command, and return what it drew."""
    plot(options)
    return read_selected(options)


def test_the_table_is_that_of_brute_force(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = {
        (algo, env): write_runs(here / "logs", algo, env, count, level)
        for algo, env, count, level in (
            ("ppo", "A-v0", 3, 100),
            ("ppo", "B-v0", 2, 2000),
            ("sac", "A-v0", 4, 300),
            ("sac", "B-v0", 2, 50),
        )
    }
    found = plotted(options("A-v0", "B-v0", algos=["ppo", "sac"]))
    cells = {}
    for (algo, env), runs in values.items():
        last = [float(np.mean(run[-1])) for run in runs]
        mean = sum(last) / len(last)
        error = (sum((value - mean) ** 2 for value in last) / len(last)) ** 0.5 / len(last) ** 0.5
        cells[algo, env] = f"{mean:.0f} +/- {error:.0f}"
        here_found = found[env][f"{algo.upper()}-logs"]
        np.testing.assert_allclose(here_found.values, np.stack([run.mean(axis=1) for run in runs], axis=1))
        np.testing.assert_allclose(here_found.last, last)
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert lines[0] == "# results_table"
    assert rows[0] == ["Environments", "PPO", "SAC"]
    assert rows[2:] == [
        ["", "logs", "logs"],
        ["A-v0", cells["ppo", "A-v0"], cells["sac", "A-v0"]],
        ["B-v0", cells["ppo", "B-v0"], cells["sac", "B-v0"]],
    ]
    assert len({len(line) for line in lines if line.startswith("|")}) == 1, "columns of even width"


def test_the_median_and_the_numbers_of_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, level in enumerate((1.0, 2.0, 90.0), start=1):
        write_run(here / "logs/ppo" / f"A-v0_{number}", [1.0], [[level, level]] * 2)
    plot(options("A-v0", algos=["ppo"], median=True, print_n_trials=True))
    printed = capsys.readouterr().out
    assert "|A-v0        |2   |" in printed
    assert "A-v0-PPO-logs: 3" in printed
    for number, share in enumerate((0.5, 0.84), start=1):
        write_run(here / "logs/sac" / f"A-v0_{number}", [1.0], [[share, share]] * 2)
    plot(options("A-v0", algos=["sac"]))
    assert "|A-v0        |0.67 +/- 0.12|" in capsys.readouterr().out, "shares keep two digits"


def test_with_a_name_it_writes_a_file_and_a_images(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(here / "logs", "ppo", "A-v0", 2, 100)
    results = plotted(options("A-v0", algos=["ppo"], output="out/mine", image_format="svg"))
    printed = capsys.readouterr().out
    assert "Wrote out/mine.pkl" in printed
    assert "Wrote out/mine.svg" in printed
    assert "<svg" in Path("out/mine.svg").read_text()[:1000]
    (read,) = read_results("--input", Path("out/mine.pkl"))["A-v0"].values()
    np.testing.assert_array_equal(read.values, results["A-v0"]["PPO-logs"].values)
    np.testing.assert_array_equal(read.x, [100, 200, 300, 400, 500, 600])
    assert sorted(path.name for path in Path("out").iterdir()) == ["mine.pkl", "mine.svg"], "no partial file is left"


def test_a_window_opens_where_there_is_a_screen(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import matplotlib.pyplot as plt

    plt.close("all")  # figures that tests before this one left open
    shown = []
    monkeypatch.setattr("polyak.zoo.plots.plot.can_show", lambda: True)
    monkeypatch.setattr(plt, "show", lambda: shown.append(plt.get_fignums()))
    write_runs(here / "logs", "ppo", "A-v0", 2, 100)
    plot(options("A-v0", algos=["ppo"], no_display=False))
    assert len(shown) == 1
    assert len(shown[0]) == 1
    assert not list(here.glob("*.png"))
    plot(options("A-v0", algos=["ppo"], no_display=False, output="x"))
    assert len(shown) == 2
    assert Path("x.png").is_file()
    assert not plt.get_fignums(), "windows are closed afterwards"


def test_folders_have_labels(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(here / "one", "ppo", "A-v0", 2, 100)
    write_runs(here / "two", "ppo", "A-v0", 2, 500)
    found = plotted(options("A-v0", algos=["ppo"], folders=["one", "two"], labels=["old", "new"]))
    assert list(found["A-v0"]) == ["PPO-old", "PPO-new"]
    assert found["A-v0"]["PPO-old"].y[-1] < 200 < found["A-v0"]["PPO-new"].y[-1]
    assert "|old" in capsys.readouterr().out


def test_an_algorithm_called_her_is_every_run_with_its_buffer(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = here / "logs"
    for algo, number, buffer in (
        ("tqc", 1, "HerReplayBuffer"),
        ("tqc", 2, None),
        ("sac", 1, "stable_baselines3.her.her_replay_buffer.HerReplayBuffer"),
    ):
        run = write_run(logs / algo / f"parking-v0_{number}", [1.0], [[10.0 * number]] * 2)
        (run / "parking-v0").mkdir()
        content = {"policy": "MultiInputPolicy"} | ({"replay_buffer_class": buffer} if buffer else {})
        (run / "parking-v0" / "config.yml").write_text(yaml.safe_dump(content))
    found = plotted(options("parking-v0", algos=["her"]))
    assert found["parking-v0"]["HER-logs"].n_runs == 2
    assert found["parking-v0"]["HER-logs"].last.tolist() == [10.0, 10.0], "run 2 of TQC has another buffer"
    capsys.readouterr()
    assert polyak("all_plots", "-a", "her", "-e", "parking-v0", "-f", "logs/", "--no-display") == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "|Environments|  HER   |",
        "|------------|--------|",
        "|            |logs/   |",
        "|parking-v0  |10 +/- 0|",
        "Wrote all_plots.png",
    ]


def test_missing_runs_are_named_and_left_out(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_runs(here / "logs", "ppo", "A-v0", 2, 100)
    write_runs(here / "logs", "sac", "B-v0", 1, 100)
    (here / "logs/ppo/A-v0_3").mkdir()
    (here / "logs/ppo/A-v0_3/evaluations.npz").write_bytes(b"PK\x03\x04 half of a file")
    plot(options("A-v0", "Z-v0", algos=["ppo", "sca"]))
    captured = capsys.readouterr()
    assert "no evaluations (results) of sca on A-v0 under logs. Did you mean 'sac'?" in captured.err
    assert "A-v0_3/evaluations.npz cannot be read" in captured.err
    assert captured.out.splitlines()[5].replace(" ", "") == "|Z-v0|-|-|"


def test_limits_on_steps(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ppo = here / "logs/ppo"
    write_run(ppo / "A-v0_1", [1.0], [[1.0], [2.0], [3.0], [4.0]])
    write_run(ppo / "A-v0_2", [1.0], [[7.0], [7.0]])
    found = plotted(options("A-v0", algos=["ppo"], max_timesteps=200))["A-v0"]["PPO-logs"]
    assert found.n_runs == 2, "both reach step 200"
    assert found.x.tolist() == [100, 200]
    assert "evaluations after 200 steps are left out" in capsys.readouterr().err
    found = plotted(options("A-v0", algos=["ppo"], max_timesteps=200, min_timesteps=300))["A-v0"]["PPO-logs"]
    assert found.n_runs == 1


@pytest.mark.parametrize("count", [1, 2])
def test_one_run_and_one_evaluation_are_enough(here: Path, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(count):
        write_run(here / f"logs/ppo/A-v0_{number + 1}", [1.0], [[4.0, 6.0]])
    plot(options("A-v0", algos=["ppo"], output="x"))
    assert f"|A-v0        |{'5 (1 run)' if count == 1 else '5 +/- 0'}|" in capsys.readouterr().out
    (read,) = read_results("--input", Path("x.pkl"))["A-v0"].values()
    assert read.last.tolist() == [5.0] * count


def test_a_name_in_part_stands_for_the_only_environment(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for env in ("Hopper-v5", "HopperBullet-v0", "Ant-v4", "Ant-v5"):
        write_runs(here / "logs", "ppo", env, 1, 100)
    assert list(plotted(options("Hopper", algos=["ppo"]))) == ["Hopper"]
    assert "'Hopper' stands for Hopper-v5" in capsys.readouterr().err
    plot(options("Bullet", algos=["ppo"]))
    assert "'Bullet' stands for HopperBullet-v0" in capsys.readouterr().err
    with pytest.raises(ZooError, match="--env 'Ant' could be any of Ant-v4, Ant-v5"):
        plot(options("Ant", algos=["ppo"]))


def test_other_keys_of_the_evaluations(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda self, *args, **kwargs: drawn.append(self))
    write_runs(here / "logs", "ppo", "A-v0", 2, 100)
    found = plotted(options("A-v0", algos=["ppo"], key="ep_lengths", no_million=True))
    assert found["A-v0"]["PPO-logs"].y.tolist() == [10.0] * 6
    (axes,) = drawn[0].axes
    assert axes.get_xlabel() == "Environment steps"
    assert axes.get_ylabel() == "Episode length (steps)"
    plot(options("A-v0", algos=["ppo"]))
    (axes,) = drawn[1].axes
    assert axes.get_xlabel() == "Environment steps", "so few are not counted in millions"
    assert axes.lines[0].get_xdata() == pytest.approx(np.arange(1, 7) * 100)
    assert axes.get_legend().get_texts()[0].get_text() == "PPO (2 runs)"
    with pytest.raises(ZooError, match="'ep_length' is not .* Did you mean 'ep_lengths'.* have ep_lengths, results"):
        plot(options("A-v0", algos=["ppo"], key="ep_length"))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"envs": []}, "Which environment"),
        ({"envs": ["B-v0"]}, "Nothing to plot: no evaluations of B-v0 under logs"),
        ({"labels": ["a", "b"]}, "2 names for 1 folders"),
        ({"folders": ["logs", "logs"]}, "--exp-folders: 'logs' is given twice"),
        ({"output": "x.pdf", "image_format": "png"}, "contradict each other"),
        ({"image_format": "pgn"}, "--format must be one of png, svg, pdf, got 'pgn'. Did you mean 'png'"),
        ({"output": "/proc/x"}, "--output '/proc/x.png' cannot be written"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(here: Path, wrong: dict[str, Any], message: str) -> None:
    write_runs(here / "logs", "ppo", "A-v0", 1, 100)
    before = set(here.rglob("*"))
    with pytest.raises(ZooError, match=message):
        plot(PlotOptions(**({"kind": "table", "envs": ["A-v0"], "algos": ["ppo"], "no_display": True} | wrong)))
    assert set(here.rglob("*")) == before
