"""Projections and quantile losses against sums written out, and their limits."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from polyak.ops import distributional
from polyak.ops.distributional import midpoints, project, quantile_huber_loss
from tests.tolerance import bound


def distribution(rng, rows, atoms):
    return torch.from_numpy(rng.dirichlet(np.ones(atoms), rows))


@pytest.mark.parametrize(("low", "high", "count"), [(-10.0, 10.0, 51), (0.0, 1.0, 2), (-3.0, 200.0, 7)])
@pytest.mark.parametrize("seed", range(3))
def test_a_projection_shares_each_atom_between_its_neighbours(low, high, count, seed):
    rng = np.random.default_rng(seed)
    support, probs = torch.linspace(low, high, count, dtype=torch.float64), distribution(rng, 5, count)
    rewards, discounts = rng.normal(size=(2, 5)) * [[high - low], [0.5]]
    atoms = torch.from_numpy(rewards)[:, None] + torch.from_numpy(discounts)[:, None] * support
    projected, gap = project(probs, atoms, support), (high - low) / (count - 1)
    for row in range(5):
        expected = np.zeros(count)
        for j in range(count):
            place = (min(max(float(atoms[row, j]), low), high) - low) / gap
            below = min(int(place), count - 2)
            expected[below] += float(probs[row, j]) * (below + 1 - place)
            expected[below + 1] += float(probs[row, j]) * (place - below)
        # places are computed from numbers as large as the support's ends, in units of the gap between two atoms
        near = bound(count + 8, max(abs(low), abs(high)) / gap, np.float64)
        np.testing.assert_allclose(projected[row], expected, rtol=0, atol=near)


def test_a_projection_keeps_the_mass_and_inside_the_support_the_mean():
    rng = np.random.default_rng(0)
    support, probs = torch.linspace(-10, 10, 51, dtype=torch.float64), distribution(rng, 20, 51)
    atoms = torch.from_numpy(rng.uniform(-1, 1, (20, 1))) + 0.9 * support
    projected, near = project(probs, atoms, support), bound(3 * 51, 10 / 0.4, np.float64)
    torch.testing.assert_close(projected.sum(1), torch.ones(20, dtype=torch.float64), rtol=0, atol=near)
    torch.testing.assert_close((projected * support).sum(1), (probs * atoms).sum(1), rtol=0, atol=10 * near)
    assert (projected >= 0).all()


def test_atoms_on_the_support_stay_where_they_are_and_others_go_to_its_ends():
    support, probs = torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([[0.2, 0.3, 0.5]])
    assert torch.equal(project(probs, support[None], support), probs)
    assert project(probs, support[None] + 5, support).tolist() == [[0, 0, 1]]
    assert project(probs, torch.full((1, 3), -7.0), support).tolist() == [[1, 0, 0]]


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("own_levels", [False, True])
def test_the_quantile_loss_is_the_sum_of_its_terms(kappa, own_levels):
    rng = np.random.default_rng(1)
    quantiles, targets = torch.from_numpy(rng.normal(size=(4, 5))), torch.from_numpy(rng.normal(size=(4, 7)) * 2)
    levels = torch.from_numpy(rng.random((4, 5))) if own_levels else midpoints(5).double()
    loss = quantile_huber_loss(quantiles, targets, levels, kappa)
    for row in range(4):
        expected = 0.0
        for i in range(5):
            tau = float(levels[row, i] if own_levels else levels[i])
            for target in targets[row].tolist():
                u = target - float(quantiles[row, i])
                huber = (
                    abs(u) if kappa == 0 else (u * u / 2 if abs(u) <= kappa else kappa * (abs(u) - kappa / 2)) / kappa
                )
                expected += abs(tau - (u < 0)) * huber / 7
        # with kappa as differences of sums of 7 squares, 100 at most in their mean, for 5 quantiles
        size = 5 * 100 / kappa if kappa else 40
        assert float(loss[row]) == pytest.approx(expected, abs=bound(50, size, np.float64))


@pytest.mark.parametrize("kappa", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("size", [3.0, 1000.0])
@pytest.mark.parametrize("ties", [False, True])
def test_running_sums_and_the_pairs_that_a_compiler_joins_make_the_same_quantile_loss(monkeypatch, kappa, size, ties):
    rng = np.random.default_rng(3)
    quantiles, targets = rng.uniform(-size, size, (2, 4, 20)), rng.uniform(-size, size, (4, 30))
    if ties:  # with one another, and with a quantile plus and minus kappa
        quantiles, targets = quantiles.round(), targets.round()

    def loss_and_gradient(q, t):
        losses = quantile_huber_loss(q, t, midpoints(20).double(), kappa)
        return losses, torch.autograd.grad(losses.sum(), q)[0]

    given = torch.from_numpy(quantiles).requires_grad_(), torch.from_numpy(targets)
    by_sums = Mock(wraps=distributional._loss_by_running_sums)
    monkeypatch.setattr(distributional, "_loss_by_running_sums", by_sums)
    loss_by_pairs, gradient_by_pairs = make_fx(loss_and_gradient, tracing_mode="fake")(*given)(*given)
    by_sums.assert_not_called()
    loss, gradient = loss_and_gradient(*given)
    by_sums.assert_called_once()
    far = 2 * size + kappa
    # 30 squares are added up and cancel, for each of 20 quantiles; and their derivatives, for one
    near = bound(30 + 20, 30 * far**2 / kappa, np.float64) / 30
    torch.testing.assert_close(loss, loss_by_pairs, rtol=0, atol=20 * near)
    torch.testing.assert_close(gradient, gradient_by_pairs, rtol=0, atol=near)


def test_several_networks_have_one_target():
    rng = np.random.default_rng(2)
    quantiles, targets = torch.from_numpy(rng.normal(size=(3, 4, 5))), torch.from_numpy(rng.normal(size=(4, 7)))
    losses = quantile_huber_loss(quantiles, targets, midpoints(5).double())
    assert losses.shape == (3, 4)
    for network, loss in zip(quantiles, losses, strict=True):
        assert torch.equal(quantile_huber_loss(network, targets, midpoints(5).double()), loss)


def test_minimal_are_the_quantiles_themselves():
    targets = torch.linspace(0, 1, 101, dtype=torch.float64)[None]
    levels = midpoints(4).double()
    quantiles = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([quantiles], lr=0.01)
    for _ in range(600):
        (grad,) = torch.autograd.grad(quantile_huber_loss(quantiles, targets, levels, 0.0).sum(), quantiles)
        quantiles.grad = grad
        optimizer.step()
    # a step moves by the learning rate at most, and the loss is flat between two neighbouring targets
    torch.testing.assert_close(quantiles.detach()[0], levels, rtol=0, atol=0.01 + 0.02)


def test_the_gradient_is_that_of_finite_differences():
    rng = np.random.default_rng(2)
    quantiles = torch.from_numpy(rng.normal(size=(3, 4))).requires_grad_()
    targets = torch.from_numpy(rng.normal(size=(3, 6)))
    assert torch.autograd.gradcheck(lambda q: quantile_huber_loss(q, targets, midpoints(4).double()), quantiles)
