"""The library's words are the field's: none of those that the glossary of docs/developer.md replaces."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BANNED = {
    "image": r"pictures?|pictured",
    "support, apply (masks)": r"heed(?:s|ed|ing)?",
    "recurrent policy, recurrent state; store, keep": r"remember(?:s|ed|ing)?",
    "evaluate": r"judg(?:e|es|ed|ing|ement|ements|ment|ments)",
    "continue, resume": r"(?:go|goes|going|gone|went)[ _]+on",
    "tunable hyper-parameter": r"dials?",
    "report, show, pass; distinguish": r"told|tells?|telling",
    "again, new": r"anew",
    "a user, another program, none": r"(?:some|no|any|every)body|(?:some|any)one|who(?:m?ever)",
    "that, which": r"who|whom",
    "tables, learner state": r"minds?|minded",
}
"""The words to use -> a pattern of those that they replace, with their inflections."""

PERSONS = re.compile(r"\b(?:players?|users?|authors?|readers?|people),? +$")
"""After a person, "who" is right."""

ALLOWED = {
    ("polyak/algorithms/tabular/learning.py", "mind"): "the name of tables in saved files",
    ("polyak/archive.py", "tell"): "a method of Python's files",
    ("polyak/data/datasets/formats/npz.py", "tell"): "a method of Python's files",
    ("polyak/envs/reading/npz.py", "tell"): "a method of Python's files",
    ("polyak/envs/wrappers/monitor.py", "tell"): "a method of Python's files",
    ("polyak/nn/networks/attention.py", "tell"): "a name of parameters in saved files",
    ("polyak/zoo/tuning/studies.py", "tell"): "a method of Optuna's studies",
    ("polyak/zoo/tuning/workers.py", "tell"): "a method of Optuna's studies",
}
"""File and word -> why the word may stay there."""

_STRINGS = (tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
_WORDS = re.compile(rf"(?<![a-z])(?:{'|'.join(BANNED.values())})(?![a-z])", re.IGNORECASE)


def files() -> list[str]:
    """The package and the pages of the documentation."""
    found = [*(ROOT / "polyak").rglob("*.py"), *(ROOT / "docs").glob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def found_in(text: str) -> Iterator[tuple[int, str]]:
    """Place and word of each banned word in prose, or in a name of several words."""
    for match in _WORDS.finditer(re.sub(r"\s", " ", text)):
        word = re.sub("[ _]+", " ", match.group().lower())
        if not (word in ("who", "whom") and PERSONS.search(re.sub(r"\s", " ", text[: match.start()]))):
            yield match.start(), word


def words_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Line and word of each banned word in comments, strings and names."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME:
            text = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", token.string)
        elif token.type in _STRINGS:
            text = token.string
        else:
            continue
        for place, word in found_in(text):
            yield token.start[0] + text[:place].count("\n"), word


def words_of_page(text: str) -> Iterator[tuple[int, str]]:
    """Line and word of each banned word of a page; rows of the glossary, which names them, are left out."""
    lines = ["" if line.startswith("| ") and line.count("|") == 4 else line for line in text.split("\n")]
    text = "\n".join(lines)
    for place, word in found_in(text):
        yield 1 + text[:place].count("\n"), word


def instead_of(word: str) -> str:
    """What to write."""
    return next(better for better, pattern in BANNED.items() if re.fullmatch(pattern, word))


def test_words_are_the_fields() -> None:
    wrong = []
    for path in files():
        text = (ROOT / path).read_text(encoding="utf-8")
        words = words_of_python(text) if path.endswith(".py") else words_of_page(text)
        said = [(line, word) for line, word in words if (path, word) not in ALLOWED]
        wrong += [f"{path}:{line}: {word!r}: say {instead_of(word)}" for line, word in said]
    assert not wrong, "\n".join(wrong)


def test_exceptions_are_needed() -> None:
    """What is done leaves the lists."""
    for path, word in ALLOWED:
        assert word in {found for _, found in words_of_python((ROOT / path).read_text(encoding="utf-8"))}, (path, word)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = 1  # the policy remembers, and goes\n", ["remembers"]),
        ("x = 1  # a recurrent policy\n", []),
        ('"""It goes\n    on."""\n', ["goes on"]),
        ("def judged_anew(): pass\n", ["judged", "anew"]),
        ("class OldPictures: pass\n", ["pictures"]),
        ("f'{x} is told'\n", ["told"]),
        ("# a player who moves\n# whoever moves\n", ["whoever"]),
        ("# the process who\n", ["who"]),
        ("# The game of Go. On a board, reminded, prejudice, whole, tellurium.\n", []),
        ("# heeds_masks\nself.supports_masks = 1\n", ["heeds"]),
    ],
)
def test_the_law_finds_what_it_should(source: str, words: list[str]) -> None:
    assert [word for _, word in words_of_python(source)] == words
