"""What a reader feels who follows one step of training, and how large the house is.

    python -m tests.laws.gauge                  # prints the figures, and what sizes.toml allows
    python -m tests.laws.gauge --story SAC      # the calls of a step in order, questions not taken, self-jumps
    python -m tests.laws.gauge --write          # writes sizes.toml, which is in the way of a figure that rises

Two moments bound what is traced: SAC from one callback at a step to the next (store, learn, act, step the environment),
PPO from one start of a rollout to the next (64 steps and their updates). Both learn Pendulum, uncompiled.

``files``, ``functions``, ``lines``: code that must be opened. ``self_jumps``: distinct calls to a method of the same
object that is written in another file. ``not_taken``: distinct ``if`` statements that were met and whose body did not
run. ``stack``: mean number of frames of the package, over calls. ``private``: callables of the class whose name begins
with one underscore. ``depth``: classes of the package that it inherits from, itself among them; those with nothing but
fields do not count.
"""

import argparse
import ast
import inspect
import re
import sys
import threading
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from polyak import PPO, SAC
from polyak.algorithms import REGISTRY, get
from polyak.callbacks import BaseCallback
from tests.laws.floors import FACES, PACKAGE, modules

SIZES = Path(__file__).with_name("sizes.toml")
STEPS: dict[str, tuple[Any, str, int, dict[str, Any]]] = {
    "SAC": (SAC, "step", 200, {"learning_starts": 100}),
    "PPO": (PPO, "rollout", 2, {"n_steps": 64, "batch_size": 64, "n_epochs": 2}),
}
"""Name -> class, what bounds a step, the number of the one that is traced, arguments."""
ASKS = re.compile(
    r"__func__|\b(cls|type\(\w+\))\.\w+ (is|is not|==|!=) (?!None|not )"
    r"|\bgetattr\((cls|type\(\w+\)), [^()]*\) (is|is not|==|!=) "
)
"""A look at what a class overrides."""
Figures = dict[str, Any]


class Trace:
    """Functions, lines and calls of the package between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self.root = str(PACKAGE)
        self.codes: set[CodeType] = set()
        self.lines: set[tuple[str, int]] = set()
        self.jumps: set[tuple[CodeType, CodeType]] = set()
        self.calls: list[tuple[int, str, str]] = []

    def start(self) -> None:
        """Also functions that are under way are traced."""
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if self._inside(frame):
                frame.f_trace = self._line
            frame = frame.f_back
        threading.settrace(self._call)
        sys.settrace(self._call)

    def stop(self) -> None:
        """There is no more to see."""
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]

    def _inside(self, frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(self.root)

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        code, caller = frame.f_code, frame.f_back
        if not self._inside(frame) or not code.co_flags & inspect.CO_OPTIMIZED:  # elsewhere, or the body of a class
            return None
        self.codes.add(code)
        depth, at = 0, frame
        while at is not None:
            depth += self._inside(at)
            at = at.f_back  # type: ignore[assignment]
        self.calls.append((depth, code.co_filename[len(self.root) + 1 :], getattr(code, "co_qualname", code.co_name)))
        if caller is not None and self._inside(caller) and caller.f_code.co_filename != code.co_filename:
            here, there = frame.f_locals.get("self"), caller.f_locals.get("self")
            if here is not None and here is there:
                self.jumps.add((caller.f_code, code))
        return self._line

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self._line

    def not_taken(self) -> list[tuple[str, int]]:
        """The ``if`` statements that were met and whose body did not run: (file, line)."""
        ran: dict[str, set[int]] = defaultdict(set)
        for path, number in self.lines:
            ran[path].add(number)
        found = []
        for path, numbers in ran.items():
            for node in ast.walk(ast.parse(Path(path).read_text())):
                if not isinstance(node, ast.If):
                    continue
                test = set(range(node.test.lineno, (node.test.end_lineno or 0) + 1))
                body = set(range(node.body[0].lineno, (node.body[-1].end_lineno or 0) + 1)) - test
                if numbers & test and not numbers & body:
                    found.append((path[len(self.root) + 1 :], node.lineno))
        return sorted(found)

    def figures(self) -> Figures:
        """By name."""
        lines: dict[str, set[int]] = defaultdict(set)
        for code in self.codes:
            if code.co_flags & inspect.CO_NEWLOCALS:
                lines[code.co_filename] |= {number for _, _, number in code.co_lines() if number}
        return {
            "files": len(lines),
            "functions": len(self.codes),
            "lines": sum(map(len, lines.values())),
            "self_jumps": len(self.jumps),
            "not_taken": len(self.not_taken()),
            "stack": round(sum(depth for depth, *_ in self.calls) / len(self.calls), 1),
        }


def traced(name: str) -> Trace:
    """One step of ``SAC``, or one iteration of ``PPO``."""
    cls, bound, first, options = STEPS[name]
    found = Trace()

    class Window(BaseCallback):
        seen = 0

        def mark(self) -> None:
            self.seen += 1
            if self.seen == first:
                found.start()
            elif self.seen == first + 1:
                found.stop()

        def _on_step(self) -> bool:
            if bound == "step":
                self.mark()
            return True

        def _on_rollout_start(self) -> None:
            if bound == "rollout":
                self.mark()

    small = {"policy_kwargs": {"net_arch": [16, 16]}, "device": "cpu", "seed": 0, "compile": False}
    cls("MlpPolicy", "Pendulum-v1", **small, **options).learn(260, callback=Window())
    found.stop()
    return found


def _line_of(cls: type) -> list[type]:
    return [base for base in cls.__mro__ if base.__module__.partition(".")[0] == "polyak"]


def depth(cls: type) -> int:
    """Classes of the package in a line of inheritance, but those with nothing but fields."""
    kinds = (staticmethod, classmethod, property)

    def behaves(base: type) -> bool:
        own = {name: value for name, value in vars(base).items() if not name.startswith("__")}
        return any(inspect.isfunction(value) or isinstance(value, kinds) for value in own.values())

    return sum(base is cls or behaves(base) for base in _line_of(cls))


def private(cls: type) -> int:
    """Private callables of a class."""
    names = {name for base in _line_of(cls) for name in vars(base) if re.match("_[^_]", name)}
    found = (inspect.getattr_static(cls, name) for name in names)
    return sum(callable(value) or isinstance(value, staticmethod | classmethod) for value in found)


@cache
def code_lines(path: Path) -> int:
    """Lines of code: no blanks, comments and docstrings."""
    text = path.read_text()
    lines = enumerate(text.splitlines(), 1)
    found = {number for number, line in lines if line.strip() and not line.lstrip().startswith("#")}
    sentences: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr | ast.Constant | ast.JoinedStr):
            spanned = range(node.lineno, (node.end_lineno or 0) + 1)
            if not isinstance(node, ast.Expr):  # also what looks like a blank or a comment within a text
                found.update(spanned if len(spanned) > 1 else ())
            elif isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                sentences.update(spanned)
    return len(found - sentences)


def rooms() -> dict[str, int]:
    """Lines of code of each room; files that stand alone are one."""
    found: dict[str, int] = defaultdict(int)
    for path in modules().values():
        room, *inside = path.relative_to(PACKAGE).parts
        found[room if inside or room == "algorithm.py" else "files alone"] += code_lines(path)
    return dict(sorted(found.items()))


def face() -> Figures:
    """Of the face and the groups of fields, which an author of algorithms has to know."""
    alone = PACKAGE / "algorithm.py", PACKAGE / "network_algorithm.py"
    faces = [path for path in modules().values() if path.parent.name == "fields" or path in alone]
    marked = {
        node.target.id
        for path in faces
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if ast.unparse(node.annotation).startswith("ClassVar")
    }
    depths = [depth(get(name)) for name in REGISTRY]
    return {"class_variables": len(marked), "deepest": max(depths), "depths_of_all": sum(depths)}


def text() -> Figures:
    """What is counted in the text of the package."""
    ours = {name: path.read_text() for name, path in modules().items() if name.split(".")[-1] not in FACES}
    asks = sum(len(ASKS.findall(content)) for name, content in ours.items() if not name.startswith("polyak.compat"))
    return {
        "looks_for_overrides": asks,
        "type_ignores": sum(content.count("type: ignore") for content in ours.values()),
    }


def measured() -> dict[str, Figures]:
    """All figures, by table."""
    found: dict[str, Figures] = {}
    for name, (cls, *_) in STEPS.items():
        found[name] = {**traced(name).figures(), "private": private(cls), "depth": depth(cls)}
    return {**found, "face": face(), "text": text(), "rooms": rooms()}


def allowed() -> dict[str, Figures]:
    """What ``sizes.toml`` says."""
    found: dict[str, Figures] = {}
    for line in SIZES.read_text().splitlines():
        if line.startswith("["):
            figures = found[line.strip("[]")] = {}
        elif " = " in line and not line.startswith("#"):
            name, value = line.split(" = ")
            figures[name.strip('"')] = float(value)
    return found


HEADER = """\
# Figures that may only fall: `python -m tests.laws.gauge --write` writes them. Where one of the first four tables has
# risen, the change goes back to the drawing board; a room that grows needs a reason in the commit.
"""


def write() -> None:
    """Let the figures be those of now."""
    lines = [HEADER.rstrip()]
    for table, figures in measured().items():
        lines += [f"\n[{table}]", *(f"{name!r} = {value}".replace("'", '"') for name, value in figures.items())]
    SIZES.write_text("\n".join(lines) + "\n")


def tell(name: str) -> None:
    """Print a step as a story."""
    found = traced(name)
    for level, path, function in found.calls:
        print("  " * level + f"{function}  ({path})")
    for path, number in found.not_taken():
        print(f"not taken: {path}:{number}")
    for caller, callee in sorted(found.jumps, key=lambda jump: (jump[0].co_filename, jump[0].co_name)):
        ends = [f"{Path(code.co_filename).name} {code.co_name}" for code in (caller, callee)]
        print("self-jump: " + " -> ".join(ends))


def main() -> None:
    """See the top of the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--story", choices=sorted(STEPS))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    if options.story is not None:
        tell(options.story)
    elif options.write:
        write()
    else:
        bounds = allowed()
        for table, figures in measured().items():
            print(table)
            for name, value in figures.items():
                print(f"  {name:<20} {value:>8}   ({bounds.get(table, {}).get(name)})")


if __name__ == "__main__":
    main()
