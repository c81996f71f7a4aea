"""The random part of gSDE's exploration matrices."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ExplorationNoise(nn.Module):
    """Standard normal draws of the exploration matrices, as buffers outside state dicts.

    A draw overwrites the tensor of the last draw of the same shape, so that a compiled gradient step reads the current
    one. Collecting and learning may alternate between two numbers of matrices, so the tensors of two shapes are kept.
    Results of an overwritten draw can no longer be differentiated.

    Shape letters: N matrices, L latent features, A action dimensions, B batch.
    """

    shared: Tensor
    """[L, A]"""
    own: Tensor
    """[N, L, A]"""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("shared", torch.empty(0), persistent=False)
        self.register_buffer("own", torch.empty(0), persistent=False)
        self._spare = self.own

    @torch.no_grad()
    def draw(self, like: Tensor, columns: int, count: int) -> None:
        """Draw new noise.

        Args:
            like: [L, ...] a tensor of the dtype and on the device of the draws.
            columns: A.
            count: N.
        """
        shape: tuple[int, ...] = (len(like), columns)
        if not _fits(self.shared, shape, like):
            self.shared = like.new_empty(shape)
        self._make_room((count, *shape), like)
        self.shared.normal_()
        self.own.normal_()

    @torch.no_grad()
    def put(self, draws: Tensor) -> None:
        """Use these [N, L, A] from now on; a single one for all states."""
        self._make_room(tuple(draws.shape), draws)
        self.own.copy_(draws)
        if len(draws) == 1:
            self.shared.copy_(draws[0])

    def _make_room(self, shape: tuple[int, ...], like: Tensor) -> None:
        """Let :attr:`own` have this shape."""
        if not _fits(self.own, shape, like):
            fitting = self._spare if _fits(self._spare, shape, like) else like.new_empty(shape)
            self.own, self._spare = fitting, self.own

    def of(self, batch: int) -> Tensor:
        """Returns the matrices for B states: [B, L, A] if B matrices were drawn, one for each, else [L, A] for all."""
        return self.own if batch == len(self.own) > 1 else self.shared


def _fits(tensor: Tensor, shape: tuple[int, ...], like: Tensor) -> bool:
    return tensor.shape == shape and tensor.dtype == like.dtype and tensor.device == like.device
