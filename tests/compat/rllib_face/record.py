"""Runs the functions of ``programs/`` under RLlib itself and writes what each says to ``recorded/``.

An interpreter that has ``ray[rllib]`` runs this: ``python tests/compat/rllib_face/record.py [names]``. Without names
it runs all that are recorded. Nothing of polyak is imported.
"""

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in (FOLDER / "recorded").glob("*.json")):
        words = [sys.executable, "-W", "ignore", "say.py", name]
        made = subprocess.run(words, cwd=FOLDER / "programs", capture_output=True, text=True)
        if made.returncode:
            print(made.stderr[-3000:], file=sys.stderr)
            sys.exit(f"{name} fails under RLlib")
        said = json.loads(made.stdout.splitlines()[-1])
        (FOLDER / "recorded" / f"{name}.json").write_text(json.dumps(said, indent=1, sort_keys=True) + "\n")
        print(name, said)
