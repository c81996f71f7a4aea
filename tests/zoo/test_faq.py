"""Each answer of the questions' page is held by tests that are there, and what it names exists."""

import re
from pathlib import Path

import yaml

import polyak

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faq.md").read_text("utf-8")
ANSWERS = dict(re.findall(r"^\*\*(.+?)\*\* (.+?)(?=\n\n|\Z)", PAGE, re.MULTILINE | re.DOTALL))

HELD_BY: dict[str, tuple[str, ...]] = {
    "How does it relate to Stable-Baselines3?": (
        "tests/compat/test_examples.py",
        "tests/compat/test_sb3_files.py",
        "tests/zoo/test_faq.py",
    ),
    "Can I trust a model from the internet?": ("tests/checkpoint/test_hostile_models.py",),
    "Are runs reproducible?": (
        "tests/laws/test_conformance.py",
        "tests/laws/test_resumption.py",
    ),
    "Why does a long run take half a minute before it is fast?": (
        "tests/learning/test_program.py",
        "tests/laws/test_conformance.py",
    ),
    "Does it use my GPU?": (
        "tests/learning/test_device.py",
        "tests/zoo/test_doctor.py",
    ),
    "How many environments should I use?": (),  # advice
    "How do I log to TensorBoard or Weights & Biases?": (
        "tests/loggers/test_logger.py",
        "tests/zoo/test_tracking.py",
    ),
    "How do I stop early, save the best model, or evaluate while training?": ("tests/callbacks/test_callbacks.py",),
    "How do I continue a training?": (
        "tests/checkpoint/test_resume.py",
        "tests/zoo/test_resuming.py",
    ),
    "How do I use my own environment, network or algorithm?": ("tests/zoo/test_docs.py",),
    "How do I deploy an agent without Python, or without polyak?": (
        "tests/checkpoint/test_exporting.py",
        "tests/laws/test_package.py",
    ),
    "Are there multi-agent algorithms?": (
        "tests/envs/games/test_self_play.py",
        "tests/compat/rllib_face/test_config.py",
    ),
    "Are there model-based algorithms?": (
        "tests/algorithms/test_model_based.py",
        "tests/algorithms/search/test_mcts.py",
    ),
    "Which papers should I cite?": ("tests/laws/test_cards.py",),
}


def test_every_answer_is_held_by_tests_that_are_there() -> None:
    assert ANSWERS.keys() == HELD_BY.keys()
    assert not [path for paths in HELD_BY.values() for path in paths if not (ROOT / path).is_file()]


def test_what_answers_name_exists() -> None:
    """Classes in backticks, and the algorithms that are links."""
    named = re.findall(r"`([A-Z]\w+)`", PAGE)
    assert "CheckpointCallback" in named
    by_name = {"MBPO", "PETS", "Dyna-Q", "AlphaZero", "MCTS"}
    assert all(name in PAGE for name in by_name)
    for name in [*named, *(name.replace("-", "") for name in by_name)]:
        assert hasattr(polyak, name), name


def test_nothing_of_the_peers_is_imported() -> None:
    pattern = re.compile(r"^\s*(?:import|from) (?:stable_baselines3|sb3_contrib|rl_zoo3|d3rlpy)\b", re.MULTILINE)
    importing = [path for path in (ROOT / "polyak").rglob("*.py") if pattern.search(path.read_text("utf-8"))]
    assert not importing


def test_the_repository_says_how_to_cite_it() -> None:
    about = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"title", "authors", "version", "license"} <= about.keys()
