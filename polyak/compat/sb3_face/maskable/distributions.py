"""sb3-contrib's distributions under masks: objects that take new parameters, and then a mask, in place.

Shape letters: B batch, N choices, M entries of a mask, which are the choices of all dimensions one after another.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical
from typing_extensions import Self

from polyak.compat.sb3_face.distributions import (
    CategoricalDistribution,
    Distribution,
    MultiCategoricalDistribution,
    OfLogits,
    of_family,
)
from polyak.nn.distributions.base import Family
from polyak.nn.distributions.choice import make_family
from polyak.nn.distributions.discrete import (
    BernoulliFamily,
    Categorical,
    CategoricalFamily,
    MultiCategorical,
    MultiCategoricalFamily,
)
from polyak.nn.errors import PolicyError

Masks = Tensor | np.ndarray | Sequence[Any] | None
"""True where a choice is allowed; ``None``: everywhere."""
_FORBIDDEN = -1e8
"""Represents log 0: finite, so that a row without allowed choices is uniform."""


class MaskableCategorical(TorchCategorical):
    """A ``torch.distributions.Categorical`` whose mask can be changed at any time.

    Args:
        probs, logits: [..., N], one of the two.
        validate_args: check arguments.
        masks: see :meth:`apply_masking`.
    """

    def __init__(
        self,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
        masks: Masks = None,
    ) -> None:
        self.masks: Tensor | None = None
        super().__init__(probs, logits, validate_args)
        self._original_logits = self.logits
        self.apply_masking(masks)

    def apply_masking(self, masks: Masks) -> None:
        """Set the mask [..., N]; it replaces the one before."""
        logits = self._original_logits
        self.masks = None if masks is None else _as_flags(masks, logits.device).reshape(logits.shape)
        if self.masks is not None:
            logits = torch.where(self.masks, logits, _FORBIDDEN)
        vars(self).pop("probs", None)  # of the mask before
        super().__init__(logits=logits, validate_args=self._validate_args)

    def entropy(self) -> Tensor:
        """Returns the entropy in nats, [...]."""
        if self.masks is None:
            return super().entropy()
        return -torch.where(self.masks, self.logits * self.probs, 0.0).sum(-1)


def _as_flags(masks: Any, device: torch.device) -> Tensor:
    masks = masks if isinstance(masks, Tensor) else torch.from_numpy(np.asarray(masks))
    return masks.to(device, torch.bool)


class MaskableDistribution(Distribution):
    """A :class:`~polyak.compat.sb3_face.distributions.Distribution` that can be masked."""

    @abstractmethod
    def apply_masking(self, masks: Masks) -> None:
        """Set the masks [B, M] until there are new parameters; ``None``: everything is allowed."""

    def masked(self, masks: Masks) -> Self:
        """This object, after :meth:`apply_masking`: the interface of polyak's policies."""
        self.apply_masking(masks)
        return self


class NoParametersError(PolicyError, AttributeError, AssertionError):
    """A distribution was used before it had parameters. Also the error of sb3-contrib here."""


class _MaskedLogits(OfLogits, MaskableDistribution):
    """Base of the distributions: an immutable one without masks, and the masked one."""

    _unmasked: Any = None
    _masks: Tensor | None = None

    def proba_distribution(self, action_logits: Tensor) -> Self:
        super().proba_distribution(action_logits.reshape(-1, self.family.n_outputs))
        self._unmasked, self._masks = self._value, None
        return self

    def apply_masking(self, masks: Masks) -> None:
        self._value, self._masks = self.value if self._unmasked is None else self._unmasked, None  # raises if empty
        if masks is not None:
            self._masks = _as_flags(masks, self._device).reshape(-1, self.family.n_outputs)
            self._value = self._unmasked.masked(self._masks)

    @property
    def value(self) -> Any:
        """See :class:`~polyak.compat.sb3_face.distributions.OfFamily`."""
        try:
            return super().value
        except PolicyError as error:
            raise NoParametersError(error) from None

    def log_prob(self, actions: Tensor) -> Tensor:
        """Returns the log-density of ``actions`` [B, ...]: [B]; the parameters of a single state are used for all of
        them."""
        value = self.value
        return value.log_prob(actions) if len(actions) == len(self._logits) else self._log_prob_of_many(actions)

    @abstractmethod
    def _log_prob_of_many(self, actions: Tensor) -> Tensor: ...

    @property
    def _device(self) -> torch.device:
        device: torch.device = self._logits.device
        return device

    @property
    @abstractmethod
    def _logits(self) -> Tensor:
        """The logits without masks, or a part of them: [B, ...]"""

    def _from_torch(self, given: Any) -> Any:
        self._unmasked, self._masks = self._from_original(given), _given_masks(given)
        return self._unmasked if self._masks is None else self._unmasked.masked(self._masks)

    @abstractmethod
    def _from_original(self, given: Any) -> Any: ...

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_unmasked": None, "_masks": None}


def _original(given: TorchCategorical) -> Categorical:
    logits: Tensor = getattr(given, "_original_logits", given.logits)
    return Categorical(logits)


def _given_masks(given: Any) -> Tensor | None:
    """Masks [B, M] of one choice or of several side by side."""
    if not isinstance(given, list | tuple):
        return getattr(given, "masks", None)
    parts = [getattr(choice, "masks", None) for choice in given]
    if all(part is None for part in parts):
        return None
    everything = [torch.ones_like(choice.logits, dtype=torch.bool) for choice in given]
    return torch.cat([a if part is None else part for a, part in zip(everything, parts, strict=True)], dim=1)


class MaskableCategoricalDistribution(_MaskedLogits, CategoricalDistribution):
    """One choice among N.

    Args:
        action_dim: N.
    """

    def _as_torch(self, value: Any) -> MaskableCategorical:
        return MaskableCategorical(logits=self._unmasked.logits, masks=self._masks)

    def _from_original(self, given: Any) -> Categorical:
        return _original(given)

    def _log_prob_of_many(self, actions: Tensor) -> Tensor:
        log_prob: Tensor = self.distribution.log_prob(actions)
        return log_prob

    @property
    def _logits(self) -> Tensor:
        return self._unmasked.logits


class MaskableMultiCategoricalDistribution(_MaskedLogits, MultiCategoricalDistribution):
    """Several independent choices, the i-th among ``action_dims[i]``.

    Args:
        action_dims: number of classes of each choice.
    """

    @property
    def distributions(self) -> list[MaskableCategorical]:
        """The distribution of each choice, made on each access; empty before parameters are set."""
        return self.distribution or []

    @distributions.setter
    def distributions(self, given: list[MaskableCategorical]) -> None:
        self.distribution = given

    def _as_torch(self, value: Any) -> list[MaskableCategorical]:
        choices = self._unmasked.choices
        parts = [None] * len(choices) if self._masks is None else self._masks.split(self.action_dims, dim=1)
        return [MaskableCategorical(logits=c.logits, masks=p) for c, p in zip(choices, parts, strict=True)]

    def _from_original(self, given: Any) -> MultiCategorical:
        return MultiCategorical(tuple(map(_original, given)))

    def _log_prob_of_many(self, actions: Tensor) -> Tensor:
        return torch.stack([choice.log_prob(actions[:, i]) for i, choice in enumerate(self.distributions)]).sum(0)

    @property
    def _logits(self) -> Tensor:
        return self._unmasked.choices[0].logits


class MaskableBernoulliDistribution(MaskableMultiCategoricalDistribution):
    """Independent coins, each a choice between 0 and 1.

    Args:
        action_dim: the number of coins.
    """

    def __init__(self, action_dim: int) -> None:
        super().__init__([2] * action_dim)


def make_masked_proba_distribution(action_space: spaces.Space) -> MaskableDistribution:
    """Returns the distribution that fits an action space.

    Raises:
        PolicyError: a MultiBinary of several dimensions.
        NotImplementedError: a space other than Discrete, MultiDiscrete and MultiBinary.
    """
    family = None if isinstance(action_space, spaces.Box) else make_family(action_space)
    if type(family) not in _OF_FAMILY:
        raise NotImplementedError(f"there are no masks for {action_space}: use Discrete, MultiDiscrete or MultiBinary.")
    return of_family(family, _OF_FAMILY)


_OF_FAMILY: Mapping[type[Family], type[MaskableDistribution]] = {
    CategoricalFamily: MaskableCategoricalDistribution,
    MultiCategoricalFamily: MaskableMultiCategoricalDistribution,
    BernoulliFamily: MaskableBernoulliDistribution,
}
