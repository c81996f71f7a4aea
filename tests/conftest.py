"""What holds for all tests."""

import gc
import signal
import sys
from collections.abc import Iterator

import pytest


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """No log is captured: torch notes the whole stack for each tensor that it traces as soon as somebody listens."""
    if config.pluginmanager.has_plugin("logging-plugin"):
        config.pluginmanager.unregister(name="logging-plugin")
    for number in (signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        if signal.getsignal(number) == signal.SIG_IGN:  # in the background, which programs of tests would inherit
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection() -> Iterator[None]:
    """The garbage collector walks through what libraries and tests have defined neither now nor later: it all stays."""
    gc.disable()
    yield
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.fixture(autouse=True)
def advice_is_given_again() -> None:
    """What is said once in a program is said once in each test, whatever ran before it."""
    if (advice := sys.modules.get("polyak.warning")) is not None:
        advice.forget()
