"""Multilayer perceptrons, and parsing of ``net_arch``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.warning import warn_user

Activation = Callable[[], nn.Module]
"""The type of ``activation_fn``: a module class such as ``nn.ReLU``, or a function that returns a new module."""


def create_mlp(
    input_dim: int,
    output_dim: int,
    net_arch: Sequence[int],
    activation_fn: Activation = nn.ReLU,
    squash_output: bool = False,
    with_bias: bool = True,
    pre_linear_modules: Sequence[Callable[[int], nn.Module]] | None = None,
    post_linear_modules: Sequence[Callable[[int], nn.Module]] | None = None,
    *,
    linear: Callable[[int, int], nn.Module] | None = None,
) -> list[nn.Module]:
    """Layers of a perceptron, for ``nn.Sequential``: [B, input_dim] -> [B, output_dim].

    Args:
        input_dim: number of inputs.
        output_dim: number of outputs; 0 or less leaves the output layer out.
        net_arch: widths of the hidden layers; may be empty.
        activation_fn: called once for each hidden layer, which it follows.
        squash_output: end with ``Tanh``.
        with_bias: whether the linear layers have a bias.
        pre_linear_modules: called with the number of inputs of every linear layer, which it precedes (``LayerNorm``).
        post_linear_modules: called with the width of every hidden layer, for a module between it and its activation.
        linear: called with the numbers of inputs and outputs to make each linear layer, such as a noisy one; ``None``
            takes ``nn.Linear``.
    """
    if linear is None:
        linear = partial(nn.Linear, bias=with_bias)
    before, after = list(pre_linear_modules or ()), list(post_linear_modules or ())
    check_activation(activation_fn)
    layers: list[nn.Module] = []
    width = input_dim
    for hidden in check_widths(net_arch, "net_arch"):
        layers += [make(width) for make in before]
        layers.append(linear(width, hidden))
        layers += [make(hidden) for make in after]
        layers.append(activation_fn())
        width = hidden
    if output_dim > 0:
        layers += [make(width) for make in before]
        layers.append(linear(width, output_dim))
    if squash_output:
        layers.append(nn.Tanh())
    return layers


class MlpExtractor(nn.Module):
    """Separate hidden layers of actor and value function on top of the same features.

    Args:
        feature_dim: number of features.
        net_arch: widths for both, or ``dict(pi=[...], vf=[...])``; a missing key means no hidden layers there.
        activation_fn: follows every layer.
        device: where to put the parameters; ``"auto"`` takes CUDA if there is one.
    """

    def __init__(
        self,
        feature_dim: int,
        net_arch: Sequence[int] | Mapping[str, Sequence[int]],
        activation_fn: Activation,
        device: torch.device | str = "auto",
    ) -> None:
        super().__init__()
        pi, vf = get_policy_value_arch(net_arch)
        self.latent_dim_pi = pi[-1] if pi else feature_dim
        self.latent_dim_vf = vf[-1] if vf else feature_dim
        self.policy_net = nn.Sequential(*create_mlp(feature_dim, 0, pi, activation_fn))
        self.value_net = nn.Sequential(*create_mlp(feature_dim, 0, vf, activation_fn))
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.to(device)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """[B, F] -> latents of the actor [B, latent_dim_pi] and of the value function [B, latent_dim_vf]."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        """[B, F] -> [B, latent_dim_pi]."""
        return self.policy_net(features)

    def forward_critic(self, features: Tensor) -> Tensor:
        """[B, F] -> [B, latent_dim_vf]."""
        return self.value_net(features)


class MlpExtractorWithFeatures(MlpExtractor):
    """:class:`MlpExtractor` whose latents of the actor are followed by the features themselves."""

    def forward_actor(self, features: Tensor) -> Tensor:
        """[B, F] -> [B, latent_dim_pi + F]."""
        return torch.cat([self.policy_net(features), features], dim=1)


def get_actor_critic_arch(net_arch: Sequence[int] | Mapping[str, Sequence[int]]) -> tuple[list[int], list[int]]:
    """Hidden widths of actor and action-value critic: a list serves both, ``dict(pi=[...], qf=[...])`` sets each.

    Raises:
        PolicyError: a dict without ``pi`` or without ``qf``, an unknown key, or widths that are not positive integers.
    """
    if not isinstance(net_arch, Mapping):
        widths = check_widths(net_arch, "net_arch")
        return widths, list(widths)
    _check_keys(net_arch, ("pi", "qf"))
    for key, network in (("pi", "actor"), ("qf", "critic")):
        if key not in net_arch:
            raise PolicyError(
                f"net_arch={dict(net_arch)!r} has no key {key!r}, the widths of the {network}. "
                "Give both, as in net_arch=dict(pi=[256, 256], qf=[256, 256]), or one list for both."
            )
    return check_widths(net_arch["pi"], "net_arch['pi']"), check_widths(net_arch["qf"], "net_arch['qf']")


def get_policy_value_arch(net_arch: Sequence[Any] | Mapping[str, Sequence[int]]) -> tuple[list[int], list[int]]:
    """Hidden widths of actor and state-value function: a list serves both, ``dict(pi=[...], vf=[...])`` sets each.

    Raises:
        PolicyError: an unknown key, or widths that are not positive integers.
    """
    net_arch = unwrap_legacy_arch(net_arch)
    if not isinstance(net_arch, Mapping):
        widths = check_widths(net_arch, "net_arch")
        return widths, list(widths)
    _check_keys(net_arch, ("pi", "vf"))
    return check_widths(net_arch.get("pi", ()), "net_arch['pi']"), check_widths(
        net_arch.get("vf", ()), "net_arch['vf']"
    )


def unwrap_legacy_arch(net_arch: Sequence[Any] | Mapping[str, Sequence[int]]) -> Any:
    """Accept the old spelling ``[dict(pi=..., vf=...)]`` of ``dict(pi=..., vf=...)``, with a warning.

    Raises:
        PolicyError: layers before the dict, which actor and value function once shared.
    """
    if isinstance(net_arch, (Mapping, str)) or not isinstance(net_arch, Sequence):
        return net_arch
    if not any(isinstance(part, Mapping) for part in net_arch):
        return net_arch
    if len(net_arch) == 1:
        warn_user(f"net_arch={net_arch!r} is an old spelling: give the dict itself, net_arch={net_arch[0]!r}.")
        return net_arch[0]
    raise PolicyError(
        f"net_arch={net_arch!r} asks for layers that actor and value function share, which do not exist any more. "
        "Put shared layers into a features extractor, or repeat them: net_arch=dict(pi=[...], vf=[...])."
    )


def check_widths(widths: Any, name: str) -> list[int]:
    """The widths as a list.

    Raises:
        PolicyError: not a sequence of positive integers.
    """
    if isinstance(widths, (list, tuple)) and all(
        isinstance(n, Integral) and not isinstance(n, bool) and int(n) > 0 for n in widths
    ):
        return [int(n) for n in widths]
    raise PolicyError(f"{name} must be a list of positive integers such as [64, 64], or [] for none, got {widths!r}.")


def check_activation(activation_fn: Any) -> None:
    """Check that ``activation_fn`` is a class or function rather than a name or a finished module.

    Raises:
        PolicyError: with an example of a valid argument.
    """
    if isinstance(activation_fn, nn.Module) or not callable(activation_fn):
        raise PolicyError(
            f"activation_fn must be a module class such as torch.nn.ReLU (not its name, not an instance), "
            f"got {activation_fn!r}."
        )


def _check_keys(net_arch: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(net_arch) - set(known))
    if unknown:
        raise PolicyError(
            f"net_arch={dict(net_arch)!r} has unknown keys {unknown}: the networks of this policy are {list(known)}."
        )
