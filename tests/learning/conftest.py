"""Fixtures for tests of gradient steps as programs."""

import pytest

from polyak.learning.engine.program import Program


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run graphs operation by operation: all but the compiler is at work, which takes seconds (see ``make learn``)."""
    monkeypatch.setattr(Program, "compile", lambda self: None)


@pytest.fixture
def interpreted_if_quick(request: pytest.FixtureRequest) -> None:
    """Slow tests have the compiler."""
    if "slow" not in request.keywords:
        request.getfixturevalue("interpreted")
