"""Policies with an actor and action-value critics for continuous actions: SAC, TD3, DDPG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from polyak.envs.spaces import get_action_dim
from polyak.nn.distributions.base import Distribution
from polyak.nn.distributions.exploration_noise import ExplorationNoise
from polyak.nn.distributions.gaussian import GaussianFamily
from polyak.nn.distributions.state_dependent import StateDependentGaussianFamily
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import ExtractorClass, NatureCNN, Obs
from polyak.nn.networks.layers import Activation, create_mlp, get_actor_critic_arch
from polyak.nn.networks.recall import Recalled, RecurrentExtractor, recurrence
from polyak.nn.options import check_keywords, check_sde_on_states, keywords_of, warn_without_sde
from polyak.nn.plain import plain
from polyak.nn.policies.base import Decision, Network, Noise, Policy, State, actor_noise, check_bounded, shaped

LOG_STD_MIN, LOG_STD_MAX = -20, 2
"""Bounds of the log standard deviation that a squashed Gaussian actor may choose."""


class SquashedGaussianActor(Network):
    """tanh of a Gaussian whose mean and log standard deviation depend on the state (SAC, arXiv:1812.05905).

    With ``use_sde``, noise is state-dependent (gSDE, arXiv:2005.05719) and ``log_std`` a parameter.

    Args:
        observation_space: what it reads.
        action_space: a Box of A entries.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        activation_fn: follows every hidden layer.
        use_sde: state-dependent exploration.
        log_std_init: gSDE: initial log standard deviation of the exploration matrices.
        full_std: gSDE: a standard deviation for each feature and action rather than for each feature.
        use_expln: gSDE: a positive function that grows slower than exp.
        clip_mean: gSDE: bound on the absolute mean before tanh; 0 for none.
        normalize_images: divide uint8 images by 255.
        sde_on_states: gSDE: noise is linear in the features that the hidden layers read, of a vector the observation
            itself, and not in the last hidden layer (SDE, Rueckstiess, Felder and Schmidhuber 2008).
        softplus_std: standard deviations are log(1 + exp(x)) of the network's outputs x, and not exp(x): above 1 they
            grow linearly. The bounds are the same.

    Raises:
        PolicyError: a negative ``clip_mean``, or ``softplus_std`` with ``use_sde``, or ``sde_on_states`` without it.
    """

    has_target: ClassVar[bool] = False
    action_family: GaussianFamily | StateDependentGaussianFamily
    mu: nn.Module
    log_std: nn.Module | nn.Parameter

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        net_arch: Sequence[int],
        features_extractor: nn.Module,
        features_dim: int,
        activation_fn: Activation = nn.ReLU,
        use_sde: bool = False,
        log_std_init: float = -3,
        full_std: bool = True,
        use_expln: bool = False,
        clip_mean: float = 2.0,
        normalize_images: bool = True,
        *,
        softplus_std: bool = False,
        sde_on_states: bool = False,
    ) -> None:
        check_sde_on_states(sde_on_states, use_sde)
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        if clip_mean < 0:
            raise PolicyError(f"clip_mean must be positive, or 0 for no bound, got {clip_mean}.")
        if softplus_std and use_sde:
            raise PolicyError(
                f"softplus_std={softplus_std!r} cannot be used with use_sde=True, whose deviations are parameters. "
                "Leave it out; use_expln=True makes those grow slowly."
            )
        self.features_extractor, self.features_dim = features_extractor, features_dim
        self.net_arch, self.activation_fn = list(net_arch), activation_fn
        self.log_std_init, self.full_std, self.use_expln, self.clip_mean = log_std_init, full_std, use_expln, clip_mean
        self.latent_pi = self.make_latent(features_dim)
        self.use_sde, self.softplus_std, self.sde_on_states = use_sde, softplus_std, sde_on_states
        action_dim = get_action_dim(action_space)
        if use_sde:
            self.action_family = StateDependentGaussianFamily(
                action_dim, full_std=full_std, use_expln=use_expln, squash=True, learn_features=True
            )
        else:
            warn_without_sde(
                log_std_init=(log_std_init, -3),
                full_std=(full_std, True),
                use_expln=(use_expln, False),
                clip_mean=(clip_mean, 2.0),
            )
            self.action_family = GaussianFamily(action_dim, squash=True)
        self._build_heads(net_arch[-1] if net_arch else features_dim)

    def _build_heads(self, latent_dim: int) -> None:
        family = self.action_family
        self.mu = family.make_head(latent_dim)
        if not isinstance(family, StateDependentGaussianFamily):
            self.log_std = nn.Linear(latent_dim, family.action_dim)
            return
        self.log_std = family.make_log_std(self.features_dim if self.sde_on_states else latent_dim, self.log_std_init)
        self.exploration_noise = ExplorationNoise()
        self.exploration_noise.draw(self.log_std, family.action_dim, count=1)
        if self.clip_mean > 0:
            self.mu = nn.Sequential(self.mu, nn.Hardtanh(min_val=-self.clip_mean, max_val=self.clip_mean))

    def make_latent(self, inputs: int) -> nn.Sequential:
        """The hidden layers."""
        return nn.Sequential(*create_mlp(inputs, 0, self.net_arch, self.activation_fn))

    @staticmethod
    def default_net_arch(extractor_class: ExtractorClass) -> list[int]:
        """Hidden widths of actor and critics when the user gives none."""
        return [256, 256]

    def get_std(self) -> Tensor:
        """Standard deviations [L, A] of the exploration matrices.

        Raises:
            PolicyError: without state-dependent exploration.
        """
        family, log_std = self._state_dependent("get_std")
        return family.sigma(log_std)

    def reset_noise(self, batch_size: int = 1) -> None:
        """Draw new exploration matrices, one for each environment.

        Raises:
            PolicyError: without state-dependent exploration.
        """
        family, log_std = self._state_dependent("reset_noise")
        self.exploration_noise.draw(log_std, family.action_dim, batch_size)

    def _state_dependent(self, asked: str) -> tuple[StateDependentGaussianFamily, nn.Parameter]:
        """gSDE's family and its parameter, which the method ``asked`` needs."""
        family, log_std = self.action_family, self.log_std
        if not isinstance(family, StateDependentGaussianFamily) or isinstance(log_std, nn.Module):
            raise PolicyError(f"{asked}() needs state-dependent exploration: build the policy with use_sde=True.")
        return family, log_std

    @plain
    def get_action_dist_params(self, obs: Obs) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Parameters of the action distribution: means [B, A], log standard deviations, and z [B, L] for gSDE."""
        features = self.extract_features(obs, self.features_extractor)
        latent, layer = self.latent_pi(features), self.log_std
        if not isinstance(layer, nn.Module):
            return self.mu(latent), layer, {"latent_sde": features if self.sde_on_states else latent}
        log_std: Tensor = layer(latent)
        if self.softplus_std:
            log_std = F.softplus(log_std.clamp(min=LOG_STD_MIN)).log()
        return self.mu(latent), log_std.clamp(LOG_STD_MIN, LOG_STD_MAX), {}

    @plain
    def get_distribution(self, obs: Obs) -> Distribution:
        """The action distribution for observations [B, ...]."""
        mean, log_std, named = self.get_action_dist_params(obs)
        if isinstance(self.action_family, GaussianFamily):
            return self.action_family(mean, log_std)
        return self.action_family(mean, log_std, named["latent_sde"], self.exploration_noise.of(mean.shape[0]))

    @plain
    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, A] in (-1, 1); tanh of the mean if ``deterministic``."""
        if deterministic:
            return torch.tanh(self.mu(self.latent_pi(self.extract_features(obs, self.features_extractor))))
        return self.get_distribution(obs).sample()

    @plain
    def sample_from(self, obs: Obs, noise: Tensor) -> Tensor:
        """Actions [B, ...] by noise as the family of the distribution draws it."""
        return self.get_distribution(obs).sample_from(noise)

    def action_log_prob(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Sampled actions [B, A], differentiable, and their log-density [B]."""
        return self.get_distribution(obs).sample_with_log_prob()


class DeterministicActor(Network):
    """tanh of a perceptron: observations [B, ...] -> actions [B, A] in (-1, 1) (DDPG, arXiv:1509.02971).

    Args:
        observation_space: what it reads.
        action_space: a Box of A entries.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        activation_fn: follows every hidden layer.
        normalize_images: divide uint8 images by 255.
    """

    has_target: ClassVar[bool] = True

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        net_arch: Sequence[int],
        features_extractor: nn.Module,
        features_dim: int,
        activation_fn: Activation = nn.ReLU,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        self.features_extractor, self.features_dim = features_extractor, features_dim
        self.net_arch, self.activation_fn = list(net_arch), activation_fn
        layers = create_mlp(features_dim, get_action_dim(action_space), net_arch, activation_fn, squash_output=True)
        self.mu = nn.Sequential(*layers)

    @staticmethod
    def default_net_arch(extractor_class: ExtractorClass) -> list[int]:
        """Hidden widths of actor and critics when the user gives none; narrower after :class:`NatureCNN`."""
        return [256, 256] if extractor_class is NatureCNN else [400, 300]

    @plain
    def forward(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Actions [B, A]; the algorithm adds exploration noise, so ``deterministic`` changes nothing."""
        return self.mu(self.extract_features(obs, self.features_extractor))


class ContinuousCritic(Network):
    """K action-value functions of the same features: observations [B, ...], actions [B, A] -> K values each.

    Args:
        observation_space: what it reads.
        action_space: a Box of A entries.
        net_arch: widths of the hidden layers; may be empty.
        features_extractor: makes features of preprocessed observations.
        features_dim: how many.
        activation_fn: follows every hidden layer.
        normalize_images: divide uint8 images by 255.
        n_critics: K.
        share_features_extractor: the extractor is the actor's and learns from the actor's loss alone, so that no
            gradient of the critics reaches it.

    Raises:
        PolicyError: fewer than one critic.
    """

    has_target: ClassVar[bool] = True
    target_switches: ClassVar[bool] = False
    """Whether the target network is in training mode when the critics are, so that its dropout is active too; others
    stay in evaluation mode."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        net_arch: Sequence[int],
        features_extractor: nn.Module,
        features_dim: int,
        activation_fn: Activation = nn.ReLU,
        normalize_images: bool = True,
        n_critics: int = 2,
        share_features_extractor: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        if n_critics < 1:
            raise PolicyError(f"n_critics must be at least 1, got {n_critics}.")
        self.features_extractor = features_extractor
        self.share_features_extractor = share_features_extractor
        self.n_critics = n_critics
        self.net_arch, self.activation_fn = list(net_arch), activation_fn
        inputs = features_dim + get_action_dim(action_space)
        for k in range(n_critics):
            self.add_module(f"qf{k}", self.make_q_network(inputs))

    def make_q_network(self, inputs: int) -> nn.Module:
        """One of the K perceptrons: features and actions side by side [B, inputs] -> [B, 1]."""
        return nn.Sequential(*create_mlp(inputs, 1, self.net_arch, self.activation_fn))

    @property
    def q_networks(self) -> list[nn.Module]:
        """The K perceptrons."""
        return [self.get_submodule(f"qf{k}") for k in range(self.n_critics)]

    def own_parameters(self) -> list[nn.Parameter]:
        """The parameters that the critics' loss trains: all but those of a shared features extractor."""
        shared = "features_extractor." if self.share_features_extractor else None
        return [p for name, p in self.named_parameters() if shared is None or not name.startswith(shared)]

    def _features(self, obs: Obs) -> Tensor:
        if self.share_features_extractor:
            with torch.no_grad():
                return self.extract_features(obs, self.features_extractor)
        return self.extract_features(obs, self.features_extractor)

    def _inputs(self, obs: Obs, actions: Tensor) -> Tensor:
        return torch.cat([self._features(obs), actions.reshape(actions.shape[0], -1)], dim=1)

    def q_values(self, obs: Obs, actions: Tensor) -> Tensor:
        """All K values: [K, B]."""
        inputs = self._inputs(obs, actions)
        return torch.stack([network(inputs).squeeze(1) for network in self.q_networks])

    def q_values_of_many(self, obs: Obs, actions: Tensor) -> Tensor:
        """All K values of M actions in each state, whose features are extracted once: [B, M, A] -> [K, B, M]."""
        features = self._features(obs)
        return torch.stack([_of_many(network, features, actions) for network in self.q_networks])

    def forward(self, obs: Obs, actions: Tensor) -> tuple[Tensor, ...]:
        """All K values, each [B, 1]."""
        inputs = self._inputs(obs, actions)
        return tuple(network(inputs) for network in self.q_networks)

    def q1_forward(self, obs: Obs, actions: Tensor) -> Tensor:
        """The first value only: [B, 1]."""
        return self.q_networks[0](self._inputs(obs, actions))


ActorClass = type[SquashedGaussianActor] | type[DeterministicActor]

ACTORS: Mapping[str, ActorClass] = {
    "squashed_gaussian": SquashedGaussianActor,
    "deterministic": DeterministicActor,
}
"""Actors by the name that an algorithm gives."""

_FILLED_IN = {"net_arch", "features_extractor", "features_dim", "activation_fn", "normalize_images"}
"""Arguments of actor and critics that the policy provides; the rest are their own options."""
_CRITICS_FILLED_IN = _FILLED_IN | {"n_critics", "share_features_extractor"}


class ContinuousPolicy(Policy):
    """An actor, K critics, and lagging copies of the critics and, for a deterministic actor, of the actor.

    Args:
        observation_space: what it reads.
        action_space: a Box of finite bounds.
        actor: ``"squashed_gaussian"``, ``"deterministic"``, or a class like those two.
        critic: class of the critics.
        net_arch: hidden widths of actor and critics, a list or ``dict(pi=[...], qf=[...])``; ``None`` takes the
            actor's own default: [256, 256] for the Gaussian; [400, 300], or [256, 256] after :class:`NatureCNN`, for
            the deterministic one.
        activation_fn: follows every hidden layer.
        n_critics: K.
        share_features_extractor: actor and critics read the same features, which learn from the actor's loss alone.
        features_extractor_class: see :class:`~polyak.nn.policies.base.Policy`.
        features_extractor_kwargs: see :class:`~polyak.nn.policies.base.Policy`.
        normalize_images: divide uint8 images by 255.
        memory: ``"lstm"`` or ``"gru"``: networks are recurrent; ``None``: they are not.
        memory_size: units of each recurrent layer.
        memory_layers: how many of them, one above the other.
        memory_dropout: share of the outputs of a layer that is dropped before the next one in training.
        max_seq_len: steps of a replayed sequence to learn from, through which gradients go back.
        burn_in: steps before them, which only update the stored recurrent state (R2D2).
        **options: further arguments of the actor (``use_sde`` of :class:`SquashedGaussianActor`, say), of the critics
            or of both.

    Raises:
        PolicyError: another action space, or an argument out of range.
        TypeError: an option that neither actor nor critics have.
    """

    action_space: spaces.Box

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        *,
        actor: str | ActorClass = "squashed_gaussian",
        critic: type[ContinuousCritic] = ContinuousCritic,
        net_arch: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
        activation_fn: Activation = nn.ReLU,
        n_critics: int = 2,
        share_features_extractor: bool = False,
        features_extractor_class: ExtractorClass | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_images: bool = True,
        memory: str | None = None,
        memory_size: int = 256,
        memory_layers: int = 1,
        memory_dropout: float = 0.0,
        max_seq_len: int = 32,
        burn_in: int = 8,
        **options: Any,
    ) -> None:
        check_bounded(action_space)
        super().__init__(
            observation_space,
            action_space,
            features_extractor_class=features_extractor_class,
            features_extractor_kwargs=features_extractor_kwargs,
            normalize_images=normalize_images,
            squash_output=True,
        )
        self.recurrence = recurrence(memory, memory_size, memory_layers, max_seq_len, burn_in, memory_dropout)
        self.actor_class = _actor_class(actor)
        self.critic_class = critic
        check_keywords(type(self).__name__, options, self.keywords(actor=self.actor_class, critic=critic))
        of_critics = keywords_of(critic) - _CRITICS_FILLED_IN
        of_actor = keywords_of(self.actor_class) - _FILLED_IN
        self.critic_options = {name: value for name, value in options.items() if name in of_critics}
        self.actor_options = {name: value for name, value in options.items() if name in of_actor}
        self.net_arch = (
            self.actor_class.default_net_arch(self.features_extractor_class) if net_arch is None else net_arch
        )
        self._actor_arch, self._critic_arch = get_actor_critic_arch(self.net_arch)
        self.activation_fn = activation_fn
        self.n_critics = n_critics
        self.share_features_extractor = share_features_extractor
        self._build_networks()

    def _build_networks(self) -> None:
        self.actor = self.make_actor()
        if self.actor_class.has_target:
            self.actor_target = _target(self.make_actor(), self.actor)
            self.targets += ("actor_target",)
        shared = self.share_features_extractor
        self.critic = self.make_critic(self.actor.features_extractor if shared else None)
        if self.critic_class.has_target:
            lagging = self.actor_target.features_extractor if shared and self.actor_class.has_target else None
            self.critic_target = _target(self.make_critic(lagging), self.critic)
            if not self.critic_class.target_switches:
                self.targets += ("critic_target",)
        for name in self.targets:
            getattr(self, name).eval()

    @classmethod
    def keywords(
        cls,
        actor: str | ActorClass = "squashed_gaussian",
        critic: type[ContinuousCritic] = ContinuousCritic,
        **defaults: Any,
    ) -> set[str]:
        """Names that ``policy_kwargs`` may hold: the policy's and those of its actor and critics."""
        own = keywords_of(cls) - {"actor", "critic", "squash_output"}
        return own | (keywords_of(_actor_class(actor)) - _FILLED_IN) | (keywords_of(critic) - _CRITICS_FILLED_IN)

    def extractors(self) -> dict[nn.Module, RecurrentExtractor]:
        if self.recurrence is None:
            return {}
        networks: tuple[Any, ...] = (self.actor,) if self.share_features_extractor else (self.actor, self.critic)
        return {network: network.features_extractor for network in networks}

    def make_actor(self, features_extractor: nn.Module | None = None) -> Any:
        """A new actor, with its own features extractor unless one is given."""
        return self.actor_class(
            self.observation_space,
            self.action_space,
            self._actor_arch,
            activation_fn=self.activation_fn,
            normalize_images=self.normalize_images,
            **self._features(features_extractor, "actor_"),
            **self.actor_options,
        )

    def make_critic(self, features_extractor: nn.Module | None = None) -> ContinuousCritic:
        """New critics, with their own features extractor unless one is given."""
        return self.critic_class(
            self.observation_space,
            self.action_space,
            self._critic_arch,
            activation_fn=self.activation_fn,
            normalize_images=self.normalize_images,
            n_critics=self.n_critics,
            share_features_extractor=self.share_features_extractor,
            **self._features(features_extractor, "critic_"),
            **self.critic_options,
        )

    def _features(self, features_extractor: nn.Module | None, prefix: str) -> dict[str, Any]:
        extractor: Any = features_extractor
        if extractor is None:
            extractor = self.make_features_extractor()
            if self.recurrence is not None:
                extractor.prefix = prefix
        return {"features_extractor": extractor, "features_dim": extractor.features_dim}

    def forward(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, ...] in [-1, 1]."""
        return self.act(obs, deterministic)

    @plain
    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, ...] in [-1, 1]."""
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

    def reset_noise(self, batch_size: int = 1) -> None:
        """Draw new exploration matrices, one for each environment.

        Raises:
            PolicyError: the actor does not use state-dependent exploration.
        """
        if not hasattr(self.actor, "reset_noise"):
            super().reset_noise(batch_size)
        self.actor.reset_noise(batch_size)


def _of_many(network: nn.Module, features: Tensor, actions: Tensor) -> Tensor:
    """A perceptron's values of features [B, F] beside each of M actions [B, M, A]: [B, M]

    A linear first layer multiplies the features of each state once, not once for each action.
    """
    if type(network) is not nn.Sequential or type(network[0]) is not nn.Linear:
        beside = features.unsqueeze(1).expand(-1, actions.shape[1], -1)
        return network(torch.cat([beside, actions], dim=2)).squeeze(2)
    layers: list[Any] = list(network)
    first, width = layers[0], features.shape[1]
    of_states = F.linear(features, first.weight[:, :width], first.bias)
    hidden = of_states.unsqueeze(1) + F.linear(actions, first.weight[:, width:])
    for layer in layers[1:]:
        hidden = layer(hidden)
    return hidden.squeeze(2)


def _actor_class(actor: str | ActorClass) -> ActorClass:
    if not isinstance(actor, str):
        return actor
    if actor not in ACTORS:
        raise PolicyError(f"actor={actor!r} is unknown. Use one of {sorted(ACTORS)}, or a class like theirs.")
    return ACTORS[actor]


def _target(target: Any, online: nn.Module) -> Any:
    """``target`` made an exact, frozen copy of ``online``."""
    target.load_state_dict(online.state_dict())
    return target.requires_grad_(False)
