"""Networks and policies of hidden layers: the constructors that actors, critics and policies share.

Shape letters: B batch, F features, K critics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import ExtractorClass, Obs
from polyak.nn.networks.layers import Activation, check_activation, create_mlp
from polyak.nn.networks.recall import Recalled, recurrence
from polyak.nn.options import keywords_of
from polyak.nn.plain import plain
from polyak.nn.policies.base import Decision, Network, Noise, Policy, State, actor_noise, shaped

N = TypeVar("N", bound="LayeredNetwork")
M = TypeVar("M", bound=nn.Module)


class LayeredNetwork(Network):
    """Hidden layers behind a features extractor: the base of actors and critics.

    Args:
        observation_space: what it reads.
        action_space: what the agent does.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        activation_fn: follows every hidden layer.
        normalize_images: divide uint8 images by 255.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        net_arch: Sequence[int],
        features_extractor: nn.Module,
        features_dim: int,
        activation_fn: Activation = nn.ReLU,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        self.features_extractor, self.features_dim = features_extractor, features_dim
        self.net_arch, self.activation_fn = list(net_arch), activation_fn

    def layers(self, inputs: int, outputs: int, **options: Any) -> nn.Sequential:
        """The hidden layers and, unless ``outputs`` is 0, an output layer: see :func:`~polyak.nn.create_mlp`."""
        return nn.Sequential(*create_mlp(inputs, outputs, self.net_arch, self.activation_fn, **options))

    def _features(self, obs: Obs) -> Any:
        """Raw observations [B, ...] -> features [B, F]"""
        return self.extract_features(obs, self.features_extractor)


class StochasticActor(LayeredNetwork):
    """An actor that draws from a distribution of actions: see :class:`LayeredNetwork`."""

    has_target: ClassVar[bool] = False
    """Whether policies keep a lagging copy of it."""

    @staticmethod
    def default_net_arch(extractor_class: ExtractorClass) -> list[int]:
        """Hidden widths of actor and critics when the user gives none."""
        return [256, 256]

    @plain
    def get_distribution(self, obs: Obs) -> Any:
        """The action distribution for observations [B, ...]."""
        raise NotImplementedError

    @plain
    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, ...]; the likeliest if ``deterministic``."""
        actions: Tensor = self.get_distribution(obs).get_actions(deterministic)
        return actions

    @plain
    def sample_from(self, obs: Obs, noise: Tensor) -> Tensor:
        """Actions [B, ...] by noise as the family of the distribution draws it."""
        actions: Tensor = self.get_distribution(obs).sample_from(noise)
        return actions


class Critics(LayeredNetwork):
    """K action-value functions of the same features.

    Args:
        *args: see :class:`LayeredNetwork`.
        n_critics: K.
        **options: see :class:`LayeredNetwork`.

    Raises:
        PolicyError: fewer than one critic.
    """

    def __init__(self, *args: Any, n_critics: int = 2, **options: Any) -> None:
        super().__init__(*args, **options)
        if n_critics < 1:
            raise PolicyError(f"n_critics must be at least 1, got {n_critics}.")
        self.n_critics = n_critics
        for k in range(n_critics):
            self.add_module(f"qf{k}", self.make_q_network(self._n_inputs()))

    def _n_inputs(self) -> int:
        return self.features_dim

    def make_q_network(self, inputs: int) -> nn.Module:
        """One of the K perceptrons, from [B, inputs]."""
        raise NotImplementedError

    @property
    def q_networks(self) -> list[nn.Module]:
        """The K perceptrons."""
        return [self.get_submodule(f"qf{k}") for k in range(self.n_critics)]

    def own_parameters(self) -> list[nn.Parameter]:
        """The parameters that the critics' loss trains: all."""
        return list(self.parameters())


def lagging(target: M, online: nn.Module) -> M:
    """``target`` made an exact, frozen copy of ``online``."""
    target.load_state_dict(online.state_dict())
    return target.requires_grad_(False)


class LayeredPolicy(Policy):
    """A policy whose networks have hidden layers.

    Args:
        observation_space: what it reads.
        action_space: what it chooses from.
        net_arch: widths of the hidden layers; ``None`` takes those of :meth:`default_arch`.
        activation_fn: follows every hidden layer.
        **options: see :class:`Policy`.
    """

    fixed = frozenset({"squash_output"})

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        net_arch: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
        activation_fn: Activation = nn.ReLU,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **options)
        check_activation(activation_fn)
        self.net_arch: Any = self.default_arch() if net_arch is None else net_arch
        self.activation_fn = activation_fn

    def default_arch(self) -> Any:
        """The widths without ``net_arch``."""
        return [256, 256]

    def new_network(
        self, kind: type[N], net_arch: Sequence[int], features_extractor: nn.Module | None = None, **options: Any
    ) -> N:
        """A new network of the policy, with its own features extractor unless one is given."""
        shared = self.network_arguments(features_extractor)
        return kind(net_arch=net_arch, activation_fn=self.activation_fn, **shared, **options)


class ActorPolicy(LayeredPolicy):
    """A policy that acts by a network of that name."""

    actor: Any

    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, ...] in the network's units."""
        return self.act(obs, deterministic)

    @plain
    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, ...] in the network's units."""
        return shaped(self.actor(obs, deterministic), self.codec.shape)

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        if not noise or masks is not None:
            return super().decide(obs, noise, state, masks)
        given: Any = obs if state is None else Recalled(obs, state)
        actions = shaped(self.actor.sample_from(given, noise["actions"]), self.codec.shape)
        return Decision(actions, state=None if state is None else self.next_state(given))

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        return actor_noise(self, self.actor, batch, generator)


class MemoryPolicy(LayeredPolicy):
    """A policy whose networks may be recurrent.

    Args:
        observation_space: what it reads.
        action_space: what it chooses from.
        memory: ``"lstm"`` or ``"gru"``: networks are recurrent; ``None``: they are not.
        memory_size: units of each recurrent layer.
        memory_layers: how many of them, one above the other.
        memory_dropout: share of the outputs of a layer that is dropped before the next one in training.
        max_seq_len: steps of a stored sequence to learn from, through which gradients go back.
        burn_in: steps before them, which only compute the recurrent state (R2D2).
        **options: see :class:`LayeredPolicy`.

    Raises:
        PolicyError: an argument out of range, or one without ``memory``.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        memory: str | None = None,
        memory_size: int = 256,
        memory_layers: int = 1,
        memory_dropout: float = 0.0,
        max_seq_len: int = 32,
        burn_in: int = 8,
        **options: Any,
    ) -> None:
        super().__init__(observation_space, action_space, **options)
        self.recurrence = recurrence(memory, memory_size, memory_layers, max_seq_len, burn_in, memory_dropout)


def options_of(network: type[nn.Module]) -> set[str]:
    """Names of the arguments of a network that its policy does not fill in."""
    return keywords_of(network) - keywords_of(LayeredNetwork)
