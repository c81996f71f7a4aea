"""The report: what is read from run folders, what cannot be read, and what reaches the page."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from polyak.evaluation import mean_interval, success_interval
from polyak.zoo.errors import ZooError
from polyak.zoo.report import figures as figures_module
from polyak.zoo.report.figures import figures_of, group_runs, read_page
from polyak.zoo.report.groups import differing, flatten, labels, what_counts
from polyak.zoo.report.page import ReportOptions, json_in_html, report
from polyak.zoo.report.runs import Run, find_runs, read_run, read_table, time_split
from tests.zoo.runs_on_disk import NASTY, data_of, only_run, table_of, write_run


def runs_in(logs: Path) -> list[Run]:
    """Read and group the runs under a folder."""
    runs = [read_run(path, "/".join(path.parts[-2:])) for path in find_runs(logs, [])]
    group_runs(runs, logs.resolve())
    return runs


def only_panel(logs: Path, name: str = "return") -> dict[str, object]:
    """Return the panel of the only environment, of one figure."""
    (figure,) = (figure for figure in figures_of(runs_in(logs)) if figure["name"] == name)
    (panel,) = figure["panels"]
    return panel


def test_differing_settings() -> None:
    a, b = {"x": "1", "y": "2"}, {"x": "1", "y": "3", "z": "4"}
    assert differing([a, b]) == ["y", "z"]
    assert differing([a, a]) == []
    assert differing([a]) == []
    assert flatten({"a": {"b": [1, 2]}, "c": None, "d": {}}) == {"a.b": "[1, 2]", "c": "null", "d": "{}"}
    assert what_counts({"gamma": 0.9}, {"seed": 3, "n_timesteps": -1, "env_kwargs": {"g": 1}}) == {
        "gamma": "0.9",
        "env_kwargs.g": "1",
    }


def test_labels_say_what_sets_groups_apart() -> None:
    assert labels({"k": {"lr": "1"}}, "PPO") == {"k": "PPO"}
    assert labels({"a": {"lr": "1"}, "b": {"lr": "2"}}, "PPO") == {"a": "PPO lr=1", "b": "PPO lr=2"}
    many = {name: {f"s{i}": name for i in range(5)} for name in ("a", "b")}
    assert labels(many, "PPO")["a"] == "PPO s0=a s1=a s2=a ..."
    long = {"a": {"w": "x" * 50 + "1"}, "b": {"w": "x" * 50 + "2"}}
    assert len(set(labels(long, "PPO").values())) == 2


def test_time_split_weighs_shares_by_the_time_between_rows() -> None:
    shares = {"env": [50, 10], "inference": [0, 10], "copy": [0, 0], "sample": [0, 20], "update": [50, 40]}
    progress = {f"time/{name}": np.array(values, float) for name, values in shares.items()}
    progress |= {"time/other": np.array([0.0, 20.0]), "time/fps": np.array([100.0, 50.0])}
    progress |= {"time/total_timesteps": np.array([1000.0, 2000.0]), "time/time_elapsed": np.array([10.0, 40.0])}
    # 10 s, half of it collecting; then 30 s: 20 % collecting, 60 % learning, 20 % other
    assert time_split(progress) == {"collecting": 11.0, "learning": 23.0, "other": 6.0}
    assert time_split({"time/total_timesteps": np.array([1.0])}) == {}


# -- runs --------------------------------------------------------------------------------------------------------------


def test_what_a_run_says_of_itself(tmp_path: Path) -> None:
    write_run(tmp_path / "ppo" / "X-v0_1", [float(i) for i in range(150)], {"gamma": 0.9}, seed=3)
    run = only_run(tmp_path)
    assert (run.name, run.algo, run.env, run.state.name) == ("ppo/X-v0_1", "PPO", "X-v0", "finished")
    assert run.facts | {"Started": ""} == {
        "Seed": "3",
        "Steps": "1,500",
        "Episodes": "150",
        "Return": "99.5",
        "Time": "5 min",
        "Steps/s": "5",
        "Best evaluation": "9",
        "Last evaluation": "9",
        "Started": "",
        **{f"{part}, % of time": "-" for part in ("Collecting", "Learning", "Other")},
    }
    assert run.curves["return"].x.tolist() == (10 * np.arange(1, 151)).tolist()
    assert run.curves["return"].y[-1] == np.mean(range(50, 150))
    assert run.curves["return, by time"].x[-1] == 300.0
    assert run.curves["evaluated return"].y.tolist() == [5.0, 9.0]
    assert run.curves["evaluated return, by time"].x.tolist() == [2.0, 4.0]
    assert run.settings == {"gamma": "0.9", "--algo": "ppo", "--env": "X-v0", "--seed": "3"}


def test_a_log_is_read_up_to_its_last_row(tmp_path: Path) -> None:
    log = tmp_path / "progress.csv"
    log.write_text("time/total_timesteps,train/loss,what\n10,1.5,a\n20,,b\n30,2.5,c\n4")
    columns = read_table(log)
    assert columns["train/loss"].tolist()[::2] == [1.5, 2.5]
    assert np.isnan(columns["what"]).all()
    loss = only_run(tmp_path).curves["train/loss"]
    assert (loss.x.tolist(), loss.y.tolist()) == ([10, 30], [1.5, 2.5])


def test_the_steps_are_those_that_were_asked_for(tmp_path: Path) -> None:
    """config.yml has the tuned number, args.yml what -n gave; -1 is none."""
    for number, given in enumerate((15_000, -1, None, "soon"), start=1):
        run = write_run(tmp_path / "ppo" / f"X-v0_{number}", [1.0], {"n_timesteps": 100_000.0})
        (run / "X-v0" / "args.yml").write_text(json.dumps({"algo": "ppo", "n_timesteps": given}))
    steps = [run.settings["n_timesteps"] for run in runs_in(tmp_path)]
    assert steps == ["15000", "100000.0", "100000.0", "100000.0"]


def test_runs_that_differ_in_their_seed_are_one_group(tmp_path: Path) -> None:
    for i, gamma in enumerate((0.9, 0.9, 0.99)):
        write_run(tmp_path / "ppo" / f"X-v0_{i + 1}", [1.0], {"gamma": gamma}, seed=i)
    write_run(tmp_path / "a2c" / "X-v0_1", [1.0], {}, algo="a2c")
    groups = {run.name: run.group for run in runs_in(tmp_path)}
    assert groups == {
        "a2c/X-v0_1": "A2C",
        "ppo/X-v0_1": "PPO gamma=0.9",
        "ppo/X-v0_2": "PPO gamma=0.9",
        "ppo/X-v0_3": "PPO gamma=0.99",
    }


@pytest.mark.parametrize("below", ["", "ppo", "ppo/X-v0_2"])
def test_a_folder_above_runs_or_a_run_itself_can_be_named(tmp_path: Path, below: str) -> None:
    for number in (10, 2):
        write_run(tmp_path / "ppo" / f"X-v0_{number}", [1.0])
    names = [row["Run"] for row in table_of(read_page(tmp_path / below), "Runs")]
    assert names == (["ppo/X-v0_2"] if below.endswith("2") else ["ppo/X-v0_2", "ppo/X-v0_10"])


def test_settings_stand_side_by_side(tmp_path: Path) -> None:
    for i, gamma in enumerate((0.9, 0.9, 0.99)):
        write_run(tmp_path / "ppo" / f"X-v0_{i + 1}", [1.0], {"gamma": gamma, "tau": 1}, seed=i)
    data = read_page(tmp_path)
    columns = {"PPO gamma=0.9, X-v0": "0.9", "PPO gamma=0.99, X-v0": "0.99"}
    assert table_of(data, "Settings that differ") == [{"": "gamma", **columns}]
    assert {"": "--seed", "PPO gamma=0.9, X-v0": "0 | 1", "PPO gamma=0.99, X-v0": "2"} in table_of(data, "All settings")


def test_a_group_is_drawn_as_its_mean_with_an_interval_and_its_runs(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / "ppo" / f"X-v0_{seed + 1}", [float(seed)] * 20, seed=seed)
    write_run(tmp_path / "ppo" / "X-v0_4", [9.0] * 2, seed=4)
    panel: dict = only_panel(tmp_path)  # type: ignore[type-arg]
    low, high, *runs, mean = panel["data"]
    assert (mean["name"], mean["x"][-1], mean["y"]) == ("PPO (3)", 200, [1.0] * 20)
    assert [run["name"] for run in runs] == [f"ppo/X-v0_{n}" for n in (1, 2, 3, 4)]
    assert (low["y"][0], high["y"][0]) == pytest.approx(tuple(mean_interval([0.0, 1.0, 2.0])), rel=1e-4)
    assert panel["remarks"] == ["PPO: left out run ppo/X-v0_4 (ended before the others)."]
    assert [trace["name"] for trace in panel["data"] if trace["showlegend"]] == ["PPO (3)"]
    (alone,) = only_panel(tmp_path / "ppo" / "X-v0_1")["data"]  # type: ignore[misc]
    assert alone["name"] == "PPO", "a single run has no band"


def test_groups_are_compared_by_their_last_evaluations(tmp_path: Path) -> None:
    """Of three runs the interquartile mean is the mean, whose interval is Student's; pairs of runs are counted."""
    for env in ("X-v0", "Y-v0"):
        for algo, lasts in (("ppo", (0, 2, 7)), ("a2c", (1, 2, 3))):
            for seed in lasts:  # write_run's last evaluation is 6 + seed
                run = write_run(tmp_path / algo / f"{env}_{seed}", [1.0], seed=seed, algo=algo)
                (run / "X-v0").rename(run / env)
                (run / env / "args.yml").write_text(json.dumps({"algo": algo, "env": env, "seed": seed}))
    data = read_page(tmp_path)
    means = {row.pop(""): row for row in table_of(data, "Interquartile mean")}
    assert means["X-v0"] == means["Y-v0"]
    match = re.fullmatch(r"9 \((.+) to (.+)\), 3 runs", means["X-v0"]["PPO"])
    assert match is not None
    half = 4.302653 * np.std([0, 2, 7], ddof=1) / 3**0.5  # the quantile of Student's t with two degrees of freedom
    low, high = map(float, match.groups())
    # the standard error of 2,000 resamples has a relative deviation of 1 / sqrt(2 * 2000): five of them
    assert [9 - low, high - 9] == pytest.approx([half, half], rel=0.08)
    over = means["2 environments (0: their worst run, 1: their best)"]
    scaled = np.sort(np.tile([0, 2, 7], 2) / 7)
    assert over["PPO"].startswith(f"{scaled[1:-1].mean():.4g} (")
    (pair,) = [row for row in table_of(data, "Probability") if row[""] == "A2C > PPO"]
    # 1 > 0, 2 > 0, 3 > 0, 3 > 2, and 2 = 2 counts half, of nine pairs; Wilson's interval for three trials
    low, high = success_interval(4.5 / 3, 3)
    assert pair["X-v0"] == f"50 ({100 * low:.4g} to {100 * high:.4g})"
    assert pair.keys() == {"", "X-v0", "Y-v0", "2 environments (0: their worst run, 1: their best)"}


def test_reading_again_reads_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        write_run(tmp_path / "ppo" / f"X-v0_{number}", [1.0])
    first = read_page(tmp_path)
    reads: list[str] = []
    monkeypatch.setattr(figures_module, "read_run", lambda path, name: reads.append(name) or read_run(path, name))
    assert read_page(tmp_path) == first
    assert reads == []
    with (tmp_path / "ppo" / "X-v0_2" / "0.monitor.csv").open("a") as file:
        file.write("5.0,10,4.0\n")
    assert [row["Episodes"] for row in table_of(read_page(tmp_path), "Runs")] == ["1", "2"]
    assert reads == ["ppo/X-v0_2"]


# -- files that cannot be read -----------------------------------------------------------------------------------------


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


RUINED = {
    "cut monitor": ("0.monitor.csv", _cut, "1 rows of episodes are not numbers"),
    "monitor without header": ("0.monitor.csv", lambda path: path.write_text("r,l,t\n1,2,3\n"), "its first line must"),
    "monitor of other columns": (
        "0.monitor.csv",
        lambda path: path.write_text('#{"t_start": 1}\na,b\n1,2\n'),
        "column 'r' of numbers is missing",
    ),
    "empty evaluations": ("evaluations.npz", lambda path: path.write_bytes(b""), "it is empty"),
    "pickled evaluations": (
        "evaluations.npz",
        lambda path: np.savez(path, timesteps=np.array([{}], dtype=object)),
        "Python objects",
    ),
    "YAML that runs code": (
        "X-v0/args.yml",
        lambda path: path.write_text("a: !!python/object/apply:os.system ['touch ran']\n"),
        "as plain YAML",
    ),
    "YAML of a list": ("X-v0/config.yml", lambda path: path.write_text("[1, 2]"), "must map names"),
}
"""A case of each kind; hostile files are in tests/experience/hostile."""


@pytest.mark.parametrize("case", RUINED)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    name, ruin, reason = RUINED[case]
    run = write_run(tmp_path / "logs" / "ppo" / "X-v0_1", [1.0, 2.0, 3.0])
    write_run(tmp_path / "logs" / "ppo" / "X-v0_2", [1.0])
    ruin(run / name)
    page = report(ReportOptions("logs", str(tmp_path / "report.html"))).read_text()
    data = read_page(Path("logs"))
    assert [problem["file"] for problem in data["problems"]] == [f"ppo/X-v0_1/{name}"]
    assert reason in data["problems"][0]["reason"]
    assert f"<td>ppo/X-v0_1/{name}</td>" in page
    assert len(table_of(data, "Runs")) == 2
    assert not (tmp_path / "ran").exists()


# -- the page ----------------------------------------------------------------------------------------------------------


def test_what_comes_from_files_is_data_in_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0], {"learning_rate": NASTY})
    (run / "X-v0" / "warnings.txt").write_text(f"UserWarning: {NASTY}\n")
    (run / "X-v0" / "args.yml").write_text(json.dumps({"algo": NASTY, "env": NASTY}))
    page = report(ReportOptions(str(tmp_path), str(tmp_path / "report.html"))).read_text()
    assert "<img" not in page
    assert "<script>window" not in page
    assert data_of(page)["figures"][0]["panels"][0]["env"] == NASTY
    run = only_run(tmp_path)
    assert run.settings["learning_rate"] == NASTY
    assert run.warnings == [f"UserWarning: {NASTY}"]
    assert json.loads(json_in_html({"x": NASTY})) == {"x": NASTY}
    assert not set("<>&") & set(json_in_html({"x": f"{NASTY}&amp;"}))


def test_the_page_needs_no_other_file(tmp_path: Path) -> None:
    write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    page = report(ReportOptions(str(tmp_path), str(tmp_path / "report.html"))).read_text()
    head = html.unescape(page[: page.index("<style>")])
    assert "default-src 'none'" in head
    assert "connect-src 'none'" in head
    assert "'unsafe-eval'" not in head
    assert not re.search(r"script-src[^;]*unsafe-inline", head)
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=\"(?!data:)", page)


def test_videos_are_embedded_within_the_limit(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    (run / "videos").mkdir()
    (run / "videos" / "small.mp4").write_bytes(b"film" * 100)
    (run / "episode.GIF").write_bytes(b"GIF89a")
    (run / "videos" / "big.mp4").write_bytes(b"x" * 3 * 2**20)
    (tmp_path / "secret.mp4").write_bytes(b"not of a run")
    (run / "videos" / "link.mp4").symlink_to(tmp_path / "secret.mp4")
    page = report(ReportOptions(str(tmp_path), str(tmp_path / "report.html"), video_limit=1.0)).read_text()
    assert '<video src="data:video/mp4;base64,ZmlsbW' in page
    assert '<img src="data:image/gif;base64,' in page
    assert len(re.findall("<(?:video|img) ", page)) == 2
    assert "videos/big.mp4, 3 MB: left out (--video-limit)" in page
    assert "link.mp4</td>" in page, "among what could not be read"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReportOptions("nowhere"), "'nowhere' does not exist"),
        (ReportOptions("a_file"), "is a file"),
        (ReportOptions("empty"), "No runs under 'empty'"),
        (ReportOptions("logs", "page.pdf"), "must end in .html"),
        (ReportOptions("logs", "a_file/page.html"), "--output"),
    ],
)
def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: ReportOptions, message: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_file").write_text("")
    (tmp_path / "empty").mkdir()
    write_run(tmp_path / "logs" / "ppo" / "X-v0_1", [1.0])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ZooError, match=re.escape(message)):
        report(options)
    assert sorted(tmp_path.rglob("*")) == before
