"""Blocks of a causal transformer.

Shape letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from polyak.nn.errors import PolicyError
from polyak.nn.networks.layers import Activation, check_activation

EXPANSION = 4
"""Width of the hidden layer of a block's perceptron, relative to the block."""
INITIAL_STD = 0.02
"""Standard deviation of initial weights, as in GPT-2."""


class CausalBlock(nn.Module):
    """Causal self-attention, then a perceptron; both are residual with layer normalisation of the input (pre-norm;
    GPT-2: Radford et al. 2019, section 2.3). Tokens [B, T, D] -> [B, T, D].

    Args:
        width: D.
        n_heads: of attention; they divide the width.
        dropout: share of attention weights, and of outputs of attention and perceptron, dropped in training.
        activation_fn: of the perceptron.

    Raises:
        PolicyError: an argument out of range.
    """

    def __init__(self, width: int, n_heads: int, dropout: float, activation_fn: Activation) -> None:
        super().__init__()
        for name, value in (("width", width), ("n_heads", n_heads)):
            if not isinstance(value, int) or value < 1:
                raise PolicyError(f"{name} must be an integer of at least 1, got {value!r}.")
        if width % n_heads:
            raise PolicyError(f"n_heads={n_heads} must divide width={width}: each head has an equal share of it.")
        if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
            raise PolicyError(f"dropout must be a number in [0, 1), got {dropout!r}.")
        check_activation(activation_fn)
        self.n_heads, self.dropout = n_heads, float(dropout)
        self.norm, self.look, self.tell = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, EXPANSION * width),
            activation_fn(),
            nn.Linear(EXPANSION * width, width),
            nn.Dropout(dropout),
        )
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=INITIAL_STD)
                nn.init.zeros_(layer.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, T, D] -> [B, T, D]"""
        heads = self.look(self.norm(tokens)).unflatten(2, (3, self.n_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = heads.unbind(0)
        dropped = self.dropout if self.training else 0.0
        with sdpa_kernel(SDPBackend.MATH):  # as quick as any for some dozens of tokens, and alike on all devices
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropped, is_causal=True)
        attended = self.tell(mixed.transpose(1, 2).flatten(2))
        tokens = tokens + F.dropout(attended, self.dropout, self.training)
        added: Tensor = self.perceptron(tokens)
        return tokens + added
