"""Cases of a parametrised test, of which the suite runs some and ``make learn`` all."""

import itertools
from collections.abc import Iterable
from typing import Any

import pytest


def pairwise(rows: Iterable[tuple[Any, ...]]) -> list[Any]:
    """All rows, in their order; those that add no pair of values of two arguments to the others are slow tests."""
    rows = list(rows)
    pairs = [set(itertools.combinations(enumerate(map(repr, row)), 2)) for row in rows]
    missing, quick = set().union(*pairs), set()
    while missing:
        best = max(range(len(rows)), key=lambda number: len(pairs[number] & missing))
        quick.add(best)
        missing -= pairs[best]
    return [pytest.param(*row, marks=[] if number in quick else pytest.mark.slow) for number, row in enumerate(rows)]


def one_of_each(values: Iterable[Any], *quick: Any) -> list[Any]:
    """All values, in their order; those that are not named, for which those named stand, are slow tests."""
    values = list(values)
    assert all(value in values for value in quick), quick
    return [pytest.param(value, marks=[] if value in quick else pytest.mark.slow) for value in values]
