"""The state of replay buffers of a user's own that bring their own arrays and call only ``BaseBuffer.__init__``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from polyak.data.base import BaseBuffer
from polyak.envs.reading.plain_json import whole


def state_of(buffer: BaseBuffer) -> dict[str, Any]:
    """The filled rows of all arrays that the buffer has as attributes, and how far it is filled."""
    state: dict[str, Any] = {"buffer_size": buffer.buffer_size, "n_envs": buffer.n_envs, "rng": buffer.rng_state()}
    state |= {"pos": buffer.pos, "full": buffer.full}
    for name, value in vars(buffer).items():
        parts = dict(_arrays(value))
        if parts:
            filled = {key: array[_filled(buffer, array)] for key, array in parts.items()}
            state[f"own/{name}"] = filled if isinstance(value, dict) else filled[""]
    return state


def load_state(buffer: BaseBuffer, state: dict[str, Any]) -> None:
    """Take back a :func:`state_of`.

    Raises:
        ValueError: the buffer has another size, or other arrays.
    """
    for name in ("buffer_size", "n_envs"):
        if state.get(name) != getattr(buffer, name):
            raise ValueError(
                f"The saved buffer has {name}={state.get(name)!r}, this one {getattr(buffer, name)}: build it alike."
            )
    if type(state.get("full")) is not bool or whole(state, "pos", "The saved buffer") > buffer.buffer_size:
        raise ValueError(
            f"The saved buffer has pos={state['pos']!r:.80}, full={state.get('full')!r:.80}: it is damaged."
        )
    saved = {name.removeprefix("own/"): dict(_arrays(v)) for name, v in state.items() if name.startswith("own/")}
    ours = {name: parts for name, value in vars(buffer).items() if (parts := dict(_arrays(value)))}
    buffer.pos, buffer.full = state["pos"], state["full"]
    for name in saved.keys() | ours.keys():
        theirs, own = saved.get(name, {}), ours.get(name, {})
        if {key: array.shape[1:] for key, array in theirs.items()} != {key: a.shape[1:] for key, a in own.items()}:
            raise ValueError(f"The saved {name!r} do not fit this buffer's: was it made for another environment?")
        for key, array in own.items():
            array[_filled(buffer, array)] = theirs[key]
    buffer.load_rng_state(state["rng"])


def _arrays(value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """An attribute's arrays: itself, or those of a dict by their keys."""
    items = value.items() if isinstance(value, dict) else [("", value)]
    yield from ((str(k), array) for k, array in items if isinstance(array, np.ndarray) and array.dtype != object)


def _filled(buffer: BaseBuffer, array: np.ndarray) -> slice:
    return slice(buffer.size()) if array.ndim and len(array) == buffer.buffer_size else slice(None)
