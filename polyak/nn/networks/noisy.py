"""Linear layers whose weights are random: exploration that is learned (Fortunato et al. 2018, arXiv:1706.10295)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Draws(Protocol):
    """A module whose calls may draw noise."""

    draws: bool
    """Whether they do: see :func:`drawing`."""
    given: Any
    """Noise that they use instead of a draw: see :func:`given_noise`."""


class NoisyLinear(nn.Linear):
    """``y = (W + S_w * outer(f(e_out), f(e_in))) x + b + s_b * f(e_out)`` with factorised noise, section 3 (b).

    W and b are ``weight`` and ``bias``; S_w and s_b, learned as well, are ``weight_scale`` and ``bias_scale``. While
    :attr:`draws` is set, each call draws one noise for its whole batch; otherwise there is none, and the layer is
    ``W x + b``.

    Args:
        in_features: p inputs.
        out_features: q outputs.
        sigma0: initial size of the noise: S_w and s_b begin as ``sigma0 / sqrt(p)``, section 3.2.
    """

    draws: bool = False
    """Whether calls draw noise: see :func:`drawing`."""
    given: tuple[Tensor, Tensor] | None = None
    """Noise [p] and [q] that calls use instead of a draw: see :func:`given_noise`."""

    def __init__(self, in_features: int, out_features: int, sigma0: float = 0.5) -> None:
        super().__init__(in_features, out_features)
        self.weight_scale = nn.Parameter(torch.empty(out_features, in_features))
        self.bias_scale = nn.Parameter(torch.empty(out_features))
        bound, scale = 1 / math.sqrt(in_features), sigma0 / math.sqrt(in_features)
        for mean in (self.weight, self.bias):
            nn.init.uniform_(mean, -bound, bound)
        for deviation in (self.weight_scale, self.bias_scale):
            nn.init.constant_(deviation, scale)

    def forward(self, inputs: Tensor) -> Tensor:
        """[B, p] -> [B, q]"""
        if not self.draws:
            return F.linear(inputs, self.weight, self.bias)
        before, after = map(squashed_root, self.draw() if self.given is None else self.given)
        weight = self.weight + self.weight_scale * torch.outer(after, before)
        return F.linear(inputs, weight, self.bias + self.bias_scale * after)

    def draw(self, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
        """The noise of one call, standard normal: [p] and [q]."""
        like: Any = {"device": self.weight.device, "dtype": self.weight.dtype, "generator": generator}
        return torch.randn(self.in_features, **like), torch.randn(self.out_features, **like)


def squashed_root(noise: Tensor) -> Tensor:
    """f(x) = sgn(x) sqrt(|x|), the factors of the noise."""
    return noise.sign() * noise.abs().sqrt()


def draws(part: nn.Module) -> TypeGuard[Draws]:
    """Whether a module has a switch :attr:`NoisyLinear.draws`."""
    return hasattr(type(part), "draws")


def parts_that_draw(module: nn.Module) -> list[Draws]:
    """Modules within one that have such a switch."""
    return [part for part in module.modules() if draws(part)]


@contextmanager
def drawing(parts: Iterable[Draws], on: bool = True) -> Iterator[None]:
    """While the block runs, these parts draw their noise.

    Args:
        parts: as :func:`parts_that_draw` finds them.
        on: ``False`` leaves them as they are.
    """
    parts = list(parts) if on else []
    for part in parts:
        part.draws = True
    try:
        yield
    finally:
        for part in parts:
            part.draws = False


@contextmanager
def given_noise(noise: Mapping[Draws, Any]) -> Iterator[None]:
    """While the block runs, these parts compute with the noise that is given for each of them."""
    for part, own in noise.items():
        part.draws, part.given = True, own
    try:
        yield
    finally:
        for part in noise:
            part.draws = False
            del part.given
