"""`polyak status`: how a training stands, by what it has written."""

import json
import os
from pathlib import Path

import pytest

from polyak.logging.logger import CSVOutputFormat
from polyak.zoo.errors import ZooError
from polyak.zoo.report.figures import read_page
from polyak.zoo.status import StatusOptions, status
from tests.zoo.runs_on_disk import table_of, write_run

RUNNERS = [
    {"node": "ada 12ab", "restarts": 0, "rows_per_second": 12.5},
    {"node": "", "restarts": 3, "rows_per_second": 0.0},
]


def write_log(run: Path, runners: object = RUNNERS) -> None:
    log = CSVOutputFormat(run / "progress.csv")
    for steps in (1000, 2000):
        values = {"time/total_timesteps": steps, "time/fps": 50, "time/time_elapsed": steps // 50, "time/env": 60}
        values |= {"rollout/ep_rew_mean": steps / 100}
        if steps > 1000:
            values |= {"cluster/runners": 1, "cluster/policy_lag": 3.5}
            values["cluster/by_runner"] = json.dumps(runners)
        log.write(values, dict.fromkeys(values, ()))
    log.close()


def test_the_newest_run_on_one_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        write_log(write_run(tmp_path / "ppo" / f"X-v0_{number}", [1.0], {"n_timesteps": 4000}))
    os.utime(tmp_path / "ppo" / "X-v0_1" / "progress.csv", (1, 1))
    status(StatusOptions(str(tmp_path)))
    shown = capsys.readouterr().out
    assert "2 runs; the newest" in shown
    assert "X-v0_2: PPO on X-v0 finished" in shown
    assert "2,000 of 4,000 (50%), 50 a second" in shown
    assert [line.split() for line in shown.splitlines()[-2:]] == [
        ["1", "ada", "12ab", "0", "12.5"],
        ["2", "none", "now", "3", "0.0"],
    ]
    status(StatusOptions(str(tmp_path / "ppo" / "X-v0_1"), json=True))
    found = json.loads(capsys.readouterr().out)
    assert (found["state"], found["steps"], found["return"]) == ("finished", 2000, 20)
    assert found["cluster"] == {"runners": 1, "policy_lag": 3.5}
    assert found["runners"] == [{"runner": number, **one} for number, one in enumerate(RUNNERS, 1)]


def test_the_page_has_a_table_of_runners_and_curves_of_the_rest(tmp_path: Path) -> None:
    write_log(write_run(tmp_path / "ppo" / "X-v0_1", [1.0]))
    page = read_page(tmp_path)
    assert [row["Node"] for row in table_of(page, "Runners")] == ["ada 12ab", "none now"]
    names = [figure["name"] for figure in page["figures"]]
    assert "cluster/policy_lag" in names
    assert "cluster/by_runner" not in names
    assert page["problems"] == []


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    with pytest.raises(ZooError, match="has a progress.csv"):
        status(StatusOptions(str(tmp_path)))
    write_log(run, [1])
    with pytest.raises(ZooError, match="instead of a list of runners"):
        status(StatusOptions(str(tmp_path)))
    assert "list of runners" in read_page(tmp_path)["problems"][0]["reason"]
