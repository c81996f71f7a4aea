"""The report and the board in a real browser: they open, filter, sort, toggle and play, silently and without a network.

Needs selenium, Chromium and its driver.
"""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polyak.evaluation.intervals import mean_ends
from polyak.zoo.recording import write_video
from polyak.zoo.report.page import ReportOptions, report
from tests.zoo.runs_on_disk import NASTY, serving, write_monitor, write_run

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install 'polyak[browser]'")
_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(_CHROMIUM is None or _DRIVER is None, reason="needs Chromium and chromedriver")

_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --autoplay-policy=no-user-gesture-required"
)
#: Seconds to wait for what a page does by itself.
PATIENCE = 60.0


class Page:
    """A page in the browser."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        """Open a page, forgetting what the one before said and asked for."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get(address)
        self.wait("return document.readyState === 'complete'")

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str) -> None:
        """Wait until `script` returns something true."""
        end = time.monotonic() + PATIENCE
        while not self.run(script):
            assert time.monotonic() < end, f"in vain: {script}"
            time.sleep(0.05)

    def choose(self, name: str, value: str) -> None:
        """Choose in a select, as a person does."""
        script = "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        self.run(script + "e.dispatchEvent(new Event('change')); ", name, value)
        assert self.run("return document.getElementById(arguments[0]).value", name) == value

    def write(self, text: str) -> None:
        """Write into the field that filters by text."""
        script = "const e = document.getElementById('text'); e.value = arguments[0];"
        self.run(script + "e.dispatchEvent(new Event('input'));", text)

    def click(self, selector: str, number: int = 0) -> None:
        """Click an element where a person would."""
        element = self.driver.find_elements("css selector", selector)[number]
        self.run("arguments[0].scrollIntoView({block: 'center'})", element)
        element.click()

    def texts(self, selector: str) -> list[str]:
        """Return the text of every element that is there."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())", selector
        )
        return found

    def curves(self) -> dict[str, dict[str, dict[str, Any]]]:
        """Return the lines drawn, with the band around each: by title of the chart, then by name."""
        drawn = self.run("""return [...document.querySelectorAll('#charts .card')].map(card => [
            card.querySelector('h3').textContent,
            card.querySelector('.js-plotly-plot').data.map(t => ({name: t.name || '', x: [...t.x], y: [...t.y]}))])""")
        found: dict[str, dict[str, dict[str, Any]]] = {}
        for title, traces in drawn:
            edges: list[list[float]] = []  # two before the line that they belong to
            found[title] = {}
            for trace in traces:
                if trace["name"]:
                    low, high = edges or (None, None)
                    found[title][trace["name"]] = {**trace, "low": low, "high": high}
                    edges = []
                else:
                    edges.append(trace["y"])
        return found

    def complaints(self) -> list[str]:
        """Return what the browser wrote to its console, and every address that it asked for."""
        said = [entry["message"] for entry in self.driver.get_log("browser")]
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
        return said + [url[:200] for url in asked if not url.startswith(("data:", "blob:", "file:"))]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A headless Chromium with a profile of its own."""
    options = webdriver.ChromeOptions()
    options.binary_location = _CHROMIUM
    for flag in (*_FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=_DRIVER))
    driver.set_window_size(1400, 1000)
    yield Page(driver)
    driver.quit()


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
    assert sorted(page.curves()) == ["X-v0", "Y-v0"]
    assert len(page.texts("#runs tbody tr")) == 6
    assert page.texts("#overview dd")[:3] == ["6", "2", "2"]
    for measure in ("length", "return"):
        page.choose("measure", measure)
    for x in ("seconds", "steps"):
        page.choose("x", x)
    for view in ("runs", "mean"):
        page.choose("view", view)
    assert page.complaints() == []


def test_curves_are_means_over_seeds_with_their_error(page: Page, address: str) -> None:
    page.open(address)
    page.choose("source", "evaluation")
    page.choose("band", "error")
    first = page.curves()["X-v0"]["PPO learning_rate=0.1 (3)"]
    runs = np.array([[2.0, 6.0], [3.0, 7.0], [4.0, 8.0]])  # means of the episodes of seeds 0, 1, 2
    assert first["x"] == [10, 20]
    assert first["y"] == pytest.approx(runs.mean(axis=0))
    error = runs.std(axis=0, ddof=1) / np.sqrt(3)
    assert first["low"] == pytest.approx(runs.mean(axis=0) - error)
    assert first["high"] == pytest.approx(runs.mean(axis=0) + error)
    page.choose("band", "range")
    assert page.curves()["X-v0"]["PPO learning_rate=0.1 (3)"]["low"] == pytest.approx(runs.min(axis=0))
    page.choose("band", "interval")
    first = page.curves()["X-v0"]["PPO learning_rate=0.1 (3)"]
    low, high = mean_ends(runs.T)
    assert first["low"] == pytest.approx(low)
    assert first["high"] == pytest.approx(high)
    alone = page.curves()["X-v0"]["PPO learning_rate=0.2 (1)"]
    assert alone["low"] is None  # one run says nothing about others


def test_smoothing_is_a_trailing_mean(page: Page, address: str, logs: Path) -> None:
    page.open(address)
    page.choose("view", "runs")
    script = "const e = document.getElementById('smooth'); e.value = arguments[0]; e.dispatchEvent(new Event('input'));"
    rows = np.loadtxt(logs / "ppo" / "X-v0_1" / "0.monitor.csv", delimiter=",", skiprows=2)
    steps, returns = np.cumsum(rows[:, 1]), rows[:, 0]
    for share in (0, 10):
        page.run(script, share)
        width = share / 100 * (steps[-1] - steps[0])
        expected = [returns[(steps >= step - width) & (steps <= step)].mean() for step in steps]
        end = time.monotonic() + PATIENCE  # the page draws with its next frame
        while not np.allclose(page.curves()["X-v0"]["ppo/X-v0_1"]["y"], expected, atol=1e-3):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_filters(page: Page, address: str) -> None:
    page.open(address)
    page.choose("algo", "A2C")
    assert list(page.curves()) == ["Y-v0"]
    assert len(page.texts("#runs tbody tr")) == 2
    page.click("#everything")
    page.choose("env", "X-v0")
    page.write("learning_rate=0.2")
    assert page.texts("#runs .run-name") == ["ppo/X-v0_4PPO learning_rate=0.2"]
    page.write("no such thing")
    assert page.texts("#runs tbody tr") == []
    assert page.texts("#charts .empty") != []
    page.click("#everything")
    assert len(page.texts("#runs tbody tr")) == 6
    assert page.complaints() == []


def test_groups_and_runs_are_hidden_by_a_click(page: Page, address: str) -> None:
    page.open(address)
    chips = page.texts("#groups .chip")
    number = next(i for i, text in enumerate(chips) if text.startswith("PPO learning_rate=0.1"))
    page.click("#groups .chip", number)
    assert set(page.curves()["X-v0"]) == {"PPO learning_rate=0.2 (1)"}
    page.click("#groups .chip", number)
    page.click("#runs input[type=checkbox]", 2)  # the first of PPO's
    assert "PPO learning_rate=0.1 (2)" in page.curves()["X-v0"]


def test_settings_that_differ(page: Page, address: str) -> None:
    page.open(address)
    page.choose("env", "X-v0")
    rows = dict(
        page.run("""return [...document.querySelectorAll('#settings tbody tr')].map(tr =>
        [tr.cells[0].textContent, [...tr.cells].slice(1).map(c => c.textContent)])""")
    )
    assert rows == {"learning_rate": ["0.1", "0.2"], "--seed": ["0 | 1 | 2", "3"]}
    page.click("#only-differing")
    assert "--algo" in page.texts("#settings tbody td:first-child")


def test_tables_sort(page: Page, address: str) -> None:
    page.open(address)
    number = page.texts("#runs thead th").index("Last evaluation")

    def last() -> list[float]:
        return [float(text) for text in page.texts(f"#runs tbody td:nth-child({number + 1})")]

    page.click("#runs th button", number)
    assert last() == sorted(last(), reverse=True)
    page.click("#runs th button", number)
    assert last() == sorted(last())
    assert page.run("return document.querySelector('#runs th[aria-sort]').ariaSort") == "ascending"


def test_the_theme_toggles(page: Page, address: str) -> None:
    colour = "return getComputedStyle(document.body).backgroundColor"
    page.open(address)
    page.run("localStorage.removeItem('polyak-theme')")
    for system in ("dark", "light"):
        features = [{"name": "prefers-color-scheme", "value": system}]
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        page.open(address)
        assert page.run("return document.documentElement.dataset.theme") == system
    light, line = page.run(colour), page.run("return document.querySelector('.js-plotly-plot').layout.xaxis.gridcolor")
    page.click("#theme")
    assert page.run(colour) != light
    assert page.run("return document.querySelector('.js-plotly-plot').layout.xaxis.gridcolor") != line
    page.click("#theme")
    assert page.run(colour) == light
    page.run("localStorage.removeItem('polyak-theme')")


def test_films_play(page: Page, address: str) -> None:
    page.open(address)
    assert page.run("return document.querySelectorAll('#films video').length") == 1
    page.run("document.querySelector('#films video').scrollIntoView(); document.querySelector('#films video').play()")
    page.wait("return document.querySelector('#films video').currentTime > 0.05")
    page.run("document.querySelector('#films img').scrollIntoView()")
    page.wait("return document.querySelector('#films img').naturalWidth === 96")
    assert page.complaints() == []


@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_sticks_out(page: Page, address: str, width: int, theme: str) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": theme}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        page.open(address)
        assert page.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
        assert page.run("return document.documentElement.dataset.theme") == theme
        widths = "return [...document.querySelectorAll(arguments[0])].map(e => e.clientWidth)"
        assert max(page.run(widths, ".main-svg")) <= min(page.run(widths, ".card"))
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_text_from_files_stays_text(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0, 2.0], {"learning_rate": NASTY, NASTY: 1})
    (run / "X-v0" / "args.yml").write_text(json.dumps({"algo": NASTY, "env": f"{NASTY}%{{x}}", "seed": 1}))
    (run / "X-v0" / "warnings.txt").write_text(f"UserWarning: {NASTY}\n")
    (run / "X-v0" / "system.yml").write_text(json.dumps({NASTY: NASTY}))
    (run / "progress.csv").write_text('time/total_timesteps,"<img src=x onerror=window.hacked=1>"\n1,2\n2,3\n')
    (run / "evaluations.npz").write_bytes(b"")
    page.open(report(ReportOptions(str(tmp_path), str(tmp_path / "report.html"))).as_uri())
    for source in ("logged", "training"):
        page.choose("source", source)
    page.choose("view", "runs")
    assert page.run("return window.hacked") is None
    assert page.run("return document.images.length") == 0
    assert page.texts("#warnings tbody td")[0] == f"UserWarning: {NASTY}"
    assert page.texts("#problems tbody td") == ["ppo/X-v0_1/evaluations.npz", "it is empty"]
    assert page.complaints() == []


def test_a_long_run_is_drawn_with_few_points(page: Page, tmp_path: Path) -> None:
    run = tmp_path / "ppo" / "X-v0_1"
    run.mkdir(parents=True)
    write_monitor(run / "0.monitor.csv", [])
    with (run / "0.monitor.csv").open("a") as file:
        file.writelines(f"{i % 7}.0,3,{i}.5\n" * 100 for i in range(2000))
    page.open(report(ReportOptions(str(tmp_path), str(tmp_path / "report.html"))).as_uri())
    assert "200000" in page.run(
        "return JSON.stringify(JSON.parse(document.getElementById('data').textContent).runs[0])"
    )
    assert 200 <= len(page.curves()["X-v0"]["PPO (1)"]["x"]) <= 400


def test_the_board_draws_new_episodes_by_itself(page: Page, tmp_path: Path) -> None:
    run = write_run(tmp_path / "ppo" / "X-v0_1", [1.0, 2.0])
    with serving(tmp_path) as port:
        page.open(f"http://127.0.0.1:{port}/")
        page.write("ppo")
        with (run / "0.monitor.csv").open("a") as file:
            file.write("3.0,10,7.0\n")
        page.wait("return document.querySelector('.js-plotly-plot').data.at(-1).x.length === 3")
        assert page.run("return document.getElementById('text').value") == "ppo"
        here = f"http://127.0.0.1:{port}/"
        assert set(page.complaints()) == {here, f"{here}data.json"}
    page.wait("return !document.getElementById('notice').hidden")
    page.open("about:blank")
