"""Sparsemax against other ways to the nearest distribution, Tsallis entropies against sums and integrals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import integrate, optimize
from torch.fx.experimental.proxy_tensor import make_fx

from polyak.ops.tsallis import gaussian_tsallis_entropy, joint_tsallis_entropy, sparsemax, tsallis_entropy
from tests.tolerance import bound

F64 = torch.float64
CLOSE = bound(100, 10, np.float64)


def nearest_by_supports(z: np.ndarray) -> np.ndarray:
    """The nearest point of the simplex [N]: of the candidates of all supports that lie in it, the nearest."""
    n, best, least = len(z), np.zeros(len(z)), np.inf
    for size in range(1, n + 1):
        for support in itertools.combinations(range(n), size):
            chosen, p = list(support), np.zeros(n)
            p[chosen] = z[chosen] - (z[chosen].sum() - 1) / size  # the Lagrange condition
            distance = ((p - z) ** 2).sum()
            if p.min() >= 0 and distance < least:
                best, least = p, distance
    return best


# --- sparsemax --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_sparsemax_is_the_nearest_distribution_of_any_support(n: int, scale: float) -> None:
    z = scale * torch.randn(50, n, dtype=F64, generator=torch.Generator().manual_seed(n))
    expected = np.stack([nearest_by_supports(row) for row in z.numpy()])
    np.testing.assert_allclose(sparsemax(z).numpy(), expected, rtol=0, atol=CLOSE * scale)
    np.testing.assert_array_equal((sparsemax(z) > 0).numpy(), expected > 0)


def test_sparsemax_is_what_an_optimiser_finds() -> None:
    rng = np.random.default_rng(0)
    for z in 0.7 * rng.standard_normal((5, 8)):
        found = optimize.minimize(
            lambda p, z=z: 0.5 * ((p - z) ** 2).sum(),
            np.full(8, 1 / 8),
            jac=lambda p, z=z: p - z,
            bounds=[(0, 1)] * 8,
            constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": np.ones_like},
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )
        np.testing.assert_allclose(sparsemax(torch.tensor(z)).numpy(), found.x, rtol=0, atol=1e-6)


def test_jacobian_is_that_of_the_paper() -> None:
    for z in 0.7 * torch.randn(20, 6, dtype=F64, generator=torch.Generator().manual_seed(0)):
        s = (sparsemax(z) > 0).to(F64)
        jacobian = torch.autograd.functional.jacobian(sparsemax, z)
        torch.testing.assert_close(jacobian, torch.diag(s) - torch.outer(s, s) / s.sum(), rtol=0, atol=CLOSE)


def test_equal_scores_share_forbidden_ones_get_nothing_and_large_ones_are_exact() -> None:
    z = torch.tensor([[3.0, 3.0, 3.0, 0.0], [0.0, -torch.inf, 0.2, -torch.inf], [1e30, 1e4, -1e30, 0.0]])
    z.requires_grad_()
    p = sparsemax(z)
    expected = torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0], [0.4, 0.0, 0.6, 0.0], [1.0, 0.0, 0.0, 0.0]])
    torch.testing.assert_close(p, expected)
    assert torch.equal(p > 0, expected > 0)
    gradient = torch.autograd.grad((p**2).sum(), z)[0]
    assert torch.isfinite(gradient).all()


def test_it_is_one_graph_for_all_values() -> None:
    z, other = torch.randn(2, 7, 5, generator=torch.Generator().manual_seed(0))

    def gradient(z: torch.Tensor) -> torch.Tensor:
        z = z.detach().requires_grad_()
        return torch.autograd.grad((sparsemax(z) * torch.arange(5)).sum(), z)[0]

    assert torch.equal(make_fx(gradient)(z)(other), gradient(other))


def test_sparsemax_is_optimal_for_the_entropy_of_index_two() -> None:
    """max_p E[Q] + alpha S_2(p) by sparsemax(Q / (2 alpha)): no other distribution does better."""
    generator = torch.Generator().manual_seed(0)
    q, alpha = torch.randn(4, dtype=F64, generator=generator), 0.3

    def value(p: torch.Tensor) -> torch.Tensor:
        return (p * q).sum(-1) + alpha * tsallis_entropy(p, 2.0)

    others = torch.distributions.Dirichlet(0.5 * torch.ones(4, dtype=F64)).sample((20_000,))
    best = sparsemax(q / (2 * alpha))
    assert value(best) >= value(others).max()
    assert (best == 0).any()


# --- entropies --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.3, 0.5, 2.0, 3.0, 7.5])
def test_entropy_by_its_definition(q: float) -> None:
    p = torch.rand(20, 5, dtype=F64, generator=torch.Generator().manual_seed(0))
    p[:, 0] = 0
    p = p / p.sum(1, keepdim=True)
    torch.testing.assert_close(tsallis_entropy(p, q), (1 - (p**q).sum(1)) / (q - 1))


def test_entropy_of_index_one_is_shannons_and_the_limit() -> None:
    p = torch.randn(20, 5, dtype=F64, generator=torch.Generator().manual_seed(0)).softmax(1)
    shannon = torch.distributions.Categorical(p).entropy()
    torch.testing.assert_close(tsallis_entropy(p, 1.0), shannon)
    for gap in (1e-3, 1e-6, 1e-9):
        # the next term of the series is (1 - q) / 2 E[log^2 p]
        second = gap * (p * p.log() ** 2).sum(1).max().item()
        for q in (1 - gap, 1 + gap):
            torch.testing.assert_close(tsallis_entropy(p, q), shannon, rtol=0, atol=second + CLOSE)


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0])
def test_gradients_of_the_entropy_are_finite_at_zero_and_right_elsewhere(q: float) -> None:
    z = torch.randn(6, 4, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: tsallis_entropy(z.softmax(1), q), z)
    p = torch.tensor([0.0, 0.3, 0.7], requires_grad=True)
    assert torch.isfinite(torch.autograd.grad(tsallis_entropy(p, q), p)[0]).all()


@pytest.mark.parametrize("q", [0.5, 1.0, 1 + 1e-9, 2.0, 3.0])
def test_entropy_of_independent_choices_is_that_of_their_joint_distribution(q: float) -> None:
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, dtype=F64, generator=generator).softmax(0) for n in (2, 3, 4)]
    joint = torch.einsum("i,j,k->ijk", *parts).flatten()
    each = torch.stack([tsallis_entropy(p, q) for p in parts])[None]
    torch.testing.assert_close(joint_tsallis_entropy(each, q)[0], tsallis_entropy(joint, q))


@pytest.mark.parametrize("q", [0.5, 1.0, 1 + 1e-7, 2.0, 3.0])
@pytest.mark.parametrize("std", [0.2, 1.0, 3.0])
def test_entropy_of_a_gaussian_by_quadrature(std: float, q: float) -> None:
    def density(x: float) -> float:
        return np.exp(-0.5 * (x / std) ** 2) / (std * np.sqrt(2 * np.pi))

    def surprise(x: float) -> float:
        p = density(x)
        return p * (-np.log(p) if q == 1 else np.expm1((q - 1) * np.log(p)) / (1 - q))

    expected, error = integrate.quad(surprise, -30 * std, 30 * std, points=[0.0], limit=200)
    ours = gaussian_tsallis_entropy(torch.tensor([[np.log(std)]], dtype=F64), q).item()
    assert ours == pytest.approx(expected, abs=2 * error + CLOSE)


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0])
def test_entropy_of_several_gaussians_is_that_of_independent_parts(q: float) -> None:
    log_std = torch.tensor([[-1.0, 0.3, 0.8]], dtype=F64)
    each = torch.stack([gaussian_tsallis_entropy(column[:, None], q) for column in log_std.T], 1)
    torch.testing.assert_close(gaussian_tsallis_entropy(log_std, q), joint_tsallis_entropy(each, q))
