"""A page in a headless Chromium. Needs selenium, Chromium and its driver; tests that import it are skipped without."""

import json
import shutil
import time
from collections.abc import Iterator
from typing import Any

import pytest

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install 'polyak[browser]'")
_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_DRIVER = shutil.which("chromedriver")
if _CHROMIUM is None or _DRIVER is None:
    pytest.skip("needs Chromium and chromedriver", allow_module_level=True)

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

    def texts(self, selector: str) -> list[str]:
        """Return the text of every element that is there."""
        found: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent.trim())", selector
        )
        return found

    def choose(self, figure: str) -> None:
        """Choose what is drawn, as a person does."""
        script = "const e = document.getElementById('figure'); e.value = arguments[0];"
        self.run(script + "e.dispatchEvent(new Event('change'));", figure)

    def curves(self) -> dict[str, list[str]]:
        """Return the names in the legend of each chart, by its title."""
        drawn = self.run("""return [...document.querySelectorAll('#charts .js-plotly-plot')].map(chart => [
            chart.layout.title.text, chart.data.filter(t => t.showlegend).map(t => t.name)])""")
        return dict(drawn)

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
