"""Replay buffers of a user's own that have their own arrays and call only ``BaseBuffer.__init__``.

Once this module is imported they become :class:`OwnArrays`, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any

import numpy as np

from polyak.envs.reading.plain_json import whole
from polyak.experience.replay_buffer import COLUMNS, BaseBuffer, ReplayBuffer


def _missing(name: str) -> cached_property[Any]:
    def read(buffer: ReplayBuffer) -> Any:
        raise AttributeError(f"{type(buffer).__name__} has no {name}: nothing was assigned to it.")

    return cached_property(read)


class OwnArrays(ReplayBuffer):
    """A replay buffer without a ring: its columns are attributes like any other."""

    optimize_memory_usage = False
    handle_timeout_termination = True
    n_steps = 1
    relabel = None
    pos, full = 0, False
    observations, next_observations, actions, rewards, dones, timeouts = map(_missing, COLUMNS)
    seed, size, reset, sample = BaseBuffer.seed, BaseBuffer.size, BaseBuffer.reset, BaseBuffer.sample

    def cut_episodes(self, *_: Any) -> None:
        """Do nothing: the subclass tracks episodes."""

    def anneal(self, progress: float) -> None:
        """Do nothing: there is no sampler."""

    def replace_rewards(self, reward: Any) -> None:
        raise ValueError(f"{type(self).__name__} stores steps in arrays of its own, whose rewards it must replace.")

    def state_dict(self) -> dict[str, Any]:
        """Returns the filled rows of all arrays that are attributes of the buffer, and the number of rows."""
        state: dict[str, Any] = {"buffer_size": self.buffer_size, "n_envs": self.n_envs, "rng": self.rng_state()}
        state |= {"pos": self.pos, "full": self.full}
        for name, value in vars(self).items():
            if parts := dict(_arrays(value)):
                filled = {key: array[self._filled(array)] for key, array in parts.items()}
                state[f"own/{name}"] = filled if isinstance(value, dict) else filled[""]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a :meth:`state_dict`.

        Raises:
            ValueError: the buffer has another size, or other arrays.
        """
        for name in ("buffer_size", "n_envs"):
            if state.get(name) != getattr(self, name):
                raise ValueError(
                    f"The saved buffer has {name}={state.get(name)!r}, this one {getattr(self, name)}: build it alike."
                )
        if type(state.get("full")) is not bool or whole(state, "pos", "The saved buffer") > self.buffer_size:
            raise ValueError(
                f"The saved buffer has pos={state['pos']!r:.80}, full={state.get('full')!r:.80}: it is damaged."
            )
        saved = {name.removeprefix("own/"): dict(_arrays(v)) for name, v in state.items() if name.startswith("own/")}
        ours = {name: parts for name, value in vars(self).items() if (parts := dict(_arrays(value)))}
        self.pos, self.full = state["pos"], state["full"]
        for name in saved.keys() | ours.keys():
            theirs, own = saved.get(name, {}), ours.get(name, {})
            if {key: array.shape[1:] for key, array in theirs.items()} != {key: a.shape[1:] for key, a in own.items()}:
                raise ValueError(f"The saved {name!r} do not fit this buffer's: was it made for another environment?")
            for key, array in own.items():
                array[self._filled(array)] = theirs[key]
        self.load_rng_state(state["rng"])

    def _filled(self, array: np.ndarray) -> slice:
        return slice(self.size()) if array.ndim and len(array) == self.buffer_size else slice(None)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


def _arrays(value: Any) -> Iterator[tuple[str, np.ndarray]]:
    """Yields an attribute's arrays: itself, or those of a dict by their keys."""
    items = value.items() if isinstance(value, dict) else [("", value)]
    yield from ((str(k), array) for k, array in items if isinstance(array, np.ndarray) and array.dtype != object)


@cache
def _kind(own: type) -> type[Any]:
    """Returns a user's class with the methods of :class:`OwnArrays` in place of those of :class:`ReplayBuffer`."""
    space = {"__module__": own.__module__, "__reduce__": lambda buffer: (_empty, (own,), buffer.__getstate__())}
    return type(own.__name__, (own, OwnArrays), space)


def _empty(own: type) -> Any:
    return object.__new__(_kind(own))


def _adopt(buffer: BaseBuffer) -> None:
    if isinstance(buffer, ReplayBuffer) and not isinstance(buffer, OwnArrays) and "reduce" not in vars(buffer):
        buffer.__class__ = _kind(type(buffer))


BaseBuffer.prepared = staticmethod(_adopt)
