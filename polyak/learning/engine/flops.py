"""Floating-point operations of a gradient step."""

from __future__ import annotations

import copy
import math
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.networks.encoders import BaseFeaturesExtractor

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def flops(learner: nn.Module, rows: int) -> float:
    """Returns the approximate floating-point operations of a gradient step over ``rows`` rows.

    The forward pass multiplies a row with every parameter once, the backward pass twice; with parameters of a
    convolution once per output position.
    """
    positions: dict[nn.Module, int] = {}
    for module in learner.modules():
        if isinstance(module, BaseFeaturesExtractor):
            positions |= _positions(module)
    products = sum(
        p.numel() * positions.get(module, 1) for module in learner.modules() for p in module.parameters(recurse=False)
    )
    return 6.0 * rows * products


def _positions(extractor: BaseFeaturesExtractor) -> dict[nn.Module, int]:
    """Returns the output positions of each convolution, from a forward pass on the meta device."""
    convolutions = {name: m for name, m in extractor.named_modules() if isinstance(m, _CONVOLUTIONS)}
    if not convolutions:
        return {}
    found: dict[nn.Module, int] = {}

    def note(name: str, module: nn.Module, inputs: Any, output: Tensor) -> None:
        found[convolutions[name]] = math.prod(output.shape[2:])

    try:
        shadow = copy.deepcopy(extractor).to("meta").eval()
        for name in convolutions:
            shadow.get_submodule(name).register_forward_hook(partial(note, name))
        with torch.no_grad():
            shadow(_empty(extractor._observation_space))
    except Exception:  # a user's module that reads values: count each parameter once
        return {}
    return found


def _empty(space: spaces.Space) -> Any:
    """Returns a batch of one preprocessed observation on the meta device."""
    if isinstance(space, spaces.Dict):
        return {key: _empty(part) for key, part in space.spaces.items()}
    return torch.empty(1, *(space.shape or ()), device="meta")
