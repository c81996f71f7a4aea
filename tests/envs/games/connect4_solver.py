"""Exact values of positions of Connect-4 near the end of the game, by a full alpha-beta search."""

from __future__ import annotations

import numpy as np

HEIGHT = 7
ORDER = (3, 2, 4, 1, 5, 0, 6)
FULL = sum(((1 << 6) - 1) << (HEIGHT * c) for c in range(7))


def wins(discs: int) -> bool:
    for step in (1, 6, 7, 8):
        pairs = discs & (discs >> step)
        if pairs & (pairs >> 2 * step):
            return True
    return False


class Solver:
    """Keeps what it has solved."""

    def __init__(self) -> None:
        self.known: dict[tuple[int, int], tuple[int, int]] = {}
        self.nodes = 0

    def value(self, own: int, other: int, low: int = -1, high: int = 1) -> int:
        """1 the player to move wins, 0 draw, -1 loses; the game is not over."""
        taken = own | other
        self.nodes += 1
        spots = [bit for c in ORDER if (bit := (taken + (1 << HEIGHT * c)) & (((1 << 6) - 1) << HEIGHT * c))]
        spots = [bit & ~taken for bit in spots]
        if any(wins(own | bit) for bit in spots):
            return 1
        forced = [bit for bit in spots if wins(other | bit)]
        if len(forced) > 1:
            return -1
        spots = forced or spots
        if not spots:
            return 0
        at_least, at_most = self.known.get((own, other), (-1, 1))
        low, high = max(low, at_least), min(high, at_most)
        if low >= high:
            return low
        best, alpha = -1, low
        for bit in spots:
            if (taken | bit) == FULL:
                worth = 0
            else:
                worth = -self.value(other, own | bit, -high, -alpha)
            best, alpha = max(best, worth), max(alpha, worth)
            if alpha >= high:
                break
        if best <= low:
            at_most = min(at_most, best)
        elif best >= high:
            at_least = max(at_least, best)
        else:
            at_least = at_most = best
        self.known[own, other] = at_least, at_most
        return best

    def moves(self, position: np.ndarray) -> dict[int, int]:
        """Column -> what the position [2] after it is worth to the player that made the move."""
        own, other = map(int, position)
        taken, worths = own | other, {}
        for column in range(7):
            lowest = 1 << HEIGHT * column
            if taken & (lowest << 5):
                continue
            bit = (taken + lowest) & ~taken & (((1 << 6) - 1) << HEIGHT * column)
            if wins(own | bit):
                worths[column] = 1
            else:
                worths[column] = 0 if (taken | bit) == FULL else -self.value(other, own | bit)
        return worths
