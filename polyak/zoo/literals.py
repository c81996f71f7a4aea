"""Values written as text, on the command line or in YAML, parsed without evaluation.

A value is parsed to a syntax tree, and only these nodes are understood: Python literals, ``dict(key=value)``, and the
names of a short list (``nn.ReLU``, ``HerReplayBuffer``, ...). Everything else stays a plain string, or is refused when
it was clearly meant as an expression.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable
from typing import Any

from polyak.suggestions import did_you_mean
from polyak.zoo.errors import ZooError

# fmt: off
_ACTIVATIONS = (
    "CELU", "ELU", "GELU", "Hardswish", "Hardtanh", "Identity", "LeakyReLU", "Mish", "PReLU",
    "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softsign", "Tanh",
)
# fmt: on
_OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD")

#: Names that a setting may use, and where each is found.
NAMES: dict[str, str] = {
    **{f"{prefix}.{name}": f"torch.nn:{name}" for prefix in ("nn", "th.nn", "torch.nn") for name in _ACTIVATIONS},
    **{
        f"{prefix}.{name}": f"torch.optim:{name}"
        for prefix in ("optim", "th.optim", "torch.optim")
        for name in _OPTIMIZERS
    },
    "RMSpropTFLike": "polyak.nn.optim:RMSpropTFLike",
    "ReplayBuffer": "polyak.experience:ReplayBuffer",
    "HerReplayBuffer": "polyak.experience:HerReplayBuffer",
    "NatureCNN": "polyak.nn.networks.encoders:NatureCNN",
    "FlattenExtractor": "polyak.nn.networks.encoders:FlattenExtractor",
    "CombinedExtractor": "polyak.nn.networks.encoders:CombinedExtractor",
}

LONGEST = 100_000
"""Most characters of a value."""
MOST_DIGITS = 1_000
"""Most digits of a number, and brackets within each other: Python's own limits end in errors of other kinds."""

_PAIR = re.compile(r"\s*([^\s:=]+)\s*[:=](?![:=])(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+(_\d+)*(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def import_name(path: str) -> Any:
    """Import ``package.module.Name`` (or ``package.module:Name``) and return it; ZooError if there is none."""
    module, _, attribute = path.replace(":", ".").rpartition(".")
    if not module:
        raise ZooError(f"{path!r} is not an import path. Write it as package.module.Name.")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ZooError(
            f"Cannot import {path!r}: {error}. Check the spelling and that the package is installed."
        ) from error
    except Exception as error:  # of the code that is imported
        raise ZooError(f"Cannot import {path!r}: {type(error).__name__}: {error}") from error


def parse_value(text: str) -> Any:
    """Read `text` as a literal, an allowed name or ``dict(...)``; a bare word is returned as it is.

    Examples: ``"3e-4"`` -> 0.0003, ``"[64, 64]"`` -> a list, ``"dict(activation_fn=nn.ReLU)"`` -> a dict holding the
    class, ``"lin_3e-4"`` and ``"rgb_array"`` -> the same string. Raises ZooError for an expression that is not allowed,
    and for more than `LONGEST` characters or a number of more than `MOST_DIGITS` digits.
    """
    stripped = text.strip()
    if len(stripped) > LONGEST:
        raise ZooError(f"Cannot read the value {text!r:.60}...: it has more than {LONGEST:,} characters.")
    if _NUMBER.fullmatch(stripped):
        return _number(stripped)
    try:
        return _read(ast.parse(stripped, mode="eval").body)
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError, _NotAllowed) as error:
        if any(bracket in stripped for bracket in "()[]{}"):
            raise ZooError(
                f"Cannot read the value {text!r:.200}: {str(error) or type(error).__name__:.300}. Allowed are Python "
                "literals, dict(key=value) and the names "
                f"nn.<activation>, optim.<optimizer>, {', '.join(name for name in NAMES if '.' not in name)}."
            ) from error
        return text


def parse_pairs(pairs: Iterable[str], flag: str) -> dict[str, Any]:
    """Read ``key:value`` words, e.g. ``["gravity:-9.8", "name='moon'"]``, into a dict; errors name `flag`.

    ``key=value`` is the same. The first colon or ``=`` in a word ends the key.
    """
    return {key: parse_value(text) for key, text in split_pairs(pairs, flag).items()}


def split_pairs(pairs: Iterable[str], flag: str) -> dict[str, str]:
    """Split ``key:value`` and ``key=value`` words, as `parse_pairs` does, and leave the values as they were written.

    Raises ZooError naming `flag` for a word without a key or a separator, or with two separators side by side.
    """
    result: dict[str, str] = {}
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        if not match:
            raise ZooError(
                f"{flag} {pair!r} is not of the form key:value or key=value, e.g. {flag} learning_rate:3e-4."
            )
        result[match.group(1)] = match.group(2)
    return result


def _number(text: str) -> int | float:
    if len(text) > MOST_DIGITS:
        raise ZooError(f"Cannot read the number {text:.60}...: it has more than {MOST_DIGITS:,} digits.")
    return int(text) if text.lstrip("+-").replace("_", "").isdigit() else float(text)


class _NotAllowed(Exception):
    """A node that this small language does not have."""


def _read(node: ast.expr) -> Any:
    """Evaluate one node of the small language (see the module's docstring)."""
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bytes | complex) or node.value is ...:
            raise _NotAllowed(f"{ast.unparse(node)!r:.60} is neither a number nor a word")
        return node.value
    if isinstance(node, ast.List):
        return [_read(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(_read(item) for item in node.elts)
    if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
        return {_read(key): _read(value) for key, value in zip(node.keys, node.values, strict=True) if key is not None}
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return _signed(node)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return _read_dict_call(node)
    if isinstance(node, ast.Name | ast.Attribute):
        name = ast.unparse(node)
        if name in NAMES:
            return import_name(NAMES[name])
        raise _NotAllowed(f"the name {name!r} is not known.{did_you_mean(name, NAMES)}".rstrip("."))
    raise _NotAllowed(f"{ast.unparse(node)!r} is not a literal")


def _signed(node: ast.UnaryOp) -> int | float:
    value = _read(node.operand)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _NotAllowed(f"{ast.unparse(node)!r} is not a number")
    return -value if isinstance(node.op, ast.USub) else value


def _read_dict_call(node: ast.Call) -> dict[str, Any]:
    if node.args or any(keyword.arg is None for keyword in node.keywords):
        raise _NotAllowed("dict(...) takes key=value arguments only")
    return {str(keyword.arg): _read(keyword.value) for keyword in node.keywords}
