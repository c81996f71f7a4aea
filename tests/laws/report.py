"""``python -m tests.laws.report``: sizes that we want to see move. Aims, not limits: nothing here fails."""

import ast
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import gymnasium as gym

from tests.laws.floors import PACKAGE, modules


def code_lines(path: Path) -> int:
    """Lines that are neither blank nor comment."""
    return sum(1 for line in path.read_text().splitlines() if line.strip() and not line.strip().startswith("#"))


def longest_functions(count: int = 8) -> list[tuple[int, str]]:
    """The longest functions of the package."""
    found = []
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.end_lineno:
                found.append((node.end_lineno - node.lineno + 1, f"{name}.{node.name}"))
    return sorted(found, reverse=True)[:count]


def reading_path(algorithm: type[Any], env: gym.Env, steps: int, **options: Any) -> tuple[int, int, int]:
    """Files, functions and code lines of the package that run when ``algorithm`` is built and learns."""
    seen: set[Any] = set()

    def trace(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(PACKAGE)):
            seen.add(frame.f_code)

    sys.setprofile(trace)
    try:
        algorithm("MlpPolicy", env, **options).learn(steps)
    finally:
        sys.setprofile(None)
    bodies = {code for code in seen if code.co_name != "<module>"}
    lines = {(c.co_filename, line) for c in bodies for _, _, line in c.co_lines() if line is not None}
    return len({code.co_filename for code in bodies}), len(bodies), len(lines)


def main() -> None:
    """Print the report."""
    from polyak import PPO, SAC

    print("algorithm files (aim: 150 to 300 lines)")
    for path in sorted((PACKAGE / "algorithms").glob("[!_]*.py")):
        print(f"  {path.name:<12} {len(path.read_text().splitlines()):>4} lines, {code_lines(path):>4} of code")
    print("largest other files")
    sizes = sorted(((code_lines(p), n) for n, p in modules().items() if ".algorithms." not in n), reverse=True)
    for size, name in sizes[:10]:
        print(f"  {name:<32} {size:>4} lines of code")
    print("longest functions (aim: they fit on a screen)")
    for size, name in longest_functions():
        print(f"  {name:<64} {size:>4} lines")
    sac = reading_path(SAC, gym.make("Pendulum-v1"), 260, policy_kwargs={"net_arch": [16]})
    ppo = reading_path(PPO, gym.make("Pendulum-v1"), 256, n_steps=128)
    print("code that runs from construction through learning: files, functions, lines")
    print(f"  SAC {sac} (aim: about 750 lines; Stable-Baselines3: 19, 163, 1330)")
    print(f"  PPO {ppo} (aim: about 650 lines; Stable-Baselines3: 18, 146, 1234)")
    print(f"whole package: {sum(code_lines(p) for p in modules().values())} lines of code in {len(modules())} files")


if __name__ == "__main__":
    main()
