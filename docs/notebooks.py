"""Makes a notebook of some tutorials: ``python docs/notebooks.py``, or ``--check``, which writes nothing.

Code in Python becomes code cells, everything else text: a notebook says what its page says.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

from generated import ROOT, main

DOCS = ROOT / "docs"
NAMES = (
    "first_agent",
    "own_environment",
    "offline",
    "course_lander",
    "course_tables",
    "course_zoo",
    "course_arm",
)
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


if __name__ == "__main__":
    sys.exit(main(files(), sys.argv[1:]))
