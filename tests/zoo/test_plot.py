"""Learning curves."""

from pathlib import Path

import numpy as np
import pytest

from polyak.zoo.errors import ZooError
from polyak.zoo.plots.curves import Curve, evaluation_curve, moving_mean, time_unit, training_curve
from polyak.zoo.plots.plot import PlotOptions, plot
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
    b = write_run(tmp_path / "b", [1.0], [[3.0, 3.0], [7.0, 7.0]])
    curve = evaluation_curve([a, b, tmp_path], "reward")
    assert curve is not None
    assert curve.n_runs == 2
    assert curve.x.tolist() == [100, 200]  # ends with the shorter run
    assert curve.y.tolist() == [2.0, 6.0]
    assert "at different steps (a: 3 from 100 to 300; b: 2 from 100 to 200)" in curve.remark
    assert curve.error == pytest.approx([1.0, 1.0])  # means 1, 3 and 5, 7: standard error sqrt(2) / sqrt(2)
    single = evaluation_curve([a], "reward")
    assert single is not None
    assert single.error == pytest.approx([1.0, 1.0, 0.0])
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

    write_run(logs / "X-v0_3", [1.0], [[6.0], [12.0]], every=600)
    with pytest.raises(ZooError, match="no steps in common: X-v0_1: 4 from 100 to 400;.* X-v0_3: 2 from 600 to 1,200"):
        plot(options)


def test_equal_grids_are_joined_without_a_word(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, [1.0], [[level], [level]]) for name, level in (("a", 1.0), ("b", 3.0))]
    curve = evaluation_curve(runs, "reward")
    assert curve is not None
    assert (curve.remark, curve.x.tolist(), curve.y.tolist()) == ("", [100, 200], [2.0, 2.0])


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
    assert f"left out: no train data of sca on X-v0 under {tmp_path}. Did you mean 'sac'?" in said
    assert "left out: no train data on Y-v0" in said
    with pytest.raises(ZooError, match="Nothing to plot"):
        plot(PlotOptions(algos=["td3"], envs=["X-v0"], **common))  # type: ignore[arg-type]


def test_without_an_environment_the_runs_are_listed(tmp_path: Path) -> None:
    for run in ("ppo/CartPole-v1_1", "ppo/CartPole-v1_2", "ppo/ALE-Pong-v5_1", "sac/Pendulum-v1_3"):
        write_run(tmp_path / run, [1.0])
    with pytest.raises(ZooError) as raised:
        plot(PlotOptions(folders=[str(tmp_path)]))
    lines = str(raised.value).splitlines()
    assert lines[0].startswith("Which environment? Give --env.")
    assert lines[2:] == [f"  {tmp_path}/ppo: ALE-Pong-v5 (1), CartPole-v1 (2)", f"  {tmp_path}/sac: Pendulum-v1 (1)"]


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_pictures(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    logs = tmp_path / "logs"
    write_run(logs / "ppo" / "CartPole-v1_1", [1.0, 2.0], [[1.0], [2.0]])
    write_run(logs / "ppo" / "CartPole-v1_2", [3.0, 4.0], [[3.0], [6.0]])
    write_run(logs / "ppo" / "CartPole-v10_1", [99.0], [[99.0]])
    output = tmp_path / "out" / f"curve.{suffix}"
    folders = [str(logs)]
    assert plot(PlotOptions(envs=["CartPole-v1"], folders=folders, output=str(output))) == output
    assert output.stat().st_size > 1000
    plot(PlotOptions(algos=["ppo"], envs=["CartPole-v1"], folders=folders, source="eval", output=str(output)))
    printed = capsys.readouterr().out
    assert "|CartPole-v1|4.0 +/- 2.0|" in printed
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
        ({"envs": ["CartPole-v2"]}, "Did you mean 'CartPole-v1'.*Environments with runs: CartPole-v1"),
        ({"output": "x.docx"}, "--output"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, options: dict[str, object], message: str) -> None:
    write_run(tmp_path / "ppo" / "CartPole-v1_1", [1.0, 2.0])
    with pytest.raises(ZooError, match=message):
        plot(PlotOptions(**{"envs": ["CartPole-v1"], "folders": [str(tmp_path)], **options}))  # type: ignore[arg-type]
