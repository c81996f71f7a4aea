"""A2C where environments say which choices there are: masks are a column of the rollout, and reach the loss.

Huang and Ontanon 2020, "A Closer Look at Invalid Action Masking in Policy Gradient Algorithms", arXiv:2006.14171.
Shapes: B rows, N environments, C choices.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.algorithms.a2c import A2C
from polyak.data import Column
from polyak.nn.catalog import policy_aliases
from polyak.nn.distributions.base import Distribution
from polyak.nn.policies.actor_critic import ActorCriticPolicy
from polyak.nn.policies.base import Decision, Memory

CHOICES = 4


class Corridor(gym.Env):
    """One of four choices is right, and some of the others are closed; a closed one ends everything."""

    observation_space = spaces.Box(-1, 1, (CHOICES,), np.float32)
    action_space = spaces.Discrete(CHOICES)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._observe(), {}

    def _observe(self) -> np.ndarray:
        self.open = self.np_random.random(CHOICES) < 0.6
        self.right = int(self.np_random.integers(CHOICES))
        self.open[self.right] = True
        return np.eye(CHOICES, dtype=np.float32)[self.right]

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        assert self.open[action], "a closed choice was made"
        self.steps += 1
        reward = float(action == self.right)
        return self._observe(), reward, False, self.steps == 10, {}

    def action_masks(self) -> np.ndarray:
        """[C] which choices are open."""
        return self.open


class MaskedPolicy(ActorCriticPolicy):
    """Chooses among what is open."""

    def among(self, obs: Any, masks: Tensor | None) -> Distribution:
        """The distribution over what ``masks`` [B, C] leaves."""
        latent = self.mlp_extractor.forward_actor(self.extract_features(obs, self.pi_features_extractor))
        logits = self.action_net(latent)
        return self.action_family(logits if masks is None else torch.where(masks, logits, float("-inf")))

    def decide(
        self, obs: Any, memory: Memory | None = None, masks: Tensor | None = None, deterministic: bool = False
    ) -> Decision:
        distribution = self.among(obs, masks)
        actions = distribution.get_actions(deterministic)
        says = {"values": self.predict_values(obs).flatten(), "log_probs": distribution.log_prob(actions)}
        return Decision(actions, says)

    def evaluate_actions(
        self, obs: Any, actions: Tensor, masks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        distribution = self.among(obs, masks)
        return self.predict_values(obs), distribution.log_prob(self._flat(actions)), distribution.entropy()

    @property
    def values_while_acting(self) -> bool:
        return True


@dataclass(eq=False, repr=False)
class MaskedA2C(A2C):
    """A2C that asks environments for their ``action_masks``."""

    policies: ClassVar = policy_aliases(MaskedPolicy)
    action_spaces: ClassVar = (spaces.Discrete,)

    @classmethod
    def trial(cls) -> dict[str, Any]:
        return {**super().trial(), "env": Corridor()}

    def _masks(self) -> Callable[[], np.ndarray]:
        return lambda: np.stack(self.env.env_method("action_masks"))  # type: ignore[union-attr]

    def _columns(self) -> tuple[Column, ...]:
        assert isinstance(self.action_space, spaces.Discrete)
        return (*super()._columns(), Column("masks", np.bool_, (int(self.action_space.n),)))
