"""Makes a notebook of each of three tutorials: ``python docs/notebooks.py``, or ``--check``, which writes nothing.

Code in Python becomes code cells, everything else text: a notebook says what its page says.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
NAMES = ("first_agent", "own_environment", "offline")
_CODE = re.compile(r"```python\n(.*?)```\n?", re.DOTALL)


def notebook(page: str) -> str:
    """The page of a tutorial as a notebook of format 4.5."""
    cells: list[dict[str, Any]] = []
    for number, text in enumerate(_CODE.split(page)):
        if text := text.strip("\n"):
            about: dict[str, Any] = {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}}
            if number % 2:
                about |= {"cell_type": "code", "execution_count": None, "outputs": []}
            else:
                text = re.sub(r"\]\((\w+\.md)", r"](../tutorials/\1", text)
            cells.append(about | {"source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1) + "\n"


def files() -> dict[Path, str]:
    """Each notebook with the text that it should have."""
    pages = {name: (DOCS / "tutorials" / f"{name}.md").read_text("utf-8") for name in NAMES}
    return {DOCS / "notebooks" / f"{name}.ipynb": notebook(page) for name, page in pages.items()}


def main(arguments: list[str]) -> int:
    """Write what is out of date and name it; with ``--check`` only name it, and return 1 if there is any."""
    old = {path: text for path, text in files().items() if not path.exists() or path.read_text("utf-8") != text}
    for path, text in old.items():
        print(f"{path.relative_to(DOCS.parent)} {'is out of date' if '--check' in arguments else 'written'}")
        if "--check" not in arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
    return int("--check" in arguments and bool(old))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
