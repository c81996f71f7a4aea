"""How often does a 95 % interval hold what it is an interval of? Coverage of all kinds of intervals.

    python benchmarks/coverage.py            # prints the table
    python benchmarks/coverage.py --write    # and writes it into docs/evaluation.md

By simulation, which is seeded; that of success rates is exact, a sum over all numbers of successes. What is promised of
off-policy evaluation is that intervals hold or come with a warning.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from math import comb, exp, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import torch

from polyak.evaluation import EvaluationResult
from polyak.evaluation.intervals import Ends, bootstrap_ends, interquartile_mean, mean_ends
from polyak.evaluation.off_policy.importance_sampling import doubts, estimate

PAGE = Path(__file__).parents[1] / "docs" / "evaluation.md"
BEGIN, END = (
    "<!-- written by benchmarks/coverage.py; begins -->\n",
    "<!-- written by benchmarks/coverage.py; ends -->\n",
)


class Row(NamedTuple):
    """The share of ``trials`` intervals that hold, of n values or episodes; 0 trials if it is exact.

    Of off-policy evaluation, the share that comes with a warning, and the share that holds or comes with one.
    """

    what: str
    n: int
    holds: float
    promised: float | None
    trials: int
    warned: float | None = None
    holds_or_warned: float | None = None

    @property
    def shortfall(self) -> float:
        """By how much the share is below what is promised, less five standard errors (one test in two million)."""
        share = self.holds if self.holds_or_warned is None else self.holds_or_warned
        promised = self.promised or 0.0
        error = sqrt(promised * (1 - promised) / self.trials) if self.trials else 0.0
        return promised - 5 * error - share


def rows() -> Iterator[Row]:
    """All rows of the table."""
    yield from means()
    yield from rates()
    yield from interquartile_means()
    yield from off_policy()


def share(ends: Ends, truth: float) -> float:
    """Of the intervals that are known, the share that holds the truth."""
    low, high = ends
    return float(((low <= truth) & (truth <= high))[~np.isnan(low)].mean())


def means(trials: int = 100_000) -> Iterator[Row]:
    """Of normal and of skewed data."""
    rng = np.random.default_rng(0)
    lognormal: Callable[..., np.ndarray] = rng.lognormal
    kinds: list[tuple[str, Callable[..., np.ndarray], float, dict[int, float | None]]] = [
        ("mean, normal", rng.normal, 0.0, dict.fromkeys((3, 5, 10, 20, 50), 0.93)),
        ("mean, lognormal", lognormal, exp(0.5), {5: None, 10: None, 20: 0.90, 50: 0.90}),
        ("mean, exponential", rng.exponential, 1.0, {5: None, 10: None, 20: 0.90, 50: 0.90}),
    ]
    for what, draw, truth, sizes in kinds:
        for n, promised in sizes.items():
            yield Row(what, n, share(mean_ends(draw(size=(trials, n))), truth), promised, trials)


def rates() -> Iterator[Row]:
    """Of returns that are 0 or 1."""
    for p in (0.5, 0.8, 0.9, 0.95):
        for n in (5, 10, 20, 100):
            held = 0.0
            for k in range(n + 1):
                low, high = EvaluationResult(np.repeat([1.0, 0.0], [k, n - k]), np.ones(n, int)).ci
                held += comb(n, k) * p**k * (1 - p) ** (n - k) * (low <= p <= high)
            yield Row(f"success rate {p}", n, held, 0.93, 0)


def interquartile_means(trials: int = 1_000, resamples: int = 200) -> Iterator[Row]:
    """Of normal and of skewed data; n is a multiple of 4, so that exactly a quarter is left out at each end. And of
    runs in three environments, one of which varies most, as ``polyak plot-from-file --rliable`` compares them."""
    rng, quarter = np.random.default_rng(1), NormalDist().inv_cdf(0.25)
    middle = 2 * exp(0.5) * (NormalDist().cdf(-quarter - 1) - NormalDist().cdf(quarter - 1))
    kinds: list[tuple[str, Callable[..., np.ndarray], float, np.ndarray, tuple[int, ...]]] = [
        ("IQM, normal", rng.normal, 0.0, np.ones(1), (4, 8, 20)),
        ("IQM, lognormal", rng.lognormal, middle, np.ones(1), (4, 8, 20)),
        ("IQM of n runs in each of 3 environments", rng.normal, 0.0, np.array([1.0, 1.0, 3.0]), (3, 5, 10)),
    ]
    for what, draw, truth, scales, sizes in kinds:
        for n in sizes:
            samples = scales * draw(size=(trials, n, len(scales)))
            ends = [bootstrap_ends(sample, _interquartile_mean, n_resamples=resamples) for sample in samples]
            low, high = np.transpose(ends)
            yield Row(what, n, share((low, high), truth), 0.90, trials)


def _interquartile_mean(values: np.ndarray) -> np.ndarray:
    return interquartile_mean(values.reshape(-1))


METHODS = ("is", "wis", "pdis", "wpdis", "dr", "wdr")
POLICIES = (0.6, 0.7, 0.8, 0.9)
STEPS, GAMMA, BEHAVIOUR = 5, 0.95, 0.5


def off_policy(trials: int = 1_000, episodes: int = 30) -> Iterator[Row]:
    """Of five steps with two actions, which pay 1 and 0.2, with and without noise; the behaviour takes the better one
    half of the time. The critic of the doubly robust methods believes that they pay 0.8 and 0.16."""
    discounts = GAMMA ** np.arange(STEPS)
    left = np.array([discounts[: STEPS - t].sum() for t in range(STEPS + 1)])
    for noise in (1.0, 0.0):
        for policy in POLICIES:
            mean = policy + 0.2 * (1 - policy)
            rng, counts = np.random.default_rng(3), {method: np.zeros(3) for method in METHODS}
            for _ in range(trials):
                better = rng.random((episodes, STEPS)) < BEHAVIOUR
                pay, v = np.where(better, 1.0, 0.2), 0.8 * mean * left
                ratios = np.where(better, policy / BEHAVIOUR, (1 - policy) / (1 - BEHAVIOUR))
                data: dict[str, Any] = {
                    "log_ratios": torch.from_numpy(np.log(ratios)),
                    "rewards": torch.from_numpy(pay + noise * rng.normal(size=pay.shape)),
                    "gamma": GAMMA,
                }
                critic = {
                    "q": torch.from_numpy(0.8 * pay + GAMMA * v[1:]),
                    "v": torch.from_numpy(v).expand(episodes, -1),
                }
                for method, count in counts.items():
                    found: Any = estimate(method, data | (critic if method.endswith("dr") else {}))  # type: ignore[arg-type]
                    holds = found.low <= mean * discounts.sum() <= found.high
                    warned = bool(doubts(found, data["log_ratios"]))
                    count += (holds, warned, holds or warned)
            for method, count in counts.items():
                what = f"`{method}`, {'noisy' if noise else 'exact'} rewards, policy {policy}"
                holds, warned, either = (float(part) / trials for part in count)
                yield Row(what, episodes, holds, 0.90, trials, warned, either)


def table(found: Iterable[Row]) -> str:
    """The rows as two tables of Markdown."""
    plain, off = [], []
    for row in found:
        if row.warned is None:
            promised = "" if row.promised is None else f"{row.promised:.2f}"
            plain.append(f"| {row.what} | {row.n} | {row.holds:.3f} | {promised} |")
        else:
            off.append(f"| {row.what} | {row.holds:.2f} | {row.warned:.2f} | {row.holds_or_warned:.2f} |")
    head = ["| interval of | n | holds | at least |", "|---|---:|---:|---:|"]
    head_off = ["| off-policy evaluation, 30 episodes | holds | warned | holds or warned |", "|---|---:|---:|---:|"]
    return "\n".join([*head, *plain, "", *head_off, *off]) + "\n"


def main(arguments: list[str]) -> int:
    """Print the table; with ``--write`` put it into the page."""
    if unknown := set(arguments) - {"--write"}:
        print(f"unknown arguments: {' '.join(unknown)}; there is --write", file=sys.stderr)
        return 2
    text = table(rows())
    print(text)
    if "--write" in arguments:
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.partition(END)[2]}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
