"""Networks that score transitions: rewards, discriminators, and rewards with a potential.

Shape letters: B batch, F inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from polyak.nn.errors import PolicyError
from polyak.nn.networks.encoders import ExtractorClass, Obs, default_extractor, make_extractor, make_preprocess
from polyak.nn.networks.layers import Activation, create_mlp
from polyak.nn.networks.residual import RunningNorm
from polyak.nn.networks.standardised import can_be_standardised
from polyak.nn.policies.base import Network

FARTHEST = 10.0
"""Bound of normalised observations, in standard deviations."""


class RewardNet(Network):
    """Predicts the reward of a transition from some of: state, action, next state, and whether the next state is
    terminal.

    Numeric observations are normalised by the mean and deviation of all observations given to :meth:`observe`, actions
    of bounded Boxes by their bounds; discrete actions become one-hot vectors.

    Args:
        observation_space: space of the states.
        action_space: space of the actions, which are in the environment's units.
        use_state: whether it reads the state.
        use_action: whether it reads the action.
        use_next_state: whether it reads the next state.
        use_done: whether it reads that the next state is terminal.
        net_arch: widths of the hidden layers; may be empty.
        activation_fn: follows every hidden layer.
        features_extractor_class: makes features of a state; ``None`` chooses by the space.
        features_extractor_kwargs: arguments of that class besides the space.
        normalize_inputs: whether observations are normalised.
        normalize_images: divide uint8 images by 255.

    Raises:
        PolicyError: it would read nothing.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        use_state: bool = True,
        use_action: bool = True,
        use_next_state: bool = False,
        use_done: bool = False,
        net_arch: Sequence[int] = (32, 32),
        activation_fn: Activation = nn.ReLU,
        features_extractor_class: ExtractorClass | None = None,
        features_extractor_kwargs: Mapping[str, Any] | None = None,
        normalize_inputs: bool = True,
        normalize_images: bool = True,
    ) -> None:
        super().__init__(observation_space, action_space, normalize_images=normalize_images)
        if not (use_state or use_action or use_next_state or use_done):
            raise PolicyError("use_state, use_action, use_next_state and use_done are all False: set one of them.")
        self.use_state, self.use_action = use_state, use_action
        self.use_next_state, self.use_done = use_next_state, use_done
        extractor: Any = make_extractor(
            observation_space,
            features_extractor_class or default_extractor(observation_space, normalize_images),
            features_extractor_kwargs,
            normalize_images,
        )
        self.features_extractor = extractor
        plain = next(extractor.parameters(), None) is None and can_be_standardised(observation_space)
        self.norm = RunningNorm(extractor.features_dim) if normalize_inputs and plain else None
        self._encode_action = _ActionEncoder(action_space)
        states = extractor.features_dim * (use_state + use_next_state)
        width = states + use_action * self._encode_action.width + use_done
        self.network = nn.Sequential(*create_mlp(width, 1, net_arch, activation_fn))

    @property
    def needs_next(self) -> bool:
        """Whether next states are read."""
        return self.use_next_state

    def features(self, obs: Obs) -> Tensor:
        """Raw observations [B, ...] -> features of states, normalised [B, features_dim]"""
        found = self.features_extractor(self.preprocess(obs))
        return found if self.norm is None else self.norm(found).clamp(-FARTHEST, FARTHEST)

    def inputs(self, obs: Obs, actions: Tensor, next_obs: Obs | None, terminated: Tensor) -> tuple[Tensor, ...]:
        """Returns the inputs of :meth:`score`: [B, F], or several of such.

        Args:
            obs: [B, ...] raw.
            actions: [B, ...] in the environment's units.
            next_obs: [B, ...] raw; None will do unless :attr:`needs_next`.
            terminated: [B] float, 1 where the next state is terminal.
        """
        parts = [self.features(obs)] if self.use_state else []
        if self.use_action:
            parts.append(self._encode_action(actions))
        if self.use_next_state:
            assert next_obs is not None
            parts.append(self.features(next_obs))
        if self.use_done:
            parts.append(terminated[:, None])
        return (torch.cat(parts, 1),)

    def score(self, inputs: tuple[Tensor, ...], terminated: Tensor) -> Tensor:
        """:meth:`inputs` and terminated [B] -> [B]"""
        return self.network(inputs[0]).squeeze(1)

    def forward(self, obs: Obs, actions: Tensor, next_obs: Obs | None, terminated: Tensor) -> Tensor:
        """The number of each step [B]; arguments as of :meth:`inputs`."""
        return self.score(self.inputs(obs, actions, next_obs, terminated), terminated)

    @torch.no_grad()
    def observe(self, obs: Obs) -> None:
        """Add raw observations [B, ...] to the statistics of the normalisation."""
        if self.norm is not None:
            self.norm.update(self.features_extractor(self.preprocess(obs)))


class ShapedRewardNet(Network):
    """f(s, a, s') = g(s, a, s') + gamma h(s') - h(s): a reward, and a potential that changes no optimal policy.

    Fu, Luo and Levine 2018, arXiv:1710.11248, eq. 4. A terminal state has the potential 0: otherwise the potential
    would change the optimal policies (Ng, Harada and Russell 1999). A truncated episode keeps the potential of its last
    state.

    Args:
        observation_space, action_space: as of :class:`RewardNet`.
        gamma: discount of the task.
        potential_arch: widths of the potential's hidden layers; may be empty.
        kwargs: further arguments of the reward g, a :class:`RewardNet`; those about reading and normalising states
            apply to the potential h, too.
    """

    def __init__(
        self,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        *,
        gamma: float,
        potential_arch: Sequence[int] = (32, 32),
        **kwargs: Any,
    ) -> None:
        super().__init__(observation_space, action_space)
        self.gamma = gamma
        self.reward = RewardNet(observation_space, action_space, **kwargs)
        seen = {name: value for name, value in kwargs.items() if name != "net_arch" and not name.startswith("use_")}
        self.potential = RewardNet(observation_space, action_space, use_action=False, net_arch=potential_arch, **seen)

    needs_next = True

    def inputs(self, obs: Obs, actions: Tensor, next_obs: Obs | None, terminated: Tensor) -> tuple[Tensor, ...]:
        """Returns the inputs of :meth:`score`: the inputs of g(s, a, s'), h(s) and h(s')."""
        assert next_obs is not None
        (reward,) = self.reward.inputs(obs, actions, next_obs, terminated)
        return reward, self.potential.features(obs), self.potential.features(next_obs)

    def score(self, inputs: tuple[Tensor, ...], terminated: Tensor) -> Tensor:
        """:meth:`inputs` and terminated [B] -> f [B]"""
        reward, now, then = inputs
        alive = 1 - terminated
        shaping = self.gamma * alive * self.potential.network(then).squeeze(1) - self.potential.network(now).squeeze(1)
        return self.reward.network(reward).squeeze(1) + shaping

    def forward(self, obs: Obs, actions: Tensor, next_obs: Obs | None, terminated: Tensor) -> Tensor:
        """f of each step [B]; arguments as of :meth:`RewardNet.inputs`."""
        return self.score(self.inputs(obs, actions, next_obs, terminated), terminated)

    def observe(self, obs: Obs) -> None:
        """Updates the statistics of reward and potential: see :meth:`RewardNet.observe`."""
        self.reward.observe(obs)
        self.potential.observe(obs)


class _ActionEncoder(nn.Module):
    """Actions [B, ...] in the environment's units -> [B, width]."""

    def __init__(self, space: spaces.Space) -> None:
        super().__init__()
        self.width = spaces.flatdim(space)
        self._preprocess = make_preprocess(space, normalize_images=False)
        self.bounded = isinstance(space, spaces.Box) and space.is_bounded() and bool((space.high > space.low).all())
        if isinstance(space, spaces.Box) and self.bounded:
            low, high = (torch.as_tensor(bound, dtype=torch.float32).flatten() for bound in (space.low, space.high))
            self.register_buffer("middle", (low + high) / 2)
            self.register_buffer("half_span", (high - low) / 2)

    def forward(self, actions: Tensor) -> Tensor:
        found = self._preprocess(actions).flatten(1)
        return (found - self.middle) / self.half_span if self.bounded else found
