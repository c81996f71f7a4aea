"""The house gets no harder to read, and no larger without a reason: see :mod:`tests.laws.gauge`."""

import sys

import pytest

from polyak.algorithm import STEPS_OF_LOOPS
from polyak.algorithms import REGISTRY, get
from tests.laws import gauge

SLACK = 0.05
"""Share of its lines that a room may have lost before the file has to be brought down to it."""


@pytest.fixture(scope="module")
def figures() -> dict[str, gauge.Figures]:
    return gauge.measured()


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="other versions enter other frames")
@pytest.mark.parametrize("table", ["SAC", "PPO", "face", "text"])
def test_no_figure_rises_and_one_that_has_fallen_is_written_down(table: str, figures: dict[str, gauge.Figures]) -> None:
    assert figures[table] == gauge.allowed()[table], "`python -m tests.laws.gauge --write` writes what has fallen"


def test_no_room_grows_unnoticed(figures: dict[str, gauge.Figures]) -> None:
    now, most = figures["rooms"], gauge.allowed()["rooms"]
    assert not {room: (size, most.get(room)) for room, size in now.items() if size > most.get(room, 0)}, "it has grown"
    smaller = {room: (now.get(room, 0), size) for room, size in most.items() if now.get(room, 0) < size * (1 - SLACK)}
    assert not smaller, "`python -m tests.laws.gauge --write` writes what has shrunk"


STEPS = STEPS_OF_LOOPS | {
    *("_loop", "_shown", "_begin_collection", "_sync_hyperparameters", "_present_rate", "_note_episodes", "_on_step"),
    *("_check_iteration", "_update_info_buffer", "_update_current_progress_remaining", "_exploration_options"),
}
"""Names that steps had when they were methods of the model, and those that Stable-Baselines3 has for them."""


def test_no_step_is_a_method_of_a_model() -> None:
    """Its loop would not call it; what a class does in its own way, it names: see :mod:`polyak.loops`."""
    assert not {name: found for name in REGISTRY if (found := STEPS & set(dir(get(name))))}
    assert all(callable(get(name).loop) for name in REGISTRY)


def test_no_algorithm_stands_on_a_ladder_of_classes() -> None:
    """Itself, ``NetworkAlgorithm``, ``Algorithm``: what it shares with another is a part, a learner or fields."""
    assert not {name: depth for name in REGISTRY if (depth := gauge.depth(get(name))) > 3}
