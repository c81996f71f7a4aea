"""Independent distributions of the parts of a composed action."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import Self

from polyak.nn.distributions.base import Distribution, Family, check_same_type
from polyak.nn.distributions.discrete import Bernoulli, Categorical, MultiCategorical, SparseCategorical
from polyak.nn.distributions.gaussian import Gaussian, GaussianFamily
from polyak.ops.tsallis import joint_tsallis_entropy


@dataclass(frozen=True, eq=False)
class Product(Distribution):
    """Independent parts; actions are [B, W] floats, the concatenated actions of the parts.

    The density is the product of the parts' densities (continuous parts) and probabilities (discrete parts).
    """

    factors: tuple[Distribution, ...]
    """The distributions of the parts, in order."""
    widths: tuple[int, ...]
    """How many of the W numbers each part takes."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-density of actions [B, W]: [B]."""
        columns = zip(self.factors, actions.split(self.widths, dim=1), strict=True)
        return _total([factor.log_prob(_own(factor, part)) for factor, part in columns])

    def entropy(self) -> Tensor | None:
        entropies = [factor.entropy() for factor in self.factors]
        known = [entropy for entropy in entropies if entropy is not None]
        return _total(known) if len(known) == len(entropies) else None

    def tsallis_entropy(self, q: float) -> Tensor:
        return joint_tsallis_entropy(torch.stack([factor.tsallis_entropy(q) for factor in self.factors], dim=1), q)

    def sample(self) -> Tensor:
        return self._joined([factor.sample() for factor in self.factors])

    def sample_from(self, noise: Tensor) -> Tensor:
        parts = noise.split([_n_noise(factor) for factor in self.factors], dim=1)
        return self._joined([f.sample_from(part) for f, part in zip(self.factors, parts, strict=True)])

    def mode(self) -> Tensor:
        return self._joined([factor.mode() for factor in self.factors])

    def _joined(self, actions: list[Tensor]) -> Tensor:
        """[B] or [B, width] of each part -> [B, W]"""
        columns = zip(actions, self.widths, strict=True)
        return torch.cat([part.float().reshape(-1, width) for part, width in columns], dim=1)

    def masked(self, masks: Tensor) -> Self:
        """Masks [B, M] have the choices of the discrete parts, in order."""
        sizes = [_choices(factor) for factor in self.factors]
        columns = zip(self.factors, sizes, masks.split(sizes, dim=1), strict=True)
        return type(self)(tuple(f.masked(part) if size else f for f, size, part in columns), self.widths)

    def kl(self, other: Self) -> Tensor:
        check_same_type(self, other)
        return _total([p.kl(q) for p, q in zip(self.factors, other.factors, strict=True)])


@dataclass(frozen=True)
class ProductFamily(Family):
    """Independent parts, each of a family of its own.

    Args:
        families: of the parts, in order.
        widths: how many numbers an action of each has.
    """

    families: tuple[Family, ...]
    widths: tuple[int, ...]

    @property
    def n_outputs(self) -> int:
        return sum(family.n_outputs for family in self.families)

    @property
    def n_deviations(self) -> int:
        """The number of log standard deviations of the Gaussian parts."""
        return sum(_deviations(family) for family in self.families)

    def make_log_std(self, latent_dim: int, init: float = 0.0) -> nn.Parameter:
        """New log standard deviations of all Gaussian parts, side by side, each ``init``."""
        return nn.Parameter(torch.full((self.n_deviations,), float(init)))

    def with_deviations(self, log_std: Tensor | None) -> list[tuple[Family, Tensor | None]]:
        """Pairs each family with its slice of the log standard deviations, or ``None`` if it has none."""
        pairs: list[tuple[Family, Tensor | None]] = []
        start = 0
        for family in self.families:
            end = start + _deviations(family)
            pairs.append((family, log_std[start:end] if log_std is not None and end > start else None))
            start = end
        return pairs

    def draw(self, batch: int, device: torch.device | None = None, generator: torch.Generator | None = None) -> Tensor:
        """The noise of the parts, drawn in order and concatenated: [B, n_outputs]."""
        return torch.cat([family.draw(batch, device, generator) for family in self.families], dim=1)

    def __call__(self, outputs: Tensor, log_std: Tensor | None = None) -> Product:
        """Returns the distributions for outputs [B, n_outputs] of the parts side by side and the Gaussian parts' log
        standard deviations [n_deviations]."""
        columns = outputs.split([family.n_outputs for family in self.families], dim=1)
        pairs = zip(self.with_deviations(log_std), columns, strict=True)
        factors = [family(part) if scale is None else family(part, scale) for (family, scale), part in pairs]
        return Product(tuple(factors), self.widths)


def _deviations(family: Family) -> int:
    return family.action_dim if isinstance(family, GaussianFamily) else 0


def _choices(factor: Distribution) -> int:
    """M of one part's masks; 0 where it has no choices."""
    if isinstance(factor, Categorical | SparseCategorical):
        return factor.logits.shape[-1]
    if isinstance(factor, MultiCategorical):
        return sum(choice.logits.shape[-1] for choice in factor.choices)
    return 2 * factor.logits.shape[-1] if isinstance(factor, Bernoulli) else 0


def _n_noise(factor: Distribution) -> int:
    """Width of the noise of one part: as many numbers as the network gives it, but for the deviations."""
    if isinstance(factor, Gaussian):
        return factor.mean.shape[-1]
    if isinstance(factor, MultiCategorical):
        return sum(choice.logits.shape[-1] for choice in factor.choices)
    return factor.logits.shape[-1]  # type: ignore[attr-defined]


def _own(factor: Distribution, actions: Tensor) -> Tensor:
    """[B, width] -> the argument of one part's distribution: [B] for a single choice."""
    return actions.squeeze(1) if isinstance(factor, Categorical | SparseCategorical) else actions


def _total(terms: list[Tensor]) -> Tensor:
    """P tensors [B] -> [B]"""
    return torch.stack(terms, dim=1).sum(dim=1)
