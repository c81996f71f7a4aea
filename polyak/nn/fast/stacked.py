"""Acting with many sets of weights at once: N observations, each through a network with weights of its own.

What :mod:`polyak.nn.fast.acting` does for one network, as products of stacked matrices.

Shape letters: N rows, P parameters, F features.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyak.nn.fast.acting import ArrayActor, Chain, Plan, readable_chain
from polyak.nn.fast.array_layers import ACTIVATIONS, Call, leaves, network
from polyak.nn.fast.watch import Watch


class StackedActor(ArrayActor):
    """The acting network of a policy with N sets of parameters, on views of a matrix that holds them.

    Args:
        policy: whose network it is.
        chain: the network.
        watch: notices when it is another.
        weights: [N, P] of the policy's parameters that can be trained, in their order; read anew for each action.
    """

    def __init__(self, policy: Any, chain: Chain, watch: Watch, weights: np.ndarray) -> None:
        super().__init__(policy, chain, watch)
        self._views: dict[int, np.ndarray] = {}
        place = 0
        for parameter in policy.parameters():
            if parameter.requires_grad:
                part = weights[:, place : place + parameter.numel()]
                self._views[id(parameter)] = part.reshape(len(weights), *parameter.shape)
                place += parameter.numel()

    def _make_plan(self, batch: int, draws: bool = True) -> Plan:
        inputs = self._blank(batch)
        values, calls = network(self._chain.layers, inputs, make_linear=self._linear)
        return Plan(self._as_given(inputs), calls, self._chain.head(values, self._action_shape))

    def _linear(self, layer: nn.Linear, inputs: Tensor, draws: bool) -> tuple[Tensor, list[Call]]:
        """Inputs [N, F] to outputs [N, outputs], each row by a matrix of its own."""
        outputs = torch.zeros(len(inputs), layer.out_features)
        x, y = inputs.numpy()[:, :, None], outputs.numpy()[:, :, None]
        calls: list[Call] = [partial(np.matmul, self._of(layer.weight), x, y)]
        if layer.bias is not None:
            calls.append(partial(np.add, outputs.numpy(), self._of(layer.bias), outputs.numpy()))
        return outputs, calls

    def _of(self, parameter: Tensor) -> np.ndarray:
        """[N, *shape], or [*shape] of one that is frozen, and so the same for all."""
        view = self._views.get(id(parameter))
        return parameter.detach().numpy() if view is None else view


def stacked_actor(policy: Any, weights: Tensor) -> StackedActor | None:
    """A :class:`StackedActor` for the policy as it is now, with weights [N, P]; ``None`` if they are not on the CPU, or
    actions do not come from linear layers and activations alone."""
    found = readable_chain(policy)
    if found is None or found[0].weights or weights.device.type != "cpu":
        return None
    layers = leaves(found[0].layers) or ()
    if not all(type(layer) is nn.Linear or type(layer) in ACTIVATIONS for layer in layers):
        return None
    return StackedActor(policy, *found, weights.numpy())
