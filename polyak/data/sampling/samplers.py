"""Which rows of a replay buffer are drawn."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Protocol

import numpy as np
from typing_extensions import Self

from polyak.data.randomness import Randomness
from polyak.data.sampling.sum_tree import SumTree


class Eligible(Protocol):
    """Which rows may be drawn, where not all may."""

    def pool(self) -> np.ndarray:
        """Cells in order: all that may be drawn, and up to half as many that were overwritten since."""
        ...

    def eligible(self, cells: np.ndarray) -> np.ndarray:
        """[B] cells -> [B] whether they may be drawn."""
        ...


class Sampler(Protocol):
    """Chooses cells (``slot * envs + env``) of the ring, and hears back how wrong the critic was about them."""

    adaptive: bool
    """Whether it follows the rows one by one: asks for :meth:`include` and :meth:`exclude`."""

    def prepare(self, steps: int, envs: int) -> Self:
        """Size for a ring [steps, envs], empty at first; also called to forget everything."""
        ...

    def seed(self, seed: int | None) -> None:
        """Restart the random numbers; None takes numpy's global ones."""
        ...

    def include(self, cells: np.ndarray) -> None:
        """These cells hold new rows that may be drawn from now on."""
        ...

    def exclude(self, cells: np.ndarray) -> None:
        """These cells hold rows that may not be drawn yet (their episode is still running)."""
        ...

    def draw(self, batch_size: int, filled: int, eligible: Eligible | None) -> tuple[np.ndarray, np.ndarray | None]:
        """Choose cells among the first ``filled`` ones: [B] int64, and their importance weights [B] or None."""
        ...

    def update_priorities(self, cells: np.ndarray, td_errors: np.ndarray) -> None:
        """Errors [B] of the rows in cells [B]."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Random state (JSON) and arrays [steps, envs] to resume from."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Counterpart of :meth:`state_dict`."""
        ...


class Uniform(Randomness):
    """Every row is equally likely. Slots are drawn first, then environments, as Stable-Baselines3 does."""

    adaptive = False

    def prepare(self, steps: int, envs: int) -> Self:
        self.envs = envs
        return self

    def include(self, cells: np.ndarray) -> None:
        pass

    def exclude(self, cells: np.ndarray) -> None:
        pass

    def draw(self, batch_size: int, filled: int, eligible: Eligible | None) -> tuple[np.ndarray, np.ndarray | None]:
        if eligible is None:
            slots = self.rng.randint(0, filled // self.envs, batch_size)
            return slots if self.envs == 1 else slots * self.envs + self.rng.randint(0, self.envs, batch_size), None
        pool = eligible.pool()
        cells = pool[self.rng.randint(0, len(pool), batch_size)]
        while (overwritten := np.flatnonzero(~eligible.eligible(cells))).size:
            cells[overwritten] = pool[self.rng.randint(0, len(pool), overwritten.size)]
        return cells, None

    def draw_batches(self, batches: int, batch_size: int, filled: int) -> np.ndarray:
        """The cells [batches * batch_size] that so many calls of :meth:`draw` would choose, where all may be drawn."""
        if self.envs == 1:  # a row takes its own numbers from the stream: one long call draws what many short ones do
            return self.rng.randint(0, filled, batches * batch_size)
        return np.concatenate([self.draw(batch_size, filled, None)[0] for _ in range(batches)])

    def update_priorities(self, cells: np.ndarray, td_errors: np.ndarray) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_rng_state(state["rng"])


class Prioritized(Randomness):
    """Proportional prioritisation with stratified draws, Schaul et al. 2016 (arXiv:1511.05952) eq. 1 and section 3.4.

    ``P(i) = p_i**alpha / sum p**alpha`` with ``p = |td_error| + eps``; new rows get the highest priority seen so far.
    The weights ``(N P(i))**-beta``, divided by the batch's largest, multiply each row's loss.

    Args:
        alpha: 0 is uniform, 1 fully proportional.
        beta: how much of the bias the weights undo; the paper anneals it to 1: see :meth:`set_beta`.
        eps: keeps rows without error in the game.
    """

    adaptive = True

    def __init__(self, alpha: float = 0.6, beta: float = 0.4, eps: float = 1e-6):
        if alpha < 0:
            raise ValueError(
                f"alpha must be at least 0, got {alpha}. 0 draws uniformly, 1 in proportion to the errors."
            )
        if eps <= 0:
            raise ValueError(f"eps must be positive, got {eps}: rows whose error is 0 would never be drawn again.")
        self.alpha, self.eps = alpha, eps
        self.set_beta(beta)

    def set_beta(self, beta: float) -> None:
        """Turn the dial between biased (0) and fully corrected (1) updates."""
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must be between 0 and 1, got {beta}.")
        self.beta = float(beta)

    def prepare(self, steps: int, envs: int) -> Self:
        self.shape = (steps, envs)
        self.tree = SumTree(steps * envs)
        self.count = 0  # rows that may be drawn
        self.highest = 1.0  # of |td_error| + eps so far
        return self

    def include(self, cells: np.ndarray) -> None:
        self.count += len(cells) - int(np.count_nonzero(self.tree.leaves[cells]))
        self.tree.set(cells, self.highest**self.alpha)

    def exclude(self, cells: np.ndarray) -> None:
        self.count -= int(np.count_nonzero(self.tree.leaves[cells]))
        self.tree.set(cells, 0.0)

    def draw(self, batch_size: int, filled: int, eligible: Eligible | None) -> tuple[np.ndarray, np.ndarray | None]:
        # Shuffled, so that a row's place in the batch says nothing of its age.
        strata = (self.rng.permutation(batch_size) + self.rng.random_sample(batch_size)) / batch_size
        total = self.tree.total
        cells = self.tree.find(strata * total)
        weights = (self.count / total * self.tree.leaves[cells]) ** -self.beta
        return cells, (weights / weights.max()).astype(np.float32)

    def update_priorities(self, cells: np.ndarray, td_errors: np.ndarray) -> None:
        priorities = np.abs(td_errors.astype(np.float64)) + self.eps
        if not np.isfinite(priorities).all():
            bad = np.flatnonzero(~np.isfinite(priorities))[0]
            raise ValueError(f"td_errors must be finite, got {td_errors[bad]} at row {bad} of the batch.")
        held = self.tree.leaves[cells] > 0  # a row that was overwritten and excluded since the draw stays excluded
        self.tree.set(cells[held], priorities[held] ** self.alpha)
        self.highest = max(self.highest, float(priorities.max()))

    def state_dict(self) -> dict[str, Any]:
        return {
            "rng": self.rng_state(),
            "beta": self.beta,
            "highest": self.highest,
            "priorities": self.tree.leaves.reshape(self.shape).copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_rng_state(state["rng"])
        self.beta, self.highest = state["beta"], state["highest"]
        leaves = state["priorities"].reshape(-1)
        self.tree.set(np.arange(leaves.size), leaves)
        self.count = int(np.count_nonzero(leaves))


SAMPLERS: dict[str, Callable[[], Sampler]] = {"uniform": Uniform, "prioritized": Prioritized}


def make_sampler(sampler: Sampler | str | None) -> Sampler:
    """A fresh sampler from a name, an instance that serves as the pattern, or None for :class:`Uniform`."""
    if sampler is None:
        return Uniform()
    if not isinstance(sampler, str):
        return copy(sampler)  # two buffers built from the same keyword arguments must not share one
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler must be one of {sorted(SAMPLERS)} or a Sampler object, got {sampler!r}.")
    return SAMPLERS[sampler]()
