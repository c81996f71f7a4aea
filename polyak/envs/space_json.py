"""Gymnasium's spaces as JSON values, and back."""

from __future__ import annotations

import base64
import math
from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces

MOST_NUMBERS = 2**24
"""Numbers of one value of a space that a file describes: 16 million."""
MOST_CHOICES = 2**16
"""Entries of its MultiDiscretes: networks have a head, or a group of inputs, for each."""
MOST_PARTS = 4096
"""Parts of its Dicts and Tuples."""
DEEPEST = 16
"""Depth of nested Dicts and Tuples."""


def encode_array(array: np.ndarray) -> dict[str, Any]:
    """An array as its type, shape and base64 of its bytes."""
    return {"$array": [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]}


def decode_array(value: dict[str, Any]) -> np.ndarray:
    """The inverse of :func:`encode_array`.

    Raises:
        ValueError: it is not such a value, or an array of objects.
    """
    kind, shape, data = value["$array"]
    dtype = np.dtype(str(kind))
    if dtype.hasobject or dtype.subdtype is not None:
        raise ValueError(f"arrays of dtype {dtype} are not read from files.")
    if not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"an array of shape {shape!r:.80} cannot be: it is damaged.")
    content = base64.b64decode(data, validate=True)
    if math.prod(shape) * dtype.itemsize != len(content):
        raise ValueError(f"an array {dtype}{shape!r:.80} has {len(content)} bytes: it is damaged.")
    return np.frombuffer(content, dtype=dtype).reshape(shape).copy()


def encode_space(space: spaces.Space) -> list[Any]:
    """Returns a space as its kind and the arguments of its constructor.

    Raises:
        TypeError: a space of another kind.
    """
    if isinstance(space, spaces.Box):
        low, high = encode_array(space.low), encode_array(space.high)
        return ["Box", {"low": low, "high": high, "dtype": np.dtype(space.dtype).str}]
    if isinstance(space, spaces.Discrete):
        return ["Discrete", {"n": int(space.n), "start": int(space.start)}]
    if isinstance(space, spaces.MultiDiscrete):
        return ["MultiDiscrete", {"nvec": encode_array(space.nvec), "start": encode_array(space.start)}]
    if isinstance(space, spaces.MultiBinary):
        n = space.n if isinstance(space.n, int | np.integer) else [int(x) for x in space.n]
        return ["MultiBinary", {"n": int(n) if not isinstance(n, list) else n}]
    if isinstance(space, spaces.Dict):
        return ["Dict", {key: encode_space(item) for key, item in space.spaces.items()}]
    if isinstance(space, spaces.Tuple):
        return ["Tuple", [encode_space(item) for item in space.spaces]]
    raise TypeError(
        f"cannot save a {type(space).__name__} space. Use Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple."
    )


def decode_space(body: list[Any]) -> spaces.Space:
    """The inverse of :func:`encode_space`.

    Raises:
        ValueError: it is not such a value, or a space beyond the limits of this module.
    """
    space = _decode_space(body, DEEPEST)
    check_space(space)
    return space


def check_space(space: spaces.Space) -> None:
    """Refuse a space from a file that is larger than those of any environment, before networks are built for it.

    Raises:
        ValueError: it is beyond :data:`MOST_NUMBERS`, :data:`MOST_CHOICES`, :data:`MOST_PARTS` or :data:`DEEPEST`.
    """
    sizes = {"parts": 0, "numbers": 0, "choices": 0}
    limits = {"parts": MOST_PARTS, "numbers": MOST_NUMBERS, "choices": MOST_CHOICES}
    level = [space]
    for _ in range(DEEPEST + 1):
        inner: list[spaces.Space] = []
        for part in level:
            if isinstance(part, spaces.Dict | spaces.Tuple):
                inner += part.spaces.values() if isinstance(part, spaces.Dict) else part.spaces
            else:
                sizes["numbers"] += math.prod(part.shape or ())
                sizes["choices"] += part.nvec.size if isinstance(part, spaces.MultiDiscrete) else 0
        level = inner
        sizes["parts"] += len(level)
        for what, size in sizes.items():
            if size > limits[what]:
                raise ValueError(f"the file describes a space with {size:,} {what}: at most {limits[what]:,} are read.")
        if not level:
            return
    raise ValueError(f"the file describes a space of Dicts or Tuples more than {DEEPEST} deep.")


def check_choices(count: int) -> None:
    """Refuse a MultiDiscrete of more than :data:`MOST_CHOICES` entries, which gymnasium takes seconds to build."""
    if count > MOST_CHOICES:
        raise ValueError(f"the file describes a MultiDiscrete of {count:,} entries: at most {MOST_CHOICES:,} are read.")


def _decode_space(body: list[Any], depth: int) -> spaces.Space:
    kind, config = body
    if kind in ("Dict", "Tuple") and (depth == 0 or len(config) > MOST_PARTS):
        raise ValueError(
            f"the file describes a {kind} of {len(config):,} spaces, or one more than {DEEPEST} deep: at most "
            f"{MOST_PARTS:,} are read, {DEEPEST} deep."
        )
    if kind == "Box":
        low, high, dtype = decode_array(config["low"]), decode_array(config["high"]), np.dtype(config["dtype"])
        if low.dtype != dtype or high.dtype != dtype or low.shape != high.shape:
            raise ValueError(f"the file describes a Box of {dtype} with bounds {low.dtype}{list(low.shape)}.")
        return spaces.Box(low, high, dtype=dtype.type)
    if kind == "Discrete":
        return spaces.Discrete(config["n"], start=config["start"])
    if kind == "MultiDiscrete":
        sizes = decode_array(config["nvec"])
        check_choices(sizes.size)
        return spaces.MultiDiscrete(sizes, start=decode_array(config["start"]))
    if kind == "MultiBinary":
        lengths = config["n"] if isinstance(config["n"], list) else [config["n"]]
        if not all(type(n) is int for n in lengths) or len(lengths) > 32:
            raise ValueError(f"the file describes a MultiBinary of n={config['n']!r:.80}: it is damaged.")
        return spaces.MultiBinary(config["n"])
    if kind == "Dict":
        parts = ((key, _decode_space(item, depth - 1)) for key, item in config.items())
        return spaces.Dict(OrderedDict(parts))  # in this order
    if kind == "Tuple":
        return spaces.Tuple([_decode_space(item, depth - 1) for item in config])
    raise ValueError(f"unknown space {kind!r}: the file is damaged or from a newer polyak.")
