"""The report and the board in a real browser: they open, draw and play, silently and without a network.

Needs selenium, Chromium and its driver.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from polyak.zoo.recording import write_video
from polyak.zoo.report.page import ReportOptions, report
from tests.zoo.browser import Page, page
from tests.zoo.runs_on_disk import NASTY, serving, write_run

__all__ = ["page"]  # pytest finds it here


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs of PPO with one setting, one with another, two of A2C on another environment, and a film."""
    logs = tmp_path_factory.mktemp("logs")
    rng = np.random.default_rng(0)
    for i in range(4):
        config = {"learning_rate": 0.1 if i < 3 else 0.2}
        write_run(logs / "ppo" / f"X-v0_{i + 1}", rng.normal(size=60).round(3).tolist(), config, seed=i)
    for i in range(2):
        run = write_run(logs / "a2c" / f"Y-v0_{i + 1}", [float(i)] * 9, seed=i, algo="a2c")
        (run / "X-v0").rename(run / "Y-v0")
        (run / "Y-v0" / "args.yml").write_text(json.dumps({"algo": "a2c", "env": "Y-v0", "seed": i}))
    pytest.importorskip("imageio_ffmpeg")
    frames = [np.full((64, 96, 3), 8 * i, np.uint8) for i in range(30)]
    write_video(logs / "ppo" / "X-v0_1" / "videos" / "film.mp4", frames, fps=30)
    write_video(logs / "ppo" / "X-v0_2" / "film.gif", frames, fps=30)
    return logs


@pytest.fixture(scope="module")
def address(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report of these runs."""
    return report(ReportOptions(str(logs), str(tmp_path_factory.mktemp("page") / "report.html"))).as_uri()


def test_it_opens_without_a_word_and_without_a_network(page: Page, address: str) -> None:
    page.open(address)
    assert page.curves() == {"X-v0": ["PPO learning_rate=0.1 (3)", "PPO learning_rate=0.2"], "Y-v0": ["A2C (2)"]}
    assert len(page.texts("#body section:first-child tbody tr")) == 6
    for figure in ("episode length", "return, by time", "evaluated return"):
        page.choose(figure)
        assert sorted(page.curves()) == ["X-v0", "Y-v0"]
    page.wait("return [...document.querySelectorAll('video')].every(film => film.readyState > 0)")
    assert page.run("return [...document.querySelectorAll('img')].every(film => film.naturalWidth > 0)")
    assert page.complaints() == []


@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_sticks_out(page: Page, address: str, width: int) -> None:
    page.driver.set_window_size(width, 900)
    page.open(address)
    assert page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")


def test_text_from_files_stays_text(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0], {"learning_rate": NASTY})
    (run / "X-v0" / "args.yml").write_text(json.dumps({"algo": NASTY, "env": NASTY}))
    (run / "X-v0" / "warnings.txt").write_text(f"{NASTY}\n")
    page.open(report(ReportOptions(str(tmp_path), str(tmp_path / "report.html"))).as_uri())
    assert page.run("return window.hacked") is None
    assert not page.run("return document.querySelector('img')")
    assert NASTY in page.texts("td")


def test_the_board_draws_new_episodes_by_itself(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0])
    with serving(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        page.wait("return document.querySelector('.js-plotly-plot').data[0].x.length === 1")
        with (run / "0.monitor.csv").open("a") as file:
            file.write("5.0,10,4.0\n")
        page.wait("return document.querySelector('.js-plotly-plot').data[0].x.length === 2")
