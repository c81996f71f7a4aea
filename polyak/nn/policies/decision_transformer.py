"""A transformer that reads observations, actions and returns-to-go, and predicts actions: the Decision Transformer.

Shape letters: B batch, L steps, K context length, F features, W numbers of an action as the network reads it, N
outputs, D width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.distributions.base import Distribution
from polyak.nn.distributions.choice import make_family
from polyak.nn.errors import PolicyError
from polyak.nn.networks.attention import CausalBlock
from polyak.nn.networks.encoders import Obs, make_preprocess
from polyak.nn.networks.layers import Activation
from polyak.nn.policies.base import Decision, Network, Noise, Policy, State, chosen, family_noise, n_rows


class TrajectoryTransformer(Network):
    """Reads steps of an episode as tokens (return-to-go, state, action) and predicts each action from the token of its
    state, Chen et al. 2021 (arXiv:2106.01345) section 3.

    A token is a linear embedding of its value, plus a learned embedding of the time of its step. Attention is causal:
    later steps do not affect the prediction.

    Args:
        observation_space: space of the observations.
        action_space: Box, Discrete, MultiDiscrete or MultiBinary.
        features_extractor: makes features of preprocessed observations.
        features_dim: F, number of features.
        n_timesteps: number of embedded times of an episode; later ones use the last.
        width: D, width of a token.
        n_layers: blocks of attention and perceptron, one above the other.
        n_heads: number of attention heads; it divides the width.
        dropout: share of embedded tokens, attention weights and outputs of blocks that is dropped in training.
        activation_fn: activation of the blocks' perceptrons.
        normalize_images: divide uint8 images by 255.

    Raises:
        PolicyError: an argument out of range.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        features_extractor: nn.Module,
        features_dim: int,
        n_timesteps: int,
        width: int = 128,
        n_layers: int = 3,
        n_heads: int = 1,
        dropout: float = 0.1,
        activation_fn: Activation = nn.ReLU,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        self.features_extractor, self.features_dim = features_extractor, features_dim
        if not isinstance(n_layers, int) or n_layers < 1:
            raise PolicyError(f"n_layers must be an integer of at least 1, got {n_layers!r}.")
        blocks = [CausalBlock(width, n_heads, dropout, activation_fn) for _ in range(n_layers)]
        self.blocks = nn.Sequential(*blocks, nn.LayerNorm(width))
        self.family = make_family(action_space)
        self._read_action = make_preprocess(_counted_from_zero(action_space))
        n_read = self.read_actions(torch.zeros(1, *(action_space.shape or ()))).shape[1]
        self.time = nn.Embedding(n_timesteps, width)
        self.embed_return, self.embed_state = nn.Linear(1, width), nn.Linear(features_dim, width)
        self.embed_action = nn.Linear(n_read, width)
        self.embedded = nn.Sequential(nn.LayerNorm(width), nn.Dropout(dropout))
        self.action_net = nn.Linear(width, self.family.n_outputs)

    @property
    def n_read(self) -> int:
        """W."""
        return self.embed_action.in_features

    def read_actions(self, actions: Tensor) -> Tensor:
        """Actions [R, ...] in the policy's units as inputs of the network [R, W]; choices as one-hot vectors."""
        read: Tensor = self._read_action(actions)
        return read.flatten(1)

    def extract(self, obs: Obs) -> Tensor:
        """Observations [R, ...] -> [R, F]"""
        features: Tensor = self.extract_features(obs, self.features_extractor)
        return features

    def forward(self, features: Tensor, actions: Tensor, returns: Tensor, timesteps: Tensor) -> Tensor:
        """The predicted actions in each state.

        Args:
            features: [B, L, F] of the states.
            actions: [B, L, W] the actions taken in them, from :meth:`read_actions`; the last one is not read.
            returns: [B, L] returns-to-go.
            timesteps: [B, L] int64.

        Returns:
            [B, L, N], parameters of the distributions of the action space's family.
        """
        time = self.time(timesteps.clamp(max=self.time.num_embeddings - 1))
        of_step = (self.embed_return(returns[..., None]), self.embed_state(features), self.embed_action(actions))
        tokens = self.embedded(torch.stack([part + time for part in of_step], dim=2).flatten(1, 2))
        outputs: Tensor = self.action_net(self.blocks(tokens)[:, 1::3])
        return outputs


class DecisionTransformerPolicy(Policy):
    """Acts by a :class:`TrajectoryTransformer` that is conditioned on a target return.

    Its recurrent state, see :meth:`Policy.predict`, is the last K steps and the rest of the target return.

    Args:
        observation_space: space of the observations.
        action_space: Box, Discrete, MultiDiscrete or MultiBinary. In a Box it is deterministic and trained by the
            squared error.
        context_length: K.
        max_episode_steps: number of embedded times of an episode; later ones use the last.
        width, n_layers, n_heads, dropout, activation_fn: see :class:`TrajectoryTransformer`.
        **options: see :class:`~polyak.nn.policies.base.Policy`.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    fixed = frozenset({"squash_output"})
    wanted: Tensor
    """[] target return at the start of an episode, in the units in which returns are learned."""

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        context_length: int = 20,
        max_episode_steps: int = 1000,
        width: int = 128,
        n_layers: int = 3,
        n_heads: int = 1,
        dropout: float = 0.1,
        activation_fn: Activation = nn.ReLU,
        **options: Any,
    ) -> None:
        self.continuous = isinstance(action_space, spaces.Box)
        super().__init__(observation_space, action_space, squash_output=self.continuous, **options)
        self.context_length = context_length
        self.transformer = TrajectoryTransformer(
            **self.network_arguments(),
            n_timesteps=max_episode_steps,
            width=width,
            n_layers=n_layers,
            n_heads=n_heads,
            dropout=dropout,
            activation_fn=activation_fn,
        )
        self.register_buffer("wanted", torch.tensor(0.0), persistent=False)

    def ask(self, wanted: float) -> None:
        """Set the target return."""
        self.wanted.fill_(wanted)

    # --- learning -----------------------------------------------------------------------------------------------------

    def forward(self, obs: Obs, actions: Tensor, returns: Tensor, timesteps: Tensor) -> Tensor:
        """The predicted actions at each step of some sequences.

        Args:
            obs: [B, L, ...].
            actions: [B, L, A] in the policy's units.
            returns: [B, L] returns-to-go, in the units in which they are learned.
            timesteps: [B, L] int64, of the episode.

        Returns:
            [B, L, A] actions in [-1, 1] of a Box; else [B, L, N], the arguments of :meth:`distribution`.
        """
        steps = timesteps.shape
        flat = {key: part.flatten(0, 1) for key, part in obs.items()} if isinstance(obs, dict) else obs.flatten(0, 1)
        features = self.transformer.extract(flat).unflatten(0, steps)
        read = self.transformer.read_actions(actions.flatten(0, 1)).unflatten(0, steps)
        outputs: Tensor = self.transformer(features, read, returns, timesteps)
        return outputs.tanh() if self.continuous else outputs

    def distribution(self, outputs: Tensor) -> Distribution:
        """Over the choices at R steps: [R, N] ->"""
        return self.transformer.family(outputs)

    # --- acting -------------------------------------------------------------------------------------------------------

    def acting_memory(self, batch: int) -> State:
        """Before the first of K steps: the target return only."""
        net, k, device = self.transformer, self.context_length, self.device
        return {
            "features": torch.zeros(batch, k, net.features_dim, device=device),
            "actions": torch.zeros(batch, k, net.n_read, device=device),
            "returns": torch.zeros(batch, k, device=device),
            "time": torch.zeros(batch, dtype=torch.int64, device=device),
            "wanted": self.wanted.expand(batch).clone(),
        }

    def act(self, obs: Obs, deterministic: bool = False) -> Tensor:
        """The first action of an episode."""
        return self.decide(obs, self._noise(n_rows(obs), deterministic)).actions

    def draw_noise(self, batch: int, generator: torch.Generator | None = None) -> Noise:
        return {} if self.continuous else family_noise(self.transformer.family, batch, self.device, generator)

    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        if masks is not None:
            return super().decide(obs, noise, state, masks)
        features = self.transformer.extract(obs)
        memory = self.acting_memory(len(features)) if state is None else state
        time, slots = memory["time"], torch.arange(self.context_length, device=features.device)
        full, slot = time >= self.context_length, time.clamp(max=self.context_length - 1)  # that of this step
        at = slot[:, None] == slots  # [B, K]
        seen = _put(_moved(memory["features"], full), at, features)
        returns = _put(_moved(memory["returns"], full), at, memory["wanted"])
        done = _put(_moved(memory["actions"], full), at, torch.zeros_like(memory["actions"][:, 0]))
        times = slots + (time - self.context_length + 1).clamp(min=0)[:, None]
        every = self.transformer(seen, done, returns, times)
        outputs = every.gather(1, slot[:, None, None].expand(-1, -1, every.shape[2])).squeeze(1)
        actions = outputs.tanh() if self.continuous else chosen(self.distribution(outputs), noise)
        done = _put(done, at, self.transformer.read_actions(actions))
        now = {"features": seen, "actions": done, "returns": returns, "time": time + 1, "wanted": memory["wanted"]}
        return Decision(actions, state=now)

    def state_after(self, state: tuple[np.ndarray, ...], rewards: Any, discount: float) -> tuple[np.ndarray, ...]:
        """The state that :meth:`predict` returned, updated by the rewards [B] of its actions, in the units in which
        returns are learned: R_(t+1) = (R_t - r_t) / gamma"""
        *others, wanted = state
        rest = (np.asarray(wanted, np.float64) - np.reshape(rewards, np.shape(wanted))) / discount
        return (*others, rest.astype(np.float32))


def _moved(column: Tensor, full: Tensor) -> Tensor:
    """[B, K, ...] without the oldest entry, where all K slots are full."""
    return torch.where(full.view(-1, *[1] * (column.ndim - 1)), column.roll(-1, 1), column)


def _put(column: Tensor, at: Tensor, entries: Tensor) -> Tensor:
    """[B, K, ...] with new entries [B, ...] in the slots ``at`` [B, K]."""
    return torch.where(at.view(*at.shape, *[1] * (column.ndim - 2)), entries.unsqueeze(1), column)


def _counted_from_zero(space: spaces.Space) -> spaces.Space:
    """The space in the policy's units: choices count from 0."""
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    return spaces.MultiDiscrete(space.nvec.flatten()) if isinstance(space, spaces.MultiDiscrete) else space
