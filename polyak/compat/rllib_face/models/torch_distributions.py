"""Action distributions that programs written for RLlib name, subclass and call, on top of ``torch.distributions``.

The default distributions are in :mod:`polyak.compat.rllib_face.models.distributions`. The classes here are for programs
with custom distributions: a catalog or a module returns the class, and its methods are called while acting and in
losses. Shapes: B rows, A actions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import Self


class Distribution:
    """The distributions of the actions in B states; the interface of custom classes."""

    @classmethod
    def from_logits(cls, logits: Tensor, **kwargs: Any) -> Self:
        """Returns distributions for outputs of a network [B, N]."""
        raise NotImplementedError(f"{cls.__name__} must write from_logits(logits).")

    @staticmethod
    def required_input_dim(space: spaces.Space, model_config: Any = None, **kwargs: Any) -> int:
        """N, how many numbers :meth:`from_logits` reads for each row."""
        raise NotImplementedError("a distribution must write required_input_dim(space), which returns a number.")

    def sample(self, *, sample_shape: Any = None, **kwargs: Any) -> Any:
        """Returns actions [*sample_shape, B, ...]."""
        raise NotImplementedError(f"{type(self).__name__} must write sample().")

    def rsample(self, *, sample_shape: Any = None, **kwargs: Any) -> Any:
        """Draws differentiable samples: see :meth:`sample`."""
        raise NotImplementedError(f"{type(self).__name__} must write rsample().")

    def logp(self, value: Tensor, **kwargs: Any) -> Tensor:
        """Returns log-densities [B] of actions [B, ...]."""
        raise NotImplementedError(f"{type(self).__name__} must write logp(value).")

    def entropy(self, **kwargs: Any) -> Any:
        """Returns the entropy [B] in nats; ``None`` where there is no closed form."""
        raise NotImplementedError(f"{type(self).__name__} must write entropy().")

    def kl(self, other: Any, **kwargs: Any) -> Tensor:
        """KL(self || other) [B]."""
        raise NotImplementedError(f"{type(self).__name__} must write kl(other).")

    def to_deterministic(self) -> Any:
        """Returns a distribution whose samples are the likeliest actions."""
        raise NotImplementedError(f"{type(self).__name__} must write to_deterministic().")


class TorchDistribution(Distribution):
    """A distribution based on one of torch's, which a subclass makes of the constructor's arguments in
    :meth:`_get_torch_distribution`.

    Its log-densities are summed over the entries of each action.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._dist = self._get_torch_distribution(*args, **kwargs)

    def _get_torch_distribution(self, *args: Any, **kwargs: Any) -> torch.distributions.Distribution:
        """Returns the distribution of torch's."""
        raise NotImplementedError(f"{type(self).__name__} must write _get_torch_distribution().")

    @classmethod
    def from_logits(cls, logits: Tensor, **kwargs: Any) -> Self:
        return cls(logits=logits, **kwargs)

    def sample(self, *, sample_shape: Any = None, **kwargs: Any) -> Tensor:
        return self._dist.sample(torch.Size(sample_shape or ()))

    def rsample(self, *, sample_shape: Any = None, **kwargs: Any) -> Tensor:
        return self._dist.rsample(torch.Size(sample_shape or ()))

    def logp(self, value: Tensor, **kwargs: Any) -> Tensor:
        return self._dist.log_prob(value)

    def entropy(self, **kwargs: Any) -> Tensor:
        return self._dist.entropy()

    def kl(self, other: Any, **kwargs: Any) -> Tensor:
        return torch.distributions.kl_divergence(self._dist, other._dist)


class TorchCategorical(TorchDistribution):
    """One choice among several.

    Args:
        logits: [B, N].
        probs: [B, N], in place of logits.
    """

    def __init__(self, logits: Tensor | None = None, probs: Tensor | None = None) -> None:
        self.logits, self.probs = logits, probs
        super().__init__(logits=logits, probs=probs)

    def _get_torch_distribution(
        self, logits: Tensor | None = None, probs: Tensor | None = None
    ) -> torch.distributions.Distribution:
        return torch.distributions.Categorical(logits=logits, probs=probs, validate_args=False)

    @staticmethod
    def required_input_dim(space: Any, model_config: Any = None, **kwargs: Any) -> int:
        return int(space.n)

    def to_deterministic(self) -> TorchDeterministic:
        scores = self.logits if self.logits is not None else self.probs
        assert scores is not None
        return TorchDeterministic(scores.argmax(-1))


class TorchDiagGaussian(TorchDistribution):
    """Independent Gaussians.

    Args:
        loc: means [B, A].
        scale: standard deviations [B, A].
    """

    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        self.loc, self.scale = loc, scale
        super().__init__(loc=loc, scale=scale)

    def _get_torch_distribution(self, loc: Tensor, scale: Tensor) -> torch.distributions.Distribution:
        return torch.distributions.Normal(loc, scale, validate_args=False)

    @classmethod
    def from_logits(cls, logits: Tensor, **kwargs: Any) -> Self:
        loc, log_std = logits.chunk(2, -1)
        return cls(loc=loc, scale=log_std.exp())

    @staticmethod
    def required_input_dim(space: Any, model_config: Any = None, **kwargs: Any) -> int:
        return 2 * int(np.prod(space.shape))

    def logp(self, value: Tensor, **kwargs: Any) -> Tensor:
        return super().logp(value).sum(-1)

    def entropy(self, **kwargs: Any) -> Tensor:
        return super().entropy().sum(-1)

    def kl(self, other: Any, **kwargs: Any) -> Tensor:
        return super().kl(other).sum(-1)

    def to_deterministic(self) -> TorchDeterministic:
        return TorchDeterministic(self.loc)


class TorchMultiCategorical(Distribution):
    """Several choices, independent of each other.

    Args:
        categoricals: one for each.
    """

    def __init__(self, categoricals: list[TorchCategorical]) -> None:
        self._cats = categoricals

    @classmethod
    def from_logits(cls, logits: Tensor, input_lens: Any = None, **kwargs: Any) -> Self:
        """Returns distributions for logits; ``input_lens``: number of options of each choice."""
        return cls([TorchCategorical(logits=part) for part in logits.split(list(input_lens), -1)])

    @staticmethod
    def required_input_dim(space: Any, model_config: Any = None, **kwargs: Any) -> int:
        return int(space.nvec.sum())

    def sample(self, *, sample_shape: Any = None, **kwargs: Any) -> Tensor:
        return torch.stack([cat.sample(sample_shape=sample_shape) for cat in self._cats], -1)

    def logp(self, value: Tensor, **kwargs: Any) -> Tensor:
        parts = zip(self._cats, value.unbind(-1), strict=True)
        return torch.stack([cat.logp(part) for cat, part in parts]).sum(0)

    def entropy(self, **kwargs: Any) -> Tensor:
        return torch.stack([cat.entropy() for cat in self._cats]).sum(0)

    def kl(self, other: Any, **kwargs: Any) -> Tensor:
        pairs = zip(self._cats, other._cats, strict=True)
        return torch.stack([cat.kl(its) for cat, its in pairs]).sum(0)

    def to_deterministic(self) -> TorchDeterministic:
        return TorchDeterministic(torch.stack([cat.to_deterministic().loc for cat in self._cats], -1))


class TorchDeterministic(Distribution):
    """Always the same actions.

    Args:
        loc: [B, ...].
    """

    def __init__(self, loc: Tensor) -> None:
        self.loc = loc

    @classmethod
    def from_logits(cls, logits: Tensor, **kwargs: Any) -> Self:
        return cls(loc=logits)

    @staticmethod
    def required_input_dim(space: Any, model_config: Any = None, **kwargs: Any) -> int:
        return int(np.prod(space.shape))

    def sample(self, *, sample_shape: Any = None, **kwargs: Any) -> Tensor:
        """Returns actions [*sample_shape, B, ...]."""
        return self.loc.expand(*(sample_shape or ()), *self.loc.shape)

    def to_deterministic(self) -> Self:
        """Returns itself."""
        return self
