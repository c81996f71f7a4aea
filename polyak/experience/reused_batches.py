"""A few batches, each of which may be drawn several times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from polyak.experience.randomness import Randomness

Batch = TypeVar("Batch")


class CircularBuffer(Randomness, Generic[Batch]):
    """The newest ``size`` batches that have not been drawn ``uses`` times yet (arXiv:1912.00167, section 3.2).

    If each batch is drawn ``uses`` times before the next one is added, there is never more than one. If batches are
    added faster, the oldest is dropped, however often it was drawn.

    Args:
        size: largest number of batches.
        uses: number of times that each may be drawn.
    """

    def __init__(self, size: int, uses: int) -> None:
        self.size, self.uses = size, uses
        self._batches: deque[tuple[Batch, int]] = deque(maxlen=size)

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, batch: Batch) -> None:
        """Add a batch; it replaces the oldest if there are ``size`` of them."""
        self._batches.append((batch, self.uses))

    def draw(self, number: int) -> Iterator[Batch]:
        """So many batches, each at random among all that are there; fewer, once none is left."""
        while number > 0 and self._batches:
            index = int(self.rng.randint(len(self._batches)))
            batch, left = self._batches[index]
            if left > 1:
                self._batches[index] = (batch, left - 1)
            else:
                del self._batches[index]
            number -= 1
            yield batch
