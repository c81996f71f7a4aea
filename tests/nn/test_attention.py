"""Causal blocks against torch's own layers, and against sums written out."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.attention import CausalBlock


def block(width: int = 8, heads: int = 2, dropout: float = 0.0) -> CausalBlock:
    torch.manual_seed(0)
    made = CausalBlock(width, heads, dropout, nn.ReLU).double()
    for parameter in made.parameters():  # larger than at first, so that everything counts
        nn.init.normal_(parameter, std=0.5)
    return made


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_it_is_torch_s_encoder_layer(heads: int) -> None:
    ours = block(8, heads)
    theirs = nn.TransformerEncoderLayer(8, heads, 32, 0.0, norm_first=True, batch_first=True).double()
    weights = {
        "self_attn.in_proj_weight": ours.look.weight,
        "self_attn.in_proj_bias": ours.look.bias,
        "self_attn.out_proj.weight": ours.tell.weight,
        "self_attn.out_proj.bias": ours.tell.bias,
        "norm1.weight": ours.norm.weight,
        "norm1.bias": ours.norm.bias,
        "norm2.weight": ours.perceptron[0].weight,
        "norm2.bias": ours.perceptron[0].bias,
        "linear1.weight": ours.perceptron[1].weight,
        "linear1.bias": ours.perceptron[1].bias,
        "linear2.weight": ours.perceptron[3].weight,
        "linear2.bias": ours.perceptron[3].bias,
    }
    theirs.load_state_dict(weights)
    tokens = torch.randn(3, 6, 8, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    torch.testing.assert_close(ours(tokens), theirs(tokens, src_mask=mask, is_causal=True), rtol=1e-12, atol=1e-12)


def test_attention_written_out() -> None:
    ours = block(4, 1)
    nn.init.zeros_(ours.perceptron[3].weight)
    nn.init.zeros_(ours.perceptron[3].bias)
    tokens = torch.randn(1, 5, 4, dtype=torch.float64)
    seen = ours.norm(tokens)[0].detach().numpy()
    look, bias = ours.look.weight.detach().numpy(), ours.look.bias.detach().numpy()
    query, key, value = np.split(seen @ look.T + bias, 3, axis=1)
    expected = np.zeros((5, 4))
    for t in range(5):
        weights = np.exp([query[t] @ key[s] / math.sqrt(4) for s in range(t + 1)])
        expected[t] = sum(w * value[s] for s, w in enumerate(weights / weights.sum()))
    expected = expected @ ours.tell.weight.detach().numpy().T + ours.tell.bias.detach().numpy()
    np.testing.assert_allclose((ours(tokens) - tokens)[0].detach().numpy(), expected, rtol=0, atol=1e-12)


def test_dropout_is_for_training() -> None:
    ours = block(dropout=0.5)
    tokens = torch.randn(2, 5, 8, dtype=torch.float64)
    assert not torch.equal(ours(tokens), ours(tokens))
    ours.eval()
    assert torch.equal(ours(tokens), ours(tokens))


@pytest.mark.parametrize(
    ("options", "name"),
    [((8, 3, 0.0), "n_heads=3"), ((0, 1, 0.0), "width"), ((8, 0, 0.0), "n_heads"), ((8, 1, 1.0), "dropout")],
)
def test_refusals(options: tuple[int, int, float], name: str) -> None:
    with pytest.raises(PolicyError, match=name):
        CausalBlock(*options, nn.ReLU)
