"""How far two computations of the same numbers may lie apart, from their arithmetic and not from one machine.

Processors add in other orders, with other vector lengths, and with or without fused multiplication and addition. The
bounds here hold for all of them. Where a test compares a handful of roundings, the defaults of ``pytest.approx`` (1e-6)
and ``torch.testing.assert_close`` (11 epsilon of float32, 1e-5 near zero) are such bounds already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from polyak.nn import BatchRenorm1d
from polyak.nn.networks.residual import ResidualBlock, RunningNorm

CANCELLATION = 1e3
"""How much larger the terms of a gradient are, added up without their signs, than the gradient itself."""

FUNCTION = 1
"""Epsilons by which two implementations of exp, log or tanh differ, as a standard deviation: each errs by up to 4."""

LIKELY = 8
"""Standard deviations of accumulated rounding that are allowed for."""


def bound(terms: float = 1, size: float = 1.0, dtype: type[np.floating] = np.float32) -> float:
    """Largest difference between two sums of the same ``terms`` numbers, each computed in any order.

    Rounding errs by at most half an epsilon of a result, so that a sum errs by at most ``terms`` halves of an epsilon
    times what its terms add up to without their signs, and two of them differ by twice that.

    Args:
        terms: roundings that one result goes through: additions, or layers' widths one after another.
        size: what the terms add up to without their signs; or the largest number on the way.
        dtype: in which they are computed.
    """
    return terms * float(np.finfo(dtype).eps) * size


def drift(updates: int, rate: float, terms: int) -> float:
    """Largest difference between parameters after the same updates, computed by two programs.

    An update of Adam or RMSprop moves a parameter by about the learning rate, whatever the size of its gradient.
    Rounding changes that move by the relative error of the gradient, which is a sum over rows and widths.

    Args:
        updates: optimizer steps.
        rate: the learning rate.
        terms: rows of a batch and widths of the layers, added up.
    """
    return updates * rate * bound(terms, CANCELLATION)


def sampling(draws: int, deviation: float) -> float:
    """Five standard errors of a mean of independent draws: exceeded once in two million seeds."""
    return 5 * deviation / draws**0.5


def through(modules: Iterable[nn.Module], inputs: Tensor, errors: Tensor | float = 0.0) -> tuple[Tensor, Tensor]:
    """Error analysis of a float32 network of linear layers and activations.

    The worst case of a deep network is far from any case. Roundings are taken as independent instead (Higham and Mary,
    SIAM J. Sci. Comput. 41, 2019): squares of standard deviations add up, and :data:`LIKELY` of them are not exceeded.

    Args:
        modules: applied one after another.
        inputs: [B, ...]
        errors: standard deviation of the difference between the two versions of ``inputs``.

    Returns:
        outputs in float64, and the standard deviation of each one's difference between two computations.
    """
    values = inputs.double()
    error = torch.zeros_like(values) + errors
    for layer in parts(modules):
        if isinstance(layer, nn.Linear):
            weight = layer.weight.detach().double()
            bias = torch.zeros(len(weight)).double() if layer.bias is None else layer.bias.detach().double()
            outputs = values @ weight.T + bias
            error = (error**2 @ weight.T**2 + rounding(values, weight, bias, outputs) ** 2).sqrt()
            values = outputs
        elif isinstance(layer, BatchRenorm1d):  # one difference, rounded equally, times a factor of 4 roundings
            factor = (layer.scale / (layer.ra_var + layer.eps).sqrt()).detach().double()
            values, shift = (values - layer.ra_mean) * factor, layer.bias.detach().double()
            error = error * factor.abs() + bound(6) * torch.maximum(values.abs(), (values + shift).abs())
            values = values + shift
        elif isinstance(layer, RunningNorm):  # one difference, rounded equally, times a factor of 4 roundings
            factor = (layer.var + layer.eps).double().rsqrt()
            values = (values - layer.mean) * factor
            error = error * factor + bound(6) * values.abs()
        elif isinstance(layer, nn.LayerNorm):
            values, error = normalised(layer, values, error)
        elif isinstance(layer, ResidualBlock):
            change, its_error = through(layer.children(), values, error)
            error = error + its_error + bound(1) * torch.maximum(values.abs(), change.abs())
            values = values + change
        elif isinstance(layer, nn.Flatten):
            values, error = layer(values), layer(error)
        else:  # an activation: what the ends of the interval become, and its own rounding
            middle = layer(values)
            error = torch.maximum((layer(values + error) - middle).abs(), (layer(values - error) - middle).abs())
            error += bound(FUNCTION) * torch.maximum(values.abs().clamp(max=1.0), middle.abs())
            values = middle
    return values, error


def parts(modules: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """Layers in the order in which they are applied."""
    for module in modules:
        if isinstance(module, ResidualBlock | nn.Linear) or not list(module.children()):
            yield module
        else:
            yield from parts(module.children())


def normalised(layer: nn.LayerNorm, values: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """As :func:`through` one layer normalisation: errors of inputs shift the mean and the deviation of all, too."""
    width = values.shape[-1]
    var, mean = torch.var_mean(values, -1, correction=0, keepdim=True)
    factor = (var + layer.eps).rsqrt()
    ratio, weight, bias = (values - mean) * factor, layer.weight.detach().double(), layer.bias.detach().double()
    common = (error**2).mean(-1, keepdim=True).sqrt() / width**0.5
    error = (error + common * (1 + ratio.abs() * (ratio**2).amax(-1, keepdim=True).sqrt())) * factor * weight.abs()
    sizes = (ratio.abs() + mean.abs() * factor) * weight.abs() + bias.abs()
    return ratio * weight + bias, error + bound(6 + width**0.5) * sizes


def rounding(values: Tensor, weight: Tensor, bias: Tensor, outputs: Tensor) -> Tensor:
    """Standard deviation of the difference between two computations of ``values @ weight.T + bias``, [B, N].

    Each of the additions rounds a partial sum, whose size is that of a random walk or of the whole sum.
    """
    walk = values**2 @ weight.T**2 + bias**2
    return bound(1, (values.shape[-1] + 1) ** 0.5) * torch.maximum(walk, outputs**2).sqrt()


def assert_near(actual: np.ndarray, expected: np.ndarray, errors: np.ndarray | float) -> None:
    """Each entry within its own bound."""
    off = np.abs(np.asarray(actual, np.float64) - np.asarray(expected, np.float64))
    errors = np.reshape(errors, off.shape) if np.ndim(errors) else errors
    assert np.all(off <= errors), f"off by up to {off.max():.3g}, where rounding explains {np.max(errors):.3g}"
