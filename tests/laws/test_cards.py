"""Cards: every algorithm has its own, and what it names is there."""

import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from gymnasium import spaces

from polyak.algorithms import REGISTRY, get
from polyak.envs.testing import BitFlippingEnv
from polyak.experience import HerReplayBuffer
from polyak.fields.off_policy import OffPolicyAlgorithm
from tests.laws.floors import PACKAGE
from tests.laws.test_site import loaded
from tests.trials import trial

CLASSES: dict[str, Any] = {name: get(name) for name in REGISTRY}


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    """``docs/from_cards.py``."""
    return loaded("from_cards")


def test_no_file_of_settings_is_left_over() -> None:
    stems = {Path(inspect.getfile(cls)).with_suffix("") for cls in CLASSES.values()}
    assert {path.with_suffix("") for path in (PACKAGE / "algorithms").rglob("*.yml")} <= stems


def test_the_stub_says_what_the_registry_says(generator: ModuleType) -> None:
    first, *lines = generator.stub().splitlines()
    assert generator.SAYS_SO in first
    assert len(lines) == len(REGISTRY)
    assert "polyak.algorithms._classes" not in sys.modules


@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_what_a_page_offers_works_and_the_rest_is_refused(generator: ModuleType, name: str) -> None:
    """Each option of :func:`what_it_takes` by itself."""
    cls, small = CLASSES[name], trial(CLASSES[name])
    goals = BitFlippingEnv(n_bits=4, continuous=spaces.Discrete not in getattr(cls, "action_spaces", ()))
    options: dict[str, dict[str, Any]] = {
        "prioritized": {"prioritized": True},
        "n_steps": {"n_steps": 3} if issubclass(cls, OffPolicyAlgorithm) else {},
        "n_learners": {"n_learners": 2, "transport": "local"},
        "replay_buffer_class": {
            "replay_buffer_class": HerReplayBuffer,
            "env": goals,
            "policy": "MultiInputPolicy",
            "policy_kwargs": {},
        },
        "memory": {"policy_kwargs": {**small.get("policy_kwargs", {}), "memory": "lstm"}},
    }
    offered = {option for option in options if generator.combines(cls, option)}
    if generator.recurrence(cls, getattr(cls, "policies", {})):
        offered.add("memory")
    for option in offered:
        model = cls(**{**small, **options[option]})
        assert option == "n_learners" or model.learn(80) is model
    for option in cls.card.refuses:
        with pytest.raises(ValueError):
            cls(**{**small, **options[option]})
