"""Runs each program of ``examples/`` under RLlib itself and writes what it says to ``recorded_examples.json``.

An interpreter that has ``ray[rllib]`` runs this: ``python tests/compat/rllib_face/record_examples.py [names]``. Nothing
of polyak is imported. Without names it runs all that are recorded. Ray is started once for all of them.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

import ray

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER / "examples"))
ARGUMENTS = ["--no-tune", "--num-env-runners=0", "--stop-iters=2"]

if __name__ == "__main__":
    import watch

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    ray.init = ray.shutdown = lambda *args, **kwargs: None
    file = FOLDER / "recorded_examples.json"
    recorded = json.loads(file.read_text()) if file.exists() else {}
    programs = sys.argv[1:] or sorted(recorded)
    for name in programs:
        sys.argv = ["watch.py", str(FOLDER / "examples" / f"{name}.py"), *ARGUMENTS]
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            watch.main()
        recorded[name] = json.loads(said.getvalue().splitlines()[-1])
        file.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
        print(name, recorded[name]["said"], flush=True)
