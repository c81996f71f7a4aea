"""What holds for all tests."""

import pytest


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """No log is captured: torch notes the whole stack for each tensor that it traces as soon as somebody listens."""
    if config.pluginmanager.has_plugin("logging-plugin"):
        config.pluginmanager.unregister(name="logging-plugin")
