"""A2C whose actor remembers: what it remembered before each step is a column of the rollout.

Elman 1990, "Finding Structure in Time", Cognitive Science 14. The value function sees the observation alone, and
gradients go back one step. Shapes: B rows, H memory.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from polyak.algorithms.a2c import A2C
from polyak.nn.catalog import policy_aliases
from polyak.nn.distributions.base import Distribution
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import Decision, Noise, State, chosen

WIDTH = 5


class ElmanPolicy(ActorCriticPolicy):
    """Actions by a memory: h' = tanh(W [latent, h]), and the action layer reads h'."""

    def _build_heads(self, latent_dim: int) -> None:
        self.cell = nn.Linear(latent_dim + WIDTH, WIDTH)
        super()._build_heads(WIDTH)

    def initial_memory(self, batch: int) -> State:
        return {"hidden": torch.zeros(batch, WIDTH, device=self.device)}

    def remember(self, obs: Any, hidden: Tensor) -> Tensor:
        """State [B, H] after observations [B, ...]."""
        latent = self.mlp_extractor.forward_actor(self.extract_features(obs, self.pi_features_extractor))
        return torch.tanh(self.cell(torch.cat([latent, hidden], 1)))

    def distribution_of(self, remembered: Tensor) -> Distribution:
        """What memory [B, H] says of the actions."""
        return self._get_action_dist_from_latent(remembered)

    def decide(
        self, obs: Any, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        assert state is not None
        hidden = self.remember(obs, state["hidden"])
        distribution = self.distribution_of(hidden)
        return Decision(self._shaped(chosen(distribution, noise)), state={"hidden": hidden})

    def evaluate_actions(
        self, obs: Any, actions: Tensor, hidden: Tensor | None = None, entropy_index: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        assert hidden is not None
        distribution = self.distribution_of(self.remember(obs, hidden))
        entropy = distribution.entropy() if entropy_index == 1 else distribution.tsallis_entropy(entropy_index)
        return self.predict_values(obs), distribution.log_prob(self._flat(actions)), entropy

    def predict_values(self, obs: Any, hidden: Tensor | None = None) -> Tensor:
        return super().predict_values(obs)

    def get_distribution(self, obs: Any) -> Distribution:
        return self.distribution_of(self.remember(obs, self.initial_memory(len(obs))["hidden"]))


@dataclass(eq=False, repr=False)
class RecurrentA2C(A2C):
    """A2C with an :class:`ElmanPolicy`."""

    policies: ClassVar = policy_aliases(ElmanPolicy)
