"""Which runs a mean is over: the same in every command."""

from pathlib import Path

import pytest

from polyak.zoo.plots.plot import PlotOptions, read_panels
from polyak.zoo.plots.tables import read_selected
from polyak.zoo.report.figures import read_page
from polyak.zoo.run_folder import FINISHED, RunFolder, State
from polyak.zoo.whole_runs import Reach, whole_runs, without
from tests.zoo.runs_on_disk import table_of
from tests.zoo.written_runs import write_run

STOPPED = State("interrupted", "was interrupted after 5 of 10 steps")


def test_the_rule() -> None:
    ended = {"a": Reach(FINISHED, 100, 100), "b": Reach(FINISHED, 90, 90), "c": Reach(FINISHED, 60, 100)}
    short = {"d": Reach(FINISHED, 89, 99)}
    stopped = {"e": Reach(STOPPED, 200, 200), "f": Reach(STOPPED, 50, 60)}
    assert whole_runs(ended) == (["a", "b", "c"], {})
    kept, left_out = whole_runs({**ended, **short, **stopped})
    assert kept == ["a", "b", "c"]
    assert left_out == {"d": "ended before the others", "e": STOPPED.description, "f": STOPPED.description}
    assert without(left_out).startswith("left out d (ended before the others), e (was interrupted after 5 of")
    assert whole_runs(stopped) == (["e"], {"f": "ended before the others"})
    assert whole_runs({}) == ([], {})
    assert without({}) == ""


@pytest.mark.parametrize("kind", ["interrupted", "failed"])
def test_plots_tables_and_reports_leave_out_the_same_runs(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = tmp_path / "logs"
    for number, value in ((1, 1.0), (2, 3.0), (3, 50.0)):
        write_run(logs / "ppo" / f"X-v0_{number}", [value] * 40, [[value]] * 4)
        run = RunFolder(logs / "ppo" / f"X-v0_{number}", "X-v0")
        run.write_yaml("config.yml", {"gamma": 0.9})
        run.final_model.touch()
    if kind == "failed":
        (run.settings_folder / "error.txt").touch()
    else:
        run.write_interruption(400, 500)
    for source in ("train", "eval"):
        (curve,) = read_panels(PlotOptions(envs=["X-v0"], folders=[str(logs)], source=source))["X-v0"]
        assert (curve.n_runs, curve.y[-1]) == (2, 2.0)
        assert len(curve.runs) == 3
        assert f"({run.state.description})" in capsys.readouterr().err
    (found,) = read_selected(PlotOptions("table", envs=["X-v0"], folders=[str(logs)]))["X-v0"].values()
    assert (found.n_runs, found.y[-1]) == (2, 2.0)
    assert f"left out run 3 ({run.state.description})" in capsys.readouterr().err
    data = read_page(logs)
    assert [row["State"] for row in table_of(data, "Runs")] == ["finished", "finished", run.state.description]
    (panel,) = next(figure for figure in data["figures"] if figure["name"] == "return")["panels"]
    assert panel["remarks"] == [f"PPO: left out run ppo/X-v0_3 ({run.state.description})."]
    assert (panel["data"][-1]["name"], panel["data"][-1]["y"][-1]) == ("PPO (2)", 2.0)
