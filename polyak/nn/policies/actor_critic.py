"""Policies with a stochastic actor and a state-value function: PPO, A2C, TRPO."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.envs.masks import mask_size
from polyak.nn.distributions.base import Distribution
from polyak.nn.distributions.choice import make_family
from polyak.nn.distributions.exploration_noise import ExplorationNoise
from polyak.nn.distributions.gaussian import GaussianFamily
from polyak.nn.distributions.product import ProductFamily
from polyak.nn.distributions.state_dependent import StateDependentGaussianFamily
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import NatureCNN, Obs
from polyak.nn.networks.layers import (
    Activation,
    MlpExtractor,
    MlpExtractorWithFeatures,
    get_policy_value_arch,
    unwrap_legacy_arch,
)
from polyak.nn.options import check_sde_on_states, warn_without_sde
from polyak.nn.plain import is_plain, plain
from polyak.nn.policies.base import Decision, LayeredPolicy, Noise, State, chosen, family_noise, shaped


class ActorCriticPolicy(LayeredPolicy):
    """Features -> hidden layers of actor and value function -> action distribution and state value.

    Args:
        observation_space: space of the observations.
        action_space: Box, Discrete, MultiDiscrete, MultiBinary, or a Dict or Tuple of these, whose parts do not depend
            on each other.
        net_arch: hidden widths of actor and value function, a list or ``dict(pi=[...], vf=[...])``; ``None`` takes
            [64, 64], or none after :class:`NatureCNN`.
        activation_fn: follows every hidden layer.
        ortho_init: orthogonal initial weights: gain sqrt(2) for features and hidden layers, 0.01 for the action layer,
            1 for the value layer.
        use_sde: state-dependent exploration (gSDE, arXiv:2005.05719).
        log_std_init: initial log standard deviation, for a Box and for Box parts.
        full_std: gSDE: a standard deviation for each feature and action rather than for each feature.
        use_expln: gSDE: a positive function that grows slower than exp.
        sde_on_states: gSDE: noise is linear in the features that the hidden layers read, of a vector the observation
            itself, and not in the last hidden layer (SDE, Rueckstiess, Felder and Schmidhuber 2008).
        squash_output: gSDE: pass actions through tanh and stretch them to the bounds, instead of clipping.
        sparse: probabilities by sparsemax instead of softmax, for Discrete and MultiDiscrete: bad actions get
            probability 0 (arXiv:1602.02068; with ``entropy_index=2`` the policies of arXiv:1709.06293).
        share_features_extractor: actor and value function read, and both train, the same features.
        **options: see :class:`~polyak.nn.policies.base.Policy`.

    Raises:
        PolicyError: ``squash_output`` or ``sde_on_states`` without ``use_sde``, ``use_sde`` without a Box,
            ``sparse`` with a Box or a MultiBinary, or an argument out of range.
        NotImplementedError: an action space without a distribution.
    """

    fixed = frozenset()
    action_net: nn.Module
    log_std: nn.Parameter
    exploration_noise: ExplorationNoise
    """The draws behind gSDE's exploration matrices, where ``use_sde``."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        net_arch: Sequence[int] | Mapping[str, Sequence[int]] | None = None,
        activation_fn: Activation = nn.Tanh,
        ortho_init: bool = True,
        use_sde: bool = False,
        log_std_init: float = 0.0,
        full_std: bool = True,
        use_expln: bool = False,
        squash_output: bool = False,
        sparse: bool = False,
        share_features_extractor: bool = True,
        sde_on_states: bool = False,
        **options: Any,
    ) -> None:
        check_sde_on_states(sde_on_states, use_sde)
        if squash_output and not use_sde:
            raise PolicyError(
                "squash_output=True needs gSDE: add use_sde=True, or leave squash_output out to have actions clipped."
            )
        layers: dict[str, Any] = {"net_arch": net_arch, "activation_fn": activation_fn}
        super().__init__(observation_space, action_space, squash_output=squash_output, **layers, **options)
        self.net_arch = unwrap_legacy_arch(self.net_arch)
        get_policy_value_arch(self.net_arch)
        self.ortho_init, self.log_std_init = ortho_init, log_std_init
        self.use_sde, self.full_std, self.use_expln, self.sde_on_states = use_sde, full_std, use_expln, sde_on_states
        self.share_features_extractor = share_features_extractor
        of_noise: dict[str, Any] = {}
        if use_sde:
            of_noise = {"full_std": full_std, "squash": squash_output, "use_expln": use_expln}
        else:
            warn_without_sde(full_std=(full_std, True), use_expln=(use_expln, False))
        self.action_family = make_family(action_space, use_sde, sparse, **of_noise)
        self.supports_masks = mask_size(action_space) is not None
        # a subclass that changes how actions are drawn in forward() must act that way too
        self.acts_by_forward = not is_plain(self, "forward")
        self._build_networks()

    def default_arch(self) -> Any:
        return [] if self.features_extractor_class is NatureCNN else {"pi": [64, 64], "vf": [64, 64]}

    def _build_networks(self) -> None:
        extractor = self.make_features_extractor()
        self.features_extractor: nn.Module = extractor
        self.features_dim = extractor.features_dim
        self.pi_features_extractor = self.features_extractor
        self.vf_features_extractor = (
            self.features_extractor if self.share_features_extractor else self.make_features_extractor()
        )
        self._build_mlp_extractor()
        self._build_heads(self.mlp_extractor.latent_dim_pi)
        self.value_net = nn.Linear(self.mlp_extractor.latent_dim_vf, 1)
        if self.ortho_init:
            self._init_orthogonal()

    def _build_mlp_extractor(self) -> None:
        """Set ``self.mlp_extractor``; a subclass may set another module.

        That module has ``latent_dim_pi`` and ``latent_dim_vf``, maps features [B, F] to two latents, and to one of them
        in ``forward_actor`` and ``forward_critic``.
        """
        cls = MlpExtractorWithFeatures if self.sde_on_states else MlpExtractor
        self.mlp_extractor = cls(self.features_dim, self.net_arch, self.activation_fn, device=self.device)

    def _build_heads(self, latent_dim: int) -> None:
        family = self.action_family
        if self.sde_on_states and not isinstance(self.mlp_extractor, MlpExtractorWithFeatures):
            raise PolicyError(
                f"sde_on_states=True cannot be used: {type(self).__name__} has hidden layers that do not show what "
                "they read, as recurrent policies do. Leave it out."
            )
        self.action_net = family.make_head(latent_dim)
        if isinstance(family, (GaussianFamily, StateDependentGaussianFamily)) or (
            isinstance(family, ProductFamily) and family.n_deviations
        ):
            width = self.features_dim if self.sde_on_states else latent_dim
            self.log_std = family.make_log_std(width, self.log_std_init)
        if isinstance(family, StateDependentGaussianFamily):
            self.exploration_noise = ExplorationNoise()
            self.exploration_noise.draw(self.log_std, family.action_dim, count=1)

    def _init_orthogonal(self) -> None:
        gains: list[tuple[nn.Module, float]] = [
            (self.mlp_extractor, math.sqrt(2)),
            (self.action_net, 0.01),
            (self.value_net, 1.0),
        ]
        if self.share_features_extractor:
            gains.insert(0, (self.features_extractor, math.sqrt(2)))
        else:
            gains += [(self.pi_features_extractor, math.sqrt(2)), (self.vf_features_extractor, math.sqrt(2))]
        for root, gain in gains:
            for module in root.modules():
                self.init_weights(module, gain)

    # --- features, distribution, value --------------------------------------------------------------------------------

    def extract_features(self, obs: Obs, features_extractor: nn.Module | None = None) -> Any:
        """Raw observations [B, ...] -> features [B, F] of the extractor given; without one, those of the shared
        extractor, or a pair: actor's and value function's."""
        if features_extractor is not None:
            return super().extract_features(obs, features_extractor)
        if self.share_features_extractor:
            return super().extract_features(obs, self.features_extractor)
        observations = self.preprocess(obs)
        return self.pi_features_extractor(observations), self.vf_features_extractor(observations)

    def _latents(self, obs: Obs) -> tuple[Tensor, Tensor]:
        features = self.extract_features(obs)
        if self.share_features_extractor:
            return self.mlp_extractor(features)
        pi_features, vf_features = features
        return self.mlp_extractor.forward_actor(pi_features), self.mlp_extractor.forward_critic(vf_features)

    @plain
    def _get_action_dist_from_latent(self, latent_pi: Tensor) -> Distribution:
        if isinstance(self.action_family, GaussianFamily):
            return self.action_family(self.action_net(latent_pi), self.log_std)
        return self._of_other_family(latent_pi)

    @plain
    def _of_other_family(self, latent_pi: Tensor) -> Distribution:
        family, latent_sde = self.action_family, latent_pi
        if self.sde_on_states:
            latent_pi, latent_sde = latent_pi.split([self.mlp_extractor.latent_dim_pi, self.features_dim], dim=1)
        outputs = self.action_net(latent_pi)
        if isinstance(family, StateDependentGaussianFamily):
            return family(outputs, self.log_std, latent_sde, self.exploration_noise.of(latent_pi.shape[0]))
        if isinstance(family, ProductFamily):
            return family(outputs, self.log_std if family.n_deviations else None)
        return family(outputs)

    @plain
    def get_distribution(self, obs: Obs) -> Distribution:
        """The action distribution for observations [B, ...]."""
        features = self.extract_features(obs, self.pi_features_extractor)
        return self._get_action_dist_from_latent(self.mlp_extractor.forward_actor(features))

    def predict_values(self, obs: Obs) -> Tensor:
        """State values [B, 1]."""
        features = self.extract_features(obs, self.vf_features_extractor)
        return self.value_net(self.mlp_extractor.forward_critic(features))

    def critic_parameters(self) -> list[nn.Parameter]:
        """Parameters that only state values use."""
        parts = [getattr(self.mlp_extractor, "value_net", None), self.value_net]
        if not self.share_features_extractor:
            parts.insert(0, self.vf_features_extractor)
        return [parameter for part in parts if part is not None for parameter in part.parameters()]

    def actor_parameters(self) -> list[nn.Parameter]:
        """Returns the parameters that are not the critic's alone: those of the actor, and shared ones."""
        critics = set(self.critic_parameters())
        return [parameter for parameter in self.parameters() if parameter not in critics]

    # --- acting and learning ------------------------------------------------------------------------------------------

    @plain
    def forward(self, obs: Obs, deterministic: bool = False) -> tuple[Tensor, Tensor, Tensor]:
        """Actions [B, ...] in the network's units, state values [B, 1], log-densities of the actions [B]."""
        latent_pi, latent_vf = self._latents(obs)
        distribution = self._get_action_dist_from_latent(latent_pi)
        actions = distribution.get_actions(deterministic)
        return self._shaped(actions), self.value_net(latent_vf), distribution.log_prob(actions)

    def evaluate_actions(
        self, obs: Obs, actions: Tensor, masks: Tensor | None = None, entropy_index: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Values, log-densities and entropies of stored actions, for losses.

        Args:
            obs: [B, ...].
            actions: [B, ...] in the network's units, of any dtype; [B, 1] will do for a Discrete.
            masks: [B, M] bool, which choices were allowed; ``None``: all.
            entropy_index: which Tsallis entropy, see :mod:`polyak.ops.tsallis`; 1 is Shannon's.

        Returns:
            State values [B, 1], log-densities of the actions [B], entropies [B] (None where Shannon's has no closed
            form).

        Raises:
            PolicyError: another Tsallis entropy has no closed form.
        """
        return self._evaluated(self._latents(obs), actions, masks, entropy_index)

    def _evaluated(
        self, latents: tuple[Tensor, Tensor], actions: Tensor, masks: Tensor | None, entropy_index: float
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """:meth:`evaluate_actions` from the latents of actor and value function."""
        latent_pi, latent_vf = latents
        distribution = self._get_action_dist_from_latent(latent_pi)
        if masks is not None:
            distribution = distribution.masked(masks)
        entropy = distribution.entropy() if entropy_index == 1 else distribution.tsallis_entropy(entropy_index)
        return self.value_net(latent_vf), distribution.log_prob(self._flat(actions)), entropy

    def log_prob_of(self, actions: Tensor, distribution: Distribution) -> Tensor:
        """Log-densities [B] of stored actions [B, ...], as :meth:`evaluate_actions` takes them."""
        return distribution.log_prob(self._flat(actions))

    @plain
    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """Actions [B, ...] in the network's units; the value function is not called."""
        if self.acts_by_forward:
            return self.forward(obs, deterministic)[0]
        return self._shaped(self.get_distribution(obs).get_actions(deterministic))

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        if noise or masks is not None:
            return self._decide_among(masks, obs, noise)
        if not self.acts_by_forward:
            return super().decide(obs, noise, state, masks)
        actions, values, log_probs = self(obs, noise is None)  # a user's override, whose values may differ
        return Decision(actions, {"values": values.flatten(), "log_probs": log_probs})

    def _decide_among(self, masks: Tensor | None, obs: Obs, noise: Noise | None) -> Decision:
        """:meth:`decide` with given noise, or with masks."""
        distribution = self.get_distribution(obs)
        if masks is not None:
            distribution = distribution.masked(masks)
        return Decision(self._shaped(chosen(distribution, noise)))

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        ours = ("act", "decide", "get_distribution", "_get_action_dist_from_latent", "_shaped")
        if self.acts_by_forward or not is_plain(self, *ours):
            return {}
        if isinstance(self.action_family, StateDependentGaussianFamily):
            return {"actions": self.exploration_noise.of(batch)}
        return family_noise(self.action_family, batch, self.device, generator)

    def _predict(self, observation: Obs, deterministic: bool = False) -> Tensor:
        return self.get_distribution(observation).get_actions(deterministic)

    @plain
    def _shaped(self, actions: Tensor) -> Tensor:
        """[B] or [B, A] of the distribution -> [B, *shape of the action space]."""
        return shaped(actions, self.codec.shape)

    def _flat(self, actions: Tensor) -> Tensor:
        """[B, ...] -> the argument of the distribution: [B] for a Discrete, else [B, A]."""
        if isinstance(self.action_space, spaces.Discrete):
            return actions.flatten()
        return actions.flatten(1) if actions.ndim > 1 else actions[:, None]

    def reset_noise(self, n_envs: int = 1) -> None:
        """Draw new exploration matrices, one for each environment.

        Raises:
            PolicyError: the policy does not use state-dependent exploration.
        """
        if not isinstance(self.action_family, StateDependentGaussianFamily):
            super().reset_noise(n_envs)
            return
        self.exploration_noise.draw(self.log_std, self.action_family.action_dim, n_envs)
