"""Writes down what Stable-Baselines3 and sb3-contrib answer to the programs, so that tests need neither of them.

python tests/parity/record.py --python /path/to/python-with-sb3 [names ...]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
RECORDED = HERE / "recorded"
VERSIONS = (
    "import gymnasium, json, numpy, sb3_contrib, stable_baselines3, torch\n"
    "print(json.dumps({m.__name__: m.__version__ for m in (stable_baselines3, sb3_contrib, gymnasium, numpy, torch)}))"
)


def files() -> list[Path]:
    """The files of programs."""
    return sorted(path for path in PROGRAMS.glob("*.py") if path.stem != "worlds")


def run(command: list[str], file: Path) -> dict[str, Any]:
    """The answers of one file's programs under ``command``, a Python or something that stands for one."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "answers.json"
        environ = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, str(HERE / "runner.py"), str(file), str(out)],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{file.name} under {command[0]} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        answers: dict[str, Any] = json.loads(out.read_text())
        return answers


def compact(answers: Any) -> str:
    """JSON with one line for each program's entry: small, and readable in a diff."""
    lines = []
    for name, value in answers.items():
        if isinstance(value, dict) and value:
            inner = ",\n".join(f"  {json.dumps(key)}: {json.dumps(item)}" for key, item in value.items())
            lines.append(f" {json.dumps(name)}: {{\n{inner}\n }}")
        else:
            lines.append(f" {json.dumps(name)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="a Python that has Stable-Baselines3 and sb3-contrib")
    parser.add_argument("names", nargs="*", help="files of programs, without .py (default: all)")
    options = parser.parse_args()
    RECORDED.mkdir(exist_ok=True)
    versions = subprocess.run([options.python, "-c", VERSIONS], capture_output=True, text=True, check=True).stdout
    (RECORDED / "versions.json").write_text(compact(json.loads(versions)))
    for file in files():
        if not options.names or file.stem in options.names:
            answers = run([options.python], file)
            raised = [name for name, value in answers.items() if isinstance(value, dict) and "raised" in value]
            (RECORDED / f"{file.stem}.json").write_text(compact(answers))
            print(f"{file.stem}: {len(answers)} programs" + (f", raised: {raised}" if raised else ""))


if __name__ == "__main__":
    sys.exit(main())
