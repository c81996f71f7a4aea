"""CrossQ's actor and critics (arXiv:1902.05605): those of SAC with batch renormalisation before each linear layer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from torch import nn

from polyak.nn.networks.batch_renorm import BatchRenorm1d
from polyak.nn.policies.base import Network
from polyak.nn.policies.continuous import ContinuousCritic, SquashedGaussianActor


class _Normalised(Network):
    """A network with batch renormalisation.

    Args:
        *args: of the network.
        batch_norm: False leaves the normalisation out.
        batch_norm_momentum: weight of a batch in the running statistics, in [0, 1].
        batch_norm_eps: added to variances.
        renorm_warmup_steps: batches of plain batch normalisation before renormalisation.
        **kwargs: of the network.

    Raises:
        PolicyError: an argument out of range.
    """

    def __init__(
        self,
        *args: Any,
        batch_norm: bool = True,
        batch_norm_momentum: float = 0.01,
        batch_norm_eps: float = 0.001,
        renorm_warmup_steps: int = 100_000,
        **kwargs: Any,
    ) -> None:
        self.batch_norm, self.renorm_warmup_steps = batch_norm, renorm_warmup_steps
        self.batch_norm_momentum, self.batch_norm_eps = batch_norm_momentum, batch_norm_eps
        super().__init__(*args, **kwargs)

    def normalisation(self) -> list[Callable[[int], nn.Module]]:
        """Factories of a normalising layer, called with its width; empty without ``batch_norm``."""
        if not self.batch_norm:
            return []
        eps, momentum, warmup_steps = self.batch_norm_eps, self.batch_norm_momentum, self.renorm_warmup_steps
        return [partial(BatchRenorm1d, eps=eps, momentum=momentum, warmup_steps=warmup_steps)]


class CrossQActor(_Normalised, SquashedGaussianActor):
    """See :class:`~polyak.nn.policies.continuous.SquashedGaussianActor`; it normalises around hidden layers."""

    def make_latent(self, inputs: int) -> nn.Sequential:
        norm = self.normalisation()
        layers = self.layers(inputs, 0, pre_linear_modules=norm)
        return nn.Sequential(*layers, *(make(width) for make in norm for width in self.net_arch[-1:]))


class CrossQCritic(_Normalised, ContinuousCritic):
    """See :class:`~polyak.nn.policies.continuous.ContinuousCritic`; this critic has no lagging copy."""

    has_target: ClassVar[bool] = False

    def make_q_network(self, inputs: int) -> nn.Module:
        return self.layers(inputs, 1, pre_linear_modules=self.normalisation())
