"""Settings of the Zoo's, read without running code."""

from __future__ import annotations

from typing import Any

from polyak.zoo.errors import ZooError

_PYTHON = "tag:yaml.org,2002:python/"


def read_yaml(text: str, source: str) -> Any:
    """Return the content of `text`: plain YAML, and the Zoo's ``OrderedDict`` of pairs and tuples as dict and list.

    Raises ZooError, naming `source`, if it is no YAML or has another tag of Python's.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        """Plain data, and two of Python's tags."""

    def pairs(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> dict[Any, Any]:
        arguments = loader.construct_sequence(node, deep=True)
        return dict(arguments[0]) if arguments else {}

    def sequence(loader: yaml.SafeLoader, node: yaml.SequenceNode) -> list[Any]:
        return loader.construct_sequence(node, deep=True)

    Loader.add_constructor(f"{_PYTHON}object/apply:collections.OrderedDict", pairs)
    Loader.add_constructor(f"{_PYTHON}tuple", sequence)
    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ZooError(f"Cannot read {source} as plain YAML (Python objects are refused): {first}.") from error
