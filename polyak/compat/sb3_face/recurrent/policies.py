"""sb3-contrib's recurrent policies: recurrent state and starts of episodes are arguments of each method.

Shape letters: B rows, which are S sequences of equal length one after another; K layers of H units.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from torch import Tensor, nn

from polyak.compat.sb3_face.distributions import Distribution
from polyak.compat.sb3_face.policies import ACTOR_CRITIC, ActorCriticPolicy, Kwargs, reads_by
from polyak.compat.sb3_face.recurrent.options import critic_memory, dropout_of, lstm_words
from polyak.compat.sb3_face.recurrent.type_aliases import RNNStates, State
from polyak.compat.sb3_face.signatures import takes
from polyak.nn.networks.encoders import CombinedExtractor, NatureCNN, Obs
from polyak.nn.networks.recurrent import Recurrent
from polyak.nn.plain import plain
from polyak.nn.policies import recurrent


class LSTM(Recurrent):
    """Layers of LSTM cells, see :class:`~polyak.nn.networks.recurrent.Recurrent`."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, dropout: float = 0.0) -> None:
        super().__init__("lstm", input_size, hidden_size, num_layers, dropout)
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers


@takes(f"{ACTOR_CRITIC} lstm_hidden_size n_lstm_layers shared_lstm enable_critic_lstm lstm_kwargs")
class RecurrentActorCriticPolicy(recurrent.RecurrentActorCriticPolicy, ActorCriticPolicy):
    """See :class:`polyak.nn.policies.recurrent.RecurrentActorCriticPolicy` and
    :class:`polyak.compat.sb3_face.policies.ActorCriticPolicy`.

    Args:
        lstm_hidden_size: H.
        n_lstm_layers: K.
        shared_lstm: the value function reads the actor's memory, which its losses do not train.
        enable_critic_lstm: the value function has its own memory; without either it has a linear layer instead.
        lstm_kwargs: further arguments of ``torch.nn.LSTM``: ``dropout``; others must have their defaults.

    Raises:
        AssertionError: both ``shared_lstm`` and ``enable_critic_lstm``.
        ValueError: ``lstm_kwargs`` describe another kind of LSTM.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        share_features_extractor: bool = True,
        lstm_hidden_size: int = 256,
        n_lstm_layers: int = 1,
        shared_lstm: bool = False,
        enable_critic_lstm: bool = True,
        lstm_kwargs: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.shared_lstm, self.enable_critic_lstm = shared_lstm, enable_critic_lstm
        self.lstm_kwargs = lstm_words(lstm_kwargs, n_lstm_layers)
        self.lstm_output_dim, self.lstm_hidden_state_shape = lstm_hidden_size, (n_lstm_layers, 1, lstm_hidden_size)
        super().__init__(
            observation_space,
            action_space,
            memory="lstm",
            memory_size=lstm_hidden_size,
            memory_layers=n_lstm_layers,
            memory_dropout=dropout_of(self.lstm_kwargs, n_lstm_layers),
            critic_memory=critic_memory(shared_lstm, enable_critic_lstm, share_features_extractor),
            max_seq_len=None,
            share_features_extractor=share_features_extractor,
            **options,
        )

    def _build_networks(self) -> None:
        super()._build_networks()
        self.optimizer = self._new_optimizer(self.parameters(), self._first_schedule)  # of the memories, too

    def _build_memories(self) -> None:
        self.lstm_actor = self._make_memory()
        self.lstm_critic = self._make_memory() if self.enable_critic_lstm else None
        linear = self.shared_lstm or self.enable_critic_lstm
        self.critic = None if linear else nn.Linear(self.features_dim, self.lstm_output_dim)

    def _make_memory(self) -> LSTM:
        return LSTM(self.features_dim, self.memory_size, self.memory_layers, self.memory_dropout)

    @property
    def actor_memory(self) -> LSTM:  # type: ignore[override]
        """The name in polyak's own methods."""
        return self.lstm_actor

    @property
    def critic_memory(self) -> LSTM | None:  # type: ignore[override]
        """Likewise."""
        return self.lstm_critic

    @property
    def critic_layer(self) -> nn.Linear | None:  # type: ignore[override]
        """Likewise."""
        return self.critic

    # --- with memory as arguments -------------------------------------------------------------------------------------

    @staticmethod
    def _process_sequence(
        features: Tensor, lstm_states: State, episode_starts: Tensor, lstm: Recurrent
    ) -> tuple[Tensor, State]:
        """Features [B, F] of S sequences -> outputs [B, H], and the recurrent state after their last steps.

        Args:
            lstm_states: before their first steps, [K, S, H] each.
            episode_starts: [B] 1 where an episode begins and memory with it.
            lstm: the recurrent layers.
        """
        sequences = lstm_states[0].shape[1]
        steps = features.unflatten(0, (sequences, -1)).transpose(0, 1)
        keep = 1 - episode_starts.to(features.dtype).unflatten(0, (sequences, -1)).t()
        memory = {name: state.transpose(0, 1) for name, state in zip(lstm.names, lstm_states, strict=True)}
        outputs, then = lstm(steps, memory, keep)
        return outputs.transpose(0, 1).flatten(0, 1), tuple(then[name][-1].transpose(0, 1) for name in lstm.names)

    def _recurrent(self, obs: Obs, lstm_states: RNNStates, episode_starts: Tensor) -> tuple[Tensor, Tensor, RNNStates]:
        """Latents of actor and value function, [B, H] each, and their next recurrent states."""
        pi_features, vf_features = self._features(obs)
        latent_pi, pi = self._process_sequence(pi_features, lstm_states.pi, episode_starts, self.lstm_actor)
        if self.lstm_critic is not None:
            latent_vf, vf = self._process_sequence(vf_features, lstm_states.vf, episode_starts, self.lstm_critic)
            return latent_pi, latent_vf, RNNStates(pi, vf)
        latent_vf = latent_pi.detach() if self.critic is None else self.critic(vf_features)
        return latent_pi, latent_vf, RNNStates(pi, tuple(state.detach() for state in pi))

    def states_of(self, memory: Mapping[str, Tensor]) -> RNNStates:
        """Converts the recurrent state from polyak's layout by name, [B, K, H] each, to sb3-contrib's, [K, B, H]."""
        pi, vf = (
            tuple(value.transpose(0, 1) for name, value in memory.items() if name.startswith(side))
            for side in (recurrent.ACTOR, recurrent.CRITIC)
        )
        return RNNStates(pi, vf or pi)

    def forward(  # type: ignore[override]
        self, obs: Obs, lstm_states: RNNStates, episode_starts: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, RNNStates]:
        """Returns actions [B, ...], state values [B, 1], log-densities of the actions [B], and the next recurrent
        state."""
        latent_pi, latent_vf, then = self._recurrent(obs, lstm_states, episode_starts)
        distribution = self._get_action_dist_from_latent(self.mlp_extractor.forward_actor(latent_pi))
        actions = distribution.get_actions(deterministic=deterministic)
        values = self.value_net(self.mlp_extractor.forward_critic(latent_vf))
        return self._shaped(actions), values, distribution.log_prob(actions), then

    @plain
    def get_distribution(  # type: ignore[override]
        self, obs: Obs, lstm_states: State, episode_starts: Tensor
    ) -> tuple[Distribution, State]:
        """Returns ``action_dist`` with the parameters for observations [B, ...], and the actor's next recurrent
        state."""
        features = ActorCriticPolicy.extract_features(self, obs, self.pi_features_extractor)
        latent, then = self._process_sequence(features, lstm_states, episode_starts, self.lstm_actor)
        return self._get_action_dist_from_latent(self.mlp_extractor.forward_actor(latent)), then

    def predict_values(  # type: ignore[override]
        self, obs: Obs, lstm_states: State | None = None, episode_starts: Tensor | None = None, **memory: Tensor
    ) -> Tensor:
        """Returns state values [B, 1].

        Args:
            obs: [B, ...].
            lstm_states: states of the value function, or of the actor if it has no recurrent layers.
            episode_starts: [B].
            memory: the recurrent state by name, from polyak's own algorithms, in place of ``lstm_states``.
        """
        if lstm_states is None or episode_starts is None:
            return super().predict_values(obs, **memory)
        features = self.extract_features(obs, self.vf_features_extractor)
        if self.critic is not None:
            latent = self.critic(features)
        else:
            lstm = self.lstm_actor if self.lstm_critic is None else self.lstm_critic
            latent = self._process_sequence(features, lstm_states, episode_starts, lstm)[0]
        return self.value_net(self.mlp_extractor.forward_critic(latent))

    def evaluate_actions(  # type: ignore[override]
        self,
        obs: Obs,
        actions: Tensor,
        lstm_states: RNNStates | None = None,
        episode_starts: Tensor | None = None,
        **named: Any,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns state values [B, 1], log-densities of actions [B], entropies [B] (None without a closed form).

        Args:
            obs: [B, ...].
            actions: [B, ...].
            lstm_states: states before the first steps of the sequences.
            episode_starts: [B].
            named: the arguments of polyak's own learners, in place of the last two.
        """
        if lstm_states is None or episode_starts is None:
            return super().evaluate_actions(obs, actions, **named)
        latent_pi, latent_vf, _ = self._recurrent(obs, lstm_states, episode_starts)
        latents = self.mlp_extractor.forward_actor(latent_pi), self.mlp_extractor.forward_critic(latent_vf)
        return self._evaluated(latents, actions, None, 1.0)

    def _predict(  # type: ignore[override]
        self, observation: Obs, lstm_states: State, episode_starts: Tensor, deterministic: bool = False
    ) -> tuple[Tensor, State]:
        distribution, then = self.get_distribution(observation, lstm_states, episode_starts)
        return distribution.get_actions(deterministic=deterministic), then

    def _network_options(self) -> Kwargs:
        return super()._network_options() | {
            "lstm_hidden_size": self.lstm_output_dim,
            "n_lstm_layers": self.memory_layers,
        }


@reads_by(NatureCNN)
class RecurrentActorCriticCnnPolicy(RecurrentActorCriticPolicy):
    """:class:`RecurrentActorCriticPolicy` for images."""


@reads_by(CombinedExtractor)
class RecurrentMultiInputActorCriticPolicy(RecurrentActorCriticPolicy):
    """:class:`RecurrentActorCriticPolicy` for Dict observations."""
