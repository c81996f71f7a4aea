"""Takes pictures of pages as a desk and a phone show them: ``python docs/screenshots.py SITE FOLDER``.

The pages are the landing page, an algorithm, the gallery and the agents in the browser of a built SITE, and the report
of short trainings. A page that is wider than its window is named, and the program then ends with 1.
Needs selenium, Chromium and its driver: ``pip install 'polyak[browser]'``.
"""

import shutil
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from gallery import BROWSERS, report_page

PAGES = {"landing": "", "ppo": "algorithms/ppo/", "gallery": "gallery/", "play": "play/index.html"}
WIDTHS = (1400, 390)
HEIGHT, TALLEST = 900, 6000
FLAGS = "--headless=new --no-sandbox --disable-gpu --hide-scrollbars"


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def browser() -> Any:
    """A Chromium without a window.

    Raises:
        SystemExit: something is missing.
    """
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError as error:
        raise SystemExit("Screenshots need selenium: pip install 'polyak[browser]'.") from error
    if found is None or driver is None:
        raise SystemExit("Screenshots need Chromium and chromedriver. Install them.")
    options = webdriver.ChromeOptions()
    options.binary_location = found
    for flag in FLAGS.split():
        options.add_argument(flag)
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))


def take(driver: Any, address: str, width: int, image: Path) -> bool:
    """Write the picture of a page, as tall as it is up to ``TALLEST``; returns whether it fits its width."""
    size = {"width": width, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size | {"height": HEIGHT})
    driver.get(address)
    driver.execute_async_script("setTimeout(arguments[0], 1500)")  # what the page draws by itself
    height, fits = driver.execute_script(
        "const e = document.documentElement; return [e.scrollHeight, e.scrollWidth <= e.clientWidth];"
    )
    tall = {"height": min(int(height), TALLEST)}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size | tall)
    driver.save_screenshot(str(image))
    return bool(fits)


def main(arguments: list[str]) -> int:
    """Take them all."""
    if len(arguments) != 2:
        raise SystemExit("usage: python docs/screenshots.py SITE FOLDER")
    site, folder = map(Path, arguments)
    folder.mkdir(parents=True, exist_ok=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    Thread(target=server.serve_forever, daemon=True).start()
    wide = []
    with TemporaryDirectory() as kept:
        there = {name: f"http://127.0.0.1:{server.server_address[1]}/{page}" for name, page in PAGES.items()}
        there["report"] = report_page(Path(kept)).as_uri()
        driver = browser()
        for name, address in there.items():
            for width in WIDTHS:
                image = folder / f"{name}-{width}.png"
                wide += [] if take(driver, address, width, image) else [image.stem]
                print(f"wrote {image}", flush=True)
        driver.quit()
    server.shutdown()
    if wide:
        print(f"wider than their windows: {', '.join(wide)}")
    return int(bool(wide))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
