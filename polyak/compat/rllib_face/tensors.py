"""Functions on tensors and arrays that programs written for RLlib import."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.compat.rllib_face.models.layers import activation_called
from polyak.hyperparameters.declaration import require

FLOAT_MIN, FLOAT_MAX = -3.4e38, 3.4e38
"""Bounds of logits."""


def try_import_torch(error: bool = False) -> tuple[Any, Any]:
    """torch, and ``torch.nn``."""
    return torch, nn


def try_import_tf(error: bool = False) -> tuple[None, None, None]:
    """Returns ``None`` for all modules, as without TensorFlow.

    Raises:
        ImportError: ``error`` is set.
    """
    if error:
        raise ImportError("polyak runs on PyTorch: use try_import_torch().")
    return None, None, None


def get_activation_fn(name: Any = None, framework: str = "torch") -> Any:
    """Returns the class or function that makes an activation, by its name; ``None`` for ``None`` and ``"linear"``."""
    require(framework == "torch", "framework", framework, "networks are torch's.")
    return None if name == "linear" else activation_called(name)


def _mapped(function: Any, tree: Any) -> Any:
    if isinstance(tree, Mapping):
        return {name: _mapped(function, part) for name, part in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [_mapped(function, part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
    return function(tree)


def convert_to_torch_tensor(x: Any, device: Any = None, pin_memory: bool = False) -> Any:
    """Converts arrays and numbers to tensors, also within dicts, tuples and lists; texts and ``None`` stay.

    Args:
        x: the value; float64 becomes float32.
        device: device of the result; ``None``: tensors stay on theirs, all else is put into main memory.
        pin_memory: put them into pinned memory, if there is a GPU.
    """

    def tensor(value: Any) -> Any:
        if value is None or isinstance(value, str | bytes):
            return value
        found = value if isinstance(value, Tensor) else torch.from_numpy(np.array(value))
        found = found.float() if found.dtype == torch.float64 else found
        found = found.pin_memory() if pin_memory and torch.cuda.is_available() and not found.is_cuda else found
        return found if device is None else found.to(device)

    return _mapped(tensor, x)


def convert_to_numpy(x: Any, reduce_type: bool = True) -> Any:
    """Converts tensors to arrays, also within dicts, tuples and lists; all else stays.

    Args:
        x: the value; tensors [] become Python's numbers.
        reduce_type: float64 and int64 arrays become float32 and int32.
    """

    def array(value: Any) -> Any:
        found = (value.numpy(force=True) if value.ndim else value.item()) if isinstance(value, Tensor) else value
        if reduce_type and isinstance(found, np.ndarray) and found.dtype in (np.float64, np.int64):
            return found.astype(np.float32 if found.dtype == np.float64 else np.int32)
        return found

    return _mapped(array, x)


def normc_initializer(std: float = 1.0) -> Any:
    """Returns a function that fills a weight [out, in] with normal numbers whose rows have the norm ``std``."""

    def fill(weight: Tensor) -> None:
        with torch.no_grad():
            weight.normal_()
            weight.mul_(std / weight.norm(dim=1, keepdim=True))

    return fill


def make_target_network(main_net: torch.nn.Module) -> torch.nn.Module:
    """Returns a copy of a network that no gradient reaches."""
    return copy.deepcopy(main_net).requires_grad_(False)


def explained_variance(y: Tensor, pred: Tensor) -> Tensor:
    """1 - Var[y - pred] / Var[y], at least -1, of tensors [B]."""
    return (1 - (y - pred).var() / y.var()).clamp(min=-1)


def one_hot(x: Tensor, space: spaces.Space) -> Tensor:
    """Choices [...] of a Discrete, or [..., K] of a MultiDiscrete, as a 1 among zeros for each: [..., sum of sizes]."""
    if isinstance(space, spaces.Discrete):
        return nn.functional.one_hot(x.long() - int(space.start), int(space.n))
    fix = "give a Discrete or a MultiDiscrete."
    require(isinstance(space, spaces.MultiDiscrete), "space", space, fix)
    assert isinstance(space, spaces.MultiDiscrete)
    sizes = space.nvec.reshape(-1).tolist()
    start = space.start.reshape(-1)
    parts = [nn.functional.one_hot(x[..., i].long() - int(start[i]), size) for i, size in enumerate(sizes)]
    return torch.cat(parts, -1)
