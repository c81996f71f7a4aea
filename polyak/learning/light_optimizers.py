"""Steps of torch's optimizers without its compiler.

Methods of optimizers import ``torch._dynamo``, which takes as long as torch itself, to exclude themselves from
compilation. If nothing else has imported it, that is unnecessary.
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
    """Let optimizers be created, reset, saved and loaded without torch's compiler, until it is imported. A release of
    torch with other internals is left unchanged."""
    for name in ("add_param_group", "load_state_dict", "state_dict", "zero_grad"):
        if (plain := getattr(getattr(Optimizer, name), "__wrapped__", None)) is not None:
            plain.__dynamo_disable = partial(_plainly, plain)


def _plainly(plain: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function of torch's directly; once the compiler is imported, as torch does."""
    if _COMPILER not in sys.modules:
        return plain(*args, **kwargs)
    plain.__dynamo_disable = torch._dynamo.disable(plain, True, wrapping=False)
    return plain.__dynamo_disable(*args, **kwargs)


def lighten(optimizer: Optimizer) -> None:
    """Let an optimizer of torch's own step, with users' hooks, without torch's compiler."""
    found: Any = optimizer
    plain = _plain_step(type(found))
    if plain is not None and not optimizer.defaults["differentiable"]:
        found.step = MethodType(plain, optimizer)  # copies of the optimizer step as torch does


def _plain_step(cls: Any) -> Any:
    """Returns the step of a torch class with its hooks, without the wrapper for the compiler; ``None`` for another
    class, or if torch has another wrapper."""
    layer: Any = getattr(cls.step, "__wrapped__", None)
    found = layer is not None and getattr(layer, "__code__", None) is not None and layer.__code__.co_name == "_use_grad"
    return torch.no_grad()(Optimizer.profile_hook_step(layer.__wrapped__)) if found else None
