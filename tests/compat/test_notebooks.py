"""``polyak run notebook.ipynb``: the code cells as one program, without what only a notebook server understands."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from polyak.compat.notebooks.runner import read_cells, run_cell, without_magics
from polyak.compat.run import run
from tests.compat.test_run import RUN, outcome


def write(path: Path, *cells: Any, **metadata: Any) -> Path:
    """A notebook of code cells, whose text is a string or a list of lines, with a cell of prose in between."""
    listed = [
        {"cell_type": "code", "source": text, "metadata": {}, "outputs": [], "execution_count": None} for text in cells
    ]
    prose = {"cell_type": "markdown", "source": ["# not code: ("], "metadata": {}}
    content = {"cells": [prose, *listed], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("source", "code", "left_out"),
    [
        ("%matplotlib inline\nx = 1", "pass\nx = 1", ["%matplotlib inline"]),
        ("if True:\n    !pip install x\n    y = 2", "if True:\n    pass\n    y = 2", ["!pip install x"]),
        ("x = (7\n% 4)\ny = '''\n!ls\n'''", "x = (7\n% 4)\ny = '''\n!ls\n'''", []),
        (
            "!ls\nx = (7\n% 4)\ny = '''\n!ls\n'''\nz = 7 \\\n% 4\n%time w = 1",
            "pass\nx = (7\n% 4)\ny = '''\n!ls\n'''\nz = 7 \\\n% 4\nw = 1",
            ["!ls", "%time"],
        ),
        ("files = !ls\n?print\nprint?\npip install x", "pass\npass\npass\npass", None),
        ("%%bash\nrm -rf x", "", ["the cell, %%bash"]),
        ("\n%%time\nx = 1\n!ls", "\n\nx = 1\npass", ["%%time", "!ls"]),
        ("x = 1 +", "x = 1 +", []),
        ("", "", []),
        ("# 100 %\nx = 'a%b' % ()", "# 100 %\nx = 'a%b' % ()", []),
    ],
)
def test_magics(source: str, code: str, left_out: list[str] | None) -> None:
    found, said = without_magics(source)
    assert found == code
    assert said == left_out if left_out is not None else len(said) == 4


def test_a_notebook_runs(tmp_path: Path) -> None:
    """With the null and true of its JSON, its own arguments, modules beside it, and polyak behind the names."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "beside.py").write_text("HERE = 'beside'")
    write(
        tmp_path / "deep" / "notebook.ipynb",
        ["%pip install stable-baselines3\n", "import sys, beside\n", "print(sys.argv[1:], beside.HERE, __name__)"],
        "from importlib.util import find_spec\nfind_spec('stable_baselines3').origin",
        "1 + 1;",
        "display('shown')\n2 + 2",
        "class Mine:\n    pass\nimport pickle\ntype(pickle.loads(pickle.dumps(Mine()))) is Mine",
        "%%bash\nexit 3",
        "def f():\n    raise ValueError('wrong')\nf()",
        "print('never')",
    )
    result = outcome([*RUN, "deep/notebook.ipynb", "--help", "x"], tmp_path)
    assert result.returncode == 1
    expected = ["['--help', 'x'] beside __main__", "'polyak (stable_baselines3)'", "shown", "4", "True"]
    assert result.stdout.splitlines() == expected
    said = result.stderr.splitlines()
    assert said[:3] == [
        "polyak run: cell 1: left out %pip install stable-baselines3",
        "polyak run: polyak answers stable_baselines3 and sb3_contrib.",
        "polyak run: cell 6: left out the cell, %%bash",
    ]
    assert said[-1] == "ValueError: wrong"
    assert "runner.py" not in result.stderr
    assert '  File "notebook.ipynb, cell 7", line 2, in f' in said
    assert "    raise ValueError('wrong')" in said


def test_cells_share_their_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = write(tmp_path / "n.ipynb", "x = 3", ["def f():\n", "    return x"], "x = 4\nf()", "", "# nothing")
    names: dict[str, Any] = {}
    for cell in read_cells(str(path)):
        run_cell(cell, "n.ipynb", names)
    assert capsys.readouterr().out == "4\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("print(1)", "is not a notebook: it is not JSON"),
        ("[]", "is not a notebook of format 4"),
        ('{"worksheets": [{"cells": []}], "nbformat": 3}', "is not a notebook of format 4"),
        ('{"cells": [3]}', "is not a notebook of format 4"),
        ('{"cells": [], "metadata": {"kernelspec": {"language": "R"}}}', "is a notebook in r. Only Python is run"),
    ],
)
def test_what_is_no_notebook_is_refused(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    path.write_text(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        run(str(path))


def test_the_runner_needs_nothing_but_python(tmp_path: Path) -> None:
    from polyak.compat.notebooks import runner

    path = write(tmp_path / "n.ipynb", "import sys\nprint([n for n in sys.modules if n.startswith('polyak')])")
    words = [sys.executable, "-I", runner.__file__, str(path)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "[]\n"
