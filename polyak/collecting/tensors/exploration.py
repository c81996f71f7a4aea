"""Exploration in tensors: what the parts of :mod:`polyak.collecting.exploration` do, without a read of a value.

Draws come from torch's generator of the device. Whether all environments explore in a step, as epsilon-greedy has it,
is decided on the host, by numpy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from polyak.collecting.exploration import (
    AdditiveNoise,
    Arrays,
    EpsilonGreedy,
    EpsilonGreedyEach,
    Exploration,
    MixedNoise,
    StateDependentExploration,
    WarmUp,
)
from polyak.nn.policies.base import Policy
from polyak.noise import NormalActionNoise, VectorizedActionNoise


class RandomTensors:
    """Uniform actions.

    Args:
        space: a Box, Discrete, MultiDiscrete or MultiBinary.
        squash: whether the network's actions of a Box are in [-1, 1].
        device: where to draw.
    """

    def __init__(self, space: spaces.Space, squash: bool, device: torch.device) -> None:
        self.space, self.squash, self.device = space, squash, device
        if isinstance(space, spaces.Box):
            low, high = (-1.0, 1.0) if squash else (space.low, space.high)
            self._low = torch.as_tensor(low, dtype=torch.float32, device=device)
            self._span = torch.as_tensor(high, dtype=torch.float32, device=device) - self._low
        elif isinstance(space, spaces.MultiDiscrete):
            self._sizes = torch.as_tensor(space.nvec, device=device)

    def __call__(self, rows: int, masks: Tensor | None = None) -> Tensor:
        """[N, ...] in the network's units, among what ``masks`` [N, M] allow."""
        space, shape = self.space, (rows, *(self.space.shape or ()))
        if masks is not None:
            return self._allowed(torch.rand(masks.shape, device=self.device).masked_fill(~masks, -1), shape)
        if isinstance(space, spaces.Box):
            return self._low + torch.rand(shape, device=self.device) * self._span
        if isinstance(space, spaces.MultiDiscrete):
            return (torch.rand(shape, device=self.device) * self._sizes).long()
        return torch.randint(int(space.n) if isinstance(space, spaces.Discrete) else 2, shape, device=self.device)

    def _allowed(self, draws: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The choices of the largest of some numbers [N, M]."""
        if isinstance(self.space, spaces.Discrete):
            return draws.argmax(1)
        if isinstance(self.space, spaces.MultiBinary):
            return draws.view(*shape, 2).argmax(-1)
        assert isinstance(self.space, spaces.MultiDiscrete)
        parts = draws.split(self.space.nvec.reshape(-1).tolist(), 1)
        return torch.stack([part.argmax(1) for part in parts], 1).view(shape)


class EachExplores(EpsilonGreedyEach):
    """Random actions now and then, decided for each environment by itself."""

    _explores: Tensor

    def before(self, policy: Policy, starts: Any, masks: Any = None) -> Any:
        self._explores = torch.rand(len(starts), device=starts.device) < self.progress.epsilon
        self._random: Any = self.random(len(starts), masks)
        return None

    def after(self, actions: Any) -> Any:
        return torch.where(self._explores.view(-1, *[1] * (actions.ndim - 1)), self._random, actions)


class NormalNoise(Exploration):
    """Independent normal noise added to actions in [-1, 1], which stay there.

    Args:
        mean, deviation: [A]
    """

    def __init__(self, mean: Tensor, deviation: Tensor) -> None:
        self.mean, self.deviation = mean, deviation

    def after(self, actions: Any) -> Any:
        return (actions + self.mean + self.deviation * torch.randn_like(actions)).clamp(-1, 1)


class MixedNormalNoise(Exploration):
    """Normal noise added to actions in [-1, 1], which stay there; its size is drawn for each episode.

    Args:
        least, most: between which the standard deviations are drawn, uniformly.
    """

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most
        self.sizes = torch.empty(0)
        """[N] standard deviations of the running episodes."""

    def before(self, policy: Policy, starts: Any, masks: Any = None) -> None:
        drawn = self.least + torch.rand(len(starts), device=starts.device) * (self.most - self.least)
        self.sizes = torch.where(starts, drawn, self.sizes) if len(self.sizes) == len(starts) else drawn

    def after(self, actions: Any) -> Any:
        sizes = self.sizes.view(-1, *[1] * (actions.ndim - 1))
        return (actions + sizes * torch.randn_like(actions)).clamp(-1, 1)

    def state(self, policy: Policy) -> Arrays:
        return {"sizes": self.sizes.numpy(force=True)}

    def load_state(self, policy: Policy, state: Arrays) -> None:
        self.sizes = torch.from_numpy(np.array(state["sizes"], np.float32)).to(policy.device)


def _normal(noise: Any) -> NormalActionNoise | None:
    """The noise of one environment, if it is normal and alike in all."""
    first = noise.base_noise if isinstance(noise, VectorizedActionNoise) else noise
    return first if type(first) is NormalActionNoise else None


def exploring_in_tensors(part: Exploration, policy: Policy) -> Exploration | None:
    """A part of exploration as a :class:`~polyak.collecting.tensors.actor.TensorActor` asks it; ``None``: there is
    none."""
    device = policy.device

    def random() -> Any:
        return RandomTensors(policy.action_space, policy.codec.squash, device)

    if isinstance(part, AdditiveNoise):
        if (noise := _normal(part.noise)) is None:
            return None
        numbers = (torch.as_tensor(x, dtype=torch.float32, device=device) for x in (noise._mu, noise._sigma))
        return NormalNoise(*numbers)
    if isinstance(part, WarmUp):
        return WarmUp(part.progress, part.until, random())
    if isinstance(part, EpsilonGreedy):
        return (EachExplores if isinstance(part, EpsilonGreedyEach) else EpsilonGreedy)(part.progress, random())
    if isinstance(part, MixedNoise):
        return MixedNormalNoise(part.least, part.most)
    return part if isinstance(part, StateDependentExploration) else None
