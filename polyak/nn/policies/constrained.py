"""Action values with a model of the behaviour policy, which restricts actions to likely ones: BCQ.

Shape letters: B batch, A actions.
"""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.recall import Recalled
from polyak.nn.plain import plain
from polyak.nn.policies.base import Decision, Noise, State
from polyak.nn.policies.value import QNetwork, ValuePolicy

UNLIKELY = -1e8
"""Value of an excluded action."""


def likely(logits: Tensor, threshold: Tensor, masks: Tensor | None = None) -> Tensor:
    """Marks the actions with G(a|s) / max G(.|s) >= threshold, Fujimoto et al. 2019 (arXiv:1910.01708) algorithm 1. The
    likeliest action is always included.

    logits [B, A], threshold [], masks [B, A] bool of allowed actions, or None for all -> [B, A] bool
    """
    if masks is None:
        return (logits - logits.amax(1, keepdim=True)).exp() >= threshold
    logits = logits.masked_fill(~masks, -torch.inf)
    return ((logits - logits.amax(1, keepdim=True)).exp() >= threshold) & masks


class ConstrainedQNetwork(QNetwork):
    """A :class:`QNetwork` with an imitator G beside it, from the same features: observations [B, ...] -> [B, A].

    Values of actions that the imitator finds unlikely are replaced by one that is lower than any other.

    Args:
        threshold: least probability of an action, relative to that of the likeliest, in [0, 1]: 0 includes all, 1 the
            likeliest only.
        **options: see :class:`QNetwork`. The imitator has hidden layers of its own, of the same widths, always without
            noise or streams.

    Raises:
        PolicyError: ``threshold`` out of range.
    """

    threshold: Tensor
    """[]"""

    def __init__(self, *args: Any, threshold: float = 0.3, **options: Any) -> None:
        if not 0 <= threshold <= 1:
            raise PolicyError(f"threshold must lie in [0, 1], got {threshold}.")
        super().__init__(*args, **options)
        self.register_buffer("threshold", torch.tensor(float(threshold)), persistent=False)

    def _build_layers(self, n_actions: int) -> None:
        super()._build_layers(n_actions)
        norms = [nn.LayerNorm] if self.layer_norm else []
        self.imitator = self.layers(self.features_dim, n_actions, post_linear_modules=norms)

    def both(self, obs: Obs) -> Tensor:
        """Values of all actions, and the logits of the imitator: [B, 2, A]"""
        features = self.extract_features(obs, self.features_extractor)
        return torch.stack([self.q_net(features), self.imitator(features)], dim=1)

    def forward(self, obs: Obs, masks: Tensor | None = None) -> Tensor:
        """Values [B, A] of actions that are likely among those that ``masks`` [B, A] allow."""
        values, logits = self.both(obs).unbind(1)
        return values.masked_fill(~likely(logits, self.threshold, masks), UNLIKELY)


class ConstrainedPolicy(ValuePolicy):
    """:class:`ValuePolicy` that acts by a :class:`ConstrainedQNetwork`: greedily among likely actions.

    Args:
        observation_space: space of the observations.
        action_space: a Discrete.
        **options: see :class:`~polyak.nn.policies.value.GreedyPolicy` and :class:`ConstrainedQNetwork`.

    Raises:
        PolicyError: as for these classes.
    """

    def __init__(self, observation_space: spaces.Space, action_space: spaces.Discrete, **options: Any) -> None:
        super().__init__(observation_space, action_space, network=ConstrainedQNetwork, **options)

    @classmethod
    def keywords(cls, network: type[QNetwork] = ConstrainedQNetwork, **defaults: Any) -> set[str]:
        return super().keywords(network, **defaults)

    def constrain(self, threshold: float) -> None:
        """Set the threshold."""
        self.q_net.threshold.fill_(threshold)

    @plain
    def act(self, obs: Obs, deterministic: bool = True) -> Tensor:
        return self._greedy(obs, None, None if deterministic else {})

    @plain
    def decide(
        self, obs: Obs, noise: Noise | None = None, state: State | None = None, masks: Tensor | None = None
    ) -> Decision:
        given: Any = obs if state is None else Recalled(obs, state)
        actions = self._greedy(given, masks, noise)
        return Decision(actions, state=None if state is None else self.next_state(given))

    def _greedy(self, obs: Obs, masks: Tensor | None, noise: Noise | None) -> Tensor:
        """[B]"""
        with self.by_noise(noise):
            actions: Tensor = self.q_net(obs, masks).argmax(dim=1)
        return actions
