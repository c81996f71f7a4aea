"""The family of action distributions that fits an action space."""

from __future__ import annotations

from typing import Any

from gymnasium import spaces

from polyak.envs.nested_spaces import is_composed, parts
from polyak.envs.spaces import get_action_dim
from polyak.nn.distributions.base import Family
from polyak.nn.distributions.discrete import (
    BernoulliFamily,
    CategoricalFamily,
    MultiCategoricalFamily,
    SparseCategoricalFamily,
)
from polyak.nn.distributions.gaussian import GaussianFamily
from polyak.nn.distributions.product import ProductFamily
from polyak.nn.distributions.state_dependent import StateDependentGaussianFamily
from polyak.nn.errors import PolicyError

SINGLE_SPACES: tuple[type[spaces.Space], ...] = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
"""Action spaces over which there is a distribution."""
ACTION_SPACES: tuple[type[spaces.Space], ...] = (*SINGLE_SPACES, spaces.Dict, spaces.Tuple)
"""The single spaces, and the spaces composed of them."""
_SEVERAL = (spaces.Discrete, spaces.MultiDiscrete)


def make_family(action_space: spaces.Space, use_sde: bool = False, sparse: bool = False, **options: Any) -> Family:
    """Returns the family of distributions that fits an action space.

    Args:
        action_space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, whose parts do not depend
            on each other.
        use_sde: state-dependent exploration (Box only) rather than independent Gaussians.
        sparse: probabilities by sparsemax (Discrete and MultiDiscrete only, also as parts) rather than softmax.
        options: further arguments of the family.

    Raises:
        PolicyError: ``use_sde`` with another space than Box, ``sparse`` with one that is no choice among several, or a
            MultiBinary of several dimensions.
        NotImplementedError: a space for which there is no distribution.
    """
    if use_sde and not isinstance(action_space, spaces.Box):
        raise PolicyError(
            f"use_sde=True: state-dependent exploration needs continuous actions (a Box), got {action_space}. "
            "Leave use_sde out."
        )
    if sparse and not any(isinstance(part.space, _SEVERAL) for part in parts(action_space)):
        raise PolicyError(
            f"sparse=True: sparsemax needs choices among several (Discrete or MultiDiscrete), got {action_space}. "
            "Leave sparse out."
        )
    if is_composed(action_space):
        return _product(action_space, sparse)
    if isinstance(action_space, spaces.Box):
        family = StateDependentGaussianFamily if use_sde else GaussianFamily
        return family(get_action_dim(action_space), **options)
    if isinstance(action_space, spaces.Discrete):
        choice = SparseCategoricalFamily if sparse else CategoricalFamily
        return choice(int(action_space.n), **options)
    if isinstance(action_space, spaces.MultiDiscrete):
        return MultiCategoricalFamily(tuple(int(n) for n in action_space.nvec.flatten()), sparse, **options)
    if isinstance(action_space, spaces.MultiBinary):
        if len(action_space.shape) != 1:
            raise PolicyError(
                f"Multi-dimensional MultiBinary({action_space.n}) action space is not supported. "
                "Flatten it to one dimension."
            )
        return BernoulliFamily(int(action_space.shape[0]), **options)
    raise NotImplementedError(
        f"There is no distribution over the action space {action_space}. "
        "Use Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these."
    )


def _product(action_space: spaces.Space, sparse: bool) -> ProductFamily:
    found = [part.space for part in parts(action_space)]
    families = tuple(make_family(space, sparse=sparse and isinstance(space, _SEVERAL)) for space in found)
    return ProductFamily(families, tuple(get_action_dim(space) for space in found))
