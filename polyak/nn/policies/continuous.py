"""Policies with an actor and action-value critics for continuous actions: SAC, TD3, DDPG."""

from __future__ import annotations

from collections.abc import Mapping
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
from polyak.nn.networks.layers import get_actor_critic_arch
from polyak.nn.networks.recall import RecurrentExtractor
from polyak.nn.options import all_keywords, check_keywords, check_sde_on_states, split, warn_without_sde
from polyak.nn.plain import plain
from polyak.nn.policies.base import (
    ActorPolicy,
    CriticEnsemble,
    LayeredNetwork,
    MemoryPolicy,
    StochasticActor,
    check_bounded,
    lagging,
    options_of,
)

LOG_STD_MIN, LOG_STD_MAX = -20, 2
"""Bounds of the log standard deviation that a squashed Gaussian actor may choose."""


class SquashedGaussianActor(StochasticActor):
    """tanh of a Gaussian whose mean and log standard deviation depend on the state (SAC, arXiv:1812.05905).

    With ``use_sde``, noise is state-dependent (gSDE, arXiv:2005.05719) and ``log_std`` a parameter.

    Args:
        *args: see :class:`~polyak.nn.policies.base.LayeredNetwork`.
        use_sde: state-dependent exploration.
        log_std_init: gSDE: initial log standard deviation of the exploration matrices.
        full_std: gSDE: a standard deviation for each feature and action rather than for each feature.
        use_expln: gSDE: a positive function that grows slower than exp.
        clip_mean: gSDE: bound on the absolute mean before tanh; 0 for none.
        softplus_std: standard deviations are log(1 + exp(x)) of the network's outputs x, and not exp(x): above 1 they
            grow linearly. The bounds are the same.
        sde_on_states: gSDE: noise is linear in the features that the hidden layers read, of a vector the observation
            itself, and not in the last hidden layer (SDE, Rueckstiess, Felder and Schmidhuber 2008).
        **options: see :class:`~polyak.nn.policies.base.LayeredNetwork`.

    Raises:
        PolicyError: a negative ``clip_mean``, or ``softplus_std`` with ``use_sde``, or ``sde_on_states`` without it.
    """

    action_family: GaussianFamily | StateDependentGaussianFamily
    mu: nn.Module
    log_std: nn.Module | nn.Parameter

    def __init__(
        self,
        *args: Any,
        use_sde: bool = False,
        log_std_init: float = -3,
        full_std: bool = True,
        use_expln: bool = False,
        clip_mean: float = 2.0,
        softplus_std: bool = False,
        sde_on_states: bool = False,
        **options: Any,
    ) -> None:
        check_sde_on_states(sde_on_states, use_sde)
        super().__init__(*args, **options)
        if clip_mean < 0:
            raise PolicyError(f"clip_mean must be positive, or 0 for no bound, got {clip_mean}.")
        if softplus_std and use_sde:
            raise PolicyError(
                f"softplus_std={softplus_std!r} cannot be used with use_sde=True, whose deviations are parameters. "
                "Leave it out; use_expln=True makes those grow slowly."
            )
        self.log_std_init, self.full_std, self.use_expln, self.clip_mean = log_std_init, full_std, use_expln, clip_mean
        self.latent_pi = self.make_latent(self.features_dim)
        self.use_sde, self.softplus_std, self.sde_on_states = use_sde, softplus_std, sde_on_states
        action_dim = get_action_dim(self.action_space)
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
        self._build_heads(self.net_arch[-1] if self.net_arch else self.features_dim)

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
        return self.layers(inputs, 0)

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
        """Returns gSDE's family and its parameter, which the method named ``asked`` needs."""
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

    def action_log_prob(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Sampled actions [B, A], differentiable, and their log-density [B]."""
        return self.get_distribution(obs).sample_with_log_prob()


class DeterministicActor(LayeredNetwork):
    """tanh of a perceptron: observations [B, ...] -> actions [B, A] in (-1, 1) (DDPG, arXiv:1509.02971). See
    :class:`~polyak.nn.policies.base.LayeredNetwork`."""

    has_target: ClassVar[bool] = True

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.mu = self.layers(self.features_dim, get_action_dim(self.action_space), squash_output=True)

    @staticmethod
    def default_net_arch(extractor_class: ExtractorClass) -> list[int]:
        """Hidden widths of actor and critics when the user gives none; narrower after :class:`NatureCNN`."""
        return [256, 256] if extractor_class is NatureCNN else [400, 300]

    @plain
    def forward(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Actions [B, A]; the algorithm adds exploration noise, so ``deterministic`` changes nothing."""
        return self.mu(self.extract_features(obs, self.features_extractor))


class ContinuousCritic(CriticEnsemble):
    """K action-value functions of the same features: observations [B, ...], actions [B, A] -> K values each.

    Args:
        *args: see :class:`~polyak.nn.policies.base.CriticEnsemble`.
        share_features_extractor: the extractor is the actor's and learns from the actor's loss alone, so that no
            gradient of the critics reaches it.
        **options: see :class:`~polyak.nn.policies.base.CriticEnsemble`.
    """

    n_outputs: int = 1
    """Number of outputs of each critic."""
    has_target: ClassVar[bool] = True
    target_switches: ClassVar[bool] = False
    """Whether the target network is in training mode when the critics are, so that its dropout is active too; others
    stay in evaluation mode."""

    def __init__(self, *args: Any, share_features_extractor: bool = True, **options: Any) -> None:
        super().__init__(*args, **options)
        self.share_features_extractor = share_features_extractor

    def _n_inputs(self) -> int:
        return self.features_dim + get_action_dim(self.action_space)

    def make_q_network(self, inputs: int) -> nn.Module:
        """Returns one of the K perceptrons: features and actions side by side [B, inputs] -> [B, n_outputs]."""
        return self.layers(inputs, self.n_outputs)

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
        """Returns the K values: [K, B]."""
        inputs = self._inputs(obs, actions)
        return torch.stack([network(inputs).squeeze(1) for network in self.q_networks])

    def q_values_of_many(self, obs: Obs, actions: Tensor) -> Tensor:
        """Returns the K values of M actions in each state, extracting its features once: [B, M, A] -> [K, B, M]."""
        features = self._features(obs)
        return torch.stack([_of_many(network, features, actions) for network in self.q_networks])

    def forward(self, obs: Obs, actions: Tensor) -> tuple[Tensor, ...]:
        """Returns the K values, each [B, 1]."""
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

_GIVEN_TO_CRITICS = {"n_critics", "share_features_extractor"}
"""Arguments of critics that the policy fills in besides those of all networks."""


class ContinuousPolicy(MemoryPolicy, ActorPolicy):
    """An actor, K critics, and lagging copies of the critics and, for a deterministic actor, of the actor.

    Args:
        observation_space: space of the observations.
        action_space: a Box of finite bounds.
        actor: ``"squashed_gaussian"``, ``"deterministic"``, or a class like those two.
        critic: class of the critics.
        n_critics: K.
        share_features_extractor: actor and critics read the same features, which learn from the actor's loss alone.
        **options: see :class:`~polyak.nn.policies.base.MemoryPolicy`; and further arguments of the actor, such as
            ``use_sde`` of :class:`SquashedGaussianActor`, of the critics or of both. ``net_arch`` has the hidden widths
            of actor and critics, a list or ``dict(pi=[...], qf=[...])``; ``None`` takes the actor's own default:
            [256, 256] for the Gaussian; [400, 300], or [256, 256] after :class:`NatureCNN`, for the deterministic one.

    Raises:
        PolicyError: another action space, or an argument out of range.
        TypeError: an option that neither actor nor critics have.
    """

    fixed = frozenset({"squash_output", "actor", "critic"})
    action_space: spaces.Box

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Box,
        *,
        actor: str | ActorClass = "squashed_gaussian",
        critic: type[ContinuousCritic] = ContinuousCritic,
        n_critics: int = 2,
        share_features_extractor: bool = False,
        **options: Any,
    ) -> None:
        check_bounded(action_space)
        self.actor_class, self.critic_class = _actor_class(actor), critic
        of_actor, of_critics = options_of(self.actor_class), options_of(critic) - _GIVEN_TO_CRITICS
        check_keywords(type(self).__name__, options, all_keywords(type(self)) | of_actor | of_critics)
        self.actor_options, self.critic_options = split(options, of_actor)[0], split(options, of_critics)[0]
        rest = split(options, of_actor | of_critics)[1]
        super().__init__(observation_space, action_space, squash_output=True, **rest)
        self._actor_arch, self._critic_arch = get_actor_critic_arch(self.net_arch)
        self.n_critics, self.share_features_extractor = n_critics, share_features_extractor
        self._build_networks()

    def default_arch(self) -> list[int]:
        return self.actor_class.default_net_arch(self.features_extractor_class)

    def _build_networks(self) -> None:
        self.actor = self.make_actor()
        if self.actor_class.has_target:
            self.actor_target = lagging(self.make_actor(), self.actor)
            self.targets += ("actor_target",)
        shared = self.share_features_extractor
        self.critic = self.make_critic(self.actor.features_extractor if shared else None)
        if self.critic_class.has_target:
            own = self.actor_target.features_extractor if shared and self.actor_class.has_target else None
            self.critic_target: Any = lagging(self.make_critic(own), self.critic)
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
        return super().keywords() | options_of(_actor_class(actor)) | (options_of(critic) - _GIVEN_TO_CRITICS)

    def extractors(self) -> dict[nn.Module, RecurrentExtractor]:
        if self.recurrence is None:
            return {}
        networks: tuple[Any, ...] = (self.actor,) if self.share_features_extractor else (self.actor, self.critic)
        return {network: network.features_extractor for network in networks}

    def make_actor(self, features_extractor: nn.Module | None = None) -> Any:
        """A new actor, with its own features extractor unless one is given."""
        actor = self.new_network(self.actor_class, self._actor_arch, features_extractor, **self.actor_options)
        return self._named("actor_", actor, features_extractor)

    def make_critic(self, features_extractor: nn.Module | None = None) -> ContinuousCritic:
        """New critics, with their own features extractor unless one is given."""
        options = {"n_critics": self.n_critics, "share_features_extractor": self.share_features_extractor}
        options |= self.critic_options
        critic = self.new_network(self.critic_class, self._critic_arch, features_extractor, **options)
        return self._named("critic_", critic, features_extractor)

    def _named(self, prefix: str, network: Any, given: nn.Module | None) -> Any:
        """Prefixes the names of the network's recurrent state, unless its extractor was given; returns the network."""
        if self.recurrence is not None and given is None:
            network.features_extractor.prefix = prefix
        return network

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
