"""Action distributions: RLlib's classes for polyak's families.

``module.get_inference_action_dist_cls()`` gives a class; ``cls.from_logits(outputs)`` is the distribution for a
module's ``action_dist_inputs`` [B, N], and ``cls.required_input_dim(space)`` is N. A class that
:func:`distribution_for` made is replaced by polyak's family; the methods of other classes are called.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor
from typing_extensions import Self

from polyak.compat.rllib_face.models.simplex import Simplex
from polyak.compat.rllib_face.models.torch_distributions import (
    Distribution,
    TorchCategorical,
    TorchDeterministic,
    TorchDiagGaussian,
    TorchMultiCategorical,
)
from polyak.envs.spaces import get_action_dim
from polyak.nn.distributions.base import Distribution as Values
from polyak.nn.distributions.base import Family
from polyak.nn.distributions.choice import make_family
from polyak.nn.distributions.gaussian import GaussianFamily
from polyak.nn.distributions.product import Product, ProductFamily
from polyak.nn.errors import PolicyError


class TorchMultiDistribution(Distribution):
    """A distribution over actions of a space without a specific class, by polyak's family.

    Args:
        values: polyak's distribution.
    """

    space: ClassVar[spaces.Space]
    family: ClassVar[Family]

    def __init__(self, values: Values) -> None:
        self.values = values

    @classmethod
    def from_logits(cls, logits: Tensor, **kwargs: Any) -> Self:
        return cls(distribution_of(cls.family, logits))

    def sample(self, *, sample_shape: Any = None, **kwargs: Any) -> Tensor:
        if not sample_shape:
            return self.values.sample()
        draws = [self.values.sample() for _ in range(torch.Size(sample_shape).numel())]
        return torch.stack(draws).unflatten(0, sample_shape)

    def logp(self, value: Tensor, **kwargs: Any) -> Tensor:
        return self.values.log_prob(value)

    def entropy(self, **kwargs: Any) -> Tensor | None:
        return self.values.entropy()

    def kl(self, other: Any, **kwargs: Any) -> Tensor:
        return self.values.kl(other.values)

    def to_deterministic(self) -> TorchDeterministic:
        return TorchDeterministic(self.values.mode())


def distribution_for(space: spaces.Space) -> type[Distribution]:
    """Returns the class of distributions over a space: TorchCategorical, TorchDiagGaussian, ...

    Raises:
        NotImplementedError: the space has no distribution.
    """
    kinds = {
        spaces.Discrete: TorchCategorical,
        spaces.Box: TorchDiagGaussian,
        spaces.MultiDiscrete: TorchMultiCategorical,
    }
    kind: Any = next((kind for one, kind in kinds.items() if isinstance(space, one)), TorchMultiDistribution)
    members = {"space": space, "family": make_family(space), "__doc__": kind.__doc__, "__module__": kind.__module__}
    members["required_input_dim"] = classmethod(_required_input_dim)
    if kind is TorchMultiCategorical:
        members["from_logits"] = classmethod(_from_logits_of_choices)
    return type(kind.__name__, (kind,), members)


def _required_input_dim(cls: Any, space: spaces.Space | None = None, model_config: Any = None, **kwargs: Any) -> int:
    return outputs_for(cls.family if space is None else make_family(space))


def _from_logits_of_choices(cls: Any, logits: Tensor, input_lens: Any = None, **kwargs: Any) -> Any:
    lengths = cls.space.nvec.flatten().tolist() if input_lens is None else input_lens
    return TorchMultiCategorical.from_logits.__func__(cls, logits, input_lens=lengths)  # type: ignore[attr-defined]


def family_of(kind: Any) -> Family | None:
    """Returns polyak's family for a class of distributions; ``None`` for a program's own class, whose methods are
    called."""
    family: Family | None = vars(kind).get("family") if isinstance(kind, type) else None
    return family


class OwnDistribution(Values):
    """A program's own distribution as polyak's policies have it.

    Args:
        own: made by ``from_logits`` of the program's class.
    """

    def __init__(self, own: Any) -> None:
        self.own = own

    def log_prob(self, actions: Tensor) -> Tensor:
        values: Tensor = self.own.logp(actions)
        if values.ndim != 1:
            raise PolicyError(
                f"{type(self.own).__name__}.logp() must return one number for each of {len(actions)} rows, got the "
                f"shape {tuple(values.shape)}. Sum it over the parts of an action."
            )
        return values

    def entropy(self) -> Tensor | None:
        values: Tensor | None = self.own.entropy()
        return values

    def sample(self) -> Tensor:
        actions: Tensor = self.own.sample()
        return actions

    def mode(self) -> Tensor:
        actions: Tensor = self.own.to_deterministic().sample()
        return actions

    def kl(self, other: Self) -> Tensor:
        values: Tensor = self.own.kl(other.own)
        return values


def outputs_for(family: Family) -> int:
    """Returns numbers that :func:`distribution_of` reads for each row."""
    if isinstance(family, ProductFamily):
        return sum(map(outputs_for, family.families))
    return 2 * family.n_outputs if isinstance(family, GaussianFamily) else family.n_outputs


def distribution_of(family: Family, outputs: Tensor) -> Values:
    """Returns the distribution for outputs of a network [B, N]: means and log standard deviations for Gaussians, the
    parts' outputs side by side for composed actions."""
    if isinstance(family, ProductFamily):
        columns = outputs.split([outputs_for(part) for part in family.families], -1)
        factors = (distribution_of(part, own) for part, own in zip(family.families, columns, strict=True))
        return Product(tuple(factors), family.widths)
    if isinstance(family, GaussianFamily):
        mean, log_std = outputs.chunk(2, -1)
        return family(mean, log_std)
    values: Values = family(outputs)
    return values


def check_action_space(space: spaces.Space) -> None:
    """Refuse action spaces over which no module of the catalog has a distribution.

    Raises:
        NotImplementedError: a :class:`~polyak.compat.rllib_face.models.simplex.Simplex`.
        ValueError: a Box of integers or of several dimensions.
    """
    if isinstance(space, Simplex):
        raise NotImplementedError(
            f"action_space={space}: no default module chooses shares. Let get_action_dist_cls() of a catalog return a "
            "distribution over them, such as a Dirichlet, or take a softmax of a Box in a wrapper of the environment."
        )
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind in "iu":
        raise ValueError(f"action_space={space}: whole numbers need a MultiDiscrete, or a Box of floats.")
    if isinstance(space, spaces.Box) and len(space.shape) != 1:
        raise ValueError(
            f"action_space={space} has the shape {space.shape}: reshape it to one dimension of {get_action_dim(space)}."
        )
