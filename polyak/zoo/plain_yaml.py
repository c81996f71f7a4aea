"""Plain YAML: written without Python objects, read without running code.

RL Baselines3 Zoo writes config.yml and args.yml with two tags of Python's, an ``OrderedDict`` of pairs and tuples.
These are read as a dict and a tuple; any other tag is refused, since reading it would call the function that it names.
A small file must not expand to a large one, by aliases or by nodes that contain themselves: `LONGEST`, `MOST_NODES` and
`DEEPEST` are checked before the content is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from polyak.zoo.errors import ZooError

LONGEST = 100_000
"""Most characters of a file; the largest settings of RL Zoo have a fifth of it."""
MOST_NODES = 10_000
"""Most keys and values, where each alias counts with its whole content."""
DEEPEST = 50
"""Most lists and mappings within each other."""
MOST_DIGITS = 80
"""Largest number of characters of a whole number; its value must also fit into 64 bits."""

_YAML = "tag:yaml.org,2002:"
_PYTHON = f"{_YAML}python/"


def read_yaml_file(path: Path, source: str = "") -> Any:
    """Return the content of the file `path`, at most `LONGEST` characters; see `read_yaml`. OSError if it is not there.

    `source` is its name in messages; the path if empty.
    """
    with path.open(encoding="utf-8", errors="replace") as file:
        return deepcopy(_read_once(file.read(LONGEST + 1), source or str(path)))


def read_mapping(path: Path, source: str = "") -> dict[str, Any]:
    """Read names and values from a file, none if it is not there; ZooError if it holds something else."""
    content = read_yaml_file(path, source) or {} if path.is_file() else {}
    if not isinstance(content, dict):
        raise ZooError(f"{source or path} must map names to values, but holds {content!r:.80}. Is it half-written?")
    return content


def read_yaml(text: str, source: str) -> Any:
    """Return the content of `text`: dicts, lists, tuples, words, numbers, truth values, dates as words, and None.

    Raises:
        ZooError: it is no YAML, holds other objects, or is beyond a limit of this module; the message names `source`.
    """
    import yaml

    if len(text) > LONGEST:
        raise ZooError(f"Cannot read {source}: it has more than {LONGEST:,} characters.")

    class Loader(yaml.SafeLoader):
        """Plain data, and the two tags of the Zoo's."""

        def get_single_node(self) -> yaml.Node | None:
            node: yaml.Node | None = super().get_single_node()
            if node is not None:
                measure.tree(node)
            return node

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            with measure.one_more(self.peek_event()):
                node: yaml.Node | None = super().compose_node(parent, index)
                return node

    measure = _Measure(source)

    def wrong(node: yaml.Node, what: str) -> Exception:
        return yaml.constructor.ConstructorError(None, None, what, node.start_mark)

    def ordered_dict(loader: yaml.SafeLoader, node: yaml.Node) -> dict[Any, Any]:
        arguments = loader.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else None
        if arguments is None or len(arguments) > 1:
            raise wrong(node, "an OrderedDict that is no list of pairs")
        try:
            return dict(arguments[0]) if arguments else {}
        except (TypeError, ValueError) as error:
            raise wrong(node, f"an OrderedDict: {error}") from error

    def to_tuple(loader: yaml.SafeLoader, node: yaml.Node) -> tuple[Any, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise wrong(node, "a tuple that is no list")
        return tuple(loader.construct_sequence(node, deep=True))

    def whole_number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
        if len(node.value) > MOST_DIGITS or abs(value := loader.construct_yaml_int(node)) >= 2**63:
            raise wrong(node, f"the number {node.value:.40} has more digits than 64 bits hold")
        return int(value)

    add: Any = Loader.add_constructor
    add(f"{_YAML}int", whole_number)
    add(f"{_YAML}timestamp", yaml.SafeLoader.construct_yaml_str)
    for other in ("binary", "set", "omap", "pairs"):
        add(f"{_YAML}{other}", yaml.SafeLoader.construct_undefined)
    add(f"{_PYTHON}object/apply:collections.OrderedDict", ordered_dict)
    add(f"{_PYTHON}tuple", to_tuple)
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError, TypeError, LookupError, ArithmeticError) as error:
        raise ZooError(f"Cannot read {source} as plain YAML (Python objects are refused): {_message(error)}") from error


_read_once = lru_cache(maxsize=64)(read_yaml)


class _Measure:
    """Counts the nodes of a YAML document as they are read, and after expansion of aliases."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._read = self._depth = 0
        self._sizes: dict[int, tuple[int, int]] = {}
        self._above: set[int] = set()

    @contextmanager
    def one_more(self, event: Any) -> Iterator[None]:
        """While one node is read, which begins with `event`; ZooError if there are too many, or it is nested too
        deeply."""
        self._read, self._depth = self._read + 1, self._depth + 1
        self._check_size(self._read, event)
        if self._depth > DEEPEST:
            self._refuse(event, f"it has more than {DEEPEST} lists and mappings within each other")
        yield
        self._depth -= 1

    def tree(self, node: Any) -> tuple[int, int]:
        """Return the numbers of nodes and of characters that `node` becomes; ZooError if it contains itself, or is too
        much."""
        if id(node) in self._above:
            self._refuse(node, "it contains itself")
        if id(node) not in self._sizes:
            self._above.add(id(node))
            inside = [self.tree(inner) for inner in self._inner(node)]
            self._above.remove(id(node))
            length = len(node.value) if node.id == "scalar" else 0
            nodes, letters = 1 + sum(n for n, _ in inside), length + sum(n for _, n in inside)
            self._sizes[id(node)] = nodes, letters
            self._check_size(nodes, node)
            if letters > LONGEST:
                self._refuse(node, f"it has more than {LONGEST:,} characters, where aliases count each time")
        return self._sizes[id(node)]

    def _inner(self, node: Any) -> list[Any]:
        """Return the nodes that a list or mapping holds."""
        if node.id != "mapping":
            return list(node.value) if node.id == "sequence" else []
        for key, _ in node.value:
            if key.tag in (f"{_YAML}bool", f"{_YAML}null"):
                self._refuse(key, f"{key.value:.40} is no name: truth values and null must be in quotes to be one")
        return [inner for pair in node.value for inner in pair]

    def _check_size(self, size: int, at: Any) -> None:
        if size > MOST_NODES:
            self._refuse(at, f"it has more than {MOST_NODES:,} keys and values, where aliases count each time")

    def _refuse(self, at: Any, why: str) -> None:
        raise ZooError(f"Cannot read {self._source} as plain YAML: {why} (line {at.start_mark.line + 1}).")


def write_yaml(content: Any) -> str:
    """Return `content`, made `plain`, as YAML."""
    import yaml

    return yaml.safe_dump(plain(content), sort_keys=False, allow_unicode=True)


def plain(value: Any) -> Any:
    """Return `value` made of dicts, lists, numbers, strings and None only; classes become their import path."""
    import numpy as np

    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return str(value)


def _message(error: Exception) -> str:
    """Return a YAML error in one line: the problem and its place."""
    mark = getattr(error, "problem_mark", None)
    where = f" (line {mark.line + 1})" if mark is not None else ""
    reason = getattr(error, "problem", None) or str(error) or type(error).__name__
    return f"{' '.join(reason.split()):.300}{where}"
