"""Distributional critics with quantiles: TQC."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Obs
from polyak.nn.policies.continuous import ContinuousCritic


class QuantileCritic(ContinuousCritic):
    """K critics that give N quantiles each of the return: observations [B, ...], actions [B, A] -> [B, K, N].

    The quantiles are those of the levels (i + 1/2) / N, of equal weight, so that their mean is the action's value.
    They are not forced to be monotone. Kuznetsov et al. 2020 (arXiv:2005.04269) section 3.

    Args:
        *args: see :class:`~polyak.nn.policies.continuous.ContinuousCritic`.
        n_quantiles: N.
        share_features_extractor: see :class:`~polyak.nn.policies.continuous.ContinuousCritic`.
        **options: see :class:`~polyak.nn.policies.continuous.ContinuousCritic`.

    Raises:
        PolicyError: fewer than one critic or quantile.
    """

    def __init__(
        self, *args: Any, n_quantiles: int = 25, share_features_extractor: bool = False, **options: Any
    ) -> None:
        if n_quantiles < 1:
            raise PolicyError(f"n_quantiles must be at least 1, got {n_quantiles}.")
        self.n_quantiles = self.n_outputs = n_quantiles
        super().__init__(*args, share_features_extractor=share_features_extractor, **options)

    @property
    def quantiles_total(self) -> int:
        """Quantiles of all critics together, K N."""
        return self.n_critics * self.n_quantiles

    def forward(self, obs: Obs, actions: Tensor) -> Tensor:  # type: ignore[override]
        """Returns the quantiles of all critics: [B, K, N]."""
        inputs = self._inputs(obs, actions)
        return torch.stack([network(inputs) for network in self.q_networks], dim=1)

    def quantiles(self, obs: Obs, actions: Tensor) -> Tensor:
        """Returns the quantiles with the critics first, as :meth:`q_values` has them: [K, B, N]."""
        return self(obs, actions).transpose(0, 1)

    def q_values(self, obs: Obs, actions: Tensor) -> Tensor:
        """The mean of each critic's quantiles: [K, B]."""
        return self.quantiles(obs, actions).mean(2)

    def q1_forward(self, obs: Obs, actions: Tensor) -> Tensor:
        """The mean of the first critic's quantiles only: [B, 1]."""
        return super().q1_forward(obs, actions).mean(1, keepdim=True)
