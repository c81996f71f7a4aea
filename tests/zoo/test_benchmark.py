"""Suites of runs: what is missing is trained, what is there counts once, and the table says what the runs reached."""

import functools
import math
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.suites import __main__ as command
from benchmarks.suites.__main__ import BenchmarkOptions, benchmark
from benchmarks.suites.jobs import FinishedJob, alone_in, run_jobs
from benchmarks.suites.page import table, write_page
from benchmarks.suites.published import published, scores
from benchmarks.suites.results import FILE, Result, find_results
from benchmarks.suites.suites import SUITES, Row, as_stored, rows, settings_of
from benchmarks.suites.table import Line, current, lines
from benchmarks.suites.worker import Job, work
from polyak.zoo.benchmark_agents import BenchmarkAgentsOptions, benchmark_agents
from polyak.zoo.enjoy import EnjoyOptions, enjoy
from polyak.zoo.errors import ZooError
from polyak.zoo.train import EVAL_SEED_OFFSET

ROOT = Path(__file__).parents[2]


def result(**changes: object) -> Result:
    """A result of PPO on CartPole-v1 with today's settings."""
    made = Result(
        algo="ppo",
        env="CartPole-v1",
        n_timesteps=100_000,
        seed=0,
        settings=as_stored(settings_of("ppo", "CartPole-v1").raw),
        returns=[500.0, 400.0],
        lengths=[500, 400],
        deterministic=True,
        train_seconds=12.0,
        cpu_seconds=11.0,
        finished="2026-01-01T00:00:00+00:00",
        device="cpu",
        threads=1,
        machine="A machine",
        versions={"polyak": "1.0"},
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def write(made: Result, logs: Path, name: str) -> None:
    folder = logs / made.algo / name
    folder.mkdir(parents=True)
    made.write(folder)


# -- suites and published scores -------------------------------------------------------------------


all_rows = functools.cache(rows)


@pytest.mark.parametrize("suite", SUITES)
def test_every_row_has_tuned_settings_and_a_published_score(suite: str) -> None:
    for row in all_rows(suite):
        settings = settings_of(row.algo, row.env)
        assert settings.source.endswith(f"[{row.env}]") or settings.source.endswith("[atari]")
        there = published(row.algo, row.env)
        assert there is not None, row
        assert there.episodes > 0
        assert row.n_timesteps > 0


def test_published_scores_are_found_for_other_versions_of_an_environment() -> None:
    there = published("sac", "HalfCheetah-v5")
    assert there is not None
    assert (there.env, there.mean, there.std, there.n_timesteps) == ("HalfCheetah-v3", 9535.451, 100.470, 1_000_000)
    assert published("sac", "HalfCheetahBulletEnv-v0") is None
    assert published("ppo", "CartPole-v1") != published("ppo", "Pendulum-v1")
    assert all(math.isfinite(score.mean) and score.std >= 0 for score in scores().values())


def test_rows_are_chosen_by_algorithm_environment_and_steps() -> None:
    chosen = rows("classic", ["PPO", "redq"], ["Pendulum-v1", "CartPole-v1"], 500)
    assert chosen == [Row("ppo", "Pendulum-v1", 500), Row("redq", "Pendulum-v1", 500), Row("ppo", "CartPole-v1", 500)]


# -- intervals and verdicts ------------------------------------------------------------------------


def test_intervals_are_those_of_the_mean_over_seeds() -> None:
    line = Line(Row("ppo", "CartPole-v1", 100), (1.0, 2.0, 3.0), 60, 1.0, 1.0, None)
    half = 4.302652729911275 / math.sqrt(3)  # the 97.5 % quantile with 2 degrees of freedom, times the standard error
    assert line.interval == pytest.approx((2 - half, 2 + half))
    assert "| 2.0 | -0.5 to 4.5 |" in table([line])
    for means in ((3.0,), (500.0,) * 3):
        assert f"| {means[0]} | unknown |" in table([replace(line, means=means)])


@pytest.mark.parametrize(
    ("mean", "verdict"), [(-70.0, "above"), (-73.506, "within"), (-91.7, "within"), (-91.71, "below")]
)
def test_verdicts_compare_with_the_published_mean_and_deviation(mean: float, verdict: str) -> None:
    there = published("ppo", "Acrobot-v1")  # -73.506 +/- 18.201
    line = Line(Row("ppo", "Acrobot-v1", 500_000), (mean - 1, mean + 1), 40, 1.0, 1.0, there)
    assert line.verdict == verdict
    assert line.share_of_steps == 0.5
    assert replace(line, published=None).verdict == ""


# -- results and the page --------------------------------------------------------------------------


def test_only_the_latest_results_of_todays_settings_count(tmp_path: Path) -> None:
    write(result(returns=[1.0], finished="2026-01-02"), tmp_path, "CartPole-v1_1")
    write(result(returns=[2.0], finished="2026-01-03"), tmp_path, "CartPole-v1_2")
    write(result(returns=[3.0], finished="2026-01-04", settings={"n_steps": 7}), tmp_path, "CartPole-v1_3")
    write(result(returns=[5.0], seed=1), tmp_path, "CartPole-v1_4")
    write(result(returns=[7.0], n_timesteps=50), tmp_path, "CartPole-v1_5")
    (tmp_path / "ppo" / "CartPole-v1_6").mkdir()  # a run that never ended
    short, full = lines(current(find_results(tmp_path)))["classic"]
    assert (short.row.n_timesteps, short.means) == (50, (7.0,))
    assert (full.row.n_timesteps, full.means) == (100_000, (2.0, 5.0))


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    write(result(), tmp_path, "CartPole-v1_1")
    path = tmp_path / "ppo" / "CartPole-v1_1" / FILE
    path.write_text(path.read_text()[:40])
    with pytest.raises(ZooError, match=r"CartPole-v1_1/benchmark\.json is no result of a benchmark"):
        find_results(tmp_path)


def test_the_page_shows_every_row_beside_the_published_score() -> None:
    results = [result(seed=seed, returns=[float(mean)]) for seed, mean in enumerate((490, 500, 500))]
    results += [result(algo="sac", env="Hopper-v5", n_timesteps=30_000, returns=[100.0], train_seconds=240.4)]
    page = write_page(results)
    cells = "| ppo | CartPole-v1 | 100,000 | 3 | 496.7 | 482.3 to 511.0 | 500.0 ± 0.0 | 100,000 | **below** | 12 | 11 |"
    assert cells in page
    assert (
        "| sac | Hopper-v5 | 30,000 | 1 | 100.0 | unknown | 2325.5 ± 1129.7 (v3) | 1,000,000 | **below**, 3 % of the s"
        in page
    )
    assert "| 240 | 11 |" in page
    assert "0 above, 0 within, 2 below" in page
    assert "- A machine; polyak 1.0" in page
    assert page.startswith("# Results\n")
    assert "\n\n\n" not in page


# -- runs ------------------------------------------------------------------------------------------


def job(folder: Path, **changes: object) -> Job:
    made = Job("a2c", "CartPole-v1", 200, 1, 2, str(folder / "logs"), str(folder / "workplace"), "cpu")
    return replace(made, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A log folder, and the folder of the one run in it."""
    folder = tmp_path_factory.mktemp("worked")
    return folder / "logs", work(job(folder))


def test_a_run_is_an_ordinary_run_folder_with_its_result(worked: tuple[Path, Path]) -> None:
    logs, folder = worked
    assert folder == logs / "a2c" / "CartPole-v1_1"
    (found,) = find_results(logs)
    assert found.row == Row("a2c", "CartPole-v1", 200)
    assert found.train_seconds > 0
    assert found.cpu_seconds > 0
    assert (len(found.returns), found.deterministic) == (2, True)
    again = enjoy(
        EnjoyOptions(algo="a2c", folder=str(logs), n_episodes=2, n_timesteps=2000, seed=1 + 2 * EVAL_SEED_OFFSET)
    )
    assert again.returns == found.returns


def test_what_is_done_is_not_done_again(
    worked: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, _ = worked
    started: list[Job] = []

    def pretend(jobs: list[Job], n_jobs: int, place: Path) -> list[FinishedJob]:
        started.extend(jobs)
        return [FinishedJob(one, 1.0) for one in jobs]

    monkeypatch.setattr(command, "run_jobs", pretend)
    asked = BenchmarkOptions(
        algos=["a2c"], envs=["CartPole-v1"], n_timesteps=200, seeds=3, eval_episodes=2, log_folder=str(logs)
    )
    page = benchmark(asked)
    assert page == logs / "results.md"
    assert [one.seed for one in started] == [0, 2]
    assert "| a2c | CartPole-v1 | 200 | 1 |" in page.read_text()

    started.clear()
    for other in (replace(asked, eval_episodes=3), replace(asked, n_timesteps=300)):
        benchmark(other)
        assert [one.seed for one in started] == [0, 1, 2]
        started.clear()
    assert benchmark(replace(asked, dry_run=True)) is None
    assert "2 runs are missing." in capsys.readouterr().out
    assert not started


@pytest.mark.slow
def test_processes_work_side_by_side_and_one_that_fails_is_reported(tmp_path: Path) -> None:
    good, bad = job(tmp_path), job(tmp_path, algo="dqn", env="Pendulum-v1", seed=2)
    with alone_in(tmp_path / "logs") as place:
        with pytest.raises(ZooError, match="Another benchmark is at work"), alone_in(tmp_path / "logs"):
            pass
        finished = {one.job: one.error for one in run_jobs([good, bad], 2, place)}
        assert finished[good] == ""
        assert "Cannot build dqn for Pendulum-v1" in finished[bad]
        left = [path.name for path in place.iterdir() if path.is_dir()]
        assert len(left) == 1
        assert left[0].startswith("run-dqn-2-")  # what it printed can still be read
    assert [one.row for one in find_results(tmp_path / "logs")] == [good.row]
    with alone_in(tmp_path / "logs") as place:
        assert [path.name for path in place.iterdir()] == ["lock"]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_killed_benchmark_leaves_no_process_and_continues(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    words = ["--algos", "a2c", "--envs", "CartPole-v1", "--seeds", "2", "--eval-episodes", "1", "-f", str(logs)]
    program = [sys.executable, "-m", "benchmarks.suites", *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([*program, "-n", "100000000"], env=environment)
    runs = logs / ".unfinished"
    while not list(runs.glob("run-*/a2c/*/0.monitor.csv")):
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    while workers(str(logs)):  # until the one that was at work has seen it
        time.sleep(0.1)
    assert find_results(logs) == []
    subprocess.run([*program, "-n", "200"], env=environment, check=True)
    assert [one.seed for one in sorted(find_results(logs), key=lambda one: one.seed)] == [0, 1]
    assert [path.name for path in runs.iterdir()] == ["lock"]


def workers(logs: str) -> list[str]:
    """The command lines of workers for `logs`."""
    psutil = pytest.importorskip("psutil")
    found = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in found if "benchmarks.suites.worker" in line and logs in line]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite", "clasic"], "Unknown --suite 'clasic'. Did you mean 'classic'"),
        (["--envs", "CartPol-v1"], "--envs 'CartPol-v1' is not in the suite classic. Did you mean 'CartPole-v1'"),
        (["--algos", "tqc", "--envs", "CartPole-v1"], "--algos tqc are tuned for no environment that was asked for"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--output", "a_folder"], "--output 'a_folder' is a folder"),
        (["--table-only"], "There are no finished runs of today's settings under logs/benchmark"),
    ],
)
def test_mistakes_are_reported_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a_folder").mkdir()
    monkeypatch.setattr(sys, "argv", ["suites", *arguments])
    with pytest.raises(SystemExit, match=re.escape(message)):
        command.main()
    assert not (tmp_path / "logs" / "benchmark" / ".unfinished").exists()


# -- agents of a folder ----------------------------------------------------------------------------


def test_agents_of_a_folder_get_a_table_in_the_peers_columns(
    worked: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs, _ = worked
    (logs / "ppo" / "NoSuchEnv-v0_1").mkdir(parents=True)
    asked = BenchmarkAgentsOptions(log_dir=str(logs), benchmark_dir=str(tmp_path), n_timesteps=1200, no_hub=True)
    page = benchmark_agents(asked)
    head, _, row = page.read_text().splitlines()
    names = ["algo", "env_id", "mean_reward", "std_reward", "n_timesteps", "eval_timesteps", "eval_episodes"]
    assert head.strip("| ").split(" | ") == names
    values = dict(zip(names, row.strip("| ").split(" | "), strict=True))
    assert (values["algo"], values["env_id"], values["n_timesteps"]) == ("a2c", "CartPole-v1", "200")
    assert int(values["eval_timesteps"]) <= 1200
    assert float(values["mean_reward"]) == pytest.approx(
        int(values["eval_timesteps"]) / int(values["eval_episodes"]), abs=1e-3
    )
    assert "ppo-NoSuchEnv-v0 is left out: Unknown environment" in capsys.readouterr().err

    before = (tmp_path / "a2c-CartPole-v1" / "0.monitor.csv").stat().st_mtime_ns
    assert benchmark_agents(asked).read_text().splitlines()[2] == row
    assert (tmp_path / "a2c-CartPole-v1" / "0.monitor.csv").stat().st_mtime_ns == before


def test_no_agents_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="There are no trained agents under --log-dir"):
        benchmark_agents(BenchmarkAgentsOptions(log_dir=str(tmp_path / "none"), no_hub=True))
