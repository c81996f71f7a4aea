"""Runs each program of ``programs/`` under RLlib itself and writes what it says to ``recorded/``.

An interpreter that has ``ray[rllib]`` runs this: ``python tests/compat/rllib_face/record.py [names]``. Nothing of
polyak is imported.
"""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
if __name__ == "__main__":
    wanted = sys.argv[1:]
    for program in sorted((FOLDER / "programs").glob("*.py")):
        name = program.stem
        if "def outcome" not in program.read_text() or (wanted and name not in wanted):
            continue
        words = [sys.executable, "-W", "ignore", "say.py", name]
        made = subprocess.run(words, cwd=program.parent, capture_output=True, text=True)
        if made.returncode:
            print(made.stderr[-3000:], file=sys.stderr)
            sys.exit(f"{name} fails under RLlib")
        said = json.loads(made.stdout.splitlines()[-1])
        (FOLDER / "recorded" / f"{name}.json").write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")
        print(name, said)
