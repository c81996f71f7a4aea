"""Every density integrates to 1; samples follow it; entropies, divergences and gradients are those of torch's."""

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as td

from polyak.nn import (
    BernoulliDistribution,
    CategoricalDistribution,
    DiagGaussianDistribution,
    MultiCategoricalDistribution,
    PolicyError,
    SquashedDiagGaussianDistribution,
    StateDependentNoiseDistribution,
    TanhBijector,
    kl_divergence,
    make_proba_distribution,
    sum_independent_dims,
)
from tests.tolerance import LIKELY, bound, sampling

F64 = torch.float64
NEAR_THE_ENDS = 1e-4
"""Of the mass, what quadrature misses where float64 holds few digits of 1 - a^2: it is not rounding that decides."""


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


def squashed_grid(points: int = 40_001) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions in (-1, 1) dense near the ends, and their quadrature weights: u on a line, a = tanh(u)."""
    u = torch.linspace(-18.0, 18.0, points, dtype=F64)
    weights = torch.full_like(u, (u[1] - u[0]).item()) * (1 - torch.tanh(u) ** 2)
    return torch.tanh(u), weights


# --- densities ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (-2.0, 0.1), (5.0, 3.0)])
def test_gaussian_density_integrates_to_one(mean, std):
    x = torch.linspace(mean - 12 * std, mean + 12 * std, 20_001, dtype=F64)
    dist = DiagGaussianDistribution(1).proba_distribution(
        torch.full((len(x), 1), mean, dtype=F64), torch.tensor([math.log(std)], dtype=F64)
    )
    mass = torch.trapezoid(dist.log_prob(x[:, None]).exp(), x)
    # the trapezoidal rule is exact to rounding on smooth functions that vanish at both ends
    assert mass.item() == pytest.approx(1.0, abs=bound(len(x), size=12, dtype=np.float64))


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (3.0, 2.0), (-1.0, 0.05), (0.0, 4.0)])
def test_squashed_density_integrates_to_one(mean, std):
    actions, weights = squashed_grid()
    dist = SquashedDiagGaussianDistribution(1).proba_distribution(
        torch.full((len(actions), 1), mean, dtype=F64), torch.tensor([math.log(std)], dtype=F64)
    )
    mass = (dist.log_prob(actions[:, None]).exp() * weights).sum()
    # the actions beyond |u| = 18, which tanh rounds to 1, hold the rest
    tails = 2 - td.Normal(mean, std).cdf(torch.tensor(18.0)) - td.Normal(-mean, std).cdf(torch.tensor(18.0))
    assert mass.item() + tails.item() == pytest.approx(1.0, abs=NEAR_THE_ENDS)


def test_squashed_density_in_two_dimensions_integrates_to_one():
    actions, weights = squashed_grid(801)
    grid = torch.cartesian_prod(actions, actions)
    area = torch.cartesian_prod(weights, weights).prod(dim=1)
    mean = torch.tensor([[3.0, -0.5]], dtype=F64).expand(len(grid), 2)
    dist = SquashedDiagGaussianDistribution(2).proba_distribution(mean, torch.tensor([0.7, -1.0], dtype=F64))
    assert (dist.log_prob(grid).exp() * area).sum().item() == pytest.approx(1.0, abs=NEAR_THE_ENDS)


@pytest.mark.parametrize("squash", [False, True])
def test_state_dependent_density_integrates_to_one(squash):
    dist = StateDependentNoiseDistribution(1, squash_output=squash)
    if squash:
        x, weights = squashed_grid()
    else:
        x = torch.linspace(-60.0, 60.0, 40_001, dtype=F64)
        weights = torch.full_like(x, (x[1] - x[0]).item())
    latent = torch.tensor([[0.5, -2.0, 1.0]], dtype=F64).expand(len(x), 3)
    dist.proba_distribution(torch.full((len(x), 1), 3.0, dtype=F64), torch.zeros(3, 1, dtype=F64), latent)
    assert (dist.log_prob(x[:, None]).exp() * weights).sum().item() == pytest.approx(1.0, abs=NEAR_THE_ENDS)


def test_discrete_probabilities_sum_to_one():
    logits = torch.randn(1, 5, dtype=F64)
    one = CategoricalDistribution(5).proba_distribution(logits.expand(5, 5))
    assert one.log_prob(torch.arange(5)).exp().sum().item() == pytest.approx(1.0)
    every = torch.tensor(list(itertools.product(range(3), range(2))))
    several = MultiCategoricalDistribution([3, 2]).proba_distribution(logits.expand(6, 5))
    assert several.log_prob(every).exp().sum().item() == pytest.approx(1.0)
    coins = torch.tensor(list(itertools.product([0.0, 1.0], repeat=5)))
    flips = BernoulliDistribution(5).proba_distribution(logits.expand(32, 5))
    assert flips.log_prob(coins).exp().sum().item() == pytest.approx(1.0)


def test_the_tanh_correction_is_exact_where_the_naive_formula_is_not():
    x = torch.tensor([-30.0, -9.0, -1.0, 0.0, 0.3, 9.0, 30.0])
    exact = torch.log(1 - torch.tanh(x.double()) ** 2)
    correction = TanhBijector().log_prob_correction(x)
    assert torch.isfinite(correction).all()
    torch.testing.assert_close(correction[1:-1].double(), exact[1:-1], rtol=0, atol=bound(LIKELY, size=2 * 9))
    assert correction[-1].item() == pytest.approx(2 * (math.log(2) - 30), rel=bound(LIKELY))  # log 4 exp(-60)
    assert correction[0].item() == pytest.approx(correction[-1].item())


def test_inverse_tanh_is_finite_at_the_ends():
    y = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])
    inverse = TanhBijector.inverse(y)
    assert torch.isfinite(inverse).all()
    torch.testing.assert_close(torch.tanh(inverse), y, rtol=0, atol=bound(LIKELY))
    dist = SquashedDiagGaussianDistribution(1).proba_distribution(torch.zeros(5, 1), torch.zeros(1))
    assert torch.isfinite(dist.log_prob(y[:, None])).all()


# --- against torch.distributions ------------------------------------------------------------------------------------


def heads():
    latent = torch.randn(6, 3, dtype=F64)
    mean = torch.randn(6, 2, dtype=F64, requires_grad=True)
    log_std = (0.3 * torch.randn(2, dtype=F64)).requires_grad_()
    matrix = (0.3 * torch.randn(3, 2, dtype=F64)).requires_grad_()
    logits = torch.randn(6, 5, dtype=F64, requires_grad=True)
    sde = StateDependentNoiseDistribution(2)
    multi = MultiCategoricalDistribution([3, 2])
    return {
        "gaussian": (DiagGaussianDistribution(2).proba_distribution(mean, log_std), [mean, log_std]),
        "sde": (sde.proba_distribution(mean, matrix, latent), [mean, matrix]),
        "categorical": (CategoricalDistribution(5).proba_distribution(logits), [logits]),
        "multi_categorical": (multi.proba_distribution(logits), [logits]),
        "bernoulli": (BernoulliDistribution(5).proba_distribution(logits), [logits]),
    }


NAMES = ["gaussian", "sde", "categorical", "multi_categorical", "bernoulli"]


def torch_sum(reference, method, *args):
    if isinstance(reference, list):
        columns = [[a[:, i] for a in args] for i in range(len(reference))]
        return sum(getattr(r, method)(*c) for r, c in zip(reference, columns, strict=True))
    value = getattr(reference, method)(*args)
    return value.sum(dim=1) if value.dim() > 1 else value


@pytest.mark.parametrize("name", NAMES)
def test_density_entropy_and_their_gradients_are_torchs(name):
    dist, params = heads()[name]
    dist.sample_weights(params[1], 6) if name == "sde" else None
    actions = dist.sample().detach()
    for ours, theirs in [
        (dist.log_prob(actions), torch_sum(dist.distribution, "log_prob", actions)),
        (dist.entropy(), torch_sum(dist.distribution, "entropy")),
    ]:
        assert ours.shape == (6,)
        torch.testing.assert_close(ours, theirs)
        weights = torch.randn(6, dtype=F64)
        gradients = torch.autograd.grad((ours * weights).sum(), params, retain_graph=True, allow_unused=True)
        expected = torch.autograd.grad((theirs * weights).sum(), params, retain_graph=True, allow_unused=True)
        for gradient, reference in zip(gradients, expected, strict=True):
            assert (gradient is None) == (reference is None)
            if gradient is not None:
                torch.testing.assert_close(gradient, reference)


@pytest.mark.parametrize("name", NAMES)
def test_mode_is_the_likeliest_action_and_needs_no_luck(name):
    dist, params = heads()[name]
    dist.sample_weights(params[1], 6) if name == "sde" else None
    mode = dist.get_actions(deterministic=True)
    assert torch.equal(mode, dist.mode())
    best = dist.log_prob(mode)
    for _ in range(50):
        assert (dist.log_prob(dist.sample()) <= best + bound(20, size=20, dtype=np.float64)).all()


@pytest.mark.parametrize("name", NAMES)
def test_divergence_is_torchs(name):
    p, q = heads()[name][0], heads()[name][0]
    pairs = zip(*(d if isinstance(d, list) else [d] for d in (p.distribution, q.distribution)), strict=True)
    by_dim = sum(td.kl_divergence(a, b) for a, b in pairs)
    torch.testing.assert_close(kl_divergence(p, q), by_dim)
    torch.testing.assert_close(p.kl(q), by_dim.sum(dim=1) if by_dim.dim() > 1 else by_dim)
    assert p.kl(q).shape == (6,)
    torch.testing.assert_close(p.kl(p), torch.zeros(6, dtype=F64), atol=bound(5 * 10, 10, np.float64), rtol=0)


def test_divergence_of_different_families_is_refused():
    made = heads()
    with pytest.raises(PolicyError, match="DiagGaussianDistribution and CategoricalDistribution"):
        kl_divergence(made["gaussian"][0], made["categorical"][0])


@pytest.mark.parametrize("use_expln", [False, True])
def test_squashed_log_density_has_the_finite_difference_gradient(use_expln):
    noise = torch.randn(4, 2, dtype=F64)

    def log_prob(mean, log_std):
        dist = SquashedDiagGaussianDistribution(2).proba_distribution(mean, log_std)
        pre = mean + log_std.exp() * noise
        return dist.log_prob(torch.tanh(pre), pre)

    def sde_log_prob(mean, log_std):
        dist = StateDependentNoiseDistribution(2, squash_output=True, use_expln=use_expln)
        dist.proba_distribution(mean, log_std, latent_sde=noise)
        return dist.log_prob(torch.tanh(0.3 * noise), 0.3 * noise)

    mean = torch.randn(4, 2, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(log_prob, (mean, torch.randn(4, 2, dtype=F64, requires_grad=True)))
    assert torch.autograd.gradcheck(sde_log_prob, (mean, torch.randn(2, 2, dtype=F64, requires_grad=True)))


def test_squashed_sampling_agrees_with_its_density_and_has_no_entropy():
    dist = SquashedDiagGaussianDistribution(2)
    actions, log_prob = dist.log_prob_from_params(
        torch.tensor([[3.0, 0.2]]).expand(50_000, 2), torch.tensor([0.7, 0.0])
    )
    torch.testing.assert_close(log_prob, dist.log_prob(actions, dist.gaussian_actions), rtol=0, atol=bound(20, 20))
    assert dist.entropy() is None
    assert actions.abs().max() <= 1
    # E[1 / p(a)] over the density is the volume of the square, here on the part where tanh keeps its precision
    inside = (actions.abs() < 0.99).all(dim=1)
    volume = torch.where(inside, (-log_prob.double()).exp(), 0.0).mean()
    assert volume.item() == pytest.approx(1.98**2, rel=0.05)  # the densities of rare actions weigh much


# --- samples --------------------------------------------------------------------------------------------------------


def frequencies_fit(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Chi-square below mean plus five standard deviations of its law."""
    expected = counts.sum() * probabilities
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    return chi_square < freedom + 5 * math.sqrt(2 * freedom)


def test_categorical_frequencies():
    logits = torch.tensor([[1.0, -2.0, 0.0, 3.0]])
    samples = CategoricalDistribution(4).proba_distribution(logits.expand(100_000, 4)).sample()
    assert samples.dtype == torch.int64
    assert frequencies_fit(samples.bincount(minlength=4).numpy(), logits.softmax(1)[0].numpy())


def test_multi_categorical_frequencies_of_the_joint():
    logits = torch.tensor([[1.0, -1.0, 0.0, 0.5, -0.5]])
    samples = MultiCategoricalDistribution([3, 2]).proba_distribution(logits.expand(100_000, 5)).sample()
    joint = (samples[:, 0] * 2 + samples[:, 1]).bincount(minlength=6).numpy()
    p = torch.outer(logits[0, :3].softmax(0), logits[0, 3:].softmax(0)).flatten().numpy()
    assert frequencies_fit(joint, p)


def test_bernoulli_frequencies_of_the_joint():
    logits = torch.tensor([[1.0, -1.0]])
    samples = BernoulliDistribution(2).proba_distribution(logits.expand(100_000, 2)).sample()
    joint = (samples[:, 0] * 2 + samples[:, 1]).long().bincount(minlength=4).numpy()
    p, q = torch.sigmoid(logits[0]).tolist()
    assert frequencies_fit(joint, np.array([(1 - p) * (1 - q), (1 - p) * q, p * (1 - q), p * q]))


def test_a_forbidden_class_is_never_drawn_and_adds_no_nan():
    logits = torch.tensor([[0.0, -torch.inf, 0.0]]).expand(200_000, 3).clone().requires_grad_()
    dist = CategoricalDistribution(3).proba_distribution(logits)
    assert not (dist.sample() == 1).any()
    assert dist.entropy()[0].item() == pytest.approx(math.log(2))
    assert dist.kl(dist)[0].item() == pytest.approx(0.0)
    gradient = torch.autograd.grad(dist.entropy().sum() + dist.log_prob(dist.sample()).sum(), logits)[0]
    assert torch.isfinite(gradient).all()


def test_a_forbidden_class_loses_even_against_the_luckiest_draw(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda tensor: tensor.zero_())
    dist = CategoricalDistribution(3).proba_distribution(torch.tensor([[0.0, -torch.inf, 0.0]]))
    assert dist.sample().item() != 1


def test_gaussian_samples_have_mean_and_deviation_and_carry_gradients():
    mean, log_std = torch.tensor([[1.0, -2.0]], requires_grad=True), torch.tensor([0.5, -1.0], requires_grad=True)
    sample = DiagGaussianDistribution(2).proba_distribution(mean.expand(100_000, 2), log_std).sample()
    std = math.exp(0.5)  # the larger one
    torch.testing.assert_close(sample.mean(0), mean[0].detach(), atol=sampling(100_000, std), rtol=0)
    torch.testing.assert_close(sample.std(0), log_std.exp().detach(), atol=sampling(200_000, std), rtol=0)
    sample.sum().backward()
    assert mean.grad is not None
    assert log_std.grad is not None


# --- state-dependent exploration ------------------------------------------------------------------------------------


@pytest.mark.parametrize("full_std", [True, False])
@pytest.mark.parametrize("use_expln", [True, False])
def test_covariance_at_a_state_is_the_formula(full_std, use_expln):
    draws = 40_000
    dist = StateDependentNoiseDistribution(2, full_std=full_std, use_expln=use_expln)
    log_std = torch.tensor([[-0.5, 0.4], [0.2, -1.0], [0.0, 0.3]])[:, : 2 if full_std else 1]
    state = torch.tensor([[0.7, -1.5, 0.2]])
    dist.sample_weights(log_std, batch_size=draws)
    dist.proba_distribution(torch.tensor([[1.0, -1.0]]).expand(draws, 2), log_std, state.expand(draws, 3))
    actions = dist.sample()
    sigma = dist.get_std(log_std)
    variance = (state**2 @ sigma**2)[0]
    largest = variance.max().item()
    near = sampling(draws, 2**0.5 * largest)  # a variance of n draws has the deviation sqrt(2 / n) of itself
    torch.testing.assert_close(actions.T.cov(), torch.diag(variance), atol=near, rtol=0)
    torch.testing.assert_close(actions.mean(0), torch.tensor([1.0, -1.0]), atol=sampling(draws, largest**0.5), rtol=0)
    torch.testing.assert_close(dist.std[0] ** 2, variance + 1e-6)


def test_noise_at_a_state_repeats_until_new_matrices_are_drawn():
    dist = StateDependentNoiseDistribution(2)
    _, log_std = dist.proba_distribution_net(latent_dim=4)
    state, mean = torch.randn(1, 4), torch.zeros(1, 2)
    first = dist.actions_from_params(mean, log_std, state)
    assert torch.equal(first, dist.actions_from_params(mean, log_std, state))
    assert not torch.equal(first, dist.actions_from_params(mean, log_std, state + 1))
    dist.sample_weights(log_std)
    assert not torch.equal(first, dist.actions_from_params(mean, log_std, state))


def test_each_environment_has_its_own_matrix_and_other_batches_share_one():
    dist = StateDependentNoiseDistribution(2)
    _, log_std = dist.proba_distribution_net(latent_dim=4)
    dist.sample_weights(log_std, batch_size=3)
    assert dist.exploration_matrices.shape == (3, 4, 2)
    states = torch.randn(1, 4).expand(3, 4)
    noise = dist.get_noise(states)
    torch.testing.assert_close(noise, torch.einsum("bl,bla->ba", states, dist.exploration_matrices))
    assert not torch.allclose(noise[0], noise[1])
    shared = dist.get_noise(states[:1].expand(5, 4))
    torch.testing.assert_close(shared, states[:1].expand(5, 4) @ dist.exploration_mat)
    assert torch.equal(shared[0], shared[4])


def test_features_learn_only_when_asked():
    for learn_features in (True, False):
        dist = StateDependentNoiseDistribution(2, learn_features=learn_features)
        _, log_std = dist.proba_distribution_net(latent_dim=4)
        state = torch.randn(3, 4, requires_grad=True)
        actions, log_prob = dist.log_prob_from_params(torch.zeros(3, 2), log_std, state)
        gradient = torch.autograd.grad(actions.sum() + log_prob.sum(), [log_std, state], allow_unused=True)
        assert gradient[0].abs().sum() > 0
        assert (gradient[1] is not None) == learn_features


def test_expln_is_exp_below_zero_and_slower_above():
    dist = StateDependentNoiseDistribution(1, use_expln=True)
    log_std = torch.tensor([[-3.0], [-1.0], [0.0], [1.0], [20.0]], requires_grad=True)
    std = dist.get_std(log_std)
    torch.testing.assert_close(
        std[:, 0], torch.tensor([math.exp(-3), math.exp(-1), 1.0, 1 + math.log(2), 1 + math.log(21)])
    )
    std.sum().backward()
    assert torch.isfinite(log_std.grad).all()
    # the slope is continuous at 0
    torch.testing.assert_close(log_std.grad[2], torch.ones(1))


def test_squashed_state_dependent_actions_stay_inside_and_keep_their_gaussian():
    dist = StateDependentNoiseDistribution(2, squash_output=True, learn_features=True)
    _, log_std = dist.proba_distribution_net(latent_dim=4, log_std_init=1.0)
    actions, log_prob = dist.log_prob_from_params(torch.zeros(100, 2), log_std, torch.randn(100, 4))
    assert actions.abs().max() <= 1
    assert dist.entropy() is None
    torch.testing.assert_close(torch.tanh(dist.gaussian_actions), actions)
    torch.testing.assert_close(log_prob, dist.log_prob(actions, dist.gaussian_actions), rtol=0, atol=bound(20, 20))
    assert torch.equal(dist.mode(), torch.zeros(100, 2))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("matrices", [1, 5])
def test_draws_are_those_of_randn_whatever_was_drawn_before(matrices, dtype):
    dist = StateDependentNoiseDistribution(2)
    log_std = torch.zeros(9, 2, dtype=dtype)
    for before in (1, 3, matrices):
        dist.sample_weights(log_std, before)
        torch.manual_seed(before)
        dist.sample_weights(log_std, matrices)
        state = torch.get_rng_state()
        torch.manual_seed(before)
        assert torch.equal(dist.exploration_mat, torch.randn(9, 2, dtype=dtype))
        assert torch.equal(dist.exploration_matrices, torch.randn(matrices, 9, 2, dtype=dtype))
        assert torch.equal(torch.get_rng_state(), state)


def test_two_numbers_of_matrices_by_turns_need_no_new_tensors():
    dist, log_std = StateDependentNoiseDistribution(2), torch.zeros(4, 2)
    for matrices in (3, 1):
        dist.sample_weights(log_std, matrices)
    shared = dist.noise.shared
    own = {}
    for matrices in (3, 1, 3, 3, 1):
        dist.sample_weights(log_std, matrices)
        assert own.setdefault(matrices, dist.noise.own) is dist.noise.own
        assert dist.noise.own.shape == (matrices, 4, 2)
        assert dist.noise.shared is shared


def test_gradient_through_the_noise_can_be_taken_twice_after_one_draw():
    dist = StateDependentNoiseDistribution(2)
    _, log_std = dist.proba_distribution_net(latent_dim=4)
    for _ in range(2):
        torch.autograd.grad(dist.actions_from_params(torch.zeros(3, 2), log_std, torch.randn(3, 4)).sum(), log_std)


def test_copies_leave_the_batch_behind():
    for dist, params in heads().values():
        if isinstance(dist, StateDependentNoiseDistribution):
            dist.sample_weights(params[1])
            dist._weights_log_std = torch.nn.Parameter(params[1].detach())
        assert dist.entropy() is not None
        twin = copy.deepcopy(dist)
        assert not any(name in vars(twin) for name in ("mean", "std", "logits", "_latent_sde"))


# --- choice ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "use_sde", "family"),
    [
        (spaces.Box(-1, 1, (2,)), False, DiagGaussianDistribution),
        (spaces.Box(-1, 1, (2,)), True, StateDependentNoiseDistribution),
        (spaces.Discrete(3), False, CategoricalDistribution),
        (spaces.MultiDiscrete([3, 2]), False, MultiCategoricalDistribution),
        (spaces.MultiBinary(3), False, BernoulliDistribution),
    ],
)
def test_the_distribution_fits_the_space(space, use_sde, family):
    assert type(make_proba_distribution(space, use_sde)) is family


def test_spaces_without_a_distribution_are_refused():
    with pytest.raises(NotImplementedError, match="Dict"):
        make_proba_distribution(spaces.Dict({"a": spaces.Discrete(2)}))
    with pytest.raises(AssertionError, match=r"Multi-dimensional MultiBinary(.*) action space is not supported"):
        make_proba_distribution(spaces.MultiBinary([2, 3]))
    with pytest.raises(PolicyError, match="use_sde=True"):
        make_proba_distribution(spaces.Discrete(2), use_sde=True)


def test_sum_independent_dims():
    assert torch.equal(sum_independent_dims(torch.ones(3, 2)), torch.full((3,), 2.0))
    assert sum_independent_dims(torch.ones(3)).item() == 3.0


# --- compilation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["gaussian", "squashed", "sde", "categorical", "multi_categorical", "bernoulli"])
def test_sampling_and_density_are_one_graph(family):
    """No graph break: traced by dynamo with an eager backend, which is quick."""
    logits, mean = torch.randn(4, 5), torch.randn(4, 2)
    sde = StateDependentNoiseDistribution(2, squash_output=True)
    _, log_std = sde.proba_distribution_net(latent_dim=3)
    made = {
        "gaussian": lambda: DiagGaussianDistribution(2).proba_distribution(mean, torch.zeros(2)),
        "squashed": lambda: SquashedDiagGaussianDistribution(2).proba_distribution(mean, torch.zeros(2)),
        "sde": lambda: sde.proba_distribution(mean, log_std, mean.repeat(1, 2)[:, :3]),
        "categorical": lambda: CategoricalDistribution(5).proba_distribution(logits),
        "multi_categorical": lambda: MultiCategoricalDistribution([3, 2]).proba_distribution(logits),
        "bernoulli": lambda: BernoulliDistribution(5).proba_distribution(logits),
    }[family]

    def run():
        dist = made()
        sde.sample_weights(log_std, 4)
        actions = dist.sample()
        return actions, dist.log_prob(actions), dist.mode()

    torch._dynamo.reset()
    actions, log_prob, _ = torch.compile(run, backend="eager", fullgraph=True)()
    steep = 1 / (1 - actions**2).min().item() if family in ("squashed", "sde") else 1.0  # slope of the inverse of tanh
    torch.testing.assert_close(made().log_prob(actions), log_prob, rtol=0, atol=bound(20, size=5 * steep))
