"""Writes the traces in architecture.md: the calls of one step of SAC, and of one iteration of PPO, as they run.

python docs/traces.py
"""

import re
import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
TOLD = (
    "loops/",
    "collecting/",
    "learning/learner.py",
    "learning/rollout_learner.py",
    "algorithms/",
    "experience/replay_",
)
"""Rooms and files whose calls are a part of the story; what is beneath them is left out."""
DEEPEST = 7
"""Levels below the loop that are told."""


def lines_of(name: str) -> list[str]:
    """The calls of a step, indented; equal ones after one another, with all that they call, are told once."""
    sys.path.insert(0, str(ROOT))
    from tests.laws.gauge import traced

    calls = [(level, path, function) for level, path, function in traced(name).calls if path.startswith(TOLD)]
    least = min(level for level, *_ in calls)
    told = [
        f"{'  ' * (level - least)}{function.replace('.<locals>', '')}  ({path})"
        for level, path, function in calls
        if level - least <= DEEPEST and not re.search(r"<\w+comp>|<genexpr>|<lambda>|__\w+__", function)
    ]
    return without_repeats([line for line, _ in groupby(told)])


def without_repeats(lines: list[str]) -> list[str]:
    """Blocks of lines that come again at once are told once."""
    for size in range(len(lines) // 2, 0, -1):
        at = 0
        while at + 2 * size <= len(lines):
            if lines[at : at + size] == lines[at + size : at + 2 * size]:
                del lines[at + size : at + 2 * size]
            else:
                at += 1
    return lines


def main() -> None:
    """Replace what stands between the marks of the page."""
    text = PAGE.read_text(encoding="utf-8")
    for name in ("SAC", "PPO"):
        block = "```text\n" + "\n".join(lines_of(name)) + "\n```"
        mark = f"<!-- trace {name} -->"
        start, end = text.index(mark) + len(mark), text.index(f"<!-- end {name} -->")
        text = f"{text[:start]}\n\n{block}\n\n{text[end:]}"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
