"""What value networks are made of: noisy layers, dueling streams, cosine features, distributions."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import nn

from polyak.nn import PolicyError, ValuePolicy
from polyak.nn.networks.noisy import NoisyLinear, drawing, parts_that_draw, squashed_root
from polyak.nn.networks.streams import SHARED_GRADIENT, CosineEmbedding, Dueling
from polyak.nn.policies.value import CategoricalQNetwork, ImplicitQuantileNetwork, QuantileNetwork
from tests.tolerance import bound, sampling

VECTOR = spaces.Box(-1, 1, (5,), np.float32)
CHOICE = spaces.Discrete(3)


def test_noisy_layers_have_the_moments_of_their_definition() -> None:
    """E y = W x + b, Var y_q = c (c sum_p S_qp^2 x_p^2 + s_q^2), with c = E f(e)^2 = E |e| = sqrt(2 / pi)."""
    torch.manual_seed(0)
    layer = NoisyLinear(6, 4, sigma0=0.7)
    with torch.no_grad():
        layer.weight_scale.mul_(torch.rand(4, 6))
        layer.bias_scale.mul_(torch.rand(4))
    x, draws = torch.randn(1, 6), 10_000
    with torch.no_grad(), drawing([layer]):
        y = torch.cat([layer(x) for _ in range(draws)]).double()
    with torch.no_grad():
        mean = layer(x)[0].double()
        c = math.sqrt(2 / math.pi)
        variance = c * (c * (layer.weight_scale**2 @ x[0] ** 2) + layer.bias_scale**2).double()
    assert ((y.mean(0) - mean).abs() <= sampling(draws, 1) * variance.sqrt()).all()
    fourth = ((y - mean) ** 4).mean(0)
    assert ((y.var(0) - variance).abs() <= sampling(draws, 1) * (fourth - variance**2).sqrt()).all()


def test_noisy_layers_begin_as_the_paper_says() -> None:
    layer = NoisyLinear(16, 3, sigma0=0.5)
    assert layer.weight.abs().max() <= 0.25
    assert (layer.weight_scale == 0.125).all()
    assert (layer.bias_scale == 0.125).all()
    torch.testing.assert_close(squashed_root(torch.tensor([-4.0, 0.0, 9.0])), torch.tensor([-2.0, 0.0, 3.0]))


def test_one_noise_serves_a_batch_and_each_call_draws_another() -> None:
    layer = NoisyLinear(5, 2)
    x = torch.ones(3, 5)
    with drawing(parts_that_draw(nn.Sequential(layer))):
        first, second = layer(x), layer(x)
    assert torch.equal(first[0], first[2])
    assert not torch.equal(first, second)
    assert torch.equal(layer(x), layer(x)), "noise outside of the block"


def test_dueling_identities() -> None:
    """A constant added to all advantages changes nothing, and the mean of Q over actions is V."""
    torch.manual_seed(0)
    value, advantage = nn.Linear(4, 2), nn.Linear(4, 2 * 3)
    dueling, x = Dueling(value, advantage, 3), torch.randn(7, 4)
    q = dueling(x).view(7, 2, 3)
    torch.testing.assert_close(q.mean(2), value(x), rtol=0, atol=bound(20, 4))
    with torch.no_grad():
        advantage.bias.add_(torch.tensor([5.0, 5.0, 5.0, -2.0, -2.0, -2.0]))
    torch.testing.assert_close(dueling(x).view(7, 2, 3), q, rtol=0, atol=bound(20, 10))


def test_dueling_by_the_maximum_has_the_value_of_the_best_action() -> None:
    """Eq. 8: max over actions of Q is V, of each of K numbers, and Q - max Q is A - max A."""
    torch.manual_seed(0)
    value, advantage = nn.Linear(4, 2), nn.Linear(4, 2 * 3)
    dueling, x = Dueling(value, advantage, 3, by_max=True), torch.randn(7, 4)
    with torch.no_grad():
        q, a, v = dueling(x).view(7, 2, 3).numpy(), advantage(x).view(7, 2, 3).numpy(), value(x).numpy()
    for row, k in np.ndindex(7, 2):
        best = max(a[row, k])
        assert q[row, k].tolist() == pytest.approx([v[row, k] + one - best for one in a[row, k]], abs=bound(20, 4))
        assert max(q[row, k]) == pytest.approx(v[row, k], abs=bound(20, 4))


def test_under_the_maximum_the_best_action_teaches_the_value_alone() -> None:
    torch.manual_seed(0)
    dueling, x = Dueling(nn.Linear(4, 1), nn.Linear(4, 3), 3, by_max=True), torch.randn(1, 4)
    best = int(dueling(x).argmax())
    for action in range(3):
        gradient = torch.autograd.grad(dueling(x)[0, action], dueling.advantage.bias)[0]
        expected = torch.eye(3)[action] - torch.eye(3)[best]
        assert torch.equal(gradient, expected)


def test_the_streams_share_the_gradient() -> None:
    torch.manual_seed(0)
    dueling = Dueling(nn.Linear(4, 1), nn.Linear(4, 3), 3)
    x = torch.randn(2, 4, requires_grad=True)
    grad = torch.autograd.grad(dueling(x)[:, 0].sum(), x)[0]
    expected = dueling.value.weight[0] + dueling.advantage.weight[0] - dueling.advantage.weight.mean(0)
    torch.testing.assert_close(grad, (SHARED_GRADIENT * expected).expand(2, 4), rtol=0, atol=bound(12, 2))


def test_cosine_embedding_by_its_formula() -> None:
    torch.manual_seed(0)
    embedding = CosineEmbedding(3, n_cosines=5)
    levels = torch.tensor([[0.0, 0.3, 1.0]])
    weight, bias = embedding.linear.weight.detach().double().numpy(), embedding.linear.bias.detach().double().numpy()
    expected = [
        [max(sum(math.cos(math.pi * i * tau) * weight[j, i] for i in range(5)) + bias[j], 0) for j in range(3)]
        for tau in levels[0].double().tolist()
    ]
    near = torch.testing.assert_close
    near(embedding(levels)[0].detach().double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=bound(40))


@pytest.mark.parametrize(
    "options", [{}, {"dueling": True}, {"dueling": True, "sigma0": 0.5}, {"dueling": "max", "sigma0": 0.5}]
)
def test_distributions_and_their_means(options: dict) -> None:
    obs = torch.rand(4, 5)
    atoms = ValuePolicy(VECTOR, CHOICE, network=CategoricalQNetwork, n_atoms=11, v_min=-1.0, v_max=4.0, **options).q_net
    assert atoms.logits(obs).shape == (4, 11, 3)
    probs = atoms.logits(obs).softmax(1)
    torch.testing.assert_close(atoms(obs), torch.einsum("bka,k->ba", probs, torch.linspace(-1, 4, 11)))
    quantiles = ValuePolicy(VECTOR, CHOICE, network=QuantileNetwork, n_quantiles=6, **options).q_net
    assert quantiles.quantiles(obs).shape == (4, 6, 3)
    torch.testing.assert_close(quantiles(obs), quantiles.quantiles(obs).sum(1) / 6)
    implicit = ValuePolicy(VECTOR, CHOICE, network=ImplicitQuantileNetwork, n_samples=2, **options).q_net
    levels = torch.tensor([0.25, 0.75]).expand(4, -1)
    assert implicit.quantiles(obs, levels).shape == (4, 2, 3)
    torch.testing.assert_close(implicit(obs), implicit.quantiles(obs, levels).mean(1))


@pytest.mark.parametrize(
    ("network", "option", "message"),
    [
        (CategoricalQNetwork, {"n_atoms": 1}, "n_atoms must be at least 2, got 1"),
        (CategoricalQNetwork, {"v_min": 2.0, "v_max": 1.0}, "v_min=2.0 must lie below v_max=1.0"),
        (QuantileNetwork, {"n_quantiles": 0}, "n_quantiles must be at least 1, got 0"),
        (ImplicitQuantileNetwork, {"n_samples": 0}, "n_samples must be at least 1, got 0"),
        (ImplicitQuantileNetwork, {"n_cosines": 0}, "n_cosines must be at least 1, got 0"),
        (QuantileNetwork, {"sigma0": 0.0}, "sigma0 must be positive"),
        (QuantileNetwork, {"dueling": "mean"}, "dueling='mean' cannot be used: it is True, False or 'max'"),
    ],
)
def test_options_out_of_range(network: type, option: dict, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        ValuePolicy(VECTOR, CHOICE, network=network, **option)


def test_an_option_of_another_network_is_unknown() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'n_quantiles'"):
        ValuePolicy(VECTOR, CHOICE, network=CategoricalQNetwork, n_quantiles=5)
