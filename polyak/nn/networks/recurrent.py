"""Recurrent layers: LSTM and GRU, over sequences and step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.ops.recurrent import Unrolled, gru, gru_steps, in_a_row, lstm, lstm_steps

KINDS: dict[str, tuple[int, tuple[str, ...], Unrolled, Any]] = {
    "lstm": (4, ("hidden", "cell"), lstm, lstm_steps),
    "gru": (3, ("hidden",), gru, gru_steps),
}
"""Kind -> how many gates; its recurrent state; its sequences in one operation, and step by step."""


class Recurrent(nn.Module):
    """Layers of LSTM or GRU cells one above the other, with the parameters of ``torch.nn.LSTM`` or ``torch.nn.GRU``.

    Shapes: T steps, B sequences, F inputs, K layers, H units.

    Args:
        kind: ``"lstm"`` or ``"gru"``.
        inputs: F.
        units: H.
        layers: K.
        dropout: probability that an output of a layer, except the last, is dropped before the next one, in training.

    Attributes:
        in_operations: step by step in operations that can be differentiated twice, which takes longer.
    """

    def __init__(self, kind: str, inputs: int, units: int, layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout
        self.kind, self.units, self.layers, self.in_operations = kind, units, layers, False
        gates, self.names, self._whole, self._steps = KINDS[kind]
        for k in range(layers):
            for name, shape in (
                ("weight_ih", (gates * units, units if k else inputs)),
                ("weight_hh", (gates * units, units)),
                ("bias_ih", (gates * units,)),
                ("bias_hh", (gates * units,)),
            ):
                self.register_parameter(f"{name}_l{k}", nn.Parameter(torch.empty(shape)))
        bound = 1 / math.sqrt(units)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def weights(self, layer: int) -> tuple[Tensor, ...]:
        """Returns a layer's weights from inputs [gates, F] and from its recurrent state [gates, H], and their biases
        [gates]."""
        names = (f"{name}_l{layer}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        return tuple(getattr(self, name) for name in names)

    def initial(self, batch: int) -> dict[str, Tensor]:
        """The initial recurrent state of B sequences, by name: zeros [B, K, H]."""
        device = self.weights(0)[0].device
        return {name: torch.zeros(batch, self.layers, self.units, device=device) for name in self.names}

    def forward(
        self, inputs: Tensor, memory: dict[str, Tensor], keep: Tensor | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Sequences.

        Args:
            inputs: [T, B, F].
            memory: before the first step, by name: [B, K, H].
            keep: [T, B] 0 where an episode begins, elsewhere 1; ``None``: none begins.

        Returns:
            outputs [T, B, H]; the recurrent state after each step, by name [T, B, K, H], without gradients.
        """
        outputs, then = side_by_side([self], [inputs], [memory], keep)[0]
        return outputs, then

    def step(self, inputs: Tensor, memory: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        """Computes one step of B sequences: inputs [B, F] -> outputs [B, H], and the recurrent state after it."""
        outputs, memory = self(inputs[None], memory)
        return outputs[0], {name: states[0] for name, states in memory.items()}

    def runs(self, inputs: Tensor, memory: dict[str, Tensor], starts: Tensor, length: int) -> Tensor:
        """Rows that are sequences of ``length`` steps one after another.

        Args:
            inputs: [R, F].
            memory: before each row, by name [R, K, H]; read at the first of each sequence.
            starts: [R] whether an episode begins with the row.
            length: a divisor of R.

        Returns:
            outputs [R, H].
        """
        return runs_side_by_side([self], [inputs], [memory], starts, length)[0]

    def resembles(self, other: Recurrent) -> bool:
        """Whether both can run in one operation."""
        mine, others = ((m.kind, m.units, m.layers, m.dropout, m.in_operations) for m in (self, other))
        return mine == others


def side_by_side(
    cores: Sequence[Recurrent], inputs: Sequence[Tensor], memories: Sequence[dict[str, Tensor]], keep: Tensor | None
) -> list[tuple[Tensor, dict[str, Tensor]]]:
    """Computes the outputs of each of ``cores``, which have equal sizes, for its own sequences: see
    :meth:`Recurrent.forward`.

    A step of all of them is one operation, so that two take little longer than one.
    """
    core, several = cores[0], len(cores) > 1
    # The operation for whole sequences prepares the weights first, which does not pay for one step.
    run: Any = core._steps if core.in_operations or len(inputs[0]) == 1 else core._whole
    if keep is None and run is core._whole:
        keep = inputs[0].new_ones(inputs[0].shape[:2])
    then: list[tuple[Tensor, ...]] = []
    for k in range(core.layers):
        if k and core.dropout:
            inputs = [nn.functional.dropout(x, core.dropout, core.training) for x in inputs]
        weights = [c.weights(k) for c in cores]
        brought = [nn.functional.linear(x, own[0], own[2]) for x, own in zip(inputs, weights, strict=True)]
        first = [[memory[name][:, k] for memory in memories] for name in core.names]
        recurrent, biases = [own[1] for own in weights], [own[3] for own in weights]
        if several:
            begin = tuple(torch.stack(each) for each in first)
            outputs, states = run(torch.stack(brought, 1), begin, torch.stack(recurrent), torch.stack(biases), keep)
            inputs = outputs.unbind(1)
        else:
            outputs, states = run(brought[0], tuple(each[0] for each in first), recurrent[0], biases[0], keep)
            inputs = [outputs]
        then.append(states)
    by_name = {name: in_a_row(parts, -2) for name, parts in zip(core.names, zip(*then, strict=True), strict=True)}
    if not several:
        return [(inputs[0], by_name)]
    return [(own, {name: state[:, g] for name, state in by_name.items()}) for g, own in enumerate(inputs)]


def runs_side_by_side(
    cores: Sequence[Recurrent],
    inputs: Sequence[Tensor],
    memories: Sequence[dict[str, Tensor]],
    starts: Tensor,
    length: int,
) -> list[Tensor]:
    """The outputs of each of ``cores``, which have equal sizes, for its own rows: see :meth:`Recurrent.runs`."""
    steps = [x.unflatten(0, (-1, length)).transpose(0, 1) for x in inputs]
    keep = 1 - starts.to(inputs[0].dtype).unflatten(0, (-1, length)).t()
    first = [{name: value[::length] for name, value in memory.items()} for memory in memories]
    return [outputs.transpose(0, 1).flatten(0, 1) for outputs, _ in side_by_side(cores, steps, first, keep)]


def prefixed(prefix: str, memory: dict[str, Tensor]) -> dict[str, Tensor]:
    """Returns the recurrent state with prefixed names, for a policy with several recurrent layers."""
    return {prefix + name: value for name, value in memory.items()}


def part_of(prefix: str, memory: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of :func:`prefixed`; other names are left out."""
    return {name[len(prefix) :]: value for name, value in memory.items() if name.startswith(prefix)}


def check_memory(memory: str, size: int, layers: int, max_seq_len: int | None, dropout: float = 0.0) -> None:
    """Check the options of a recurrent policy.

    Raises:
        PolicyError: naming the option, its value and its range.
    """
    if memory not in KINDS:
        raise PolicyError(f"memory must be one of {sorted(KINDS)}, or left out for a policy without, got {memory!r}.")
    for name, value in (("memory_size", size), ("memory_layers", layers), ("max_seq_len", max_seq_len)):
        if name == "max_seq_len" and value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise PolicyError(f"{name} must be a positive integer, got {value!r}.")
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise PolicyError(f"memory_dropout must be a number in [0, 1), got {dropout!r}.")
    if dropout and layers == 1:
        raise PolicyError(f"memory_dropout={dropout} lies between layers: it needs memory_layers of at least 2, got 1.")
