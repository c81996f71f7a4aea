"""Categorical and Bernoulli distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from typing_extensions import Self

from polyak.nn.distributions.base import Distribution, Family, check_same_type
from polyak.ops.tsallis import joint_tsallis_entropy, sparsemax, tsallis_entropy

CERTAIN = 1e8
"""Log-odds of a coin whose other side is forbidden: finite, so that cross-entropies are, and exact in float32."""

# --- one choice -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Categorical(Distribution):
    """One choice among N; actions are [B] int64."""

    logits: Tensor
    """Log-probabilities [B, N]; -inf for a class that is forbidden."""
    scores: Tensor | None = None
    """:attr:`logits` up to a constant for each row, where available: unnormalised, enough to sample from."""

    @property
    def probs(self) -> Tensor:
        """[B, N]"""
        return self.logits.exp()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability of the choices [B]."""
        return self.logits.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """[B]; a forbidden class adds nothing."""
        finite = self.logits.clamp_min(torch.finfo(self.logits.dtype).min)
        return -(finite.exp() * finite).sum(dim=-1)

    def tsallis_entropy(self, q: float) -> Tensor:
        return tsallis_entropy(self.probs, q)

    def sample(self) -> Tensor:
        return self.sample_from(torch.empty_like(self.logits).exponential_())

    def sample_from(self, noise: Tensor) -> Tensor:
        """Returns the argmax of the logits plus Gumbel noise, -log of an exponential variable.

        The noise is kept finite, so that a forbidden class cannot win.
        """
        exponential = noise.clamp_min(torch.finfo(noise.dtype).tiny)
        return (self._scores.detach() - exponential.log()).argmax(dim=-1)

    def mode(self) -> Tensor:
        return self._scores.argmax(dim=-1)

    def masked(self, masks: Tensor) -> Self:
        forbidden = ~masks
        logits = self.logits.masked_fill(forbidden, -math.inf).log_softmax(dim=-1)
        return type(self)(logits, self._scores.masked_fill(forbidden, -math.inf))

    @property
    def _scores(self) -> Tensor:
        return self.logits if self.scores is None else self.scores

    def kl(self, other: Self) -> Tensor:
        """[B]; huge where ``other`` forbids what self allows."""
        check_same_type(self, other)
        lowest = torch.finfo(self.logits.dtype).min
        p, q = self.logits.clamp_min(lowest), other.logits.clamp_min(lowest)
        return (p.exp() * (p - q)).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class SparseCategorical(Distribution):
    """One choice among N, some of which may have probability 0 exactly; actions are [B] int64."""

    probs: Tensor
    """[B, N]"""
    logits: Tensor
    """[B, N] the scores before the projection to probabilities."""

    @property
    def _logs(self) -> Tensor:
        """Log-probabilities [B, N], those of 0 as if of the smallest number: finite, and without gradient."""
        return self.probs.clamp_min(torch.finfo(self.probs.dtype).tiny).log()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability of the choices [B]; about -87 instead of -inf where it is 0."""
        return self._logs.gather(-1, actions.long().unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.probs * self._logs).sum(dim=-1)

    def tsallis_entropy(self, q: float) -> Tensor:
        return tsallis_entropy(self.probs, q)

    def sample(self) -> Tensor:
        return self.sample_from(torch.empty_like(self.probs).exponential_())

    def sample_from(self, noise: Tensor) -> Tensor:
        """Returns the class with the smallest exponential arrival time, with the probabilities as rates; a class of
        probability 0 never arrives."""
        return (self.probs.detach() / noise.clamp_min(torch.finfo(noise.dtype).tiny)).argmax(dim=-1)

    def mode(self) -> Tensor:
        return self.probs.argmax(dim=-1)

    def masked(self, masks: Tensor) -> Self:
        logits = self.logits.masked_fill(~masks, -math.inf)
        return type(self)(sparsemax(logits), logits)

    def kl(self, other: Self) -> Tensor:
        """[B]; large where ``other`` forbids what self allows."""
        check_same_type(self, other)
        return (self.probs * (self._logs - other._logs)).sum(dim=-1)


@dataclass(frozen=True)
class _ChoiceFamily(Family):
    action_dim: int

    @property
    def n_outputs(self) -> int:
        return self.action_dim

    def draw(self, batch: int, device: torch.device | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Exponential variables: [B, N]."""
        return exponential(batch, self.action_dim, device, generator)


@dataclass(frozen=True)
class CategoricalFamily(_ChoiceFamily):
    """One choice among N, by softmax.

    Args:
        action_dim: N.
    """

    def __call__(self, logits: Tensor) -> Categorical:
        """Unnormalised log-probabilities [B, N]; -inf forbids a choice."""
        return Categorical(logits.log_softmax(dim=-1), logits)


@dataclass(frozen=True)
class SparseCategoricalFamily(_ChoiceFamily):
    """One choice among N, by sparsemax.

    Args:
        action_dim: N.
    """

    def __call__(self, logits: Tensor) -> SparseCategorical:
        """Scores [B, N], which sparsemax projects to probabilities; -inf forbids a choice."""
        return SparseCategorical(sparsemax(logits), logits)


# --- several choices ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MultiCategorical(Distribution):
    """A independent choices; actions are [B, A] int64."""

    choices: tuple[Categorical | SparseCategorical, ...]

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability of the choices [B, A]: [B]."""
        indices = actions.long()
        return _sum([choice.log_prob(indices[:, i]) for i, choice in enumerate(self.choices)])

    def entropy(self) -> Tensor:
        return _sum([choice.entropy() for choice in self.choices])

    def tsallis_entropy(self, q: float) -> Tensor:
        return joint_tsallis_entropy(torch.stack([choice.tsallis_entropy(q) for choice in self.choices], dim=1), q)

    def sample(self) -> Tensor:
        return torch.stack([choice.sample() for choice in self.choices], dim=1)

    def sample_from(self, noise: Tensor) -> Tensor:
        parts = noise.split([choice.logits.shape[-1] for choice in self.choices], dim=1)
        return torch.stack([c.sample_from(part) for c, part in zip(self.choices, parts, strict=True)], dim=1)

    def mode(self) -> Tensor:
        return torch.stack([choice.mode() for choice in self.choices], dim=1)

    def masked(self, masks: Tensor) -> Self:
        parts = masks.split([choice.logits.shape[-1] for choice in self.choices], dim=1)
        return type(self)(tuple(choice.masked(part) for choice, part in zip(self.choices, parts, strict=True)))

    def kl(self, other: Self) -> Tensor:
        check_same_type(self, other)
        return _sum([p.kl(q) for p, q in zip(self.choices, other.choices, strict=True)])  # type: ignore[arg-type]


@dataclass(frozen=True)
class MultiCategoricalFamily(Family):
    """Several independent choices, the i-th among ``action_dims[i]``.

    Args:
        action_dims: number of classes of each choice.
        sparse: use sparsemax instead of softmax.
    """

    action_dims: tuple[int, ...]
    sparse: bool = False

    @property
    def n_outputs(self) -> int:
        return sum(self.action_dims)

    def draw(self, batch: int, device: torch.device | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Exponential variables, drawn choice by choice: [B, n_outputs]."""
        return torch.cat([exponential(batch, classes, device, generator) for classes in self.action_dims], dim=1)

    def __call__(self, logits: Tensor) -> MultiCategorical:
        """Unnormalised log-probabilities of all choices, one after the other; -inf forbids a class."""
        family = SparseCategoricalFamily if self.sparse else CategoricalFamily
        return MultiCategorical(tuple(family(part.shape[1])(part) for part in logits.split(self.action_dims, dim=1)))


def _sum(terms: list[Tensor]) -> Tensor:
    """Sums A tensors [B] -> [B]"""
    return torch.stack(terms, dim=1).sum(dim=1)


# --- coins ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bernoulli(Distribution):
    """Independent coins; actions are [B, A], 0. or 1."""

    logits: Tensor
    """Log-odds of 1: [B, A]."""

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability of the coins [B, A]: [B]."""
        return -_cross_entropy(self.logits, actions.to(self.logits.dtype)).sum(dim=1)

    def entropy(self) -> Tensor:
        return _cross_entropy(self.logits, torch.sigmoid(self.logits)).sum(dim=1)

    def tsallis_entropy(self, q: float) -> Tensor:
        coins = torch.stack([torch.sigmoid(self.logits), torch.sigmoid(-self.logits)], dim=-1)
        return joint_tsallis_entropy(tsallis_entropy(coins, q), q)

    def sample(self) -> Tensor:
        return self.sample_from(torch.rand_like(self.logits))

    def sample_from(self, noise: Tensor) -> Tensor:
        return (noise < torch.sigmoid(self.logits)).to(self.logits.dtype)

    def mode(self) -> Tensor:
        return (self.logits > 0).to(self.logits.dtype)

    def masked(self, masks: Tensor) -> Self:
        zero, one = masks.unflatten(1, (-1, 2)).unbind(2)
        return type(self)(self.logits.masked_fill(~one, -CERTAIN).masked_fill(~zero, CERTAIN))

    def kl(self, other: Self) -> Tensor:
        check_same_type(self, other)
        p = torch.sigmoid(self.logits)
        return (_cross_entropy(other.logits, p) - _cross_entropy(self.logits, p)).sum(dim=1)


@dataclass(frozen=True)
class BernoulliFamily(Family):
    """Independent coins.

    Args:
        action_dim: A, the number of coins.
    """

    action_dim: int

    @property
    def n_outputs(self) -> int:
        return self.action_dim

    def draw(self, batch: int, device: torch.device | None = None, generator: torch.Generator | None = None) -> Tensor:
        """Uniform in [0, 1): [B, A]."""
        return torch.rand(batch, self.action_dim, device=device, generator=generator)

    def __call__(self, logits: Tensor) -> Bernoulli:
        """Log-odds of 1: [B, A]."""
        return Bernoulli(logits)


def exponential(batch: int, width: int, device: torch.device | None, generator: torch.Generator | None) -> Tensor:
    """Exponential variables of rate 1: [batch, width]."""
    return torch.empty(batch, width, device=device).exponential_(generator=generator)


def _cross_entropy(logits: Tensor, probs: Tensor) -> Tensor:
    """Cross-entropy of coins with log-odds ``logits`` under ``probs``: [B, A]."""
    return F.softplus(logits) - probs * logits
