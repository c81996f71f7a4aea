"""Steps of torch's optimizers that leave its compiler out.

Methods of optimizers import ``torch._dynamo``, which takes as long as torch itself, to tell it that they are not to be
compiled. Where nothing else has imported it, there is nothing to tell.
"""

from __future__ import annotations

import sys
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch.optim import Optimizer

_COMPILER = "torch._dynamo"


def spare_compiler() -> None:
    """Let optimizers be made, emptied, saved and loaded without torch's compiler, until it is imported. A release of
    torch that has other insides is left as it is."""
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        if (plain := getattr(getattr(Optimizer, name), "__wrapped__", None)) is not None:
            plain.__dynamo_disable = partial(_plainly, plain)


def _plainly(plain: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls a function of torch's as it is; once there is a compiler, as torch does."""
    if _COMPILER not in sys.modules:
        return plain(*args, **kwargs)
    plain.__dynamo_disable = torch._dynamo.disable(plain, True, wrapping=False)
    return plain.__dynamo_disable(*args, **kwargs)


def lighten(optimizer: Optimizer) -> None:
    """Let an optimizer of torch's own make its steps, with the hooks of users, without torch's compiler."""
    found: Any = optimizer
    plain = _plain_step(type(found))
    if plain is not None and not optimizer.defaults["differentiable"]:
        found.step = MethodType(plain, optimizer)  # a copy of the optimizer makes them as torch does


def _plain_step(cls: Any) -> Any:
    """The step of a class of torch's, with its hooks, under the layer that speaks of the compiler; ``None`` of another
    class, or where torch has another layer."""
    layer: Any = getattr(cls.step, "__wrapped__", None)
    found = layer is not None and getattr(layer, "__code__", None) is not None and layer.__code__.co_name == "_use_grad"
    return torch.no_grad()(Optimizer.profile_hook_step(layer.__wrapped__)) if found else None
