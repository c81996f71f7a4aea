"""Writes ``data/hooks.json``: which of its methods Stable-Baselines3 calls, by class and phase of a model's life.

An interpreter that has ``stable_baselines3`` and ``sb3_contrib`` runs this in the tests' folder of compat.
"""

import json
from collections import Counter
from pathlib import Path

import hooks
import sb3_contrib
import stable_baselines3

if __name__ == "__main__":
    calls: Counter[str] = Counter()
    algorithms, parts = {}, {}
    for name in hooks.ALGORITHMS:
        base = getattr(stable_baselines3, name, None) or getattr(sb3_contrib, name)
        names = hooks.methods_of(base)
        algorithms[name] = {"methods": names, "called": hooks.phases(hooks.spied(base, names, calls), name, calls)}
    for name, (base, train) in hooks.part_cases().items():
        calls.clear()
        train(hooks.spied(base, hooks.methods_of(base), calls))
        parts[name] = sorted(calls)
    target = Path(__file__).parent / "data" / "hooks.json"
    target.write_text(json.dumps({"algorithms": algorithms, "parts": parts}, indent=1) + "\n")
