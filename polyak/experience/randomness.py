"""The random numbers of a buffer's parts."""

from __future__ import annotations

from typing import Any

import numpy as np

_LENGTH = 624
"""Numbers in the state of numpy's Mersenne Twister."""


class Randomness:
    """Draws from numpy's global stream until it is seeded, then from a stream of its own.

    The global stream is the default because that is what Stable-Baselines3 draws from: an equal seed gives equal
    batches there and here.
    """

    _own: np.random.RandomState | None = None

    def seed(self, seed: int | None = None) -> None:
        """Restart with a stream of its own; None goes back to numpy's global one."""
        self._own = None if seed is None else np.random.RandomState(seed % 2**32)

    @property
    def rng(self) -> np.random.RandomState:
        """The stream in use."""
        return np.random.mtrand._rand if self._own is None else self._own

    def rng_state(self) -> dict[str, Any] | None:
        """Its own stream's state as JSON values; None while it draws from the global one."""
        if self._own is None:
            return None
        state = self._own.get_state(legacy=False)
        inner = {"key": state["state"]["key"].tolist(), "pos": int(state["state"]["pos"])}
        return {"state": inner, "has_gauss": int(state["has_gauss"]), "gauss": float(state["gauss"])}

    def load_rng_state(self, state: dict[str, Any] | None) -> None:
        """Take back what :meth:`rng_state` returned."""
        if state is None:
            self._own = None
            return
        key = np.array(state["state"]["key"], np.uint32)
        if key.shape != (_LENGTH,):
            raise ValueError(f"The saved random state has a key of shape {key.shape}, not [{_LENGTH}].")
        pos = state["state"].get("pos")
        if type(pos) is not int or not 0 <= pos <= _LENGTH:  # numpy does not check, and would read beyond the key
            raise ValueError(f"The saved random state has pos={pos!r:.80}, not a whole number from 0 to {_LENGTH}.")
        inner = {"key": key, "pos": pos}
        self._own = np.random.RandomState()
        self._own.set_state(
            {"bit_generator": "MT19937", "state": inner, "has_gauss": state["has_gauss"], "gauss": state["gauss"]}
        )
