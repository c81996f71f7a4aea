"""Parts of the networks of the DQN family: dueling streams, cosine embeddings, atoms.

Shape letters: B batch, F features, A actions, K numbers for each action (1, or as many as a distribution has).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.layers import Activation, check_widths, create_mlp
from polyak.nn.networks.noisy import Draws, NoisyLinear, draws

SHARED_GRADIENT = 1 / math.sqrt(2)
"""Scale of the gradient of two streams into their shared features: Wang et al. 2016, section 4.2."""


class Dueling(nn.Module):
    """Two streams, state values and advantages: Q = V + A - mean A, Wang et al. 2016 (arXiv:1511.06581) eq. 9.

    With K numbers for each action there is one V for each of them, as in Rainbow (arXiv:1710.02298, section 3).

    Args:
        value: [B, F] -> [B, K].
        advantage: [B, F] -> [B, K * A].
        n_actions: A.
        by_max: Q = V + A - max A instead, eq. 8: V is the value of the best action. Each of the K numbers has its own
            maximum.
    """

    def __init__(self, value: nn.Module, advantage: nn.Module, n_actions: int, by_max: bool = False) -> None:
        super().__init__()
        self.value, self.advantage, self.n_actions, self.by_max = value, advantage, n_actions, by_max

    def forward(self, features: Tensor) -> Tensor:
        """[B, F] -> [B, K * A]"""
        features = torch.lerp(features.detach(), features, SHARED_GRADIENT)  # the same numbers
        advantages = self.advantage(features).unflatten(1, (-1, self.n_actions))
        level = advantages.amax(2, keepdim=True) if self.by_max else advantages.mean(2, keepdim=True)
        return (self.value(features)[:, :, None] + (advantages - level)).flatten(1)


class CosineEmbedding(nn.Module):
    """Quantile levels as features: ReLU(sum_i cos(pi i tau) w_i + b), Dabney et al. 2018 (arXiv:1806.06923) eq. 4.

    Args:
        features_dim: F.
        n_cosines: i runs from 0 to one less than this.
    """

    numbers: Tensor

    def __init__(self, features_dim: int, n_cosines: int = 64) -> None:
        super().__init__()
        self.register_buffer("numbers", math.pi * torch.arange(n_cosines, dtype=torch.float32), persistent=False)
        self.linear = nn.Linear(n_cosines, features_dim)

    def forward(self, levels: Tensor) -> Tensor:
        """[...] -> [..., F]"""
        return torch.relu(self.linear(torch.cos(levels[..., None] * self.numbers)))


def atoms(n_atoms: int, v_min: float, v_max: float) -> Tensor:
    """Evenly spaced returns [n_atoms] from ``v_min`` to ``v_max``, the support of a distribution.

    Raises:
        PolicyError: fewer than two atoms, or no range.
    """
    if n_atoms < 2:
        raise PolicyError(f"n_atoms must be at least 2, got {n_atoms}.")
    if not v_min < v_max:
        raise PolicyError(f"v_min={v_min} must lie below v_max={v_max}: they are the first and the last atom.")
    return torch.linspace(v_min, v_max, n_atoms)


def split_arch(net_arch: Sequence[int]) -> tuple[list[int], list[int]]:
    """Widths of the hidden layers that all parts of a network share, and of the last one, which each part has itself.

    Without hidden layers, as after convolutions, the parts share the features only.
    """
    widths = check_widths(net_arch, "net_arch")
    return widths[:-1], widths[-1:]


def value_layers(
    inputs: int,
    n_actions: int,
    outputs: int,
    net_arch: Sequence[int],
    activation_fn: Activation,
    dueling: bool | Literal["max"] = False,
    sigma0: float | None = None,
    layer_norm: bool = False,
) -> list[nn.Module]:
    """Layers of a value network, to be put into ``nn.Sequential``: [B, inputs] -> [B, outputs * n_actions].

    Args:
        inputs: number of features.
        n_actions: A.
        outputs: K.
        net_arch: widths of the hidden layers.
        activation_fn: follows every hidden layer.
        dueling: double the last hidden layer and the output: one stream for values, one for advantages, which are
            counted from their mean, or with ``"max"`` from their maximum.
        sigma0: make those layers noisy, with noise of this size at first; ``None``: they are not.
        layer_norm: normalise the inputs of each activation (arXiv:1607.06450).
    """
    norms = [nn.LayerNorm] if layer_norm else []
    if not dueling and sigma0 is None:
        return create_mlp(inputs, outputs * n_actions, net_arch, activation_fn, post_linear_modules=norms)
    shared, own = split_arch(net_arch)
    width = shared[-1] if shared else inputs
    linear = None if sigma0 is None else partial(NoisyLinear, sigma0=sigma0)

    def stream(numbers: int) -> list[nn.Module]:
        return create_mlp(width, numbers, own, activation_fn, post_linear_modules=norms, linear=linear)

    layers = create_mlp(inputs, 0, shared, activation_fn, post_linear_modules=norms)
    if not dueling:
        return layers + stream(outputs * n_actions)
    value, advantage = nn.Sequential(*stream(outputs)), nn.Sequential(*stream(outputs * n_actions))
    return [*layers, Dueling(value, advantage, n_actions, by_max=dueling == "max")]


def parts_in_order(module: nn.Module, name: str = "") -> Iterator[tuple[str, Draws]]:
    """Submodules that draw (see :func:`~polyak.nn.networks.noisy.parts_that_draw`), by name, in the order of their
    calls: of two streams the advantages come first."""
    if draws(module):
        yield name, module
    children = dict(module.named_children())
    if isinstance(module, Dueling):
        children = {"advantage": module.advantage, "value": module.value}
    for own, child in children.items():
        yield from parts_in_order(child, f"{name}.{own}" if name else own)
