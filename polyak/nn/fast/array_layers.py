"""Layers and action heads with numpy, on views of torch's weights and in arrays that are allocated once.

Used by :mod:`polyak.nn.fast.acting`. A layer becomes calls without arguments, to be made in order at every step. Random
numbers come from torch's global generator through the calls that :mod:`polyak.nn.distributions` makes, on tensors of
the same shapes: the draws are the same, and so is the generator's state afterwards.

Shape letters: B batch, A action dimensions, L latent features, N outputs of a layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polyak.nn.distributions.discrete import CERTAIN
from polyak.nn.distributions.exploration_noise import ExplorationNoise
from polyak.nn.distributions.state_dependent import StateDependentGaussianFamily
from polyak.nn.networks.batch_renorm import BatchRenorm1d
from polyak.nn.networks.encoders import FlattenExtractor
from polyak.nn.networks.noisy import NoisyLinear
from polyak.nn.networks.recall import RecurrentExtractor
from polyak.nn.networks.recurrent import Recurrent
from polyak.nn.networks.residual import ResidualBlock, RunningNorm
from polyak.nn.networks.streams import CosineEmbedding, Dueling
from polyak.ops.distributional import midpoints

TORCH_PRODUCT = 250_000
"""Multiplications in one layer (B x inputs x outputs) from which torch's matrix product is faster than numpy's, though
it costs 2 us more to call: numpy has quick kernels for small matrices only. Measured; one row is always numpy's."""

Call = Callable[[], Any]
LayerMaker = Callable[[Any, Tensor, bool], tuple[Tensor, list[Call]]]
"""(layer, inputs [B, F], whether to draw noise) -> the tensor that will hold its output, and the calls that fill it."""

# --- layers ---------------------------------------------------------------------------------------------------------


def leaves(modules: Iterable[nn.Module]) -> list[nn.Module] | None:
    """Layers and activations in the order in which they are applied; ``None`` if there is one without an array form."""
    found: list[nn.Module] = []
    for module in modules:
        if type(module) in LAYERS or type(module) in ACTIVATIONS or type(module) is Recurrent:
            if isinstance(module, BatchRenorm1d) and module.training:
                return None
            if isinstance(module, Dueling | ResidualBlock) and leaves(module.children()) is None:
                return None
            found.append(module)
        elif type(module) is RecurrentExtractor:
            inner = leaves((module.extractor, module.core))
            if inner is None:
                return None
            found += inner
        elif isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            inner = leaves(module)
            if inner is None:
                return None
            found += inner
        elif type(module) is not FlattenExtractor:
            return None
    return found


def network(
    modules: Iterable[nn.Module],
    inputs: Tensor,
    draws: bool = False,
    memories: Mapping[nn.Module, Mapping[str, Tensor]] = MappingProxyType({}),
    make_linear: LayerMaker | None = None,
) -> tuple[Tensor, list[Call]]:
    """Modules made of :func:`leaves`: the tensor that will hold their output for flat ``inputs``, and the calls that
    fill it; ``inputs`` stay as they are.

    Args:
        modules: applied one after another.
        inputs: [B, F].
        draws: noisy layers draw noise.
        memories: of those modules that remember, by name [B, K, H]: the calls move them on.
        make_linear: in place of :func:`linear`.
    """
    values, calls = inputs, []
    makers = LAYERS if make_linear is None else {**LAYERS, nn.Linear: make_linear}
    for layer in leaves(modules) or ():
        if isinstance(layer, Recurrent):
            values, more = recurrent(layer, values, memories[layer])
            calls += more
            continue
        if type(layer) in makers:
            values, more = makers[type(layer)](layer, values, draws)
            calls += more
            continue
        if values is inputs:
            values = torch.empty_like(inputs)
            calls.append(partial(np.copyto, values.numpy(), inputs.numpy()))
        calls += activation(layer, values)
    return values, calls


def linear(layer: nn.Linear, inputs: Tensor, draws: bool = False) -> tuple[Tensor, list[Call]]:
    """A linear layer: the tensor [B, N] that will hold its output for ``inputs``, and the calls that fill it."""
    return product(layer.weight, layer.bias, inputs)


def product(weight: Tensor, bias: Tensor | None, inputs: Tensor) -> tuple[Tensor, list[Call]]:
    """``inputs [B, F] @ weight [N, F]^T + bias [N]``: the tensor [B, N] that will hold it, and the calls."""
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    batch, width = len(inputs), len(weight)
    outputs = torch.zeros(batch, width)
    if batch > 1 and batch * weight.numel() > TORCH_PRODUCT:
        if bias is None:
            return outputs, [partial(torch.mm, inputs, weight.t(), out=outputs)]
        return outputs, [partial(torch.addmm, bias, inputs, weight.t(), out=outputs)]
    x, w, y = inputs.numpy(), weight.numpy(), outputs.numpy()
    if batch == 1:  # vectors: less to check than with matrices
        x, y = x[0], y[0]
    calls: list[Call] = [partial(w.dot, x, y) if batch == 1 else partial(x.dot, w.T, y)]
    if bias is not None:
        calls.append(partial(np.add, y, bias.numpy(), y))
    return outputs, calls


def normalisation(layer: BatchRenorm1d, inputs: Tensor, draws: bool) -> tuple[Tensor, list[Call]]:
    """Batch renormalisation by the running statistics as they are when the calls are made: as :func:`linear`."""
    mean, var, scale, bias = (t.detach().numpy() for t in (layer.ra_mean, layer.ra_var, layer.scale, layer.bias))
    outputs, factor = torch.empty_like(inputs), np.empty_like(var)
    x, y = (inputs.numpy()[0], outputs.numpy()[0]) if len(inputs) == 1 else (inputs.numpy(), outputs.numpy())
    calls: list[Call] = [
        partial(np.add, var, np.full_like(var, layer.eps), factor),
        partial(np.sqrt, factor, factor),
        partial(np.divide, scale if layer.affine else np.ones_like(var), factor, factor),
        partial(np.subtract, x, mean, y),
        partial(np.multiply, y, factor, y),
    ]
    return outputs, [*calls, partial(np.add, y, bias, y)] if layer.affine else calls


def running_norm(layer: RunningNorm, inputs: Tensor, draws: bool) -> tuple[Tensor, list[Call]]:
    """Standardisation by the statistics as they are when the calls are made: as :func:`linear`."""
    mean, var = layer.mean.numpy(), layer.var.numpy()
    outputs, factor = torch.empty_like(inputs), np.empty_like(var)
    y = outputs.numpy()
    return outputs, [
        partial(np.add, var, np.full_like(var, layer.eps), factor),
        partial(np.sqrt, factor, factor),
        partial(np.subtract, inputs.numpy(), mean, y),
        partial(np.divide, y, factor, y),
    ]


def layer_norm(layer: nn.LayerNorm, inputs: Tensor, draws: bool) -> tuple[Tensor, list[Call]]:
    """Layer normalisation of the last dimension, by torch: as :func:`linear`."""
    outputs = torch.empty_like(inputs)
    weight, bias = (None if t is None else t.detach() for t in (layer.weight, layer.bias))
    shape, eps = list(layer.normalized_shape), layer.eps
    return outputs, [lambda: outputs.copy_(torch.layer_norm(inputs, shape, weight, bias, eps))]


def residual(layer: ResidualBlock, inputs: Tensor, draws: bool) -> tuple[Tensor, list[Call]]:
    """x + MLP(LayerNorm(x))."""
    change, calls = network(layer.children(), inputs, draws)
    outputs = torch.empty_like(inputs)
    return outputs, [*calls, partial(np.add, inputs.numpy(), change.numpy(), outputs.numpy())]


def noisy(layer: NoisyLinear, inputs: Tensor, draws: bool) -> tuple[Tensor, list[Call]]:
    """A noisy layer: ``W x + b + f_out * (S_w (f_in * x) + s_b)`` with factors that are drawn before each product."""
    outputs, calls = linear(layer, inputs)
    if not draws:
        return outputs, calls
    factors = [torch.empty(layer.in_features), torch.empty(layer.out_features)]
    before, after = (factor.numpy() for factor in factors)
    scaled = torch.empty_like(inputs)
    noise, products = product(layer.weight_scale, layer.bias_scale, scaled)

    def draw() -> None:
        for factor in factors:
            array = factor.normal_().numpy()
            np.copysign(np.sqrt(np.abs(array)), array, out=array)

    y, extra = outputs.numpy(), noise.numpy()
    calls += [draw, partial(np.multiply, inputs.numpy(), before, scaled.numpy()), *products]
    return outputs, [*calls, partial(np.multiply, extra, after, extra), partial(np.add, y, extra, y)]


def dueling(layer: Dueling, inputs: Tensor, draws: bool) -> tuple[Tensor, list[Call]]:
    """Two streams: Q = V + A - mean A."""
    values, calls = network([layer.value], inputs, draws)
    advantages, more = network([layer.advantage], inputs, draws)
    outputs = torch.empty_like(advantages)
    shape = (len(inputs), values.shape[1], layer.n_actions)
    a, q = advantages.numpy().reshape(shape), outputs.numpy().reshape(shape)
    v = values.numpy()[:, :, None]

    def combine() -> None:
        np.subtract(a, a.mean(2, keepdims=True), q)
        np.add(q, v, q)

    return outputs, [*more, *calls, combine]


def recurrent(layer: Recurrent, inputs: Tensor, memory: Mapping[str, Tensor]) -> tuple[Tensor, list[Call]]:
    """One step of LSTM or GRU layers, which moves ``memory`` [B, K, H] on: as :func:`linear`. By torch, whose sigmoid
    takes half as long as numpy's."""
    calls: list[Call] = []
    for k in range(layer.layers):
        states = tuple(memory[name][:, k] for name in layer.names)
        inputs, more = _CELLS[layer.kind](layer.weights(k), inputs, states)
        calls += more
    return inputs, calls


def _lstm(weights: Sequence[Tensor], inputs: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, list[Call]]:
    from_inputs, from_memory, bias, own_bias = weights
    hidden, cell = states
    found = hidden.clone(memory_format=torch.contiguous_format)
    gates, bringing = product(from_inputs, bias, inputs)
    own, recalling = product(from_memory, own_bias, found)
    i_and_f, g, o = gates.split((2 * hidden.shape[1], hidden.shape[1], hidden.shape[1]), 1)
    i, f = i_and_f.chunk(2, 1)
    return hidden, [
        *bringing,
        partial(found.copy_, hidden),
        *recalling,
        partial(gates.add_, own),
        i_and_f.sigmoid_,
        g.tanh_,
        o.sigmoid_,
        partial(cell.mul_, f),
        partial(cell.addcmul_, i, g),
        partial(torch.tanh, cell, out=hidden),
        partial(hidden.mul_, o),
    ]


def _gru(weights: Sequence[Tensor], inputs: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, list[Call]]:
    from_inputs, from_memory, bias, own_bias = weights
    (hidden,) = states
    units = hidden.shape[1]
    found = hidden.clone(memory_format=torch.contiguous_format)
    brought, bringing = product(from_inputs, bias, inputs)
    own, recalling = product(from_memory, own_bias, found)
    r_and_z, n = brought.split((2 * units, units), 1)
    r, z = r_and_z.chunk(2, 1)
    return hidden, [
        *bringing,
        partial(found.copy_, hidden),
        *recalling,
        partial(r_and_z.add_, own[:, : 2 * units]),
        r_and_z.sigmoid_,
        partial(n.addcmul_, r, own[:, 2 * units :]),
        n.tanh_,
        partial(torch.lerp, n, found, z, out=hidden),
    ]


_CELLS = {"lstm": _lstm, "gru": _gru}

LAYERS: dict[type[nn.Module], LayerMaker] = {
    nn.Linear: linear,
    NoisyLinear: noisy,
    Dueling: dueling,
    BatchRenorm1d: normalisation,
    RunningNorm: running_norm,
    ResidualBlock: residual,
    nn.LayerNorm: layer_norm,
}
"""What becomes a new tensor, by exact class."""


def activation(layer: nn.Module, values: Tensor) -> list[Call]:
    """The calls that apply an activation to ``values`` in place.

    Raises:
        KeyError: it is not in :data:`ACTIVATIONS`.
    """
    return ACTIVATIONS[type(layer)](layer, values)


def _nothing(layer: nn.Module, values: Tensor) -> list[Call]:
    return []


def _tanh(layer: nn.Module, values: Tensor) -> list[Call]:
    flat = values.numpy().reshape(-1)
    return [partial(np.tanh, flat, flat)]


def _relu(layer: nn.Module, values: Tensor) -> list[Call]:
    flat = values.numpy().reshape(-1)
    return [partial(np.maximum, flat, np.zeros_like(flat), out=flat)]  # an array of zeros is quicker than one zero


def _by_torch(layer: nn.Module, values: Tensor) -> list[Call]:
    forward = type(layer).forward
    return [lambda: values.copy_(forward(layer, values))]


_LEFT_TO_TORCH: tuple[type[nn.Module], ...] = (
    nn.CELU,
    nn.ELU,
    nn.GELU,
    nn.Hardswish,
    nn.Hardtanh,
    nn.LeakyReLU,
    nn.Mish,
    nn.ReLU6,
    nn.SELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.Softsign,
)

ACTIVATIONS: dict[type[nn.Module], Callable[[nn.Module, Tensor], list[Call]]] = {
    nn.Identity: _nothing,
    nn.ReLU: _relu,
    nn.Tanh: _tanh,
    **dict.fromkeys(_LEFT_TO_TORCH, _by_torch),
}
"""Activations without parameters, by their exact class."""


# --- heads ----------------------------------------------------------------------------------------------------------


class Head(ABC):
    """Actions from the network's output.

    Args:
        outputs: [B, N], filled anew before each call.
        shape: of one action; flat actions are brought into it.
    """

    takes_masks: bool = False
    """Whether it has choices, which :meth:`allow` limits."""

    def __init__(self, outputs: Tensor, shape: tuple[int, ...]) -> None:
        self.outputs = outputs.numpy()
        self.shape = (len(outputs), *shape) if len(shape) != 1 else None

    @abstractmethod
    def sample(self) -> np.ndarray:
        """New array of random actions [B, ...]."""

    @abstractmethod
    def mode(self) -> np.ndarray:
        """New array of the likeliest actions [B, ...]."""

    def allow(self, masks: np.ndarray) -> None:
        """Limit the next actions to what masks [B, M] allow; the outputs have been filled already."""
        raise NotImplementedError

    def shaped(self, actions: np.ndarray) -> np.ndarray:
        """[B, A] -> [B, *shape]."""
        return actions if self.shape is None else actions.reshape(self.shape)


class ValueHead(Head):
    """The action of the highest value of those allowed: [B] int64."""

    takes_masks = True
    masks: np.ndarray | None = None

    def allow(self, masks: np.ndarray) -> None:
        self.masks = masks

    def best(self, values: np.ndarray) -> np.ndarray:
        """Values [B, N] -> [B]"""
        if self.masks is not None:
            values, self.masks = np.where(self.masks, values, -np.inf), None
        return values.argmax(1)


class GreedyHead(ValueHead):
    """The action of the highest value [B, N] -> [B] int64."""

    def mode(self) -> np.ndarray:
        return self.best(self.outputs)

    sample = mode


class QuantileHead(ValueHead):
    """The action of the highest mean of its quantiles [B, N * A] -> [B] int64."""

    def __init__(self, outputs: Tensor, shape: tuple[int, ...], n_quantiles: int) -> None:
        super().__init__(outputs, shape)
        self.quantiles = self.outputs.reshape(len(outputs), n_quantiles, -1)

    def mode(self) -> np.ndarray:
        return self.best(self.quantiles.mean(1))

    sample = mode


class CategoricalValueHead(ValueHead):
    """The action of the highest expected return, from logits [B, K * A] of the atoms ``support`` [K]: [B] int64."""

    def __init__(self, outputs: Tensor, shape: tuple[int, ...], support: Tensor) -> None:
        super().__init__(outputs, shape)
        self.logits = self.outputs.reshape(len(outputs), len(support), -1)
        self.support = support.numpy()[:, None]

    def mode(self) -> np.ndarray:
        odds = np.exp(self.logits - self.logits.max(1, keepdims=True))
        return self.best((odds * self.support).sum(1) / odds.sum(1))

    sample = mode


class ImplicitHead(ValueHead):
    """The action of the highest mean of some quantiles, implicit ones, from latents [B, F]: [B] int64.

    Args:
        outputs: latents.
        shape: of one action.
        embedding: makes features of the quantiles' levels.
        q_net: makes quantiles of latents times those features.
        n_samples: how many quantiles.
    """

    def __init__(
        self, outputs: Tensor, shape: tuple[int, ...], embedding: CosineEmbedding, q_net: nn.Module, n_samples: int
    ) -> None:
        super().__init__(outputs, shape)
        batch, width = outputs.shape
        self.latents = self.outputs[:, None]
        self.levels = torch.empty(batch, n_samples)
        cosines = torch.empty(batch * n_samples, len(embedding.numbers))
        self.cosines, self.numbers = cosines.numpy(), embedding.numbers.numpy()
        features, self.calls = network([embedding.linear, nn.ReLU()], cosines)
        self.features = features.numpy().reshape(batch, n_samples, width)
        self.networks = {draws: network([q_net], features, draws) for draws in (False, True)}
        self.even = midpoints(n_samples).expand(batch, -1)

    def sample(self) -> np.ndarray:
        return self._greedy(self.levels.uniform_(), True)

    def mode(self) -> np.ndarray:
        return self._greedy(self.even, False)

    def _greedy(self, levels: Tensor, draws: bool) -> np.ndarray:
        np.cos(levels.numpy().reshape(-1, 1) * self.numbers, self.cosines)
        for call in self.calls:
            call()
        np.multiply(self.features, self.latents, self.features)
        quantiles, calls = self.networks[draws]
        for call in calls:
            call()
        return self.best(quantiles.numpy().reshape(*self.features.shape[:2], -1).mean(1))


class DeterministicHead(Head):
    """The network's output itself: [B, A]."""

    def mode(self) -> np.ndarray:
        return self.shaped(self.outputs.copy())

    sample = mode


class BestProposalHead(Head):
    """What several actors propose, each to a critic of its own: of these actions that of the highest value, [B, A].

    Args:
        outputs: flat observations [B, F].
        shape: of one action.
        pairs: the layers of each actor, from observations to actions; those of its critic's features, from
            observations; and those of its critic, from features and actions side by side to one value.
    """

    def __init__(self, outputs: Tensor, shape: tuple[int, ...], pairs: Sequence[Sequence[Sequence[nn.Module]]]) -> None:
        super().__init__(outputs, shape)
        self.calls: list[Call] = []
        self.proposals: list[np.ndarray] = []
        self.values: list[np.ndarray] = []
        self.rows = np.arange(len(outputs))
        for actor, extractor, critic in pairs:
            actions, acting = network(actor, outputs)
            features, extracting = network(extractor, outputs)
            inputs = torch.empty(len(outputs), features.shape[1] + actions.shape[1])
            value, judging = network(critic, inputs)
            for_features, for_actions = np.split(inputs.numpy(), [features.shape[1]], axis=1)
            joining = [
                partial(np.copyto, for_features, features.numpy()),
                partial(np.copyto, for_actions, actions.numpy()),
            ]
            self.calls += [*acting, *extracting, *joining, *judging]
            self.proposals.append(actions.numpy())
            self.values.append(value.numpy())

    def mode(self) -> np.ndarray:
        for call in self.calls:
            call()
        best = np.concatenate(self.values, axis=1).argmax(1)
        return self.shaped(np.stack(self.proposals)[best, self.rows])

    sample = mode


class ChoiceHead(Head):
    """Choices by logits [B, M], all that can be chosen side by side."""

    takes_masks = True

    def allow(self, masks: np.ndarray) -> None:
        np.putmask(self.outputs, ~masks, -np.inf)


class CategoricalHead(ChoiceHead):
    """One choice among N by its logits: [B] int64."""

    def __init__(self, outputs: Tensor, shape: tuple[int, ...], sparse: bool = False) -> None:
        super().__init__(outputs, shape)
        self.choice = _SparseChoice(self.outputs) if sparse else _Choice(self.outputs)

    def sample(self) -> np.ndarray:
        return self.choice()

    def mode(self) -> np.ndarray:
        return self.outputs.argmax(1)


class MultiCategoricalHead(ChoiceHead):
    """Several choices, the i-th among ``sizes[i]``, from their logits side by side: [B, A] int64."""

    def __init__(self, outputs: Tensor, shape: tuple[int, ...], sizes: Sequence[int], sparse: bool = False) -> None:
        super().__init__(outputs, shape)
        self.logits = np.split(self.outputs, np.cumsum(sizes)[:-1], axis=1)
        self.choices = [_SparseChoice(logits) if sparse else _Choice(logits) for logits in self.logits]

    def sample(self) -> np.ndarray:
        return self.shaped(np.stack([choose() for choose in self.choices], axis=1))

    def mode(self) -> np.ndarray:
        return self.shaped(np.stack([logits.argmax(1) for logits in self.logits], axis=1))


class BernoulliHead(Head):
    """Independent coins by their log-odds: [B, A] float32, 0 or 1."""

    takes_masks = True

    def __init__(self, outputs: Tensor, shape: tuple[int, ...]) -> None:
        super().__init__(outputs, shape)
        self.log_odds = outputs
        self.draw, self.probs = torch.empty_like(outputs), torch.empty_like(outputs)

    def allow(self, masks: np.ndarray) -> None:
        np.putmask(self.outputs, ~masks[:, 1::2], -CERTAIN)
        np.putmask(self.outputs, ~masks[:, 0::2], CERTAIN)

    def sample(self) -> np.ndarray:
        torch.sigmoid(self.log_odds, out=self.probs)
        return (self.draw.uniform_().numpy() < self.probs.numpy()).astype(np.float32)

    def mode(self) -> np.ndarray:
        return (self.outputs > 0).astype(np.float32)


class GaussianHead(Head):
    """Independent Gaussians of the means [B, A] and one log standard deviation [A] for all states: [B, A]."""

    def __init__(self, outputs: Tensor, shape: tuple[int, ...], log_std: Tensor) -> None:
        super().__init__(outputs, shape)
        self.log_std, self.draw = log_std.detach().numpy(), torch.empty_like(outputs)
        self.noise, self.std = self.draw.numpy(), np.empty_like(self.log_std)

    def sample(self) -> np.ndarray:
        self.draw.normal_()
        np.exp(self.log_std, self.std)
        np.multiply(self.noise, self.std, self.noise)
        return self.shaped(self.outputs + self.noise)

    def mode(self) -> np.ndarray:
        return self.shaped(self.outputs.copy())


class ProductHead(Head):
    """Independent parts of an action, each with a head of its own: [B, W] float32, their actions side by side.

    Args:
        outputs: those of the parts side by side.
        shape: of one action.
        parts: how many outputs each part takes, and what makes its head.
    """

    def __init__(
        self, outputs: Tensor, shape: tuple[int, ...], parts: Sequence[tuple[int, Callable[..., Head]]]
    ) -> None:
        super().__init__(outputs, shape)
        columns = outputs.split([size for size, _ in parts], dim=1)
        self.heads = [make(part, part.shape[1:]) for part, (_, make) in zip(columns, parts, strict=True)]
        self.choosing = [head for head in self.heads if head.takes_masks]
        sizes = [head.outputs.shape[1] * (2 if isinstance(head, BernoulliHead) else 1) for head in self.choosing]
        self.ends = np.cumsum(sizes)[:-1]
        self.takes_masks = bool(self.choosing)

    def allow(self, masks: np.ndarray) -> None:
        for head, part in zip(self.choosing, np.split(masks, self.ends, axis=1), strict=True):
            head.allow(part)

    def sample(self) -> np.ndarray:
        return self.joined([head.sample() for head in self.heads])

    def mode(self) -> np.ndarray:
        return self.joined([head.mode() for head in self.heads])

    def joined(self, actions: list[np.ndarray]) -> np.ndarray:
        """[B] or [B, width] of each part -> [B, W]"""
        rows = len(self.outputs)
        return np.concatenate([part.reshape(rows, -1) for part in actions], axis=1, dtype=np.float32)


class SquashedGaussianHead(Head):
    """tanh of independent Gaussians whose means and log standard deviations are functions of the latents: [B, A].

    Args:
        outputs: latents [B, L].
        shape: of one action.
        mean: from latents to means.
        log_std: from latents to log standard deviations.
        bounds: least and greatest log standard deviation.
    """

    def __init__(
        self, outputs: Tensor, shape: tuple[int, ...], mean: nn.Module, log_std: nn.Module, bounds: tuple[float, float]
    ) -> None:
        super().__init__(outputs, shape)
        means, self.mean_calls = network([mean], outputs)
        scales, self.scale_calls = network([log_std], outputs)
        self.draw = torch.empty_like(means)
        self.means, self.scales, self.noise = means.numpy(), scales.numpy(), self.draw.numpy()
        self.low, self.high = (np.full_like(self.scales, bound) for bound in bounds)

    def sample(self) -> np.ndarray:
        for call in self.mean_calls:
            call()
        for call in self.scale_calls:
            call()
        self.draw.normal_()
        scales, noise = self.scales, self.noise
        np.maximum(scales, self.low, out=scales)
        np.minimum(scales, self.high, out=scales)
        np.exp(scales, scales)
        np.multiply(noise, scales, noise)
        np.add(noise, self.means, noise)
        return self.shaped(np.tanh(noise))

    def mode(self) -> np.ndarray:
        for call in self.mean_calls:
            call()
        return self.shaped(np.tanh(self.means))


class StateDependentHead(Head):
    """Gaussians whose noise is a linear function of the latents that stays the same between two draws, gSDE: [B, A].

    Args:
        outputs: latents [B, L].
        shape: of one action.
        mean: from latents to means.
        log_std: log standard deviations [L, A] or [L, 1].
        family: says what becomes of means and noise.
        draws: behind the exploration matrices.
    """

    def __init__(
        self,
        outputs: Tensor,
        shape: tuple[int, ...],
        mean: nn.Module,
        log_std: Tensor,
        family: StateDependentGaussianFamily,
        draws: ExplorationNoise,
    ) -> None:
        super().__init__(outputs, shape)
        means, self.calls = network([mean], outputs)
        self.means, self.log_std, self.family, self.draws = means.numpy(), log_std.detach().numpy(), family, draws

    def sample(self) -> np.ndarray:
        theta = self.draws.of(len(self.outputs)).numpy() * self._std()
        if theta.ndim == 2:
            noise = self.outputs @ theta
        else:
            noise = np.matmul(self.outputs[:, None], theta)[:, 0]
        return self._squash(np.add(noise, self.mean(), noise))

    def mode(self) -> np.ndarray:
        return self._squash(self.mean().copy())

    def mean(self) -> np.ndarray:
        """Means [B, A]; the array is filled anew by the next call."""
        for call in self.calls:
            call()
        return self.means

    def _std(self) -> np.ndarray:
        """[L, A] or [L, 1]"""
        log_std = self.log_std
        if not self.family.use_expln:
            return np.exp(log_std)
        return np.where(log_std > 0, np.log1p(np.maximum(log_std, 0)) + 1, np.exp(np.minimum(log_std, 0)))

    def _squash(self, actions: np.ndarray) -> np.ndarray:
        return self.shaped(np.tanh(actions, actions) if self.family.squash else actions)


class _Choice:
    """Draws from logits [B, N]: the largest logit plus Gumbel noise, -log of an exponential variable."""

    def __init__(self, logits: np.ndarray) -> None:
        self.logits = logits
        self.draw = torch.empty(logits.shape)
        self.noise = self.draw.numpy()
        self.least = np.full_like(self.noise, np.finfo(np.float32).tiny)

    def __call__(self) -> np.ndarray:
        noise = self.noise
        self.draw.exponential_()
        np.maximum(noise, self.least, out=noise)  # the noise stays finite
        np.log(noise, noise)
        np.subtract(self.logits, noise, noise)
        return noise.argmax(1)


class _SparseChoice(_Choice):
    """Draws from the sparsemax of ``logits``: the class that comes first, see
    :class:`~polyak.nn.distributions.discrete.SparseCategorical`."""

    def __init__(self, logits: np.ndarray) -> None:
        super().__init__(logits)
        self.count = np.arange(1, logits.shape[1] + 1, dtype=np.float32)

    def __call__(self) -> np.ndarray:
        noise = self.noise
        self.draw.exponential_()
        np.maximum(noise, self.least, out=noise)
        return (self.probs() / noise).argmax(1)

    def probs(self) -> np.ndarray:
        """:func:`~polyak.ops.tsallis.sparsemax`."""
        z = self.logits - self.logits.max(1, keepdims=True)
        falling = -np.sort(-z, axis=1)
        size = (1 + self.count * falling > falling.cumsum(1)).sum(1)
        support = z >= falling[np.arange(len(z)), size - 1, None]
        tau = (z.sum(1, where=support, keepdims=True) - 1) / size.astype(np.float32)[:, None]
        return np.maximum(z - tau, 0)
