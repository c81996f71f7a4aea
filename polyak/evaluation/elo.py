"""Elo ratings of players from the results of their games.

Elo 1978, "The Rating of Chessplayers": a player rated d above another expects 1 / (1 + 10^(-d/400)) points.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

SCALE = 400 / math.log(10)
"""Rating points that multiply the odds of winning by e."""


def expected(difference: float) -> float:
    """Returns the expected points of a game, in [0, 1], of a player that is rated higher by ``difference``."""
    return 1 / (1 + math.exp(-difference / SCALE))


def rating(opponents: Sequence[float], points: Sequence[float], games: Sequence[int]) -> float:
    """Returns the maximum-likelihood rating of a player from its points against opponents of known ratings.

    A drawn game against an average opponent is added, so that the rating is finite for players that lost or won all
    games.

    Args:
        opponents: their ratings.
        points: made against each.
        games: played against each.

    Raises:
        ValueError: there are no games.
    """
    if not games or sum(games) < 1:
        raise ValueError(f"games={games}: there must be at least one to rate a player by.")
    average = sum(r * n for r, n in zip(opponents, games, strict=True)) / sum(games)
    ratings, made, played = [*opponents, average], sum(points) + 0.5, [*games, 1]
    low, high = min(ratings) - 4000, max(ratings) + 4000
    for _ in range(60):  # the expectation grows with the rating
        middle = (low + high) / 2
        hoped = sum(n * expected(middle - r) for r, n in zip(ratings, played, strict=True))
        low, high = (middle, high) if hoped < made else (low, middle)
    return (low + high) / 2
