"""Mixed precision: the products of layers in bfloat16, everything else in float32.

Nearly all of a network's arithmetic is in the matrix products and convolutions of its layers, which tolerate half
precision. Log-probabilities, losses, targets and optimizers do not, and would not become faster. So only each layer's
product runs under ``torch.autocast``, and its result is float32 again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

_PRODUCTS = frozenset(
    (F.linear, F.bilinear, F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)
)


class _BFloat16Products(TorchFunctionMode):
    """Catches the functions that layers call, in the thread that entered it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in _PRODUCTS:
            return func(*args, **kwargs)
        inputs = args[0] if args else kwargs["input"]
        # Weights may change between two uses within one gradient step: casts of them are not cached.
        with torch.autocast(inputs.device.type, torch.bfloat16, cache_enabled=False):
            return func(*args, **kwargs).to(inputs.dtype)


PRODUCTS_IN: Mapping[str, Callable[[], AbstractContextManager[Any]]] = {
    "float32": nullcontext,
    "bfloat16": _BFloat16Products,
}
"""For each precision, a context in which layers multiply their float32 inputs and weights in it; gradients follow."""
