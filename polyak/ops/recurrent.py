"""Recurrent layers over sequences with several episodes: the recurrent state is reset at the start of each.

Hochreiter and Schmidhuber 1997 with the forget gates of Gers et al. 2000 (LSTM); Cho et al. 2014, arXiv:1406.1078
(GRU). Weights are arranged as in ``torch.nn.LSTM`` (gates i, f, g, o side by side) and ``torch.nn.GRU`` (r, z, n).

:func:`lstm` and :func:`gru` are one operation each, forwards and backwards: only operations that depend on the previous
step are done step by step. :func:`lstm_steps` and :func:`gru_steps` are equivalent compositions of differentiable
operations, for second derivatives.

Shapes: T steps, B sequences, H units. Gradients end at the initial state. Several layers of the same size, each with
its own sequences, are batched: [T, G, B, ...] instead of [T, B, ...], [G, B, ...] instead of [B, ...], and weights [G,
...]; episode starts are shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

Unrolled = Callable[[Tensor, tuple[Tensor, ...], Tensor, Tensor, Tensor], tuple[Tensor, tuple[Tensor, ...]]]
"""(inputs, memory, weight, bias, keep) -> outputs, and memory after each step: the signature of the four functions
below."""


def lstm(
    inputs: Tensor, memory: tuple[Tensor, ...], weight: Tensor, bias: Tensor, keep: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """c' = f c + i g, h' = o tanh c', with i, f, o = sigmoid and g = tanh of inputs + W h + b.

    Args:
        inputs: [T, B, 4 H] the inputs' contribution to the gates.
        memory: h, c [B, H] before the first step.
        weight: W [4 H, H].
        bias: b [4 H].
        keep: [T, B] 0 where an episode begins, otherwise 1.

    Returns:
        h [T, B, H] after each step; and the recurrent state after it, h and c [T, B, H], without gradients.
    """
    hidden, cells, _ = torch.ops.polyak.lstm(inputs + bias.unsqueeze(-2), *memory, weight, keep)
    return hidden, (hidden.detach(), cells.detach())


def lstm_steps(
    inputs: Tensor, memory: tuple[Tensor, ...], weight: Tensor, bias: Tensor, keep: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Computes :func:`lstm` step by step; ``keep=None``: no episode begins."""
    h, c = memory
    units = h.shape[-1]
    outputs, cells = [], []
    for t, x in enumerate(inputs):
        if keep is not None:
            h, c = h * keep[t, :, None], c * keep[t, :, None]
        gates = x + h @ weight.mT + bias.unsqueeze(-2)
        i, f = gates[..., : 2 * units].sigmoid().chunk(2, -1)
        g, o = gates[..., 2 * units :].chunk(2, -1)
        c = f * c + i * g.tanh()
        h = o.sigmoid() * c.tanh()
        outputs.append(h)
        cells.append(c)
    hidden = in_a_row(outputs)
    return hidden, (hidden.detach(), in_a_row(cells).detach())


def gru(
    inputs: Tensor, memory: tuple[Tensor, ...], weight: Tensor, bias: Tensor, keep: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """h' = (1 - z) n + z h with r, z = sigmoid of inputs + W h + b, and n = tanh(inputs + r (W h + b)).

    Args:
        inputs: [T, B, 3 H] the inputs' contribution to the gates.
        memory: h [B, H] before the first step.
        weight: W [3 H, H].
        bias: b [3 H].
        keep: [T, B] 0 where an episode begins, otherwise 1.

    Returns:
        h [T, B, H] after each step; and the recurrent state after it, h [T, B, H], without gradients.
    """
    hidden, _ = torch.ops.polyak.gru(inputs, *memory, weight, bias, keep)
    return hidden, (hidden.detach(),)


def gru_steps(
    inputs: Tensor, memory: tuple[Tensor, ...], weight: Tensor, bias: Tensor, keep: Tensor | None
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Computes :func:`gru` step by step; ``keep=None``: no episode begins."""
    (h,) = memory
    units = h.shape[-1]
    outputs = []
    for t, x in enumerate(inputs):
        if keep is not None:
            h = h * keep[t, :, None]
        own = h @ weight.mT + bias.unsqueeze(-2)
        r, z = (x[..., : 2 * units] + own[..., : 2 * units]).sigmoid().chunk(2, -1)
        n = (x[..., 2 * units :] + r * own[..., 2 * units :]).tanh()
        h = n + z * (h - n)
        outputs.append(h)
    hidden = in_a_row(outputs)
    return hidden, (hidden.detach(),)


def in_a_row(steps: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Stacks tensors along a new dimension; a single one becomes a view."""
    return torch.stack(list(steps), dim) if len(steps) > 1 else steps[0].unsqueeze(dim)


# -- fused forward and backward ---------------------------------------------------------------------------------------


def _begun(keep: Tensor) -> list[bool]:
    """Returns whether any episode begins, for each step."""
    return (keep.min(1).values < 1).tolist()


def _before(states: Tensor, first: Tensor, keep: Tensor) -> Tensor:
    """Returns the state before each step [T, B, H]: ``first``, then the previous step's, zero where an episode begins."""
    found = torch.cat([first[None], states[:-1]])
    return found * (keep[:, None, :, None] if found.dim() == 4 else keep[..., None])


def _rows(steps: Tensor) -> Tensor:
    """Reshapes [T, B, N] to [T * B, N]; [T, G, B, N] to [G, T * B, N]."""
    return steps.movedim(0, -3).flatten(-3, -2)


def _lstm_forward(inputs: Tensor, h: Tensor, c: Tensor, weight: Tensor, keep: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns outputs and cells [T, B, H], and the gates' values [T, B, 4 H]."""
    units = h.shape[-1]
    product = torch.baddbmm if weight.dim() == 3 else torch.addmm
    # tanh(x) = 2 sigmoid(2 x) - 1, so that one function computes all gates of a step, with g's argument doubled.
    doubled = inputs.new_ones(4 * units)
    doubled[2 * units : 3 * units] = 2
    inputs, transposed = inputs * doubled, (weight * doubled[:, None]).mT
    gates = torch.empty_like(inputs, memory_format=torch.contiguous_format)
    outputs = inputs.new_empty(*inputs.shape[:-1], units)
    cells = torch.empty_like(outputs)
    parts = [part.unbind() for part in gates.unflatten(-1, (4, units)).unbind(-2)]
    steps = zip(inputs.unbind(), gates.unbind(), *parts, cells.unbind(), outputs.unbind(), strict=True)
    for t, (begins, (x, four, i, f, half_g, o, cell, output)) in enumerate(zip(_begun(keep), steps, strict=True)):
        if begins:
            h, c = h * keep[t, :, None], c * keep[t, :, None]
        product(x, h, transposed, out=four)
        four.sigmoid_()
        c = torch.mul(f, c, out=cell).sub_(i).addcmul_(i, half_g, value=2)
        h = torch.tanh(c, out=output).mul_(o)
    gates[..., 2 * units : 3 * units].mul_(2).sub_(1)
    return outputs, cells, gates


def _lstm_backward(grads: Tensor, cells: Tensor, gates: Tensor, cell: Tensor, weight: Tensor, keep: Tensor) -> Tensor:
    """Returns gradients of the gates' arguments [T, B, 4 H], from those of the outputs [T, B, H]."""
    units = grads.shape[-1]
    product = torch.bmm if weight.dim() == 3 else torch.mm
    i, f, g, o = gates.unflatten(-1, (4, units)).unbind(-2)
    squashed = cells.tanh()
    to_cell = o * (1 - squashed * squashed)
    to_i, to_f, to_g = g * i * (1 - i), _before(cells, cell, keep) * f * (1 - f), i * (1 - g * g)
    slopes = torch.stack([to_i, to_f, to_g], -2)  # derivatives of the cell by the arguments of i, f, g
    to_o = squashed * o * (1 - o)
    back = f * (keep[:, None, :, None] if f.dim() == 4 else keep[..., None])
    changes = torch.empty_like(gates)
    to_three, to_last = changes.unflatten(-1, (4, units)).split((3, 1), -2)
    parts = (grads, to_cell, slopes, to_o, back, changes, to_three, to_last.squeeze(-2))
    of_cell, of_output = torch.zeros_like(cell), torch.zeros_like(cell)
    beside = of_cell.unsqueeze(-2)
    steps = enumerate(zip(_begun(keep), *(part.unbind() for part in parts), strict=True))
    for t, (begins, grad, by_cell, by_three, by_o, goes_back, change, three, last) in reversed(list(steps)):
        of_output += grad
        of_cell.addcmul_(of_output, by_cell)
        torch.mul(beside, by_three, out=three)
        torch.mul(of_output, by_o, out=last)
        of_cell *= goes_back
        product(change, weight, out=of_output)
        if begins:
            of_output *= keep[t, :, None]
    return changes


def _gru_forward(inputs: Tensor, h: Tensor, weight: Tensor, bias: Tensor, keep: Tensor) -> tuple[Tensor, Tensor]:
    """Returns outputs [T, B, H], and r, z, n and (W h + b)_n [T, B, 4 H]."""
    units = h.shape[-1]
    product = torch.baddbmm if weight.dim() == 3 else torch.addmm
    outputs = inputs.new_empty(*inputs.shape[:-1], units)
    gates = inputs.new_empty(*inputs.shape[:-1], 4 * units)
    transposed, bias = weight.mT, bias.unsqueeze(-2)
    split = (inputs.split((2 * units, units), -1), gates.split((2 * units, units, units), -1))
    parts = [part.unbind() for some in split for part in some]
    z_parts = [part.unbind() for part in split[1][0].split(units, -1)]
    steps = zip(*parts, *z_parts, outputs.unbind(), strict=True)
    for t, (begins, (x, x_n, r_and_z, n, of_n, r, z, output)) in enumerate(zip(_begun(keep), steps, strict=True)):
        if begins:
            h = h * keep[t, :, None]
        own = product(bias, h, transposed)
        torch.add(x, own[..., : 2 * units], out=r_and_z).sigmoid_()
        of_n.copy_(own[..., 2 * units :])
        torch.addcmul(x_n, r, of_n, out=n).tanh_()
        h = torch.lerp(n, h, z, out=output)
    return outputs, gates


def _gru_backward(
    grads: Tensor, outputs: Tensor, gates: Tensor, h: Tensor, weight: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor]:
    """Returns gradients [T, B, 3 H] of the inputs' contribution to the gates, and of W h + b."""
    units = grads.shape[-1]
    product = torch.baddbmm if weight.dim() == 3 else torch.addmm
    r, z, n, of_n = gates.unflatten(-1, (4, units)).unbind(-2)
    to_z, to_n = (_before(outputs, h, keep) - n) * z * (1 - z), (1 - z) * (1 - n * n)
    to_r = to_n * of_n * r * (1 - r)
    slopes = torch.stack([to_r, to_z, to_n], -2)  # derivatives of the output by the inputs' contribution
    own_slopes = torch.stack([to_r, to_z, to_n * r], -2)
    changes = grads.new_empty(*grads.shape[:-1], 3 * units)
    of_outputs = torch.empty_like(grads)
    of_output = torch.zeros_like(h)
    parts = (grads, of_outputs, own_slopes, changes, changes.unflatten(-1, (3, units)), z)
    steps = enumerate(zip(_begun(keep), *(part.unbind() for part in parts), strict=True))
    for t, (begins, grad, total, by_three, change, three, goes_back) in reversed(list(steps)):
        torch.add(of_output, grad, out=total)
        torch.mul(total.unsqueeze(-2), by_three, out=three)
        of_output = product(total * goes_back, change, weight)
        if begins:
            of_output *= keep[t, :, None]
    return (of_outputs.unsqueeze(-2) * slopes).flatten(-2), changes


_library = torch.library.Library("polyak", "FRAGMENT")
_library.define(
    "lstm(Tensor inputs, Tensor hidden, Tensor cell, Tensor weight, Tensor keep) -> (Tensor, Tensor, Tensor)"
)
_library.define(
    "lstm_backward(Tensor grads, Tensor cells, Tensor gates, Tensor cell, Tensor weight, Tensor keep) -> Tensor"
)
_library.define("gru(Tensor inputs, Tensor hidden, Tensor weight, Tensor bias, Tensor keep) -> (Tensor, Tensor)")
_library.define(
    "gru_backward(Tensor grads, Tensor outputs, Tensor gates, Tensor hidden, Tensor weight, Tensor keep) "
    "-> (Tensor, Tensor)"
)
for _name, _function in (
    ("lstm", _lstm_forward),
    ("lstm_backward", _lstm_backward),
    ("gru", _gru_forward),
    ("gru_backward", _gru_backward),
):
    _library.impl(_name, torch.no_grad()(_function), "CompositeExplicitAutograd")


@torch.library.register_fake("polyak::lstm")
def _lstm_shapes(inputs: Tensor, hidden: Tensor, cell: Tensor, weight: Tensor, keep: Tensor) -> tuple[Tensor, ...]:
    outputs = inputs.new_empty(*inputs.shape[:-1], hidden.shape[-1])
    return outputs, torch.empty_like(outputs), inputs.new_empty(inputs.shape)


@torch.library.register_fake("polyak::lstm_backward")
def _lstm_backward_shapes(grads: Tensor, cells: Tensor, gates: Tensor, *_: Tensor) -> Tensor:
    return torch.empty_like(gates)


@torch.library.register_fake("polyak::gru")
def _gru_shapes(inputs: Tensor, hidden: Tensor, weight: Tensor, bias: Tensor, keep: Tensor) -> tuple[Tensor, ...]:
    shape, units = inputs.shape[:-1], hidden.shape[-1]
    return inputs.new_empty(*shape, units), inputs.new_empty(*shape, 4 * units)


@torch.library.register_fake("polyak::gru_backward")
def _gru_backward_shapes(grads: Tensor, outputs: Tensor, gates: Tensor, *_: Tensor) -> tuple[Tensor, ...]:
    shape = *grads.shape[:-1], 3 * grads.shape[-1]
    return grads.new_empty(shape), grads.new_empty(shape)


def _lstm_kept(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    _, hidden, cell, weight, keep = inputs
    ctx.save_for_backward(*output, hidden, cell, weight, keep)


def _lstm_gradients(ctx: Any, grads: Tensor, of_cells: Tensor, of_gates: Tensor) -> tuple[Tensor | None, ...]:
    outputs, cells, gates, hidden, cell, weight, keep = ctx.saved_tensors
    changes = torch.ops.polyak.lstm_backward(grads.contiguous(), cells, gates, cell, weight, keep)
    of_weight = _rows(changes).mT @ _rows(_before(outputs, hidden, keep))
    return changes, None, None, of_weight, None


def _gru_kept(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, ...]) -> None:
    _, hidden, weight, _, keep = inputs
    ctx.save_for_backward(*output, hidden, weight, keep)


def _gru_gradients(ctx: Any, grads: Tensor, of_gates: Tensor) -> tuple[Tensor | None, ...]:
    outputs, gates, hidden, weight, keep = ctx.saved_tensors
    changes, own = torch.ops.polyak.gru_backward(grads.contiguous(), outputs, gates, hidden, weight, keep)
    own = _rows(own)
    return changes, None, own.mT @ _rows(_before(outputs, hidden, keep)), own.sum(-2), None


torch.library.register_autograd("polyak::lstm", _lstm_gradients, setup_context=_lstm_kept, lib=_library)
torch.library.register_autograd("polyak::gru", _gru_gradients, setup_context=_gru_kept, lib=_library)
