"""Gymnasium's spaces as JSON values, and back."""

from __future__ import annotations

import base64
from collections import OrderedDict
from typing import Any

import numpy as np
from gymnasium import spaces


def encode_array(array: np.ndarray) -> dict[str, Any]:
    """An array as its type, shape and base64 of its bytes."""
    return {"$array": [array.dtype.str, list(array.shape), base64.b64encode(array.tobytes()).decode()]}


def decode_array(value: dict[str, Any]) -> np.ndarray:
    """The inverse of :func:`encode_array`.

    Raises:
        ValueError: it is not such a value, or of objects.
    """
    kind, shape, data = value["$array"]
    dtype = np.dtype(str(kind))
    if dtype.hasobject:
        raise ValueError(f"arrays of dtype {dtype} are not read from files.")
    return np.frombuffer(base64.b64decode(data), dtype=dtype).reshape([int(n) for n in shape]).copy()


def encode_space(space: spaces.Space) -> list[Any]:
    """A space as its kind and what makes it.

    Raises:
        TypeError: of a kind that is not known here.
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
        ValueError: it is not such a value.
    """
    kind, config = body
    if kind == "Box":
        low, high = decode_array(config["low"]), decode_array(config["high"])
        return spaces.Box(low, high, dtype=np.dtype(config["dtype"]).type)
    if kind == "Discrete":
        return spaces.Discrete(config["n"], start=config["start"])
    if kind == "MultiDiscrete":
        return spaces.MultiDiscrete(decode_array(config["nvec"]), start=decode_array(config["start"]))
    if kind == "MultiBinary":
        return spaces.MultiBinary(config["n"])
    if kind == "Dict":
        return spaces.Dict(OrderedDict((key, decode_space(item)) for key, item in config.items()))  # in this order
    if kind == "Tuple":
        return spaces.Tuple([decode_space(item) for item in config])
    raise ValueError(f"unknown space {kind!r}: the file is damaged or from a newer polyak.")
