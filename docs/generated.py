"""What the programs share that write files of the documentation: ``from_cards``, ``from_results``, ``notebooks``,
``llms``.

What is generated within a file stands between two comments that say so.
"""

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main(files: dict[Path, str], arguments: list[str]) -> int:
    """Write the files that are out of date and name them; with ``--check`` only name them, and return 1 if there is
    any."""
    old = {path: text for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in old.items():
        print(f"{path.relative_to(ROOT)} {'is out of date' if '--check' in arguments else 'written'}")
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    return int("--check" in arguments and bool(old))


def filled(name: str, text: str, mark: str, *blocks: Iterable[str], comment: str = "<!--") -> str:
    """A file's text, with each block of lines between the next two comments of this mark.

    Raises:
        ValueError: it has not each of them once for each block.
    """
    begin, end = (f"{comment} {mark}; {edge}{' -->' if comment == '<!--' else ''}" for edge in ("begins", "ends"))
    made, *parts = text.split(begin)
    if len(parts) != len(blocks) or end in made or any(part.count(end) != 1 for part in parts):
        raise ValueError(f"{name} must have a line {begin!r} and a line {end!r} after it, {len(blocks)} times.")
    for lines, part in zip(blocks, parts, strict=True):
        indent = made.rpartition("\n")[2]
        body = "".join(f"{indent}{line}\n" for line in ("", *lines, "") if comment == "<!--" or line)
        made += f"{begin}\n{body}{indent}{end}{part.partition(end)[2]}"
    return made
