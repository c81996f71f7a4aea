"""The random numbers of a buffer's parts."""

from __future__ import annotations

from typing import Any

import numpy as np

_LENGTH = 624
"""Numbers in the state of numpy's Mersenne Twister."""


class Randomness:
    """Draws from numpy's global stream until it is seeded, then from a stream of its own.

    The global stream is the default because Stable-Baselines3 draws from it: equal seeds give equal batches in both.
    """

    rng: np.random.RandomState = np.random.mtrand._rand
    """The stream in use."""

    def seed(self, seed: int | None = None) -> None:
        """Restart with a stream of its own; None returns to numpy's global one."""
        if seed is None:
            vars(self).pop("rng", None)
        else:
            self.rng = np.random.RandomState(seed % 2**32)

    def rng_state(self) -> dict[str, Any] | None:
        """Returns its own stream's state as JSON values; None while it draws from the global one."""
        if "rng" not in vars(self):
            return None
        state = self.rng.get_state(legacy=False)
        inner = {"key": state["state"]["key"].tolist(), "pos": int(state["state"]["pos"])}
        return {"state": inner, "has_gauss": int(state["has_gauss"]), "gauss": float(state["gauss"])}

    def load_rng_state(self, state: dict[str, Any] | None) -> None:
        """Restore a state that :meth:`rng_state` returned."""
        if state is None:
            vars(self).pop("rng", None)
            return
        key = np.array(state["state"]["key"], np.uint32)
        if key.shape != (_LENGTH,):
            raise ValueError(f"The saved random state has a key of shape {key.shape}, not [{_LENGTH}].")
        pos = state["state"].get("pos")
        if type(pos) is not int or not 0 <= pos <= _LENGTH:  # numpy does not check, and would read beyond the key
            raise ValueError(f"The saved random state has pos={pos!r:.80}, not a whole number from 0 to {_LENGTH}.")
        inner = {"key": key, "pos": pos}
        self.rng = np.random.RandomState()
        self.rng.set_state(
            {"bit_generator": "MT19937", "state": inner, "has_gauss": state["has_gauss"], "gauss": state["gauss"]}
        )
