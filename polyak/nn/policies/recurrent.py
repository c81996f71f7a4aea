"""Policies with a recurrent stochastic actor and state-value function: PPO, A2C and TRPO with ``memory``."""

from __future__ import annotations

from typing import Any, Literal

from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.distributions.base import Distribution
from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.layers import MlpExtractor
from polyak.nn.networks.recurrent import Recurrent, check_memory, part_of, prefixed, runs_side_by_side
from polyak.nn.plain import plain
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import Decision, Noise, State, chosen

ACTOR, CRITIC = "actor_", "critic_"
"""Prefixes of the names of their recurrent states."""


class RecurrentActorCriticPolicy(ActorCriticPolicy):
    """Features -> recurrent layers -> hidden layers of actor and value function -> action distribution and state value.

    Rows of experience hold the recurrent state before each of them. The rows given to :meth:`evaluate_actions` and
    similar methods are single steps, each with its own recurrent state; or, with ``starts``, concatenated sequences of
    ``sequence_length`` steps, each with the recurrent state at its first step.

    Args:
        observation_space: space of the observations.
        action_space: Box, Discrete, MultiDiscrete or MultiBinary.
        memory: ``"lstm"`` or ``"gru"``.
        memory_size: units of each recurrent layer.
        memory_layers: how many of them, one above the other.
        memory_dropout: share of the outputs of a layer that is dropped before the next one in training.
        critic_memory: the value function has recurrent layers of its ``"own"``; it reads the actor's (``"shared"``),
            which its losses do not train; or it has ``"none"``, and a linear layer instead.
        max_seq_len: most steps of backpropagation through time. Rollouts are cut into equal sequences of at most this
            length; ``None``: as long as a rollout and a minibatch allow.
        options: those of :class:`~polyak.nn.policies.actor_critic.ActorCriticPolicy`.

    Raises:
        PolicyError: an argument out of range.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        memory: str = "lstm",
        memory_size: int = 256,
        memory_layers: int = 1,
        memory_dropout: float = 0.0,
        critic_memory: Literal["own", "shared", "none"] = "own",
        max_seq_len: int | None = 32,
        **options: Any,
    ) -> None:
        check_memory(memory, memory_size, memory_layers, max_seq_len, memory_dropout)
        if critic_memory not in ("own", "shared", "none"):
            raise PolicyError(f"critic_memory must be 'own', 'shared' or 'none', got {critic_memory!r}.")
        if critic_memory == "shared" and not options.get("share_features_extractor", True):
            raise PolicyError(
                "critic_memory='shared' lets the value function read the actor's features, but "
                "share_features_extractor=False asks for others. Leave one of them out."
            )
        self.memory, self.memory_size, self.memory_layers = memory, memory_size, memory_layers
        self.critic_reads, self.max_seq_len, self.memory_dropout = critic_memory, max_seq_len, memory_dropout
        self.sequence_length = 1
        super().__init__(observation_space, action_space, **options)
        self.acts_by_forward = False  # but by decide()

    def _build_networks(self) -> None:
        super()._build_networks()
        self._build_memories()

    def _build_memories(self) -> None:
        """Set ``actor_memory``, and ``critic_memory`` or ``critic_layer`` if there is one."""
        self.actor_memory = self._make_memory()
        if self.critic_reads == "own":
            self.critic_memory = self._make_memory()
        elif self.critic_reads == "none":
            self.critic_layer = nn.Linear(self.features_dim, self.memory_size)

    def _make_memory(self) -> Recurrent:
        return Recurrent(self.memory, self.features_dim, self.memory_size, self.memory_layers, self.memory_dropout)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = MlpExtractor(self.memory_size, self.net_arch, self.activation_fn, device=self.device)

    # --- recurrent state ----------------------------------------------------------------------------------------------

    def initial_memory(self, batch: int) -> State:
        parts = prefixed(ACTOR, self.actor_memory.initial(batch))
        return parts | prefixed(CRITIC, self.critic_memory.initial(batch)) if self.critic_reads == "own" else parts

    def _features(self, obs: Obs) -> tuple[Tensor, Tensor]:
        """Features [B, F] for actor and value function."""
        features = self.extract_features(obs)
        return (features, features) if self.share_features_extractor else features

    def _recall(self, core: Recurrent, features: Tensor, memory: State, starts: Tensor | None) -> Tensor:
        """Outputs [B, H] of rows as the class describes them."""
        if starts is None:
            return core.step(features, memory)[0]
        return core.runs(features, memory, starts, self.sequence_length)

    def _actor_latent(self, features: Tensor, memory: State, starts: Tensor | None = None) -> Tensor:
        return self._recall(self.actor_memory, features, part_of(ACTOR, memory), starts)

    def _critic_latent(self, features: Tensor, memory: State, starts: Tensor | None = None) -> Tensor:
        if self.critic_reads == "own":
            return self._recall(self.critic_memory, features, part_of(CRITIC, memory), starts)
        if self.critic_reads == "none":
            return self.critic_layer(features)
        return self._actor_latent(features, memory, starts).detach()

    def _actor_and_critic_latents(
        self, pi_features: Tensor, vf_features: Tensor, memory: State, starts: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Returns the latents of actor and value function, [B, H] each."""
        if self.critic_reads == "own" and starts is not None and self.actor_memory.resembles(self.critic_memory):
            cores, parts = (self.actor_memory, self.critic_memory), (part_of(ACTOR, memory), part_of(CRITIC, memory))
            actors, critics = runs_side_by_side(cores, (pi_features, vf_features), parts, starts, self.sequence_length)
            return actors, critics
        latent = self._actor_latent(pi_features, memory, starts)
        shared = self.critic_reads == "shared"
        return latent, latent.detach() if shared else self._critic_latent(vf_features, memory, starts)

    def _or_fresh(self, obs: Obs, memory: State) -> State:
        """``memory``, or the initial one if none is given."""
        return memory or self.initial_memory(len(next(iter(obs.values())) if isinstance(obs, dict) else obs))

    # --- distribution and value ---------------------------------------------------------------------------------------

    @plain
    def get_distribution(self, obs: Obs, starts: Tensor | None = None, **memory: Tensor) -> Distribution:
        """The action distribution for rows [B, ...]: see the class."""
        features = self.extract_features(obs, self.pi_features_extractor)
        latent = self._actor_latent(features, self._or_fresh(obs, memory), starts)
        return self._get_action_dist_from_latent(self.mlp_extractor.forward_actor(latent))

    def predict_values(self, obs: Obs, starts: Tensor | None = None, **memory: Tensor) -> Tensor:
        """State values [B, 1] of rows: see the class."""
        features = self.extract_features(obs, self.vf_features_extractor)
        latent = self._critic_latent(features, self._or_fresh(obs, memory), starts)
        return self.value_net(self.mlp_extractor.forward_critic(latent))

    def evaluate_actions(
        self,
        obs: Obs,
        actions: Tensor,
        masks: Tensor | None = None,
        entropy_index: float = 1.0,
        starts: Tensor | None = None,
        **memory: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        pi_features, vf_features = self._features(obs)
        memory = self._or_fresh(obs, memory)
        latent_pi, latent_vf = self._actor_and_critic_latents(pi_features, vf_features, memory, starts)
        latents = self.mlp_extractor.forward_actor(latent_pi), self.mlp_extractor.forward_critic(latent_vf)
        return self._evaluated(latents, actions, masks, entropy_index)

    def critic_parameters(self) -> list[nn.Parameter]:
        part = {"own": "critic_memory", "none": "critic_layer"}.get(self.critic_reads)
        own = [] if part is None else list(getattr(self, part).parameters())
        return [*super().critic_parameters(), *own]

    # --- acting -------------------------------------------------------------------------------------------------------

    def forward(self, obs: Obs, deterministic: bool = False, **memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Actions [B, ...] in the network's units, state values [B, 1], log-densities of the actions [B]."""
        distribution = self.get_distribution(obs, **memory)
        actions = distribution.get_actions(deterministic)
        return self._shaped(actions), self.predict_values(obs, **memory), distribution.log_prob(actions)

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        memory = self._or_fresh(obs, state or {})
        pi_features, vf_features = self._features(obs)
        latent, then = self.actor_memory.step(pi_features, part_of(ACTOR, memory))
        after = prefixed(ACTOR, then)
        if self.critic_reads == "own" and CRITIC + self.critic_memory.names[0] in memory:
            after |= prefixed(CRITIC, self.critic_memory.step(vf_features, part_of(CRITIC, memory))[1])
        distribution = self._get_action_dist_from_latent(self.mlp_extractor.forward_actor(latent))
        if masks is not None:
            distribution = distribution.masked(masks)
        return Decision(self._shaped(chosen(distribution, noise)), state=after)

    def acting_memory(self, batch: int) -> State:
        return prefixed(ACTOR, self.actor_memory.initial(batch))
