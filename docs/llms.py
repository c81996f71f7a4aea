"""Makes the documentation's summary for language models, ``llms.txt`` (llmstxt.org), of the algorithms' cards, the
navigation and snippets of the pages: ``python docs/llms.py``, or ``--check``, which writes nothing.

``mkdocs`` puts each page's Markdown beside it, and all of them, with constructors' arguments, into ``llms-full.txt``.
"""

import re
import sys
from collections.abc import Iterator
from inspect import getdoc
from pathlib import Path
from pkgutil import resolve_name

import yaml
from from_cards import actions, classes, page, title
from generated import ROOT, main

DOCS = ROOT / "docs"
SNIPPETS = {
    "Train, save, load, act": ("quickstart", 0),
    "Evaluate, with a 95 % interval": ("quickstart", 2),
    "Continue a training": ("quickstart", 3),
    "Normalise observations and rewards; the model keeps the statistics": ("tutorials/normalization", 0),
    "Evaluate, checkpoint and stop while training": ("callbacks", 1),
    "An environment of your own": ("tutorials/own_environment", 0, 1),
    "Learn from recorded data, which may be CSV, Parquet, HDF5, Minari, arrays": ("tutorials/offline", 0, 1),
    "Export to ONNX or `.pt2`, normalisation included": ("tutorials/export", 0),
}
"""What it shows -> the page whose snippets show it, and their numbers."""
FACTS = """\
- Python 3.10 to 3.13; `pip install -e '.[extra,zoo]'` from a checkout. A missing extra is an error that names it.
- `polyak` has every algorithm and what most programs need; more is in `polyak.envs`, `.callbacks`, `.evaluation`,
  `.experience`, `.nn`, `.noise`, `.schedules`, `.custom`. Names in their `__all__` are public, no others.
- Constructors, `learn`, `predict`, callbacks and log keys are those of Stable-Baselines3, whose programs run as they
  are: `polyak run train.py`.
- `"MlpPolicy"` reads vectors and numbers, `"CnnPolicy"` images, `"MultiInputPolicy"` Dicts. Environments are names,
  `gymnasium.Env`s or vectors of them. `learn` returns the model; offline algorithms take a `Dataset` for the
  environment, and count gradient steps.
- n-step returns, prioritised replay, hindsight, recurrent policies and masks are options, not classes.
- A wrong argument is an error at construction that names it, its value and the fix."""


def summary() -> str:
    """``llms.txt``."""
    _, about, *_ = text_of("index.md").split("\n\n")
    lines = ["# polyak", "", f"> {' '.join(about.split())}", "", FACTS]
    for what, (name, *numbers) in SNIPPETS.items():
        code = re.findall(r"```python\n.*?```", text_of(f"{name}.md"), re.DOTALL)
        for number in numbers:
            lines += ["", f"{what}:" if number == numbers[0] else "then", "", code[number]]
    lines += ["", "## Algorithms", ""]
    for name, cls in classes().items():
        facts = f"`{cls.__name__}`, `--algo {name}`; learns from {cls.card.learns_from}; actions: {actions(cls)}"
        lines += [f"- [{title(cls)}]({page(cls)}): {cls.card.idea}; {facts}"]
    for section, pages in sections():
        if section != "Algorithms":
            lines += ["", f"## {section}", ""]
            lines += [f"- [{called}]({path}){first_sentence(path)}" for called, path in pages]
    return "\n".join([*lines, ""])


def sections() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The navigation but for home and reference: a section, the names and the paths of its pages."""
    for entry in yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]:
        for section, pages in entry.items():
            if isinstance(pages, list) and section != "API reference":
                yield section, [item for made in pages for item in made.items()]


def first_sentence(path: str) -> str:
    """What a page begins with, after a colon; nothing if it does not begin with words."""
    _, first, *_ = [*text_of(path).split("\n\n"), ""]
    sentence = re.split(r"(?<=[.?]) ", " ".join(first.split()))[0].rstrip(".:").replace("**", "")
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sentence)
    return f": {plain}" if re.match(r"[\w`*\"]", first) and not first.startswith("```") else ""


def full() -> str:
    """``llms-full.txt``: the summary, then the pages for users in the order of the navigation."""
    paths = (path for section, pages in sections() if section != "Development" for _, path in pages)
    return "\n\n".join([summary(), *(described(text_of(path)) for path in dict.fromkeys(paths))])


def described(text: str) -> str:
    """A page, with docstrings in place of the lines that ask for them."""
    return re.sub(r"^::: (polyak[\w.]*)\n(?: {4}.*\n?)*", _described, text, flags=re.MULTILINE)


def _described(block: re.Match[str]) -> str:
    return f"`{block[1]}`\n\n```text\n{getdoc(resolve_name(block[1])) or ''}\n```\n"


def text_of(path: str) -> str:
    """A page of ``docs/``, without comments."""
    return re.sub(r"<!-- .*? -->\n*", "", (DOCS / path).read_text("utf-8"))


def files() -> dict[Path, str]:
    """The summary, as it should be."""
    return {DOCS / "llms.txt": summary()}


if __name__ == "__main__":
    sys.exit(main(files(), sys.argv[1:]))
