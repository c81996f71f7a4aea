"""Every density integrates to 1; samples follow it; entropies, divergences and gradients are those of torch's.

What a family has made once stays as it is.
"""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import distributions as td

from polyak.nn import (
    ActorCriticPolicy,
    BernoulliFamily,
    Categorical,
    CategoricalFamily,
    ContinuousPolicy,
    GaussianFamily,
    MultiCategorical,
    MultiCategoricalFamily,
    PolicyError,
    SparseCategoricalFamily,
    Squashed,
    StateDependentGaussianFamily,
    make_family,
)
from polyak.nn.distributions.exploration_noise import ExplorationNoise
from polyak.nn.distributions.gaussian import inverse_tanh, log_slope_of_tanh
from polyak.ops.tsallis import tsallis_entropy
from tests.pairs import one_of_each
from tests.tolerance import LIKELY, bound, sampling

F64 = torch.float64
NEAR_THE_ENDS = 1e-4
"""Of the mass, what quadrature misses where float64 holds few digits of 1 - a^2: it is not rounding that decides."""
OBS = spaces.Box(-1.0, 1.0, (3,))
BOX = spaces.Box(-1.0, 1.0, (2,))


def squashed(action_dim: int) -> GaussianFamily:
    return GaussianFamily(action_dim, squash=True)


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
    dist = GaussianFamily(1)(torch.full((len(x), 1), mean, dtype=F64), torch.tensor([math.log(std)], dtype=F64))
    mass = torch.trapezoid(dist.log_prob(x[:, None]).exp(), x)
    # the trapezoidal rule is exact to rounding on smooth functions that vanish at both ends
    assert mass.item() == pytest.approx(1.0, abs=bound(len(x), size=12, dtype=np.float64))


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (3.0, 2.0), (-1.0, 0.05), (0.0, 4.0)])
def test_squashed_density_integrates_to_one(mean, std):
    actions, weights = squashed_grid()
    dist = squashed(1)(torch.full((len(actions), 1), mean, dtype=F64), torch.tensor([math.log(std)], dtype=F64))
    mass = (dist.log_prob(actions[:, None]).exp() * weights).sum()
    # the actions beyond |u| = 18, which tanh rounds to 1, hold the rest
    tails = 2 - td.Normal(mean, std).cdf(torch.tensor(18.0)) - td.Normal(-mean, std).cdf(torch.tensor(18.0))
    assert mass.item() + tails.item() == pytest.approx(1.0, abs=NEAR_THE_ENDS)


def test_squashed_density_in_two_dimensions_integrates_to_one():
    actions, weights = squashed_grid(801)
    grid = torch.cartesian_prod(actions, actions)
    area = torch.cartesian_prod(weights, weights).prod(dim=1)
    mean = torch.tensor([[3.0, -0.5]], dtype=F64).expand(len(grid), 2)
    dist = squashed(2)(mean, torch.tensor([0.7, -1.0], dtype=F64))
    assert (dist.log_prob(grid).exp() * area).sum().item() == pytest.approx(1.0, abs=NEAR_THE_ENDS)


@pytest.mark.parametrize("squash", [False, True])
def test_state_dependent_density_integrates_to_one(squash):
    if squash:
        x, weights = squashed_grid()
    else:
        x = torch.linspace(-60.0, 60.0, 40_001, dtype=F64)
        weights = torch.full_like(x, (x[1] - x[0]).item())
    latent = torch.tensor([[0.5, -2.0, 1.0]], dtype=F64).expand(len(x), 3)
    log_std = torch.zeros(3, 1, dtype=F64)
    family = StateDependentGaussianFamily(1, squash=squash)
    dist = family(torch.full((len(x), 1), 3.0, dtype=F64), log_std, latent, log_std)
    assert (dist.log_prob(x[:, None]).exp() * weights).sum().item() == pytest.approx(1.0, abs=NEAR_THE_ENDS)


def test_discrete_probabilities_sum_to_one():
    logits = torch.randn(1, 5, dtype=F64)
    one = CategoricalFamily(5)(logits.expand(5, 5))
    assert one.log_prob(torch.arange(5)).exp().sum().item() == pytest.approx(1.0)
    torch.testing.assert_close(one.probs[0], one.log_prob(torch.arange(5)).exp())
    every = torch.tensor(list(itertools.product(range(3), range(2))))
    several = MultiCategoricalFamily((3, 2))(logits.expand(6, 5))
    assert several.log_prob(every).exp().sum().item() == pytest.approx(1.0)
    coins = torch.tensor(list(itertools.product([0.0, 1.0], repeat=5)))
    flips = BernoulliFamily(5)(logits.expand(32, 5))
    assert flips.log_prob(coins).exp().sum().item() == pytest.approx(1.0)


def test_the_tanh_correction_is_exact_where_the_naive_formula_is_not():
    x = torch.tensor([-30.0, -9.0, -1.0, 0.0, 0.3, 9.0, 30.0])
    exact = torch.log(1 - torch.tanh(x.double()) ** 2)
    correction = log_slope_of_tanh(x)
    assert torch.isfinite(correction).all()
    torch.testing.assert_close(correction[1:-1].double(), exact[1:-1], rtol=0, atol=bound(LIKELY, size=2 * 9))
    assert correction[-1].item() == pytest.approx(2 * (math.log(2) - 30), rel=bound(LIKELY))  # log 4 exp(-60)
    assert correction[0].item() == pytest.approx(correction[-1].item())


def test_inverse_tanh_is_finite_at_the_ends():
    y = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0])
    inverse = inverse_tanh(y)
    assert torch.isfinite(inverse).all()
    torch.testing.assert_close(torch.tanh(inverse), y, rtol=0, atol=bound(LIKELY))
    dist = squashed(1)(torch.zeros(5, 1), torch.zeros(1))
    assert torch.isfinite(dist.log_prob(y[:, None])).all()


# --- against torch.distributions ------------------------------------------------------------------------------------


def heads():
    """By name: a distribution and the parameters that it was made of."""
    latent = torch.randn(6, 3, dtype=F64)
    mean = torch.randn(6, 2, dtype=F64, requires_grad=True)
    log_std = (0.3 * torch.randn(2, dtype=F64)).requires_grad_()
    matrix = (0.3 * torch.randn(3, 2, dtype=F64)).requires_grad_()
    logits = torch.randn(6, 5, dtype=F64, requires_grad=True)
    draws = torch.randn(6, 3, 2, dtype=F64)
    return {
        "gaussian": (GaussianFamily(2)(mean, log_std), [mean, log_std]),
        "sde": (StateDependentGaussianFamily(2)(mean, matrix, latent, draws), [mean, matrix]),
        "categorical": (CategoricalFamily(5)(logits), [logits]),
        "multi_categorical": (MultiCategoricalFamily((3, 2))(logits), [logits]),
        "bernoulli": (BernoulliFamily(5)(logits), [logits]),
    }


NAMES = ["gaussian", "sde", "categorical", "multi_categorical", "bernoulli"]


def torch_of(dist):
    """The same by torch: one object, or a list of one for each choice."""
    if isinstance(dist, MultiCategorical):
        return [torch_of(choice) for choice in dist.choices]
    if isinstance(dist, Categorical):
        return td.Categorical(logits=dist.logits)
    return td.Normal(dist.mean, dist.std) if hasattr(dist, "mean") else td.Bernoulli(logits=dist.logits)


def torch_sum(reference, method, *args):
    if isinstance(reference, list):
        columns = [[a[:, i] for a in args] for i in range(len(reference))]
        return sum(getattr(r, method)(*c) for r, c in zip(reference, columns, strict=True))
    value = getattr(reference, method)(*args)
    return value.sum(dim=1) if value.dim() > 1 else value


@pytest.mark.parametrize("name", NAMES)
def test_density_entropy_and_their_gradients_are_torchs(name):
    dist, params = heads()[name]
    actions = dist.sample().detach()
    for ours, theirs in [
        (dist.log_prob(actions), torch_sum(torch_of(dist), "log_prob", actions)),
        (dist.entropy(), torch_sum(torch_of(dist), "entropy")),
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
    dist, _ = heads()[name]
    mode = dist.get_actions(deterministic=True)
    assert torch.equal(mode, dist.mode())
    best = dist.log_prob(mode)
    for _ in range(50):
        assert (dist.log_prob(dist.sample()) <= best + bound(20, size=20, dtype=np.float64)).all()


@pytest.mark.parametrize("name", NAMES)
def test_divergence_is_torchs(name):
    p, q = heads()[name][0], heads()[name][0]
    pairs = zip(*(d if isinstance(d, list) else [d] for d in map(torch_of, (p, q))), strict=True)
    by_dim = sum(td.kl_divergence(a, b) for a, b in pairs)
    torch.testing.assert_close(p.kl(q), by_dim.sum(dim=1) if by_dim.dim() > 1 else by_dim)
    assert p.kl(q).shape == (6,)
    torch.testing.assert_close(p.kl(p), torch.zeros(6, dtype=F64), atol=bound(5 * 10, 10, np.float64), rtol=0)


def test_divergence_of_different_families_is_refused():
    made = heads()
    with pytest.raises(PolicyError, match="Gaussian and Categorical"):
        made["gaussian"][0].kl(made["categorical"][0])


@pytest.mark.parametrize("use_expln", [False, True])
def test_squashed_log_density_has_the_finite_difference_gradient(use_expln):
    noise = torch.randn(4, 2, dtype=F64)

    def log_prob(mean, log_std):
        return squashed(2)(mean, log_std).log_prob_of_tanh(mean + log_std.exp() * noise)

    def sde_log_prob(mean, log_std):
        family = StateDependentGaussianFamily(2, squash=True, use_expln=use_expln)
        return family(mean, log_std, noise, log_std).log_prob_of_tanh(0.3 * noise)

    mean = torch.randn(4, 2, dtype=F64, requires_grad=True)
    assert torch.autograd.gradcheck(log_prob, (mean, torch.randn(4, 2, dtype=F64, requires_grad=True)))
    assert torch.autograd.gradcheck(sde_log_prob, (mean, torch.randn(2, 2, dtype=F64, requires_grad=True)))


def test_squashed_sampling_agrees_with_its_density_and_has_no_entropy():
    dist = squashed(2)(torch.tensor([[3.0, 0.2]]).expand(50_000, 2), torch.tensor([0.7, 0.0]))
    actions, log_prob = dist.sample_with_log_prob()
    assert dist.entropy() is None
    assert actions.abs().max() <= 1
    # E[1 / p(a)] over the density is the volume of the square, here on the part where tanh keeps its precision
    inside = (actions.abs() < 0.99).all(dim=1)
    volume = torch.where(inside, (-log_prob.double()).exp(), 0.0).mean()
    assert volume.item() == pytest.approx(1.98**2, rel=0.05)  # the densities of rare actions weigh much


def test_actions_given_out_with_their_density_are_those_of_a_sample():
    mean, log_std = torch.rand(50, 2, dtype=F64), torch.tensor([-0.7, -1.0], dtype=F64)
    draws = torch.rand(3, 2, dtype=F64)  # not far out, where tanh cannot be inverted precisely
    sde = StateDependentGaussianFamily(2, squash=True)(mean, -draws, torch.rand(50, 3, dtype=F64), draws)
    for dist in (squashed(2)(mean, log_std), sde, GaussianFamily(2)(mean, log_std)):
        torch.manual_seed(1)
        expected = dist.sample()
        torch.manual_seed(1)
        actions, log_prob = dist.sample_with_log_prob()
        assert torch.equal(actions, expected)
        torch.testing.assert_close(log_prob, dist.log_prob(actions))


def test_a_squashed_density_is_precise_where_tanh_rounds_to_one():
    mean, log_std = torch.full((1, 1), 20.0), torch.tensor([-20.0])
    actions, log_prob = squashed(1)(mean, log_std).sample_with_log_prob()
    assert actions.item() == 1
    exact = squashed(1)(mean.double(), log_std.double()).log_prob_of_tanh(mean.double())
    # the draw is within a few deviations of the mean, each of which adds half its square
    assert abs(log_prob.item() - exact.item()) < 0.5 * 6**2 + 1


# --- samples --------------------------------------------------------------------------------------------------------


def frequencies_fit(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Chi-square below mean plus five standard deviations of its law."""
    expected = counts.sum() * probabilities
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = len(counts) - 1
    return chi_square < freedom + 5 * math.sqrt(2 * freedom)


def test_categorical_frequencies():
    logits = torch.tensor([[1.0, -2.0, 0.0, 3.0]])
    samples = CategoricalFamily(4)(logits.expand(100_000, 4)).sample()
    assert samples.dtype == torch.int64
    assert frequencies_fit(samples.bincount(minlength=4).numpy(), logits.softmax(1)[0].numpy())


def test_multi_categorical_frequencies_of_the_joint():
    logits = torch.tensor([[1.0, -1.0, 0.0, 0.5, -0.5]])
    samples = MultiCategoricalFamily((3, 2))(logits.expand(100_000, 5)).sample()
    joint = (samples[:, 0] * 2 + samples[:, 1]).bincount(minlength=6).numpy()
    p = torch.outer(logits[0, :3].softmax(0), logits[0, 3:].softmax(0)).flatten().numpy()
    assert frequencies_fit(joint, p)


def test_bernoulli_frequencies_of_the_joint():
    logits = torch.tensor([[1.0, -1.0]])
    samples = BernoulliFamily(2)(logits.expand(100_000, 2)).sample()
    joint = (samples[:, 0] * 2 + samples[:, 1]).long().bincount(minlength=4).numpy()
    p, q = torch.sigmoid(logits[0]).tolist()
    assert frequencies_fit(joint, np.array([(1 - p) * (1 - q), (1 - p) * q, p * (1 - q), p * q]))


def test_a_forbidden_class_is_never_drawn_and_adds_no_nan():
    logits = torch.tensor([[0.0, -torch.inf, 0.0]]).expand(200_000, 3).clone().requires_grad_()
    dist = CategoricalFamily(3)(logits)
    assert not (dist.sample() == 1).any()
    assert dist.entropy()[0].item() == pytest.approx(math.log(2))
    assert dist.kl(dist)[0].item() == pytest.approx(0.0)
    gradient = torch.autograd.grad(dist.entropy().sum() + dist.log_prob(dist.sample()).sum(), logits)[0]
    assert torch.isfinite(gradient).all()


def test_a_forbidden_class_loses_even_against_the_luckiest_draw(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda tensor: tensor.zero_())
    dist = CategoricalFamily(3)(torch.tensor([[0.0, -torch.inf, 0.0]]))
    assert dist.sample().item() != 1


def test_gaussian_samples_have_mean_and_deviation_and_carry_gradients():
    mean, log_std = torch.tensor([[1.0, -2.0]], requires_grad=True), torch.tensor([0.5, -1.0], requires_grad=True)
    sample = GaussianFamily(2)(mean.expand(100_000, 2), log_std).sample()
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
    n = 40_000
    family = StateDependentGaussianFamily(2, full_std=full_std, use_expln=use_expln)
    log_std = torch.tensor([[-0.5, 0.4], [0.2, -1.0], [0.0, 0.3]])[:, : 2 if full_std else 1]
    state = torch.tensor([[0.7, -1.5, 0.2]])
    mean = torch.tensor([[1.0, -1.0]]).expand(n, 2)
    dist = family(mean, log_std, state.expand(n, 3), torch.randn(n, 3, 2))
    actions = dist.sample()
    variance = (state**2 @ family.sigma(log_std) ** 2)[0]
    largest = variance.max().item()
    near = sampling(n, 2**0.5 * largest)  # a variance of n draws has the deviation sqrt(2 / n) of itself
    torch.testing.assert_close(actions.T.cov(), torch.diag(variance), atol=near, rtol=0)
    torch.testing.assert_close(actions.mean(0), torch.tensor([1.0, -1.0]), atol=sampling(n, largest**0.5), rtol=0)
    torch.testing.assert_close(dist.std[0] ** 2, variance + 1e-6)


def test_noise_is_a_function_of_the_state_and_the_draws():
    family, state, mean = StateDependentGaussianFamily(2), torch.randn(1, 4), torch.zeros(1, 2)
    log_std, draws = family.make_log_std(4), torch.randn(4, 2)
    first = family(mean, log_std, state, draws).sample()
    assert torch.equal(first, family(mean, log_std, state, draws).sample())
    assert not torch.equal(first, family(mean, log_std, state + 1, draws).sample())
    assert not torch.equal(first, family(mean, log_std, state, draws + 1).sample())


def test_each_state_may_have_a_matrix_of_its_own():
    family, states, mean = StateDependentGaussianFamily(2), torch.randn(1, 4).expand(3, 4), torch.zeros(3, 2)
    log_std, draws = family.make_log_std(4), torch.randn(3, 4, 2)
    theta = draws * family.sigma(log_std)
    actions = family(mean, log_std, states, draws).sample()
    torch.testing.assert_close(actions, torch.einsum("bl,bla->ba", states, theta))
    assert not torch.allclose(actions[0], actions[1])
    shared = family(mean, log_std, states, draws[0]).sample()
    torch.testing.assert_close(shared, states @ theta[0])


def test_features_learn_only_when_asked():
    for learn_features in (True, False):
        family = StateDependentGaussianFamily(2, learn_features=learn_features)
        log_std, state = family.make_log_std(4), torch.randn(3, 4, requires_grad=True)
        actions, log_prob = family(torch.zeros(3, 2), log_std, state, torch.randn(4, 2)).sample_with_log_prob()
        gradient = torch.autograd.grad(actions.sum() + log_prob.sum(), [log_std, state], allow_unused=True)
        assert gradient[0].abs().sum() > 0
        assert (gradient[1] is not None) == learn_features


def test_expln_is_exp_below_zero_and_slower_above():
    log_std = torch.tensor([[-3.0], [-1.0], [0.0], [1.0], [20.0]], requires_grad=True)
    std = StateDependentGaussianFamily(1, use_expln=True).sigma(log_std)
    torch.testing.assert_close(
        std[:, 0], torch.tensor([math.exp(-3), math.exp(-1), 1.0, 1 + math.log(2), 1 + math.log(21)])
    )
    std.sum().backward()
    assert torch.isfinite(log_std.grad).all()
    # the slope is continuous at 0
    torch.testing.assert_close(log_std.grad[2], torch.ones(1))


def test_squashed_state_dependent_actions_stay_inside():
    family = StateDependentGaussianFamily(2, squash=True, learn_features=True)
    dist = family(torch.zeros(100, 2), family.make_log_std(4, 1.0), torch.randn(100, 4), torch.randn(4, 2))
    assert dist.sample().abs().max() <= 1
    assert dist.entropy() is None
    assert torch.equal(dist.mode(), torch.zeros(100, 2))


def test_one_log_std_for_each_feature_or_for_each_pair():
    assert torch.equal(StateDependentGaussianFamily(2).make_log_std(3, -1.5), torch.full((3, 2), -1.5))
    assert StateDependentGaussianFamily(2, full_std=False).make_log_std(3).shape == (3, 1)
    assert torch.equal(GaussianFamily(2).make_log_std(3, 0.5), torch.full((2,), 0.5))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("matrices", [1, 5])
def test_draws_are_those_of_randn_whatever_was_drawn_before(matrices, dtype):
    noise, log_std = ExplorationNoise(), torch.zeros(9, 2, dtype=dtype)
    for before in (1, 3, matrices):
        noise.draw(log_std, 2, before)
        torch.manual_seed(before)
        noise.draw(log_std, 2, matrices)
        state = torch.get_rng_state()
        torch.manual_seed(before)
        assert torch.equal(noise.shared, torch.randn(9, 2, dtype=dtype))
        assert torch.equal(noise.own, torch.randn(matrices, 9, 2, dtype=dtype))
        assert torch.equal(torch.get_rng_state(), state)


def test_gradient_through_the_noise_can_be_taken_twice_after_one_draw():
    family, draws = StateDependentGaussianFamily(2), torch.randn(4, 2)
    log_std = family.make_log_std(4)
    for _ in range(2):
        dist = family(torch.zeros(3, 2), log_std, torch.randn(3, 4), draws)
        torch.autograd.grad(dist.sample().sum(), log_std)


# --- values ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_distribution_cannot_be_changed(name):
    dist = heads()[name][0]
    for field in dataclasses.fields(dist):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(dist, field.name, getattr(dist, field.name))


POLICIES = {
    "gaussian": lambda: ActorCriticPolicy(OBS, BOX),
    "sde": lambda: ActorCriticPolicy(OBS, BOX, use_sde=True),
    "sde_squashed": lambda: ActorCriticPolicy(OBS, BOX, use_sde=True, squash_output=True),
    "categorical": lambda: ActorCriticPolicy(OBS, spaces.Discrete(4)),
    "multi_categorical": lambda: ActorCriticPolicy(OBS, spaces.MultiDiscrete([3, 2])),
    "bernoulli": lambda: ActorCriticPolicy(OBS, spaces.MultiBinary(4)),
    "squashed": lambda: ContinuousPolicy(OBS, BOX).actor,
    "sde_sac": lambda: ContinuousPolicy(OBS, BOX, use_sde=True).actor,
}


@pytest.mark.parametrize("name", POLICIES)
def test_the_distributions_of_a_policy_before_and_after_an_update_have_a_divergence(name):
    policy = POLICIES[name]().double()
    policy._preprocess = lambda obs: obs
    obs = torch.randn(5, 3, dtype=F64)
    old = policy.get_distribution(obs)
    again = policy.get_distribution(obs)
    density = old.log_prob(old.mode()).detach().clone()
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    new = policy.get_distribution(obs)
    assert torch.equal(old.log_prob(old.mode()), density)
    torch.testing.assert_close(old.kl(again), torch.zeros(5, dtype=F64), atol=1e-12, rtol=0)
    bare = [dist.gaussian if isinstance(dist, Squashed) else dist for dist in (old, new)]
    pairs = zip(*(d if isinstance(d, list) else [d] for d in map(torch_of, bare)), strict=True)
    by_dim = sum(td.kl_divergence(a, b) for a, b in pairs)
    expected = by_dim.sum(dim=1) if by_dim.dim() > 1 else by_dim
    assert (expected > 1e-4).all()
    torch.testing.assert_close(old.kl(new), expected)


# --- choice ---------------------------------------------------------------------------------------------------------


def test_options_reach_the_family():
    family = make_family(BOX, use_sde=True, use_expln=True, squash=True, full_std=False)
    assert family == StateDependentGaussianFamily(2, full_std=False, use_expln=True, squash=True)


def test_spaces_without_a_distribution_are_refused():
    with pytest.raises(NotImplementedError, match="Text"):
        make_family(spaces.Dict({"a": spaces.Text(2)}))
    with pytest.raises(PolicyError, match=r"Multi-dimensional MultiBinary(.*) action space is not supported"):
        make_family(spaces.MultiBinary([2, 3]))
    with pytest.raises(PolicyError, match="use_sde=True"):
        make_family(spaces.Discrete(2), use_sde=True)


# --- compilation ----------------------------------------------------------------------------------------------------


TRACED = ["gaussian", "squashed", "sde", "categorical", "multi_categorical", "bernoulli"]


@pytest.mark.parametrize("family", one_of_each(TRACED, "squashed", "sde", "multi_categorical"))
def test_sampling_and_density_are_one_graph(family):
    """No graph break: traced by dynamo with an eager backend, which is quick."""
    logits, mean = torch.randn(4, 5), torch.randn(4, 2)
    sde, noise = StateDependentGaussianFamily(2, squash=True), ExplorationNoise()
    log_std = sde.make_log_std(3)
    made = {
        "gaussian": lambda: GaussianFamily(2)(mean, torch.zeros(2)),
        "squashed": lambda: squashed(2)(mean, torch.zeros(2)),
        "sde": lambda: sde(mean, log_std, mean.repeat(1, 2)[:, :3], noise.of(4)),
        "categorical": lambda: CategoricalFamily(5)(logits),
        "multi_categorical": lambda: MultiCategoricalFamily((3, 2))(logits),
        "bernoulli": lambda: BernoulliFamily(5)(logits),
    }[family]

    def run():
        noise.draw(log_std, 2, 4)
        dist = made()
        return *dist.sample_with_log_prob(), dist.mode()

    torch._dynamo.reset()
    actions, log_prob, _ = torch.compile(run, backend="eager", fullgraph=True)()
    steep = 1 / (1 - actions**2).min().item() if family in ("squashed", "sde") else 1.0  # slope of the inverse of tanh
    torch.testing.assert_close(made().log_prob(actions), log_prob, rtol=0, atol=bound(20, size=5 * steep))


# --- sparse choices -------------------------------------------------------------------------------------------------


def test_sparse_choices_by_their_probabilities():
    logits = torch.tensor([[0.0, 0.4, 0.2, -1.0], [5.0, 0.0, 0.0, 0.0]], requires_grad=True)
    dist = SparseCategoricalFamily(4)(logits)
    torch.testing.assert_close(dist.probs, torch.tensor([[0.4 / 3, 1.6 / 3, 1.0 / 3, 0.0], [1.0, 0.0, 0.0, 0.0]]))
    p = dist.probs[0, :3].detach()
    torch.testing.assert_close(dist.entropy()[0], -(p * p.log()).sum())
    torch.testing.assert_close(dist.tsallis_entropy(2.0), 1 - (dist.probs**2).sum(1))
    assert dist.mode().tolist() == [1, 0]
    log_prob = torch.stack([dist.log_prob(torch.full((2,), a)) for a in range(4)], 1)
    torch.testing.assert_close(log_prob[0, :3], p.log())
    assert torch.isfinite(log_prob).all()
    assert (log_prob.exp()[dist.probs == 0] < 1e-37).all()
    other = SparseCategoricalFamily(4)(torch.zeros(2, 4))
    torch.testing.assert_close(dist.kl(other)[0], (p * (p / 0.25).log()).sum())
    assert dist.kl(dist).tolist() == [0, 0]
    assert (other.kl(dist) > 20).all(), "what self does and other never does is far away"
    total = log_prob.sum() + dist.entropy().sum() + dist.kl(other).sum() + dist.tsallis_entropy(1.5).sum()
    assert torch.isfinite(torch.autograd.grad(total, logits)[0]).all()


def test_sparse_choices_are_drawn_with_their_probabilities_and_never_with_none(monkeypatch):
    logits = torch.tensor([[0.0, 0.4, 0.2, -1.0]])
    dist = SparseCategoricalFamily(4)(logits.expand(100_000, 4))
    counts = dist.sample().bincount(minlength=4)
    assert counts[3] == 0
    assert frequencies_fit(counts[:3].numpy(), dist.probs[0, :3].numpy())
    monkeypatch.setattr(torch.Tensor, "exponential_", lambda tensor: tensor.zero_())
    assert dist.sample()[0].item() == 1


def test_several_sparse_choices():
    logits = torch.randn(6, 5, dtype=F64)
    dist = MultiCategoricalFamily((3, 2), sparse=True)(logits)
    first, second = SparseCategoricalFamily(3)(logits[:, :3]), SparseCategoricalFamily(2)(logits[:, 3:])
    actions = dist.sample()
    torch.testing.assert_close(dist.log_prob(actions), first.log_prob(actions[:, 0]) + second.log_prob(actions[:, 1]))
    joint = (first.probs[:, :, None] * second.probs[:, None, :]).flatten(1)
    for q in (0.5, 1.0, 2.0):
        torch.testing.assert_close(dist.tsallis_entropy(q), tsallis_entropy(joint, q))
    torch.testing.assert_close(dist.entropy(), dist.tsallis_entropy(1.0))


@pytest.mark.parametrize("name", NAMES)
def test_tsallis_entropy_of_index_one_is_the_entropy(name):
    dist, _ = heads()[name]
    torch.testing.assert_close(dist.tsallis_entropy(1.0), dist.entropy())
    # next to it the series continues with (1 - q) / 2 E[log^2 p], and E[log^2 p] is below 100 here
    torch.testing.assert_close(dist.tsallis_entropy(1 + 1e-9), dist.entropy(), rtol=0, atol=1e-7)


def test_tsallis_entropy_of_coins_is_that_of_all_their_sides():
    dist = BernoulliFamily(3)(torch.randn(1, 3, dtype=F64))
    sides = torch.tensor(list(itertools.product([0.0, 1.0], repeat=3)), dtype=F64)
    joint = torch.stack([dist.log_prob(side[None]) for side in sides], 1).exp()
    torch.testing.assert_close(dist.tsallis_entropy(2.0), tsallis_entropy(joint, 2.0))


def test_a_squashed_density_has_no_tsallis_entropy():
    with pytest.raises(PolicyError, match="Squashed has no closed form"):
        squashed(2)(torch.zeros(3, 2), torch.zeros(2)).tsallis_entropy(2.0)


def test_sparse_probabilities_are_for_choices():
    assert make_family(spaces.Discrete(3), sparse=True) == SparseCategoricalFamily(3)
    assert make_family(spaces.MultiDiscrete([3, 2]), sparse=True) == MultiCategoricalFamily((3, 2), sparse=True)
    for space in (spaces.Box(-1, 1, (2,)), spaces.MultiBinary(3)):
        with pytest.raises(PolicyError, match="sparse=True"):
            make_family(space, sparse=True)
