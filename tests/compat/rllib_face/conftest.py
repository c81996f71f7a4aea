"""What stands in for Ray."""

from __future__ import annotations

import pytest

from polyak.distributed import ray_workers
from tests.compat.rllib_face.fake_ray import FakeRay


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    made = FakeRay()
    monkeypatch.setattr(ray_workers, "ray", lambda: made)
    return made
