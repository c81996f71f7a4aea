"""Small networks train fastest on one thread, and tests run side by side."""

from collections.abc import Iterator

import pytest

from polyak.learning.engine.threads import chosen_threads


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Give PyTorch one thread in every test of the command line."""
    with chosen_threads(1):
        yield
