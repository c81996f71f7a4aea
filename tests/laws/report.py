"""``python -m tests.laws.report``: sizes that we want to see move. Aims, not limits: nothing here fails."""

import ast
from collections import defaultdict
from pathlib import Path
from typing import Any

import gymnasium as gym

from tests.laws.floors import PACKAGE, modules
from tests.laws.reading import first_iterations

READING_AIMS = {"SAC": (15, 700), "PPO": (15, 650)}
"""Files, and lines of code."""
VERSION_0_1_0 = {"SAC": (22, 111, 839), "PPO": (22, 114, 852), "core": (32, 5_906), "package": (148, 22_266)}
"""What the same script counted there: files, functions and lines to be read; files and lines of code of the whole."""
PEERS = {"SAC": 1330, "PPO": 1234}
"""Lines of Stable-Baselines3 that run from construction through learning."""


def code_lines(path: Path) -> int:
    """Lines that are neither blank nor comment."""
    return sum(1 for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("#"))


def rooms() -> dict[str, list[int]]:
    """The lines of code of each file, by folder."""
    found: dict[str, list[int]] = defaultdict(list)
    for path in modules().values():
        found[path.parent.relative_to(PACKAGE).as_posix()].append(code_lines(path))
    return dict(sorted(found.items()))


def longest_functions(count: int = 8) -> list[tuple[int, str]]:
    """The longest functions of the package."""
    found = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                found.append((node.end_lineno - node.lineno + 1, f"{name}.{node.name}"))
    return sorted(found, reverse=True)[:count]


def largest_classes(count: int = 8) -> list[tuple[int, int, str]]:
    """The largest classes of the package: lines, functions, name."""
    found = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.end_lineno:
                methods = sum(isinstance(part, ast.FunctionDef) for part in node.body)
                found.append((node.end_lineno - node.lineno + 1, methods, f"{name}.{node.name}"))
    return sorted(found, reverse=True)[:count]


def main() -> None:
    """Print the report."""
    from polyak import PPO, SAC

    print("algorithm files (aim: 150 to 300 lines)")
    for path in sorted((PACKAGE / "algorithms").glob("[!_]*.py")):
        print(f"  {path.name:<12} {len(path.read_text().splitlines()):>4} lines, {code_lines(path):>4} of code")
    print("rooms (aim: about a dozen files at most)")
    for folder, sizes in rooms().items():
        print(f"  {folder:<20} {len(sizes):>3} files, {sum(sizes):>5} lines of code")
    print("largest other files")
    sizes = sorted(((code_lines(p), n) for n, p in modules().items() if ".algorithms." not in n), reverse=True)
    for size, name in sizes[:10]:
        print(f"  {name:<40} {size:>4} lines of code")
    print("largest classes")
    for size, methods, name in largest_classes():
        print(f"  {name:<64} {size:>4} lines, {methods:>3} functions")
    print("longest functions (aim: they fit on a screen)")
    for size, name in longest_functions():
        print(f"  {name:<64} {size:>4} lines")
    print("code to open, from the runner's first step to the optimizer's: files, functions, lines")
    for algorithm, steps, options in ((SAC, 150, {}), (PPO, 128, {"n_steps": 64})):
        _print_reading(algorithm, steps, options)
    whole = sum(code_lines(p) for p in modules().values()), len(modules())
    before = VERSION_0_1_0["package"]
    print(f"whole package: {whole[0]} lines of code in {whole[1]} files (version 0.1.0: {before[1]} in {before[0]})")


def _print_reading(algorithm: type[Any], steps: int, options: dict[str, Any]) -> None:
    options = {"compile": False, "device": "cpu", "policy_kwargs": {"net_arch": [16]}, **options}
    reading = first_iterations(algorithm("MlpPolicy", gym.make("Pendulum-v1"), **options), steps)
    name = algorithm.__name__
    aim, before = READING_AIMS[name], VERSION_0_1_0[name]
    print(f"  {name} {len(reading.files)}, {reading.functions}, {reading.lines}", end=" ")
    print(f"(aim: {aim[0]} files, {aim[1]} lines; version 0.1.0: {before}; Stable-Baselines3: {PEERS[name]} lines)")
    for file, lines in reading.files.items():
        print(f"    {file:<36} {lines:>4}")


if __name__ == "__main__":
    main()
