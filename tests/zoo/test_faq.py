"""Each answer of the questions' page is held by tests that are there, and what it names exists."""

import ast
import re
from pathlib import Path

import yaml

import polyak

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "faq.md").read_text("utf-8")
ANSWERS = dict(re.findall(r"^\*\*(.+?)\*\* (.+?)(?=\n\n|\Z)", PAGE, re.MULTILINE | re.DOTALL))

HELD_BY = {
    "How does it relate to Stable-Baselines3?": (
        "tests/compat/test_examples.py::test_an_example_runs",
        "tests/compat/test_sb3_files.py::test_a_model_acts_as_it_did",
        "tests/zoo/test_faq.py::test_nothing_of_the_peers_is_imported",
    ),
    "Can I trust a model from the internet?": ("tests/checkpoint/test_hostile_models.py::test_all_hostile_files",),
    "Are runs reproducible?": (
        "tests/laws/test_conformance.py::test_same_seed_same_result_other_seed_another",
        "tests/laws/test_resumption.py::test_every_algorithm_resumes_exactly",
    ),
    "Why does a long run take half a minute before it is fast?": (
        "tests/learning/test_program.py::test_short_runs_are_not_compiled",
        "tests/learning/test_program.py::test_long_runs_are",
        "tests/laws/test_conformance.py::test_replayed_it_equals_eager",
    ),
    "Does it use my GPU?": (
        "tests/learning/test_device.py::test_a_model_goes_where_it_is_faster",
        "tests/zoo/test_doctor.py::test_it_says_what_would_be_chosen",
    ),
    "How many environments should I use?": (),  # advice
    "How do I log to TensorBoard or Weights & Biases?": (
        "tests/loggers/test_logger.py::test_tensorboard",
        "tests/zoo/test_tracking.py::test_wandb",
    ),
    "How do I stop early, save the best model, or evaluate while training?": (
        "tests/callbacks/test_callbacks.py::test_children_of_evaluation_stop_training",
        "tests/callbacks/test_callbacks.py::test_checkpoint_files",
        "tests/callbacks/test_callbacks.py::test_evaluation_writes_files_and_logs",
    ),
    "How do I continue a training?": (
        "tests/checkpoint/test_resume.py::test_resumed_in_the_middle_it_goes_on_bit_by_bit",
        "tests/zoo/test_resuming.py::test_a_run_that_was_asked_to_stop_goes_on_as_one_run",
    ),
    "How do I use my own environment, network or algorithm?": ("tests/zoo/test_docs.py::test_snippets_run",),
    "How do I deploy an agent without Python, or without polyak?": (
        "tests/checkpoint/test_exporting.py::test_a_torch_program_holds_what_acts_alone",
        "tests/laws/test_package.py::test_from_the_wheel_to_a_film",
    ),
    "Are there multi-agent algorithms?": (
        "tests/envs/games/test_self_play.py::test_a_learner_meets_agents_of_pettingzoos_kind",
        "tests/compat/rllib_face/test_config.py::test_what_is_no_setting_or_cannot_be_is_refused",
    ),
    "Are there model-based algorithms?": (
        "tests/algorithms/test_model_based.py::test_it_trains_on_the_command_line",
        "tests/algorithms/search/test_mcts.py::test_it_finds_best_moves_of_tictactoe",
    ),
    "Which papers should I cite?": ("tests/laws/test_cards.py::test_a_card_says_what_tables_show",),
}


def test_every_answer_is_held_by_tests_that_are_there() -> None:
    assert ANSWERS.keys() == HELD_BY.keys()
    for place in {place for places in HELD_BY.values() for place in places}:
        path, _, name = place.partition("::")
        tree = ast.parse((ROOT / path).read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, place


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
