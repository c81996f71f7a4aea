"""What holds for all tests."""

import gc
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """No log is captured: torch notes the whole stack for each tensor that it traces as soon as somebody listens.

    No file waits for the disk: no test turns the machine off.
    """
    os.fsync = lambda file: None
    if config.pluginmanager.has_plugin("logging-plugin"):
        config.pluginmanager.unregister(name="logging-plugin")
    for number in (signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        if signal.getsignal(number) == signal.SIG_IGN:  # in the background, which programs of tests would inherit
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(hookwrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """The garbage collector walks through what libraries and tests have defined neither now nor later: it all stays.

    Before they are collected, each of several processes imports files of tests that no other begins with: whose asserts
    it has rewritten, the others find in the cache.
    """
    gc.disable()
    _import_a_share(session.config)
    yield
    for name in ("torch.cuda", "torch.xpu", "torch.mtia"):  # a seed that waits for such a device notes the whole stack
        if hasattr(module := sys.modules.get(name), "traceback"):
            module.traceback = SimpleNamespace(format_stack=list)
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


def _import_a_share(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", None)
    if worker is None or sys.dont_write_bytecode or config.args != ["tests"]:
        return
    number, of = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    files = sorted(Path(__file__).parent.rglob("test_*.py"))
    for path in files[number::of]:
        name = ".".join(path.relative_to(config.rootpath).with_suffix("").parts)
        with suppress(Exception, pytest.skip.Exception):  # collecting the file will say what is wrong with it
            importlib.import_module(name)


@pytest.fixture(autouse=True)
def advice_is_given_again() -> None:
    """What is said once in a program is said once in each test, whatever ran before it."""
    if (advice := sys.modules.get("polyak.warning")) is not None:
        advice.forget()
