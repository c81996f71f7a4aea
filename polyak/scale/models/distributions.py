"""Action distributions under RLlib's names, of polyak's families.

``module.get_inference_action_dist_cls()`` gives a class; ``cls.from_logits(outputs)`` is a distribution of what a
module returned as ``action_dist_inputs`` [B, N], and ``cls.required_input_dim(space)`` is N.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import Self

from polyak.envs.spaces import get_action_dim
from polyak.nn.distributions.base import Distribution as Values
from polyak.nn.distributions.base import Family
from polyak.nn.distributions.choice import make_family
from polyak.nn.distributions.gaussian import GaussianFamily


class Distribution:
    """A distribution over actions of one space, which a subclass names: see :func:`distribution_for`.

    Args:
        values: what polyak calls a distribution.
    """

    space: ClassVar[spaces.Space]
    family: ClassVar[Family]

    def __init__(self, values: Values) -> None:
        self.values = values

    @classmethod
    def from_logits(cls, logits: Tensor, **kwargs: Any) -> Self:
        """From outputs of a network [B, N]: logits, or means and log standard deviations side by side."""
        return cls(distribution_of(cls.family, logits))

    @classmethod
    def required_input_dim(cls, space: spaces.Space | None = None, model_config: Any = None) -> int:
        """N, how many numbers :meth:`from_logits` reads for each row."""
        return outputs_for(cls.family if space is None else make_family(space))

    def sample(self, *, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Actions [*sample_shape, B, ...]."""
        if not sample_shape:
            return self.values.sample()
        draws = [self.values.sample() for _ in range(torch.Size(sample_shape).numel())]
        return torch.stack(draws).unflatten(0, sample_shape)

    rsample = sample
    """Of Gaussians, differentiable."""

    def logp(self, value: Tensor, **kwargs: Any) -> Tensor:
        """Log-densities [B] of actions [B, ...]."""
        return self.values.log_prob(value)

    def entropy(self, **kwargs: Any) -> Tensor | None:
        """[B]; ``None`` where there is no closed form."""
        return self.values.entropy()

    def kl(self, other: Distribution, **kwargs: Any) -> Tensor:
        """KL(self || other) [B]."""
        return self.values.kl(other.values)

    def to_deterministic(self) -> Deterministic:
        """The likeliest actions."""
        return Deterministic(self.values.mode())


class Deterministic:
    """Always the same actions.

    Args:
        actions: [B, ...].
    """

    def __init__(self, actions: Tensor) -> None:
        self.actions = actions

    def sample(self, *, sample_shape: tuple[int, ...] = ()) -> Tensor:
        """Actions [*sample_shape, B, ...]."""
        return self.actions.expand(*sample_shape, *self.actions.shape)

    def to_deterministic(self) -> Deterministic:
        """Itself."""
        return self


def distribution_for(space: spaces.Space) -> type[Distribution]:
    """The class of distributions over a space: TorchCategorical, TorchDiagGaussian, ...

    Raises:
        NotImplementedError: there is none.
    """
    names = {
        spaces.Discrete: "TorchCategorical",
        spaces.Box: "TorchDiagGaussian",
        spaces.MultiDiscrete: "TorchMultiCategorical",
    }
    name = next((name for kind, name in names.items() if isinstance(space, kind)), "TorchMultiDistribution")
    return type(name, (Distribution,), {"space": space, "family": make_family(space), "__doc__": Distribution.__doc__})


def outputs_for(family: Family) -> int:
    """Numbers that :func:`distribution_of` reads for each row."""
    return 2 * family.n_outputs if isinstance(family, GaussianFamily) else family.n_outputs


def distribution_of(family: Family, outputs: Tensor) -> Values:
    """A distribution of what a network says of it: [B, N], of Gaussians means and log standard deviations."""
    if isinstance(family, GaussianFamily):
        mean, log_std = outputs.chunk(2, -1)
        return family(mean, log_std)
    values: Values = family(outputs)
    return values


def check_action_space(space: spaces.Space) -> None:
    """Refuse action spaces over which no module of the catalog has a distribution.

    Raises:
        ValueError: a Box of integers or of several dimensions.
    """
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind in "iu":
        raise ValueError(f"action_space={space}: whole numbers need a MultiDiscrete, or a Box of floats.")
    if isinstance(space, spaces.Box) and len(space.shape) != 1:
        raise ValueError(
            f"action_space={space} has the shape {space.shape}: reshape it to one dimension of {get_action_dim(space)}."
        )
