"""Runs a program with its arguments as ``__main__``, and prints as JSON what it called of its own, in the order in
which each was called first, and what it returned, said and gave to the learner.

The last line of the output is ``{"calls": [...], "keys": [...], "numbers": {...}, "said": {...}}``. A program's
``results`` is the last result of its training, and ``SAID`` what must be equal everywhere.
"""

import ast
import json
import runpy
import sys
import threading


def functions_of(path):
    """First line of each function of a program -> its name, with that of its class."""
    found = {}

    def look(node, name):
        for one in ast.iter_child_nodes(node):
            if isinstance(one, (ast.ClassDef, ast.FunctionDef)):
                full = f"{name}.{one.name}".lstrip(".")
                if isinstance(one, ast.FunctionDef):
                    found[min([one.lineno, *(mark.lineno for mark in one.decorator_list)])] = full
                look(one, full)

    with open(path) as program:
        look(ast.parse(program.read()), "")
    return found


def flat(result, above=""):
    """Keys of a nested result, with slashes, and its numbers."""
    for key, value in result.items():
        if isinstance(value, dict):
            yield from flat(value, f"{above}{key}/")
        else:
            yield f"{above}{key}", value


def main():
    path = sys.argv[1]
    functions, calls = functions_of(path), []

    def look(frame, event, _):
        if event == "call" and frame.f_code.co_filename == path:
            name = functions.get(frame.f_code.co_firstlineno)
            if name is not None and name not in calls:
                calls.append(name)

    sys.argv = sys.argv[1:]
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        made = runpy.run_path(path, run_name="__main__")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    of = {part: made["results"].get(part, {}) for part in ("env_runners", "learners", "evaluation")}
    found = dict(flat(of))
    numbers = {key: float(value) for key, value in found.items() if key.rpartition("/")[2] in NUMBERS}
    say = {"calls": calls, "keys": sorted(found), "numbers": numbers, "said": made.get("SAID", {})}
    print(json.dumps(say, default=lambda value: value.item()))


NUMBERS = ("episode_return_mean", "episode_len_mean", "num_env_steps_sampled", "entropy", "num_trainable_parameters")
"""Results that are much the same everywhere."""

if __name__ == "__main__":
    main()
