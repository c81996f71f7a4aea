"""Policies of several deterministic actors, each with a critic of its own: SD3."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import Obs
from polyak.nn.networks.layers import get_actor_critic_arch
from polyak.nn.plain import plain
from polyak.nn.policies.base import LayeredPolicy, check_bounded, lagging, shaped
from polyak.nn.policies.continuous import ContinuousCritic, DeterministicActor


class Pair(nn.Module):
    """An actor and the critic that it follows.

    Args:
        actor: observations [B, ...] -> actions [B, A].
        critic: of one action-value function.
    """

    def __init__(self, actor: DeterministicActor, critic: ContinuousCritic) -> None:
        super().__init__()
        self.actor, self.critic = actor, critic


class Pairs(nn.ModuleList):
    """K pairs of an actor and a critic.

    Shapes: K pairs, B rows, A action dimensions, M actions in each state.
    """

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Pair]: ...

        @overload
        def __getitem__(self, idx: slice) -> Pairs: ...

        @overload
        def __getitem__(self, idx: int) -> Pair: ...

        def __getitem__(self, idx: int | slice) -> Pair | Pairs: ...

    def q_values(self, obs: Obs, actions: Tensor) -> Tensor:
        """Every critic's values of the same actions: [B, A] -> [K, B]."""
        return torch.cat([pair.critic.q_values(obs, actions) for pair in self])

    def q_values_of_many(self, obs: Obs, actions: Tensor) -> Tensor:
        """Every critic's values of the same M actions in each state: [B, M, A] -> [K, B, M]."""
        return torch.cat([pair.critic.q_values_of_many(obs, actions) for pair in self])


class PairedPolicy(LayeredPolicy):
    """Pairs of a deterministic actor and a critic, and a target copy of each; networks share nothing.

    It takes the proposed action with the highest value by the proposing actor's own critic: argmax_k Q_k(s, pi_k(s)).

    Args:
        observation_space: space of the observations.
        action_space: a Box of finite bounds.
        n_pairs: K.
        **options: see :class:`~polyak.nn.policies.base.LayeredPolicy`. ``net_arch`` has the hidden widths of
            actors and critics, a list or ``dict(pi=[...], qf=[...])``; ``None`` takes [400, 300], or [256, 256] after
            :class:`~polyak.nn.NatureCNN`.

    Raises:
        PolicyError: another action space, or an argument out of range.
    """

    targets = ("pairs_target",)

    def __init__(
        self, observation_space: spaces.Space, action_space: spaces.Box, *, n_pairs: int = 2, **options: Any
    ) -> None:
        check_bounded(action_space)
        super().__init__(observation_space, action_space, squash_output=True, **options)
        if n_pairs < 1:
            raise PolicyError(f"n_pairs must be at least 1, got {n_pairs}.")
        self.n_pairs = n_pairs
        self._actor_arch, self._critic_arch = get_actor_critic_arch(self.net_arch)
        self._build_networks()

    def default_arch(self) -> list[int]:
        return DeterministicActor.default_net_arch(self.features_extractor_class)

    def _build_networks(self) -> None:
        self.pairs = self.make_pairs()
        self.pairs_target = lagging(self.make_pairs(), self.pairs).eval()

    def make_pairs(self) -> Pairs:
        """New pairs."""
        return Pairs([Pair(self.make_actor(), self.make_critic()) for _ in range(self.n_pairs)])

    def make_actor(self) -> DeterministicActor:
        """A new actor, with its own features extractor."""
        return self.new_network(DeterministicActor, self._actor_arch)

    def make_critic(self) -> ContinuousCritic:
        """A new critic, with its own features extractor."""
        return self.new_network(ContinuousCritic, self._critic_arch, n_critics=1, share_features_extractor=False)

    def forward(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Actions [B, ...] in [-1, 1]."""
        return self.act(obs, deterministic)

    @plain
    def act(self, obs: Obs, deterministic: bool = True) -> Tensor:
        """Actions [B, ...] in [-1, 1]; the algorithm adds noise, so ``deterministic`` changes nothing."""
        proposals = [pair.actor(obs) for pair in self.pairs]
        q = [pair.critic.q1_forward(obs, actions) for pair, actions in zip(self.pairs, proposals, strict=True)]
        best = torch.stack(q, 1).argmax(1, keepdim=True)  # [B, 1, 1]
        actions = torch.stack(proposals, 1)
        return shaped(actions.gather(1, best.expand(-1, -1, actions.shape[2])).squeeze(1), self.codec.shape)
