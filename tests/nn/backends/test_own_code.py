"""Which of a program's own code may be recorded."""

import itertools
import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from polyak.nn.backends.own_code import OwnCodeError
from polyak.nn.backends.program import TracedProgram

FACTOR = 3
factor = 3
one = 1
calls: list[int] = []


class Helper:
    scale = 2.0

    def scaled(self, x: Tensor) -> Tensor:
        return self.scale * x


class Layer(nn.Module):
    """A layer with attributes and a ``forward`` of one's own."""

    def __init__(self, forward: Callable[..., Tensor], **attributes: Any) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 4)
        vars(self).update(attributes, forward=partial(forward, self))


def _computes(layer: Any, x: Tensor) -> Tensor:
    parts = []
    for part in x.split(1):
        parts.append(functional.relu(layer.inner(part)) / math.sqrt(len(layer.sizes)))
    joined = torch.cat([FACTOR * part for part in parts])
    return joined if layer.training and isinstance(layer.name, str) else -joined


def _enclosing(scale: float) -> Callable[..., Tensor]:
    return lambda layer, x: scale * layer.inner(x)


ADMITTED = [
    Layer(_computes, sizes=[2, 3], name="a"),
    Layer(_enclosing(2.0)),
    Layer(lambda layer, x: functional.scaled_dot_product_attention(*(layer.inner(x[None]) for _ in range(3)))),
]


@pytest.mark.parametrize("layer", ADMITTED)
def test_code_that_only_computes_is_recorded(layer: Layer) -> None:
    x = torch.randn(2, 3)
    program = TracedProgram(partial(layer, x), [x])
    assert program.has_own_code
    assert layer in program.modules
    x.copy_(torch.randn(2, 3))
    program()
    torch.testing.assert_close(program.result, layer(x))


def _counts(layer: Any, x: Tensor) -> Tensor:
    layer.count += 1
    return layer.inner(x)


def _keeps(layer: Any, x: Tensor) -> Tensor:
    layer.kept.append(1)
    return layer.inner(x)


def _keeps_deeper(layer: Any, x: Tensor) -> Tensor:
    kept = layer.kept["a"]
    kept += [1]
    return layer.inner(x)


def _appends_deeper(layer: Any, x: Tensor) -> Tensor:
    layer.kept["a"].append(1)
    return layer.inner(x)


def _defaults(layer: Any, x: Tensor, scales: list[float] = [1.0]) -> Tensor:  # noqa: B006
    return scales[0] * layer.inner(x)


def _catches(layer: Any, x: Tensor) -> Tensor:
    try:
        return float(x.sum()) * layer.inner(x)
    except RuntimeError:
        return layer.inner(x)


def _seeds(layer: Any, x: Tensor) -> Tensor:
    torch.manual_seed(0)
    return layer.inner(x) + torch.rand(4)


class Shared(Layer):
    log: list[int] = []


class Counted(Layer):
    numbers = itertools.count()


def _notes(layer: Any, x: Tensor) -> Tensor:
    layer.kept["last"] = x
    return layer.inner(x)


def _prints(layer: Any, x: Tensor) -> Tensor:
    print("forward")
    return layer.inner(x)


def _within() -> Callable[..., Tensor]:
    number = 0

    def forward(layer: Any, x: Tensor) -> Tensor:
        nonlocal number
        number += 1
        return layer.inner(x)

    return forward


REFUSED = {
    "reads the variable one, which": Layer(lambda layer, x: one * layer.inner(x)),
    "reads the class Helper": Layer(lambda layer, x: Helper.scale * layer.inner(x)),
    "Layer.scaled is a function": Layer(lambda layer, x: layer.scaled(layer, x), scaled=_defaults),
    "Layer.note is a partial": Layer(lambda layer, x: layer.inner(x), note=partial(calls.append, 1)),
    "^append\\(\\) changes an attribute$": Layer(_appends_deeper, kept={"a": []}),
    "\\) changes an attribute$": Shared(lambda layer, x: layer.log.append(1) or layer.inner(x)),
    "Counted.numbers is a count": Counted(lambda layer, x: next(layer.numbers) * layer.inner(x)),
    "CHECK_EXC_MATCH|JUMP_IF_NOT_EXC_MATCH": Layer(_catches),
    "calls torch.random.manual_seed": Layer(_seeds),
    "it calls torch.nn.modules.module.register_buffer": Layer(
        lambda layer, x: layer.register_buffer("kept", layer.inner(x)) or layer.inner(x)
    ),
    "STORE_ATTR count": Layer(_counts, count=0),
    "append\\(\\) changes an attribute": Layer(_keeps, kept=[]),
    "Layer changes its attributes": Layer(_keeps_deeper, kept={"a": []}),
    "STORE_SUBSCR": Layer(_notes, kept={}),
    "calls print": Layer(_prints),
    "STORE_DEREF number": Layer(_within()),
    "reads the variable factor, which may change": Layer(lambda layer, x: factor * layer.inner(x)),
    "reads the variable calls, which may change": Layer(lambda layer, x: len(calls) * layer.inner(x)),
    "uses numpy.random": Layer(lambda layer, x: np.random.rand() * layer.inner(x)),
    "uses the module random": Layer(lambda layer, x: random.random() * layer.inner(x)),
    "uses the module time": Layer(lambda layer, x: time.time() * layer.inner(x)),
    "it calls random.Random.random": Layer(
        lambda layer, x: layer.draw() * layer.inner(x), draw=random.Random(0).random
    ),
    "Layer.helper is a Helper": Layer(lambda layer, x: layer.helper.scale * layer.inner(x), helper=Helper()),
    "scaled is a method": Layer(lambda layer, x: layer.scaled(layer.inner(x)), scaled=Helper().scaled),
    "Layer.weights is a ndarray": Layer(lambda layer, x: layer.inner(x), weights=np.ones(3)),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_code_that_may_do_more_is_refused(reason: str) -> None:
    x = torch.zeros(1, 3)
    with pytest.raises(OwnCodeError, match=reason):
        TracedProgram(partial(REFUSED[reason], x), [x])
