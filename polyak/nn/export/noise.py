"""Random numbers as inputs of a graph, in place of draws by the policy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from polyak.nn.distributions.exploration_noise import ExplorationNoise
from polyak.nn.export.ports import Port

_LIKE = {torch.randn_like: "standard_normal", torch.rand_like: "random", Tensor.exponential_: "standard_exponential"}
_OF_SIZE = {torch.randn: "standard_normal", torch.rand: "random"}
"""Functions that draw -> the method of ``numpy.random.Generator`` that does the same."""

Give = Callable[[str, Sequence[Any]], Tensor]
"""Distribution and shape -> the numbers."""


class Drawing(TorchFunctionMode):
    """Within the block, random numbers come from a function in place of torch's generator.

    Args:
        give: that function.
    """

    def __init__(self, give: Give) -> None:
        self.give = give

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in _LIKE:
            return self.give(_LIKE[function], args[0].shape)
        if function in _OF_SIZE:
            return self.give(_OF_SIZE[function], args[0] if isinstance(args[0], Sequence) else args)
        return function(*args, **(kwargs or {}))


def noise_ports(act: Callable[[int], Any]) -> list[Port]:
    """Returns one port, ``noise.0`` and so on, for each draw of ``act``, which is called with a number of rows.

    A draw that is shared by all rows, as of noisy layers, is an input for each row as well; the first row is used.
    """
    found: list[list[tuple[str, tuple[int, ...]]]] = []
    for rows in (2, 3):
        drawn: list[tuple[str, tuple[int, ...]]] = []

        def note(how: str, shape: Sequence[Any], drawn: list[Any] = drawn) -> Tensor:
            drawn.append((how, tuple(map(int, shape))))
            return torch.full(drawn[-1][1], 0.5)

        with torch.no_grad(), Drawing(note):
            act(rows)
        found.append(drawn)
    ports = []
    for i, ((how, two), (_, three)) in enumerate(zip(*found, strict=True)):
        of_rows = two != three
        shape = two[1:] if of_rows else two
        ports.append(Port(f"noise.{i}", "noise", shape, "float32", {"draw": how, "for_each_row": of_rows}))
    return ports


class HandedOut:
    """Returns the inputs of :func:`noise_ports` in order.

    Args:
        ports: the result of :func:`noise_ports`.
        inputs: the noise [B, ...] of each port.
    """

    def __init__(self, ports: Sequence[Port], inputs: Sequence[Tensor]) -> None:
        self._left = list(zip(ports, inputs, strict=True))

    def __call__(self, how: str, shape: Sequence[Any]) -> Tensor:
        port, values = self._left.pop(0)
        return values if port.details["for_each_row"] else values[0]


class Redrawn(nn.Module):
    """Replaces an :class:`ExplorationNoise`; draws its matrices at each use.

    Args:
        shape: [L, A] of a matrix.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def of(self, batch: int) -> Tensor:
        """[B, L, A]"""
        return torch.randn(batch, *self.shape)


def redraw_matrices(module: nn.Module) -> None:
    """Make all exploration matrices within ``module`` draw at each call."""
    for owner in list(module.modules()):
        for name, child in list(owner.named_children()):
            if isinstance(child, ExplorationNoise):
                setattr(owner, name, Redrawn(child.shared.shape))
