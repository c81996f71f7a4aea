"""Sum tree against brute force, prioritised frequencies against the formula, importance weights against the formula."""

import numpy as np
import pytest
import torch
from gymnasium import spaces

from polyak.experience import PrioritizedReplayBuffer, sum_tree
from polyak.experience.samplers import Prioritized, RankBased, Uniform, make_prioritized
from polyak.experience.sum_tree import WIDTH, SumTree
from tests.tolerance import LIKELY, bound, sampling
from tests.warm import python

stats = pytest.importorskip("scipy.stats")
UNIT = spaces.Box(-1, 1, (1,), np.float32)
EPS = 2e-6  # 1e-6 that is added to errors of 0.5 and more


@pytest.mark.parametrize("size", [1, 5, 16, 17, 300, 5000])
def test_sum_tree_finds_what_a_running_sum_finds(size):
    rng = np.random.default_rng(size)
    tree, weights = SumTree(size), np.zeros(size)
    for _ in range(20):
        index = rng.integers(0, size, 7)
        value = rng.choice([0.0, 1e-9, 0.5, 3.0, 1e6], 7)
        tree.set(index, value)
        weights[index] = value  # of repeated indices the last counts, as in numpy
        np.testing.assert_array_equal(tree.leaves, weights)
        assert tree.total == pytest.approx(weights.sum(), rel=bound(size, dtype=np.float64))
        if weights.sum() > 0:
            mass = rng.random(50) * weights.sum()
            found = tree.find(mass)
            assert (weights[found] > 0).all()
            running = np.cumsum(weights)
            slack = bound(size, weights.sum(), np.float64)
            assert (running[found] >= mass - slack).all()
            assert (running[found] - weights[found] <= mass + slack).all()


def test_sum_tree_edges():
    tree = SumTree(100)
    with pytest.raises(ValueError, match="every weight is 0"):
        tree.find(np.array([0.0]))
    tree.set(np.array([37]), 0.1)
    extremes = np.array([0.0, 0.05, 0.1, 0.1 + 1e-9])
    assert tree.find(extremes).tolist() == [37] * 4, "rounding at the upper end never leaves the weights"
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        SumTree(0)


def test_sum_tree_does_not_drift():
    """A million updates later the sums are still those of the leaves."""
    rng = np.random.default_rng(0)
    tree = SumTree(1000)
    for _ in range(2000):
        tree.set(rng.integers(0, 1000, 500), rng.random(500) * 10.0 ** rng.integers(-12, 12))
    assert tree.total == pytest.approx(tree.leaves.sum(), rel=bound(1000, dtype=np.float64))


def numba_kernels():
    pytest.importorskip("numba")
    return sum_tree.compiled()


def plain_kernels():
    return sum_tree.Kernels(sum_tree.refresh, sum_tree.find)


@pytest.mark.parametrize("kernels", [numba_kernels, plain_kernels])
@pytest.mark.parametrize("size", [1, 5, 17, 300, 5000])
def test_loops_and_arrays_find_the_same_leaves(monkeypatch, kernels, size):
    """With and without numba: the same sums but for rounding, and the same leaf for every mass but at an end."""
    kernels = kernels()
    rng = np.random.default_rng(size)
    arrays, loops = SumTree(size), SumTree(size)
    for _ in range(25):
        index, value = rng.integers(0, size, 20), rng.random(20) * 10.0 ** rng.integers(-15, 15, 20)
        value[rng.random(20) < 0.3] = 0
        found, mass = [], np.random.default_rng(0).random(50)
        for tree, code in ((arrays, None), (loops, kernels)):
            monkeypatch.setattr(sum_tree, "compiled", lambda code=code: code)
            tree.set(index, value)
            if tree.total > 0:
                seams = np.nextafter(tree._running_sums(), 0).clip(0)
                assert (tree.leaves[tree.find(np.append(seams, tree.total))] > 0).all()
                found.append(tree.find(mass * tree.total))
                assert (tree.leaves[found[-1]] > 0).all()
        relative = bound(2 * WIDTH, dtype=np.float64)
        np.testing.assert_allclose(arrays._sums, loops._sums, rtol=relative, atol=0)
        np.testing.assert_allclose(arrays._tops, loops._tops, rtol=2 * relative, atol=0)
        if found:
            running = np.cumsum(arrays.leaves)
            apart = np.abs(running[found[0]] - running[found[1]]) <= bound(size, running[-1], np.float64)
            assert ((found[0] == found[1]) | apart).all()


def test_numba_is_not_loaded_before_it_is_needed():
    code = "import sys, polyak.experience; assert 'numba' not in sys.modules"
    python(["-c", code], check=True)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_frequencies_follow_the_priorities(alpha):
    """Chi-square of the draws against p**alpha; strata only make the fit tighter than chance."""
    sampler = Prioritized(alpha=alpha, eps=1e-3).prepare(100, 1)
    sampler.seed(0)
    sampler.include(np.arange(80))
    errors = np.random.default_rng(1).normal(size=80)
    sampler.update_priorities(np.arange(80), errors)
    expected = (np.abs(errors) + 1e-3) ** alpha
    counts = np.zeros(100)
    for _ in range(2000):
        cells, _ = sampler.draw(1, 80, None)  # one stratum: independent draws
        counts[cells] += 1
    for _ in range(200):
        cells, _ = sampler.draw(64, 80, None)
        np.add.at(counts, cells, 1)
    assert counts[80:].sum() == 0
    assert stats.chisquare(counts[:80], expected / expected.sum() * counts.sum()).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0])
def test_frequencies_follow_the_ranks(alpha):
    """Chi-square of the draws against rank**-alpha, with rows that came, went, and changed their rank."""
    rng = np.random.default_rng(1)
    sampler = RankBased(alpha=alpha).prepare(60, 2)
    sampler.seed(0)
    sampler.include(np.arange(100))
    sampler.update_priorities(np.arange(100), rng.normal(size=100))
    sampler.exclude(np.arange(0, 30, 3))
    ranked = rng.permutation(np.setdiff1d(np.arange(100), np.arange(0, 30, 3)))
    sampler.update_priorities(np.arange(100), 1.1 ** -np.argsort(np.append(ranked, np.arange(0, 30, 3))))
    expected = np.zeros(120)
    expected[ranked] = np.arange(1.0, len(ranked) + 1) ** -alpha
    counts = np.zeros(120)
    for _ in range(2000):
        counts[sampler.draw(1, 120, None)[0]] += 1
    for _ in range(200):
        np.add.at(counts, sampler.draw(64, 120, None)[0], 1)
    assert counts[expected == 0].sum() == 0
    there = expected > 0
    assert stats.chisquare(counts[there], (expected / expected.sum() * counts.sum())[there]).pvalue > 1e-3


def test_rows_never_learned_from_rank_first_and_equal_errors_share_their_ranks():
    sampler = RankBased(alpha=1.0, beta=1.0).prepare(8, 1)
    sampler.seed(0)
    sampler.include(np.arange(6))
    sampler.update_priorities(np.array([0, 1, 2, 3]), np.array([0.0, -3.0, 3.0, 1e30]))
    cells, weights = sampler.draw(500, 8, None)
    expected = 1 / np.array([1 / 6, (1 / 4 + 1 / 5) / 2, (1 / 4 + 1 / 5) / 2, 1 / 3, 3 / 4, 3 / 4])
    np.testing.assert_allclose(weights, expected[cells] / expected.max(), rtol=bound(LIKELY))  # float32


def test_a_rank_based_sampler_with_nothing_to_draw_says_so():
    sampler = RankBased().prepare(8, 1)
    sampler.include(np.arange(2))
    sampler.exclude(np.arange(2))
    with pytest.raises(ValueError, match="Nothing can be drawn"):
        sampler.draw(1, 8, None)


@pytest.mark.parametrize("kind", ["proportional", "rank"])
def test_correction_follows_the_progress_of_training(kind):
    sampler = make_prioritized(kind, beta=0.4)
    betas = []
    for progress in (0.0, 0.5, 1.0):
        sampler.anneal(progress)
        betas.append(sampler.beta)
    assert betas == pytest.approx([0.4, 0.7, 1.0])
    stays = Prioritized(beta=0.3)
    stays.anneal(1.0)
    assert stays.beta == 0.3
    with pytest.raises(ValueError, match="kind must be one of .* got 'ranks'"):
        make_prioritized("ranks")
    with pytest.raises(ValueError, match="final_beta must be between 0 and 1"):
        make_prioritized(kind, final_beta=2)


@pytest.mark.parametrize("kind", [Prioritized, RankBased])
def test_draws_are_stratified(kind):
    """Each of 50 equal rows is drawn once or nearly so by 50 strata; independent draws would miss a third."""
    sampler = kind(alpha=0.0).prepare(50, 1)
    sampler.seed(0)
    sampler.include(np.arange(50))
    assert len(np.unique(sampler.draw(50, 50, None)[0])) == 50


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_importance_weights(beta):
    sampler = Prioritized(alpha=0.7, beta=beta).prepare(64, 2)
    sampler.seed(0)
    sampler.include(np.arange(100))
    errors = np.random.default_rng(2).normal(size=100)
    sampler.update_priorities(np.arange(100), errors)
    cells, weights = sampler.draw(32, 100, None)
    p = (np.abs(errors) + 1e-6) ** 0.7
    expected = (100 * p[cells] / p.sum()) ** -beta
    np.testing.assert_allclose(weights, expected / expected.max(), rtol=bound(LIKELY))  # float32


def test_full_correction_is_unbiased():
    """With beta = 1 the weighted mean of any quantity is its plain mean over the buffer."""
    sampler = Prioritized(alpha=1.0, beta=1.0).prepare(40, 1)
    sampler.seed(3)
    sampler.include(np.arange(40))
    rng = np.random.default_rng(4)
    errors, values = rng.random(40) + 0.1, rng.normal(size=40)
    sampler.update_priorities(np.arange(40), errors)
    cells, _ = sampler.draw(200_000, 40, None)
    weights = 1 / (40 * sampler.tree.leaves[cells] / sampler.tree.total)
    weighted = weights * values[cells]
    assert weighted.mean() == pytest.approx(values.mean(), abs=sampling(200_000, weighted.std()))


def test_new_rows_get_the_highest_priority():
    buffer = PrioritizedReplayBuffer(8, UNIT, UNIT, "cpu", alpha=1.0, eps=1e-6)
    add(buffer, 4)
    assert buffer.sampler.tree.leaves.tolist() == [1] * 4 + [0] * 4
    buffer.update_priorities(torch.tensor([0, 1]), torch.tensor([[-7.0], [0.5]]))
    add(buffer, 2)
    np.testing.assert_allclose(buffer.sampler.tree.leaves, [7, 0.5, 1, 1, 7, 7, 0, 0], rtol=EPS + bound())
    add(buffer, 4)  # wraps around: rows 0 and 1 are new again
    np.testing.assert_allclose(buffer.sampler.tree.leaves, [7, 7, 1, 1, 7, 7, 7, 7], rtol=EPS + bound())


def test_beta_can_be_changed():
    buffer = PrioritizedReplayBuffer(100, UNIT, UNIT, "cpu", seed=0)
    add(buffer, 50)
    buffer.update_priorities(np.arange(50), np.linspace(0.1, 3, 50))
    buffer.set_beta(0.0)
    assert (buffer.sample(20).weights == 1).all()
    buffer.set_beta(1.0)
    batch = buffer.sample(20)
    assert batch.weights.shape == (20, 1)
    assert batch.weights.max() == 1
    assert batch.weights.min() < 0.5
    with pytest.raises(ValueError, match="beta must be between 0 and 1, got 2"):
        buffer.set_beta(2)


def test_excluded_rows_stay_out():
    sampler = Prioritized().prepare(10, 1)
    sampler.include(np.arange(10))
    sampler.exclude(np.array([3, 4]))
    sampler.exclude(np.array([3]))
    assert np.count_nonzero(sampler.tree.leaves) == 8
    sampler.update_priorities(np.array([3, 5]), np.array([9.0, 9.0]))
    assert not set(sampler.draw(200, 10, None)[0]) & {3, 4}
    sampler.include(np.array([3]))
    assert np.count_nonzero(sampler.tree.leaves) == 9


class Eligible:
    """Some cells may be drawn; the pool also holds cell 5, which was overwritten since."""

    def __init__(self, cells):
        self.cells = cells

    def pool(self):
        return np.append(self.cells, 5)

    def eligible(self, cells):
        return np.isin(cells, self.cells)


def test_uniform_keeps_to_the_eligible():
    sampler = Uniform().prepare(1000, 1)
    for eligible_cells in ([7], [1, 2, 998], list(range(0, 1000, 2))):
        cells, weights = sampler.draw(300, 1000, Eligible(np.array(eligible_cells)))
        assert set(cells) <= set(eligible_cells)
        assert weights is None
        counts = np.unique(cells, return_counts=True)[1]
        assert len(counts) == min(len(eligible_cells), len(counts))
        if len(eligible_cells) == 3:
            assert counts.min() > 60


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"alpha": -1}, "alpha must be at least 0, got -1"),
        ({"beta": 1.5}, "beta must be between 0 and 1, got 1.5"),
        ({"eps": 0}, "eps must be positive, got 0"),
    ],
)
def test_bad_arguments(keywords, message):
    with pytest.raises(ValueError, match=message):
        Prioritized(**keywords)


def test_errors_must_be_finite():
    sampler = Prioritized().prepare(4, 1)
    sampler.include(np.arange(4))
    with pytest.raises(ValueError, match="td_errors must be finite, got nan at row 1"):
        sampler.update_priorities(np.arange(2), np.array([1.0, np.nan]))


def add(buffer, steps):
    for _ in range(steps):
        one = np.zeros((1, 1), np.float32)
        buffer.add(one, one, one, np.zeros(1), np.zeros(1), [{}])
