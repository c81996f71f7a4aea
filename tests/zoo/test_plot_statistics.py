"""Comparisons over environments: against scipy and brute force, and that they repeat themselves."""

from itertools import product

import numpy as np
import pytest

from polyak.evaluation import success_interval
from polyak.zoo.errors import ZooError
from polyak.zoo.plots import statistics
from polyak.zoo.plots.curves import Curve
from polyak.zoo.plots.results import Results


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "N_RESAMPLES", 200)


def evaluations(levels: list[float], steps: tuple[int, ...] = (100, 200, 300)) -> Curve:
    """Runs that rise in a straight line to these levels."""
    rising = np.linspace(1 / len(steps), 1.0, len(steps))
    return Curve(np.array(steps), rising[:, None] * np.array(levels))


def results() -> Results:
    rng = np.random.default_rng(3)
    return {
        env: {method: evaluations(list(scale * rng.uniform(low, 1.0, 5))) for method, low in (("P", 0.2), ("S", 0.6))}
        for env, scale in (("A", 10.0), ("B", 1000.0), ("C", 3.0))
    }


def test_scores_are_scaled_by_the_lowest_and_the_highest_run() -> None:
    scores = statistics.last_scores(results())
    for column, known in enumerate(results().values()):
        everything = np.concatenate([found.last for found in known.values()])
        for method, found in known.items():
            expected = (found.last - everything.min()) / (everything.max() - everything.min())
            np.testing.assert_allclose(scores[method][:, column], expected)
    together = np.concatenate(list(scores.values()))
    assert together.min(axis=0).tolist() == [0.0] * 3
    assert together.max(axis=0).tolist() == [1.0] * 3


def test_aggregates_are_those_of_scipy_and_numpy() -> None:
    from scipy.stats import trim_mean

    scores = statistics.last_scores(results())
    found = statistics.aggregates(scores)
    assert list(found) == ["Median", "IQM", "Mean", "Optimality gap"]
    for method, values in scores.items():
        assert found["IQM"][method].value == pytest.approx(trim_mean(values, 0.25, axis=None))
        assert found["Mean"][method].value == pytest.approx(values.mean())
        assert found["Median"][method].value == pytest.approx(np.median(values.mean(axis=0)))
        assert found["Optimality gap"][method].value == pytest.approx(1 - np.minimum(values, 1).mean())
        for estimates in found.values():
            assert estimates[method].low <= estimates[method].value <= estimates[method].high
            assert estimates[method].low < estimates[method].high


def test_the_sample_efficiency_is_the_iqm_at_each_step() -> None:
    from scipy.stats import trim_mean

    known = results()
    steps, curves = statistics.sample_efficiency(known) or pytest.fail("there are common steps")
    assert (steps[0], steps[-1]) == (100, 300)
    scales = statistics.ranges(known)
    for method in ("P", "S"):
        for place in (0, len(steps) - 1):
            row = 0 if place == 0 else -1
            values = [
                (found[method].values[row] - scales[env][0]) / (scales[env][1] - scales[env][0])
                for env, found in known.items()
            ]
            assert curves[method].value[place] == pytest.approx(trim_mean(np.concatenate(values), 0.25))
    last = statistics.aggregates(statistics.last_scores(known))["IQM"]
    assert curves["P"].value[-1] == pytest.approx(last["P"].value)


def test_profiles_count_the_runs_above_a_threshold() -> None:
    scores = statistics.last_scores(results())
    thresholds = np.array([0.0, 0.3, 0.7, 1.0])
    for method, found in statistics.performance_profiles(scores, thresholds).items():
        for threshold, share in zip(thresholds, found.value, strict=True):
            assert share == pytest.approx(sum(value > threshold for value in scores[method].ravel()) / 15)
        wanted = [success_interval(15 * share, 15) for share in found.value]
        np.testing.assert_allclose(np.transpose([found.low, found.high]), wanted)


def test_the_probability_of_improvement_counts_pairs_as_rliable_does() -> None:
    from rliable import metrics

    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 4, (5, 3)).astype(float), rng.integers(0, 4, (4, 3)).astype(float)
    wins = [
        np.mean([1.0 if a > b else 0.5 if a == b else 0.0 for a, b in product(x[:, env], y[:, env])])
        for env in range(3)
    ]
    assert statistics.probability_of_improvement(x, y) == pytest.approx(np.mean(wins))
    assert statistics.probability_of_improvement(x, y) == pytest.approx(metrics.probability_of_improvement(x, y))
    ((pair, found),) = statistics.improvement({"X": x, "Y": y}).items()
    assert pair == ("X", "Y")
    assert (found.low, found.high) == success_interval(found.value * 12, 12)  # four runs in three environments


def test_intervals_repeat_themselves_and_leave_the_generators_alone() -> None:
    scores = statistics.last_scores(results())
    np.random.seed(5)
    first = statistics.aggregates(scores)["IQM"]["P"]
    drawn = np.random.rand()
    np.random.seed(6)
    second = statistics.aggregates(scores)["IQM"]["P"]
    assert (first.low, first.high) == (second.low, second.high)
    np.random.seed(5)
    assert np.random.rand() == drawn
    narrow = statistics.aggregates(scores, confidence=0.5)["IQM"]["P"]
    assert first.low < narrow.low < narrow.high < first.high


def test_what_cannot_be_compared_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    known = results()
    known["D"] = {"P": evaluations([1.0, 2.0])}
    known["E"] = {"P": evaluations([2.0, 2.0]), "S": evaluations([2.0])}
    known["F"] = {"P": evaluations([1.0, 2.0]), "S": evaluations([3.0])}
    compared = statistics.comparable(known)
    said = capsys.readouterr().err
    assert list(compared) == ["A", "B", "C", "F"]
    assert "leave D out: it has no runs of S" in said
    assert "leave E out: it has the same score in all runs" in said
    scores = statistics.last_scores(compared)
    said = capsys.readouterr().err
    assert scores["P"].shape == (2, 4)
    assert "P: the first 2 runs of each environment are compared (there are: A 5, B 5, C 5, F 2)" in said
    assert "only one run of S: its intervals are unknown" in said
    for found in (
        statistics.aggregates(scores)["Mean"]["S"],
        statistics.improvement(scores)["P", "S"],
        statistics.performance_profiles(scores, np.array([0.5]))["S"],
    ):
        assert np.isnan([found.low, found.high]).all()
    with pytest.raises(ZooError, match="no environment on which all of P, S"):
        statistics.comparable({"D": known["D"], "E": {"S": evaluations([1.0])}})


def test_curves_of_different_lengths_end_together(capsys: pytest.CaptureFixture[str]) -> None:
    known = {"A": {"P": evaluations([1.0, 2.0]), "S": evaluations([3.0, 4.0], steps=(150, 250))}}
    steps, _ = statistics.sample_efficiency(known) or pytest.fail("there are common steps")
    assert (steps[0], steps[-1]) == (150, 250)
    assert "end at 250 steps" in capsys.readouterr().err
    known["A"]["S"] = evaluations([3.0, 4.0], steps=(500, 600))
    assert statistics.sample_efficiency(known) is None
    assert "no curves of sample efficiency" in capsys.readouterr().err
    known["A"]["S"] = evaluations([3.0, 4.0], steps=(300,))
    steps, curves = statistics.sample_efficiency(known) or pytest.fail("step 300 is common")
    assert steps.tolist() == [300.0]
    assert curves["S"].value.shape == (1,)
