"""Learning curves."""

import json
from pathlib import Path

import numpy as np
import pytest

from polyak.zoo.errors import ZooError
from polyak.zoo.plot import PlotOptions, evaluation_curve, moving_mean, plot, training_curve


def write_run(folder: Path, returns: list[float], evaluations: list[list[float]] | None = None) -> Path:
    """Make a run whose episodes all last 10 steps and end 36 s apart."""
    folder.mkdir(parents=True)
    lines = [f"#{json.dumps({'t_start': 0.0, 'env_id': 'X-v0'})}", "r,l,t"]
    lines += [f"{value},10,{36 * (i + 1)}" for i, value in enumerate(returns)]
    (folder / "0.monitor.csv").write_text("\n".join(lines) + "\n")
    if evaluations is not None:
        steps = 100 * (np.arange(len(evaluations)) + 1)
        lengths = np.full(np.shape(evaluations), 10)
        np.savez(folder / "evaluations.npz", timesteps=steps, results=np.array(evaluations), ep_lengths=lengths)
    return folder


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
    hours = training_curve(run, "time", "length", window=1)
    assert hours is not None
    assert hours.x == pytest.approx([0.01, 0.02, 0.03])
    assert hours.y.tolist() == [10, 10, 10]
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
    assert curve.error == pytest.approx([1.0, 1.0])  # means 1, 3 and 5, 7: standard error sqrt(2) / sqrt(2)
    single = evaluation_curve([a], "reward")
    assert single is not None
    assert single.error == pytest.approx([1.0, 1.0, 0.0])
    assert evaluation_curve([a], "success") is None
    assert evaluation_curve([tmp_path], "reward") is None


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
    assert "| CartPole-v1 | 4.0 +/- 2.0 |" in printed
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
