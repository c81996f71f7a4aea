"""Greedy policies of action values: DQN and its family.

Shape letters: B batch, A actions, K numbers for each action, N quantiles, F features.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import NatureCNN, Obs
from polyak.nn.networks.layers import check_widths, create_mlp
from polyak.nn.networks.noisy import Draws, NoisyLinear, drawing, given_noise, parts_that_draw
from polyak.nn.networks.recall import Recalled, RecurrentExtractor
from polyak.nn.networks.streams import CosineEmbedding, atoms, parts_in_order, split_arch, value_layers
from polyak.nn.options import all_keywords, check_keywords, split
from polyak.nn.plain import is_plain, plain
from polyak.nn.policies.base import Decision, LayeredNetwork, MemoryPolicy, Noise, State, lagging, options_of
from polyak.ops.distributional import midpoints


class QNetwork(LayeredNetwork):
    """Action values of a finite number of actions: observations [B, ...] -> [B, A].

    Args:
        observation_space: space of the observations.
        action_space: a Discrete of A actions.
        features_extractor: makes features of preprocessed observations.
        features_dim: number of features.
        net_arch: widths of the hidden layers; ``None`` takes [64, 64].
        dueling: separate streams for state values and advantages, each with a last hidden layer of its own
            (arXiv:1511.06581). ``True`` counts advantages from their mean (eq. 9), ``"max"`` from their maximum (eq.
            8).
        sigma0: the last hidden layer and the output are noisy (arXiv:1706.10295), with noise of this size at first;
            ``None``: they are not.
        layer_norm: normalise the inputs of each activation, as in PQN (arXiv:2407.04811).
        **options: see :class:`~polyak.nn.policies.base.LayeredNetwork`.

    Raises:
        PolicyError: ``sigma0`` is not positive, or ``dueling`` is none of these.
    """

    action_space: spaces.Discrete
    n_outputs: int = 1
    """Numbers for each action."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        features_extractor: nn.Module,
        features_dim: int,
        net_arch: Sequence[int] | None = None,
        *,
        dueling: bool | Literal["max"] = False,
        sigma0: float | None = None,
        layer_norm: bool = False,
        **options: Any,
    ) -> None:
        arch = [64, 64] if net_arch is None else net_arch
        super().__init__(observation_space, action_space, arch, features_extractor, features_dim, **options)
        if dueling not in (False, True, "max"):
            raise PolicyError(f"dueling={dueling!r} cannot be used: it is True, False or 'max'.")
        if sigma0 is not None and not sigma0 > 0:
            raise PolicyError(f"sigma0 must be positive, or None for layers without noise, got {sigma0}.")
        self.dueling, self.sigma0, self.layer_norm = dueling, sigma0, layer_norm
        self._build_layers(int(action_space.n))

    def _build_layers(self, n_actions: int) -> None:
        self.q_net = nn.Sequential(*self._layers(self.features_dim, n_actions, self.n_outputs, self.net_arch))

    def _layers(self, inputs: int, n_actions: int, outputs: int, net_arch: Sequence[int]) -> list[nn.Module]:
        special = self.dueling, self.sigma0, self.layer_norm
        return value_layers(inputs, n_actions, outputs, net_arch, self.activation_fn, *special)

    @plain
    def forward(self, obs: Obs) -> Tensor:
        return self.q_net(self.extract_features(obs, self.features_extractor))


class CategoricalQNetwork(QNetwork):
    """Distributions of returns on fixed atoms, C51 (Bellemare et al. 2017, arXiv:1707.06887); :meth:`forward` gives
    their means [B, A].

    Args:
        n_atoms: K.
        v_min, v_max: least and greatest return, the first and the last atom.
        **options: see :class:`QNetwork`.

    Raises:
        PolicyError: fewer than two atoms, or no range.
    """

    support: Tensor
    """[K] the atoms."""

    def __init__(
        self, *args: Any, n_atoms: int = 51, v_min: float = -10.0, v_max: float = 10.0, **options: Any
    ) -> None:
        support = atoms(n_atoms, v_min, v_max)
        self.n_outputs = n_atoms
        super().__init__(*args, **options)
        self.register_buffer("support", support, persistent=False)

    def logits(self, obs: Obs) -> Tensor:
        """Logarithms of probabilities, up to a constant for each action: [B, K, A]"""
        return super().forward(obs).unflatten(1, (self.n_outputs, -1))

    def mean(self, logits: Tensor) -> Tensor:
        """Expected returns: [B, K, A] -> [B, A]"""
        return (logits.softmax(1) * self.support[:, None]).sum(1)

    @plain
    def forward(self, obs: Obs) -> Tensor:
        return self.mean(self.logits(obs))


class QuantileNetwork(QNetwork):
    """Quantiles of returns at fixed levels, QR-DQN (Dabney et al. 2018, arXiv:1710.10044); :meth:`forward` gives their
    means [B, A].

    Args:
        n_quantiles: N.
        **options: see :class:`QNetwork`.

    Raises:
        PolicyError: fewer than one quantile.
    """

    def __init__(self, *args: Any, n_quantiles: int = 200, **options: Any) -> None:
        if n_quantiles < 1:
            raise PolicyError(f"n_quantiles must be at least 1, got {n_quantiles}.")
        self.n_quantiles = self.n_outputs = n_quantiles
        super().__init__(*args, **options)

    def quantiles(self, obs: Obs) -> Tensor:
        """[B, N, A]"""
        return super().forward(obs).unflatten(1, (self.n_quantiles, -1))

    @plain
    def forward(self, obs: Obs) -> Tensor:
        return self.quantiles(obs).mean(1)


class ImplicitQuantileNetwork(QNetwork):
    """Quantiles of returns at any level, IQN (Dabney et al. 2018, arXiv:1806.06923).

    :meth:`forward` gives means [B, A] of ``n_samples`` quantiles: at random levels where :attr:`draws` is set, else at
    evenly spaced ones.

    Args:
        n_samples: K of section 3.
        n_cosines: features of a level, n of eq. 4.
        **options: see :class:`QNetwork`. All but the last hidden layer read the observation only; their output is
            multiplied by the embedding of the levels.

    Raises:
        PolicyError: a number below 1.
    """

    draws: bool = False
    """Whether :meth:`forward` draws levels: see :func:`~polyak.nn.networks.noisy.drawing`."""
    given: Tensor | None = None
    """Levels [B, N] that :meth:`forward` uses instead of a draw: see
    :func:`~polyak.nn.networks.noisy.given_noise`."""

    def __init__(self, *args: Any, n_samples: int = 32, n_cosines: int = 64, **options: Any) -> None:
        for name, value in (("n_samples", n_samples), ("n_cosines", n_cosines)):
            if value < 1:
                raise PolicyError(f"{name} must be at least 1, got {value}.")
        self.n_samples, self._n_cosines = n_samples, n_cosines
        super().__init__(*args, **options)

    def _build_layers(self, n_actions: int) -> None:
        shared, own = split_arch(self.net_arch)
        width = shared[-1] if shared else self.features_dim
        norms = [nn.LayerNorm] if self.layer_norm else []
        layers = create_mlp(self.features_dim, 0, shared, self.activation_fn, post_linear_modules=norms)
        self.trunk = nn.Sequential(*layers)
        self.embedding = CosineEmbedding(width, self._n_cosines)
        self.q_net = nn.Sequential(*self._layers(width, n_actions, 1, own))

    def draw_levels(self, batch: int, generator: torch.Generator | None = None) -> Tensor:
        """Uniform in [0, 1): [B, N]"""
        return torch.rand(batch, self.n_samples, device=self.device, generator=generator)

    def quantiles(self, obs: Obs, levels: Tensor) -> Tensor:
        """Returns the quantiles at some levels [B, N] in (0, 1), eq. 3: [B, N, A]"""
        return self._quantiles(self._latent(obs), levels)

    def _latent(self, obs: Obs) -> Tensor:
        """[B, width]"""
        return self.trunk(self.extract_features(obs, self.features_extractor))

    def _quantiles(self, latent: Tensor, levels: Tensor) -> Tensor:
        mixed = latent[:, None, :] * self.embedding(levels)
        return self.q_net(mixed.flatten(0, 1)).unflatten(0, levels.shape)

    @plain
    def forward(self, obs: Obs) -> Tensor:
        latent = self._latent(obs)
        if self.draws:
            levels = self.draw_levels(latent.shape[0]) if self.given is None else self.given
        else:
            levels = midpoints(self.n_samples, self.device).expand(latent.shape[0], -1)
        return self._quantiles(latent, levels).mean(1)


NetworkClass = type[QNetwork]


class GreedyPolicy(MemoryPolicy):
    """An action-value network; acts greedily. The algorithm adds random actions; noisy layers draw noise unless actions
    are deterministic.

    Args:
        observation_space: space of the observations.
        action_space: a Discrete.
        network: class of the networks.
        **options: see :class:`~polyak.nn.policies.base.MemoryPolicy`; and further arguments of the networks, such as
            ``dueling`` of :class:`QNetwork`. ``net_arch=None`` takes [64, 64]; after :class:`NatureCNN` none, or, where
            the last hidden layer is a special one, [512] in place of the extractor's own.

    Raises:
        PolicyError: another action space, or an argument out of range.
        TypeError: an option that the networks do not have.
    """

    supports_masks = True
    action_space: spaces.Discrete
    q_net: Any
    """The networks, of the class ``network``."""

    fixed = frozenset({"squash_output", "network"})

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Discrete,
        *,
        network: NetworkClass = QNetwork,
        **options: Any,
    ) -> None:
        check_keywords(type(self).__name__, options, all_keywords(type(self)) | options_of(network))
        self.network_class, (self.network_options, rest) = network, split(options, options_of(network))
        super().__init__(observation_space, action_space, **rest)
        if not isinstance(action_space, spaces.Discrete):
            raise PolicyError(f"action values need a Discrete action space, got {action_space}.")
        self.net_arch = check_widths(self.net_arch, "net_arch")
        self._build_networks()
        self._drawing = parts_that_draw(self)

    @classmethod
    def keywords(cls, network: NetworkClass = QNetwork, **defaults: Any) -> set[str]:
        """Names that ``policy_kwargs`` may hold: the policy's and those of its networks."""
        return super().keywords() | options_of(network)

    def default_arch(self) -> list[int]:
        if self.features_extractor_class is not NatureCNN:
            return [64, 64]
        options = self.network_options
        special = options.get("dueling") or options.get("layer_norm") or options.get("sigma0") is not None
        if not (special or issubclass(self.network_class, ImplicitQuantileNetwork)):
            return []
        self.features_extractor_kwargs.setdefault("features_dim", None)
        return [512]

    def _build_networks(self) -> None:
        self.q_net = self.make_q_net()

    def make_q_net(self) -> QNetwork:
        """A new action-value network."""
        return self.new_network(self.network_class, self.net_arch, **self.network_options)

    def drawing(self, on: bool = True) -> AbstractContextManager[None]:
        """While the block runs, noisy layers draw noise, and levels of quantiles are drawn."""
        return drawing(self._drawing, on)

    def forward(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Greedy actions [B]."""
        return self.act(obs, deterministic)

    @plain
    def act(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Greedy actions [B]; unless ``deterministic``, noisy layers draw noise."""
        with self.drawing(not deterministic):
            return self.q_net(obs).argmax(dim=1)

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        if masks is None and not noise:
            return super().decide(obs, noise, state, masks)
        given: Any = obs if state is None else Recalled(obs, state)
        with self.by_noise(noise):
            values = self.q_net(given)
        if masks is not None:
            values = values.masked_fill(~masks, -torch.inf)
        return Decision(values.argmax(dim=1), state=None if state is None else self.next_state(given))

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        parts = dict(parts_in_order(self.q_net))
        known = all(isinstance(part, NoisyLinear | ImplicitQuantileNetwork) for part in parts.values())
        if not known or not is_plain(self, "act", "decide", "_predict"):
            return {}
        noise: dict[str, Tensor] = {}
        for name, part in parts.items():
            if isinstance(part, NoisyLinear):
                noise[f"{name}.inputs"], noise[f"{name}.outputs"] = part.draw(generator)
            elif isinstance(part, ImplicitQuantileNetwork):
                noise["levels"] = part.draw_levels(batch, generator)
        return noise

    def by_noise(self, noise: Noise | None) -> AbstractContextManager[None]:
        """While the block runs, noisy layers and levels of quantiles use this noise; it is drawn if empty, and there is
        none if it is ``None``."""
        if not noise:
            return self.drawing(noise is not None)
        given: dict[Draws, Any] = {}
        for name, part in parts_in_order(self.q_net):
            noisy = isinstance(part, NoisyLinear)
            given[part] = (noise[f"{name}.inputs"], noise[f"{name}.outputs"]) if noisy else noise["levels"]
        return given_noise(given)

    def extractors(self) -> dict[nn.Module, RecurrentExtractor]:
        return {} if self.recurrence is None else {self.q_net: self.q_net.features_extractor}


class ValuePolicy(GreedyPolicy):
    """:class:`GreedyPolicy` with a target network."""

    targets = ("q_net_target",)
    q_net_target: Any
    """The target network, of the class ``network``."""

    def _build_networks(self) -> None:
        super()._build_networks()
        self.q_net_target = lagging(self.make_q_net(), self.q_net).eval()
