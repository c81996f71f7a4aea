"""Distributional critics with fixed atoms: FastTD3."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.streams import atoms
from polyak.nn.policies.continuous import ContinuousCritic


class CategoricalCritic(ContinuousCritic):
    """K critics that give a categorical distribution of the return each, on the same N atoms (arXiv:1707.06887).

    Args:
        *args: see :class:`~polyak.nn.policies.continuous.ContinuousCritic`.
        n_atoms: N.
        v_min, v_max: the first and the last atom.
        **options: see :class:`~polyak.nn.policies.continuous.ContinuousCritic`.

    Raises:
        PolicyError: fewer than two atoms, or no range.
    """

    support: Tensor
    """[N] the atoms."""

    def __init__(
        self, *args: Any, n_atoms: int = 101, v_min: float = -250.0, v_max: float = 250.0, **options: Any
    ) -> None:
        support = atoms(n_atoms, v_min, v_max)
        self.n_outputs = n_atoms
        super().__init__(*args, **options)
        self.register_buffer("support", support, persistent=False)

    def logits(self, obs: Obs, actions: Tensor) -> Tensor:
        """Logarithms of probabilities, up to a constant for each distribution: [K, B, N]."""
        return torch.stack(super().forward(obs, actions))

    def mean(self, logits: Tensor) -> Tensor:
        """Expected returns: [..., N] -> [...]."""
        return logits.softmax(-1) @ self.support

    def q_values(self, obs: Obs, actions: Tensor) -> Tensor:
        """Expected returns of all critics: [K, B]."""
        return self.mean(self.logits(obs, actions))

    def forward(self, obs: Obs, actions: Tensor) -> tuple[Tensor, ...]:
        """Expected returns of all critics, each [B, 1]."""
        return tuple(self.q_values(obs, actions)[..., None])

    def q1_forward(self, obs: Obs, actions: Tensor) -> Tensor:
        """Expected returns of the first critic only: [B, 1]."""
        return self.mean(super().q1_forward(obs, actions))[:, None]
