"""YAML that is data: written without Python objects, read without running code.

RL Baselines3 Zoo writes config.yml and args.yml with two tags of Python's, an ``OrderedDict`` of pairs and tuples.
These are read as a dict and a tuple; any other tag is refused, since reading it would mean to call what it names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.zoo.errors import ZooError

_PYTHON = "tag:yaml.org,2002:python/"


def read_yaml(text: str, source: str) -> Any:
    """Return the content of `text`; ZooError naming `source` if it is no YAML, or holds objects other than those."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data, and the two tags of the Zoo's."""

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

    Loader.add_constructor(f"{_PYTHON}object/apply:collections.OrderedDict", ordered_dict)
    Loader.add_constructor(f"{_PYTHON}tuple", to_tuple)
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, RecursionError) as error:
        raise ZooError(f"Cannot read {source} as plain YAML (Python objects are refused): {_told(error)}") from error


def write_yaml(content: Any) -> str:
    """Return `content`, made `plain`, as YAML."""
    import yaml

    return yaml.safe_dump(plain(content), sort_keys=False, allow_unicode=True)


def plain(value: Any) -> Any:
    """Return `value` made of dicts, lists, numbers, strings and None only; classes become their import path."""
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


def _told(error: Exception) -> str:
    """A YAML error in one line: what is wrong and where."""
    mark = getattr(error, "problem_mark", None)
    where = f" (line {mark.line + 1})" if mark is not None else ""
    return f"{getattr(error, 'problem', None) or str(error) or type(error).__name__}{where}"
