"""Pages, docstrings and messages are spelled as codespell's list of words wants."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROSE = [*ROOT.glob("*.md"), *(ROOT / name for name in ("docs", "examples", "polyak"))]


def spelled(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "codespell_lib", "--toml", "pyproject.toml", *map(str, paths)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_words_are_spelled_right() -> None:
    checked = spelled(*PROSE)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_wrong_word_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("An agent that " + "recie" + "ves rewards.\n")
    assert "receives" in spelled(page).stdout
