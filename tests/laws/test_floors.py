"""Each floor imports only from lower ones; optional libraries stay behind the doors that may open them."""

import ast
import re
import subprocess
import sys

from tests.laws.floors import FLOORS, PACKAGE, floor_of, imports, internal_imports, modules, named
from tests.warm import python

MODULES = modules()


ON_FLOORS = [name for name in MODULES if floor_of(name) is not None]


def test_modules_import_only_from_lower_floors() -> None:
    wrong = []
    for name in ON_FLOORS:
        own_floor, own_folder = floor_of(name), name.split(".")[1]
        for target, line in internal_imports(name, MODULES[name], MODULES):
            folder = target.split(".")[1] if "." in target else None
            if folder is None:
                wrong.append(f"{MODULES[name]}:{line}: floors do not import the package itself")
            elif folder != own_folder and FLOORS[folder] >= own_floor:
                wrong.append(f"{MODULES[name]}:{line}: {own_folder} may not import {folder}")
    assert len(ON_FLOORS) > 100
    assert not wrong, "\n".join(wrong)


def test_only_the_table_of_formats_names_higher_floors() -> None:
    wrong = []
    for name in ON_FLOORS:
        for text, line in named(MODULES[name]) if name != "polyak.formats" else ():
            target = floor_of(text.partition(":")[0])
            if target is None or target > floor_of(name):
                wrong.append(f"{MODULES[name]}:{line}: {text!r} may name a higher floor. Move it to polyak/formats.py")
    assert not wrong, "\n".join(wrong)


def test_the_table_of_formats_imports_nothing() -> None:
    assert imports(MODULES["polyak.formats"]) == []


def test_every_folder_has_a_floor() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and (path / "__init__.py").exists()}
    assert folders <= FLOORS.keys()
    assert not folders & {"common", "utils", "helpers", "misc"}


def test_there_are_no_import_cycles() -> None:
    packages = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    graph = {
        name: {target for target, _ in internal_imports(name, path, MODULES) if target not in packages}
        for name, path in MODULES.items()
        if name not in packages
    }
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name)) if name in trail else ""
        if name in done:
            return
        for target in graph.get(name, ()):
            visit(target, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_ray_is_imported_only_by_rllibs_face_and_by_what_starts_processes() -> None:
    for name, path in MODULES.items():
        if not name.startswith(("polyak.compat.rllib_face", "polyak.distributed.ray_workers")):
            assert not [t for t, _ in imports(path) if t == "ray" or t.startswith("ray.")], name


TENSORS_ALONE = ("polyak.learning.learner", "polyak.learning.data_parallel", "polyak.ops.")


def test_numpy_and_environments_stay_out_of_learners_and_ops() -> None:
    found = [name for name in MODULES if name.startswith(TENSORS_ALONE)]
    assert len(found) > len(TENSORS_ALONE)
    for name in found:
        assert not [t for t, _ in imports(MODULES[name]) if t.startswith(("numpy", "gymnasium"))], name


def test_no_learner_reads_numpy() -> None:
    """Of an algorithm's file only what is below its learners may know arrays and spaces."""
    bodies = {
        name: ast.parse(path.read_text()).body
        for name, path in MODULES.items()
        if name.startswith("polyak.algorithms.")
    }
    learners = [
        (name, node)
        for name, body in bodies.items()
        for node in body
        if isinstance(node, ast.ClassDef) and node.name.endswith("Learner")
    ]
    assert len(learners) > 20
    for name, learner in learners:
        names = {node.id for node in ast.walk(learner) if isinstance(node, ast.Name)}
        assert not names & {"np", "numpy", "spaces", "gym"}, f"{name}: {learner.name}"


def test_the_face_presumes_neither_network_nor_compiler() -> None:
    below = ("torch.", "polyak.nn.", "polyak.learning.")
    for target, line in imports(MODULES["polyak.algorithm"]):
        assert not f"{target}.".startswith(below), f"algorithm.py:{line} imports {target}"


def test_nothing_of_the_peers_is_imported() -> None:
    pattern = re.compile(r"^\s*(?:import|from) (?:stable_baselines3|sb3_contrib|rl_zoo3|d3rlpy)\b", re.MULTILINE)
    assert not [name for name, path in MODULES.items() if pattern.search(path.read_text("utf-8"))]


def test_importing_polyak_is_light() -> None:
    """The package's own import takes in none of the optional libraries, nor even torch."""
    code = "import sys, polyak; print(sorted({'torch','matplotlib','pandas','tensorboard','ray'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


def test_an_algorithm_takes_in_no_optional_library() -> None:
    optional = "{'matplotlib','pandas','tensorboard','rich','cv2','imageio','ale_py','mujoco','optuna','typer'}"
    code = f"import sys; from polyak import PPO, SAC; print(sorted({optional} & set(sys.modules)))"
    assert python(["-c", code], check=True).stdout.strip() == "[]"
