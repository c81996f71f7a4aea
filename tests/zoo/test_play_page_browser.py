"""Agents play in a headless Chromium, without a network. Needs Chromium, selenium, and npm for onnxruntime-web."""

import functools
import http.server
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.laws.test_site import loaded
from tests.zoo.browser import Page, page

__all__ = ["page"]  # pytest finds it here


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder without a word."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.slow
def test_agents_play_in_the_browser(page: Page, tmp_path: Path) -> None:
    for needed in ("onnx", "onnxscript"):
        pytest.importorskip(needed)
    try:
        loaded("browser").main([str(tmp_path)])
    except SystemExit as error:
        pytest.skip(str(error))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        page.open(f"{address}play/index.html")
        page.wait("return document.getElementById('agent').options.length")
        page.run("document.getElementById('fast').checked = true")
        mean = {"ppo, CartPole-v1": 500.0, "sac, Pendulum-v1": -134.4, "trpo, Acrobot-v1": -84.1}
        std = {"ppo, CartPole-v1": 0.0, "sac, Pendulum-v1": 83.0, "trpo, Acrobot-v1": 25.8}
        for name in mean:
            page.run(
                "const e = document.getElementById('agent'); e.value = arguments[0];"
                "e.dispatchEvent(new Event('change'));",
                name,
            )
            page.wait(f"return (window.returns['{name}'] ?? []).length >= 5")
            returns = page.run(f"return window.returns['{name}']")
            assert abs(np.mean(returns) - mean[name]) <= 5 * std[name] / np.sqrt(len(returns)), returns
        assert [said for said in page.complaints() if not said.startswith(address)] == []
    finally:
        server.shutdown()
        server.server_close()
