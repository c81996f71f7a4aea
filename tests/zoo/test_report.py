"""The report: what is read from run folders, what cannot be read, and what reaches the page."""

import html
import json
import re
from pathlib import Path

import numpy as np
import pytest

from polyak.envs.wrappers.monitor import load_results
from polyak.zoo.errors import ZooError
from polyak.zoo.report.films import within_limit
from polyak.zoo.report.groups import differing, flatten, labels, what_counts
from polyak.zoo.report.logbook import Logbook
from polyak.zoo.report.page import ReportOptions, json_in_html, report
from polyak.zoo.report.run_files import Run, evaluations, time_split
from polyak.zoo.report.tail import Tail
from polyak.zoo.report.thinning import rounded, thin
from tests.zoo.runs_on_disk import NASTY, data_of, only_run, write_monitor, write_run

# -- numbers -----------------------------------------------------------------------------------------------------------


def test_thinning_agrees_with_brute_force() -> None:
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.integers(1, 50, 5000)).astype(float)
    y = rng.normal(size=5000)
    y[rng.random(5000) < 0.3] = np.nan
    n_points = 37
    thinned = thin(x, {"y": y}, n_points)
    width = (x[-1] - x[0]) / n_points
    stretch = np.minimum(np.floor((x - x[0]) / width + 1e-9).astype(int), n_points - 1)
    for i, member in enumerate(np.unique(stretch)):
        rows = stretch == member
        assert thinned.count[i] == rows.sum()
        assert thinned.x[i] == pytest.approx(x[rows].mean())
        assert thinned.mean["y"][i] == pytest.approx(np.nanmean(y[rows]))
        assert thinned.low["y"][i] == np.nanmin(y[rows])
        assert thinned.high["y"][i] == np.nanmax(y[rows])
    assert len(thinned.x) <= n_points
    assert thinned.count.sum() == len(x)


def test_thinning_keeps_every_spike_and_short_curves() -> None:
    x = np.arange(1.0, 100_001.0)
    y = np.zeros(100_000)
    y[77_777] = 1e6
    thinned = thin(x, {"y": y}, 100)
    assert thinned.high["y"].max() == 1e6
    assert (thinned.mean["y"] * thinned.count).sum() == pytest.approx(1e6)
    short = thin(np.array([3.0, 3.0, 5.0]), {"y": np.array([1.0, np.nan, 2.0])}, 10)
    assert short.x.tolist() == [3.0, 3.0, 5.0]
    assert rounded(short.mean["y"]) == [1.0, None, 2.0]
    assert len(thin(np.full(1000, 5.0), {"y": np.arange(1000.0)}, 10).x) == 1
    assert len(thin(np.empty(0), {"y": np.empty(0)}, 10).x) == 0


def test_rounded_numbers_are_json() -> None:
    assert rounded(np.array([1.234567, 123456.7, np.nan, np.inf, -np.inf])) == [1.2346, 123460.0, None, None, None]


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


# -- files that grow ---------------------------------------------------------------------------------------------------


def test_a_growing_file_is_read_as_one_that_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "0.monitor.csv"
    rng = np.random.default_rng(1)
    rows = [(float(r), int(n), float(i)) for i, (r, n) in enumerate(zip(rng.normal(size=50), range(50), strict=True))]
    whole = write_monitor(path, rows).read_bytes()
    expected = load_results(tmp_path)
    tail = Tail(path, ("r", "l", "t"))
    for end in sorted(rng.integers(whole.index(b"r,l,t\n") + 6, len(whole), 12)):
        path.write_bytes(whole[:end])
        seen = tail.columns()
        complete = whole[:end].count(b"\n") - 2
        assert len(seen["r"]) == complete
        assert tail.is_cut == (whole[end - 1 : end] != b"\n")
    path.write_bytes(whole)
    for name in "rlt":
        assert tail.columns()[name].tolist() == expected[name].tolist()
    assert not tail.is_cut
    assert tail.n_refused == 0


def test_a_growing_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_monitor(tmp_path / "0.monitor.csv", [(1.0, 10, 1.0)] * 100)
    tail = Tail(path, ("r", "l", "t"))
    tail.columns()
    parsed: list[bytes] = []
    parse = Tail._parse
    monkeypatch.setattr(Tail, "_parse", lambda self, rows: parsed.append(rows) or parse(self, rows))
    with path.open("a") as file:
        file.write("7.0,3,2.0\n")
    assert tail.columns()["r"][-1] == 7.0
    assert len(tail.columns()["r"]) == 101
    assert parsed == [b"7.0,3,2.0\n"]


def test_a_file_written_again_is_read_again(tmp_path: Path) -> None:
    path = write_monitor(tmp_path / "0.monitor.csv", [(1.0, 10, 1.0)] * 50)
    tail = Tail(path, ("r", "l", "t"))
    tail.columns()
    write_monitor(path, [(2.0, 10, 1.0)] * 60)
    assert set(tail.columns()["r"]) == {2.0}
    write_monitor(path, [(3.0, 10, 1.0)], start=5.0)
    assert tail.columns()["r"].tolist() == [3.0]
    path.write_text("#{}\nr,l,t,more\n1,2,3,4\n")
    assert tail.columns()["more"].tolist() == [4.0]


def test_rows_that_are_no_numbers_are_left_out_and_counted(tmp_path: Path) -> None:
    path = write_monitor(tmp_path / "0.monitor.csv", [(1.0, 10, 1.0), (2.0, 10, 2.0)])
    with path.open("a") as file:
        file.write("what,is,this\n3.0,10\n1,2,3,4,5,6\n4.0,10,4.0\n")
    tail = Tail(path, ("r", "l", "t"))
    assert tail.columns()["r"].tolist() == [1.0, 2.0, 4.0]
    assert tail.n_refused == 3


# -- runs --------------------------------------------------------------------------------------------------------------


def test_episodes_of_several_environments_are_one_history(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    run = tmp_path / "ppo" / "X-v0_1"
    run.mkdir(parents=True)
    for i in range(3):
        times = np.cumsum(rng.random(40)).round(3)
        rows = list(zip(rng.normal(size=40).tolist(), rng.integers(1, 9, 40).tolist(), times.tolist(), strict=True))
        write_monitor(run / f"{i}.monitor.csv", rows, start=100.0 + i)
    curve = only_run(tmp_path)["training"]
    expected = load_results(run)
    assert curve["steps"] == np.cumsum(expected["l"]).tolist()
    assert curve["measures"]["return"]["mean"] == rounded(expected["r"].to_numpy())
    np.testing.assert_allclose(curve["seconds"], expected["t"], atol=1e-3)
    assert "low" not in curve["measures"]["return"]  # nothing was joined


def test_what_a_run_says_of_itself(tmp_path: Path) -> None:
    write_run(tmp_path / "ppo" / "X-v0_1", [float(i) for i in range(150)], {"gamma": 0.9}, seed=3)
    run = only_run(tmp_path)
    assert (run["name"], run["algo"], run["env"], run["seed"]) == ("ppo/X-v0_1", "PPO", "X-v0", 3)
    assert (run["steps"], run["episodes"], run["seconds"], run["state"]) == (1500, 150, 300.0, "finished")
    assert run["last_return"] == np.mean(range(50, 150))
    evaluation = run["evaluation"]
    assert evaluation["steps"] == [10, 20]
    assert evaluation["seconds"] == [2.0, 4.0]
    assert evaluation["measures"]["return"] == {"mean": [5.0, 9.0], "low": [4.0, 8.0], "high": [6.0, 10.0]}
    assert run["settings"] == {"gamma": "0.9", "--algo": "ppo", "--env": "X-v0", "--seed": "3"}


def test_the_steps_are_those_that_were_asked_for(tmp_path: Path) -> None:
    """config.yml has the tuned number, args.yml what -n gave; -1 is none."""
    for number, given in enumerate((15_000, -1, None, "soon"), start=1):
        run = write_run(tmp_path / "ppo" / f"X-v0_{number}", [1.0], {"n_timesteps": 100_000.0})
        (run / "X-v0" / "args.yml").write_text(json.dumps({"algo": "ppo", "n_timesteps": given}))
    steps = [run["settings"]["n_timesteps"] for run in Logbook(tmp_path).read()["runs"]]
    assert steps == ["15000", "100000.0", "100000.0", "100000.0"]


def test_the_title_says_what_was_trained(tmp_path: Path) -> None:
    def heading(*places: str) -> str:
        logs = tmp_path / str(len(list(tmp_path.iterdir())))
        for number, place in enumerate(places, start=1):
            algo, _, env = place.partition(" ")
            run = write_run(logs / algo / f"{env}_{number}", [1.0])
            (run / "X-v0").rename(run / env)
            (run / env / "args.yml").write_text(json.dumps({"algo": algo, "env": env}))
        page = report(ReportOptions(str(logs), str(tmp_path / "report.html"))).read_text()
        (found,) = re.findall(r"<h1>(.*)</h1>", page)
        assert f"<title>{found} · polyak</title>" in page
        return found

    assert heading("ppo A-v0", "ppo A-v0") == "PPO on A-v0"
    assert heading("ppo A-v0", "sac B-v0") == "PPO and SAC on A-v0 and B-v0"
    assert heading("ppo A-v0", "sac A-v0", "td3 A-v0", "ddpg A-v0") == "4 algorithms on A-v0"
    assert heading(f"ppo {'A' * 50}-v0") == "PPO on 1 environment"


def test_runs_that_differ_in_their_seed_are_one_group(tmp_path: Path) -> None:
    for i, gamma in enumerate((0.9, 0.9, 0.99)):
        write_run(tmp_path / "ppo" / f"X-v0_{i + 1}", [1.0], {"gamma": gamma}, seed=i)
    write_run(tmp_path / "a2c" / "X-v0_1", [1.0], {}, algo="a2c")
    groups = {run["name"]: run["group"] for run in Logbook(tmp_path).read()["runs"]}
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
    names = [run["name"] for run in Logbook(tmp_path / below).read()["runs"]]
    assert names == (["ppo/X-v0_2"] if below.endswith("2") else ["ppo/X-v0_2", "ppo/X-v0_10"])


def test_evaluations_are_called_by_what_they_measure(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.npz"
    np.savez(path, timesteps=[10, 20], results=[[1.0], [2.0]], ep_lengths=[[1], [2]], successes=np.empty((2, 0)))
    steps, measures = evaluations(path)
    assert steps.tolist() == [10, 20]
    assert {name: table.tolist() for name, table in measures.items()} == {"return": [[1], [2]], "length": [[1], [2]]}


def test_reading_again_reads_only_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2):
        write_run(tmp_path / "ppo" / f"X-v0_{number}", [1.0])
    logbook = Logbook(tmp_path)
    first = logbook.read()
    reads: list[str] = []
    read = Run._read
    monkeypatch.setattr(Run, "_read", lambda self, n: reads.append(self.name) or read(self, n))
    assert logbook.read() == first
    assert reads == []
    with (tmp_path / "ppo" / "X-v0_2" / "0.monitor.csv").open("a") as file:
        file.write("5.0,10,4.0\n")
    assert [run["episodes"] for run in logbook.read()["runs"]] == [1, 2]
    assert reads == ["ppo/X-v0_2"]


# -- files that cannot be read -----------------------------------------------------------------------------------------


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-4])


RUINED = {
    "cut monitor": ("0.monitor.csv", _cut, "its last row is cut"),
    "empty monitor": ("0.monitor.csv", lambda path: path.write_text(""), "no line of column names"),
    "monitor without header": ("0.monitor.csv", lambda path: path.write_text("r,l,t\n1,2,3\n"), "header in JSON"),
    "monitor of other columns": ("0.monitor.csv", lambda path: path.write_text("#{}\na,b\n1,2\n"), "no column 'r'"),
    "monitor of bytes": ("0.monitor.csv", lambda path: path.write_bytes(bytes(range(256))), ""),
    "monitor of no time": (
        "0.monitor.csv",
        lambda path: path.write_text('#{"t_start": Infinity}\nr,l,t\n1,2,3\n'),
        "not a time",
    ),
    "empty evaluations": ("evaluations.npz", lambda path: path.write_bytes(b""), "it is empty"),
    "cut evaluations": ("evaluations.npz", lambda path: path.write_bytes(path.read_bytes()[:100]), ""),
    "pickled evaluations": (
        "evaluations.npz",
        lambda path: np.savez(path, timesteps=np.array([{}], dtype=object)),
        "Python objects",
    ),
    "evaluations of other arrays": ("evaluations.npz", lambda path: np.savez(path, a=[1]), "no timesteps"),
    "evaluations that do not fit": (
        "evaluations.npz",
        lambda path: np.savez(path, timesteps=[1, 2, 3], results=np.ones(4)),
        "",
    ),
    "broken YAML": ("X-v0/config.yml", lambda path: path.write_text("a: [1,\n b: }"), "as plain YAML"),
    "YAML that runs code": (
        "X-v0/args.yml",
        lambda path: path.write_text("a: !!python/object/apply:os.system ['touch ran']\n"),
        "as plain YAML",
    ),
    "YAML of a list": ("X-v0/config.yml", lambda path: path.write_text("[1, 2]"), "must map names"),
    "YAML of bytes": ("X-v0/config.yml", lambda path: path.write_bytes(b"\xff\xfe\x00"), ""),
    "YAML that contains itself": (
        "X-v0/config.yml",
        lambda path: path.write_text("a: &a\n  b: *a\n"),
        "it contains itself",
    ),
    "YAML that explodes": (
        "X-v0/config.yml",
        lambda path: path.write_text(
            "\n".join(["a0: &a0 [1, 1]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20)])
        ),
        "more than",
    ),
}


@pytest.mark.parametrize("case", RUINED)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    monkeypatch.chdir(tmp_path)
    name, ruin, reason = RUINED[case]
    run = write_run(tmp_path / "logs" / "ppo" / "X-v0_1", [1.0, 2.0, 3.0])
    write_run(tmp_path / "logs" / "ppo" / "X-v0_2", [1.0])
    ruin(run / name)
    page = report(ReportOptions("logs", str(tmp_path / "report.html"))).read_text()
    data = data_of(page)
    assert [problem["file"] for problem in data["problems"]] == [f"ppo/X-v0_1/{name}"]
    assert reason in data["problems"][0]["reason"]
    assert len(data["runs"]) == 2
    assert not (tmp_path / "ran").exists()


def test_the_rows_before_a_cut_one_are_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0, 2.0, 3.0])
    _cut(run / "0.monitor.csv")
    assert only_run(tmp_path)["training"]["measures"]["return"]["mean"] == [1.0, 2.0]


# -- the page ----------------------------------------------------------------------------------------------------------


def test_what_comes_from_files_is_data_in_the_page(tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0], {"learning_rate": NASTY})
    (run / "X-v0" / "warnings.txt").write_text(f"UserWarning: {NASTY}\n")
    (run / "X-v0" / "args.yml").write_text(json.dumps({"algo": NASTY, "env": NASTY}))
    page = report(ReportOptions(str(tmp_path), str(tmp_path / "report.html"))).read_text()
    assert "<img" not in page
    assert page.count("<script") - page.count("'<script") == page.count("</script>")
    data = data_of(page)["runs"][0]
    assert data["settings"]["learning_rate"] == NASTY
    assert data["warnings"] == [f"UserWarning: {NASTY}"]
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
    films = {film["name"]: film.get("src", "") for film in data_of(page)["films"]}
    assert set(films) == {"videos/small.mp4", "episode.GIF", "videos/big.mp4"}
    assert films["videos/small.mp4"].startswith("data:video/mp4;base64,ZmlsbW")
    assert films["episode.GIF"].startswith("data:image/gif;base64,")
    assert films["videos/big.mp4"] == ""
    assert within_limit([("a", 5), ("b", 6), ("c", 5)], 10) == {"a", "c"}


def test_a_million_rows_are_a_small_page(tmp_path: Path) -> None:
    run = tmp_path / "ppo" / "X-v0_1"
    run.mkdir(parents=True)
    n = 1_000_000
    row = "\n".join(f"{i % 97}.5,{i % 13 + 1},{{}}" for i in range(1000))
    # Time grows by a thousand rows at a time: the file is made by repetition, not by a loop over rows.
    blocks = [row.replace("{}", f"{k}.25") for k in range(n // 1000)]
    header = json.dumps({"t_start": 0.0, "env_id": "X-v0"})
    (run / "0.monitor.csv").write_text(f"#{header}\nr,l,t\n" + "\n".join(blocks) + "\n")
    page = only_run(tmp_path)
    lengths = np.tile(np.arange(1000) % 13 + 1, n // 1000)
    assert page["episodes"] == n
    assert page["steps"] == lengths.sum()
    curve = page["training"]
    assert len(curve["steps"]) <= 400
    assert sum(curve["count"]) == n
    returns = curve["measures"]["return"]
    total = np.dot(returns["mean"], curve["count"])
    assert total == pytest.approx(n // 1000 * (np.arange(1000) % 97 + 0.5).sum(), rel=1e-4)  # written with 5 digits
    assert (min(returns["low"]), max(returns["high"])) == (0.5, 96.5)
    assert len(json.dumps(page)) < 60_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (ReportOptions("nowhere"), "'nowhere' does not exist"),
        (ReportOptions("a_file"), "is a file"),
        (ReportOptions("empty"), "No runs under 'empty'"),
        (ReportOptions("logs", "page.pdf"), "must end in .html"),
        (ReportOptions("logs", "a_file/page.html"), "--output"),
        (ReportOptions("logs", "page.html", -1.0), "--video-limit"),
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
