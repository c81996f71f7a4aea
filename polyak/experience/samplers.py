"""Samplers: how the rows of a replay buffer are drawn."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from copy import copy
from typing import Any, Protocol

import numpy as np
from typing_extensions import Self

from polyak.experience.randomness import Randomness
from polyak.experience.sum_tree import MANY, SumTree


class Eligible(Protocol):
    """The rows that may be drawn, if not all may."""

    def pool(self) -> np.ndarray:
        """Cells in order: all that may be drawn, and up to half as many that were overwritten since."""
        ...

    def eligible(self, cells: np.ndarray) -> np.ndarray:
        """[B] cells -> [B] whether they may be drawn."""
        ...


class Sampler(Protocol):
    """Chooses cells (``slot * envs + env``) of the ring; receives the TD errors of the drawn rows."""

    adaptive: bool
    """Whether :meth:`include` and :meth:`exclude` must be called for its rows."""

    def prepare(self, steps: int, envs: int) -> Self:
        """Prepare for an empty ring [steps, envs]; also called to reset."""
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

    def anneal(self, progress: float) -> None:
        """Set the progress of training: 0 at its start, 1 at its end."""
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
        if self.envs == 1:  # one long call draws the same numbers as many short ones
            return self.rng.randint(0, filled, batches * batch_size)
        return np.concatenate([self.draw(batch_size, filled, None)[0] for _ in range(batches)])

    def update_priorities(self, cells: np.ndarray, td_errors: np.ndarray) -> None:
        pass

    def anneal(self, progress: float) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_rng_state(state["rng"])


class Corrected(Randomness):
    """Draws with priorities, and the importance weights that correct for them.

    The weights ``(N P(i))**-beta``, divided by the batch's largest, multiply each row's loss: Schaul et al. 2016
    (arXiv:1511.05952) section 3.4.

    Args:
        alpha: 0 is uniform; the larger, the more the priorities decide.
        beta: how much of the bias the weights undo, between 0 and 1.
        final_beta: ``beta`` at the end of training, linear in the progress; None: it is constant.
    """

    adaptive = True

    def __init__(self, alpha: float, beta: float, final_beta: float | None) -> None:
        if not alpha >= 0:
            raise ValueError(
                f"alpha must be at least 0, got {alpha}. 0 draws uniformly, 1 in proportion to the priorities."
            )
        if final_beta is not None and not 0 <= final_beta <= 1:
            raise ValueError(f"final_beta must be between 0 and 1, or None for a beta that stays, got {final_beta}.")
        self.alpha = float(alpha)
        self.set_beta(beta)
        self.first_beta, self.final_beta = self.beta, final_beta

    def set_beta(self, beta: float) -> None:
        """Set the correction, from biased (0) to fully corrected (1) updates."""
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must be between 0 and 1, got {beta}.")
        self.beta = float(beta)

    def anneal(self, progress: float) -> None:
        """Let ``beta`` follow the progress of training, 0 at its start and 1 at its end."""
        if self.final_beta is not None:
            self.beta = self.first_beta + progress * (self.final_beta - self.first_beta)

    def strata(self, batch_size: int, total: float) -> np.ndarray:
        """Draws one number [B] from each of B equal parts of [0, total)."""
        numbers: np.ndarray = self.rng.random_sample(batch_size)
        numbers += np.arange(batch_size)
        numbers *= total / batch_size
        return numbers

    def weights(self, chances: np.ndarray) -> np.ndarray:
        """``P(i)`` of the rows drawn [B], or the same multiple of each -> importance weights [B] float32, at most 1."""
        return np.power(chances / chances.min(), -self.beta).astype(np.float32)

    def state_dict(self) -> dict[str, Any]:
        return {"rng": self.rng_state(), "beta": self.beta}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.load_rng_state(state["rng"])
        self.beta = state["beta"]


class Prioritized(Corrected):
    """Proportional prioritisation with stratified draws, Schaul et al. 2016 (arXiv:1511.05952) eq. 1 and section 3.3.

    ``P(i) = p_i**alpha / sum p**alpha`` with ``p = |td_error| + eps``; new rows get the highest priority so far.

    Args:
        alpha: 0 is uniform, 1 fully proportional.
        beta: degree to which the weights correct the bias; the paper anneals it to 1.
        eps: gives rows without error a positive probability.
        final_beta: ``beta`` at the end of training; None: it is constant, see also :meth:`set_beta`.
    """

    def __init__(self, alpha: float = 0.6, beta: float = 0.4, eps: float = 1e-6, final_beta: float | None = None):
        super().__init__(alpha, beta, final_beta)
        if not eps > 0:
            raise ValueError(f"eps must be positive, got {eps}: rows whose error is 0 would never be drawn again.")
        self.eps = float(eps)

    def prepare(self, steps: int, envs: int) -> Self:
        self.shape = (steps, envs)
        self._tree = SumTree(steps * envs)
        self.highest = 1.0  # the largest |td_error| + eps so far
        self._new: list[np.ndarray] = []  # cells included of late, to be entered together
        return self

    @property
    def tree(self) -> SumTree:
        """``p**alpha`` of each cell, 0 where it may not be drawn."""
        self._settle()
        return self._tree

    def include(self, cells: np.ndarray) -> None:
        self._new.append(cells)
        if len(self._new) >= MANY:
            self._settle()

    def _settle(self) -> None:
        """Enter the rows that were included."""
        if self._new:
            cells = np.concatenate(self._new)
            self._new.clear()
            self._tree.set(cells, self.highest**self.alpha)

    def exclude(self, cells: np.ndarray) -> None:
        self.tree.set(cells, 0.0)

    def draw(self, batch_size: int, filled: int, eligible: Eligible | None) -> tuple[np.ndarray, np.ndarray | None]:
        tree = self.tree
        cells = tree.find(self.strata(batch_size, tree.total))
        return cells, self.weights(tree.leaves.take(cells))

    def update_priorities(self, cells: np.ndarray, td_errors: np.ndarray) -> None:
        tree, priorities = self.tree, sizes(td_errors)
        priorities += self.eps
        self.highest = max(self.highest, float(priorities.max()))
        held = tree.leaves.take(cells) > 0  # a row that was overwritten and excluded since the draw stays excluded
        if not held.all():
            cells, priorities = cells[held], priorities[held]
        tree.set(cells, np.power(priorities, self.alpha))

    def state_dict(self) -> dict[str, Any]:
        return {
            **super().state_dict(),
            "highest": self.highest,
            "priorities": self.tree.leaves.reshape(self.shape).copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.highest = state["highest"]
        self._new.clear()
        leaves = state["priorities"].reshape(-1)
        self._tree.set(np.arange(leaves.size), leaves)


class RankBased(Corrected):
    """Rank-based prioritisation with stratified draws, Schaul et al. 2016 (arXiv:1511.05952) section 3.3.

    ``P(i) = rank(i)**-alpha / sum rank**-alpha``, where the row of the largest ``|td_error|`` has rank 1: how far it
    exceeds the others does not matter. Rows without an error yet come first. Errors that agree to a sixteenth of an
    octave (4 %) share the probability of their ranks, so that no sorting is needed.

    Args:
        alpha: 0 is uniform.
        beta: how much of the bias the weights undo; the paper anneals it to 1.
        final_beta: ``beta`` at the end of training; None: it is constant, see also :meth:`set_beta`.
    """

    CLASSES = 1024
    """Number of classes of errors: rows never drawn, then sizes from 2**31 down to 2**-32, sixteen per octave."""

    def __init__(self, alpha: float = 0.7, beta: float = 0.5, final_beta: float | None = None):
        super().__init__(alpha, beta, final_beta)

    def prepare(self, steps: int, envs: int) -> Self:
        self.shape = (steps, envs)
        rows = steps * envs
        self.running = np.concatenate([[0.0], np.cumsum(np.arange(1.0, rows + 1) ** -self.alpha)])  # of rank**-alpha
        self.members: list[array[int]] = [array("q") for _ in range(self.CLASSES)]  # cells of each class
        self.counts = np.zeros(self.CLASSES, np.int64)  # how many
        self.kinds = array("h", [-1]) * rows  # the class of each cell, -1: not to be drawn
        self.places = array("q", [0]) * rows  # where it stands in the class
        return self

    def include(self, cells: np.ndarray) -> None:
        self._move(cells.tolist(), [0] * len(cells))

    def exclude(self, cells: np.ndarray) -> None:
        self._move(cells.tolist(), [-1] * len(cells))

    def _move(self, cells: list[int], kinds: list[int]) -> None:
        """Put each cell into another class."""
        for cell, kind in zip(cells, kinds, strict=True):
            before = self.kinds[cell]
            if kind == before:
                continue
            if before >= 0:
                members, place = self.members[before], self.places[cell]
                members[place] = last = members[-1]
                self.places[last] = place
                members.pop()
                self.counts[before] -= 1
            if kind >= 0:
                self.places[cell] = len(self.members[kind])
                self.members[kind].append(cell)
                self.counts[kind] += 1
            self.kinds[cell] = kind

    def draw(self, batch_size: int, filled: int, eligible: Eligible | None) -> tuple[np.ndarray, np.ndarray | None]:
        ends = self.counts.cumsum()  # ranks at which the classes end
        upper = self.running[ends]
        if ends[-1] == 0:
            raise ValueError("Nothing can be drawn: no row is included.")
        mass = self.strata(batch_size, upper[-1])
        kinds = np.searchsorted(upper, mass, side="right")
        counts = self.counts[kinds]
        lower = self.running[ends[kinds] - counts]
        share = upper[kinds] - lower
        places = np.minimum(((mass - lower) / share * counts).astype(np.int64), counts - 1)
        cells = [self.members[kind][place] for kind, place in zip(kinds.tolist(), places.tolist(), strict=True)]
        return np.array(cells), self.weights(share / counts)

    def update_priorities(self, cells: np.ndarray, td_errors: np.ndarray) -> None:
        with np.errstate(divide="ignore"):
            below = np.ceil(16 * (31 - np.log2(sizes(td_errors))))
        kinds = np.clip(below, 1, self.CLASSES - 1).astype(np.int64).tolist()
        pairs = [(cell, kind) for cell, kind in zip(cells.tolist(), kinds, strict=True) if self.kinds[cell] >= 0]
        self._move([cell for cell, _ in pairs], [kind for _, kind in pairs])  # excluded since the draw: stays excluded

    def state_dict(self) -> dict[str, Any]:
        kinds, places = np.array(self.kinds, np.int16), np.array(self.places, np.int64)
        kinds += 1  # 0 of rows that are not there
        return {**super().state_dict(), "kinds": kinds.reshape(self.shape), "places": places.reshape(self.shape)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.prepare(*self.shape)
        kinds, places = state["kinds"].reshape(-1).astype(np.int64) - 1, state["places"].reshape(-1)
        cells = np.lexsort((places, kinds))
        cells = cells[kinds[cells] >= 0]
        self._move(cells.tolist(), kinds[cells].tolist())


def sizes(td_errors: np.ndarray) -> np.ndarray:
    """Absolute values [B], float64.

    Raises:
        ValueError: one of the errors is not finite.
    """
    errors = np.abs(td_errors, dtype=np.float64)
    if not np.isfinite(errors).all():
        bad = np.flatnonzero(~np.isfinite(errors))[0]
        raise ValueError(f"td_errors must be finite, got {td_errors[bad]} at row {bad} of the batch.")
    return errors


SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "uniform": Uniform,
    "prioritized": Prioritized,
    "rank_based": RankBased,
}


def make_prioritized(kind: str = "proportional", final_beta: float | None = 1.0, **options: Any) -> Corrected:
    """Makes a prioritised sampler whose bias correction grows during training.

    Args:
        kind: "proportional" (:class:`Prioritized`) or "rank" (:class:`RankBased`).
        final_beta: ``beta`` at the end of training.
        **options: further arguments of the class.

    Raises:
        ValueError: an unknown kind, or an option out of range.
        TypeError: an unknown option.
    """
    kinds: dict[str, type[Corrected]] = {"proportional": Prioritized, "rank": RankBased}
    if kind not in kinds:
        raise ValueError(f"kind must be one of {sorted(kinds)}, got {kind!r}.")
    return kinds[kind](final_beta=final_beta, **options)


def make_sampler(sampler: Sampler | str | None) -> Sampler:
    """A new sampler from a name, from an instance as a template, or :class:`Uniform` for None."""
    if sampler is None:
        return Uniform()
    if not isinstance(sampler, str):
        return copy(sampler)  # two buffers built from the same keyword arguments must not share one
    if sampler not in SAMPLERS:
        raise ValueError(f"sampler must be one of {sorted(SAMPLERS)} or a Sampler object, got {sampler!r}.")
    return SAMPLERS[sampler]()
