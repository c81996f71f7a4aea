"""Exploration: small picklable objects that modify or replace a policy's actions while experience is collected.

An :class:`~polyak.collecting.actor.Actor` calls them in order. Random numbers come from numpy's global generator, the
action space's and, for gSDE, torch's. In tensors all come from torch's generator of their device, and the host reads no
value; only epsilon-greedy exploration that decides once for all environments uses numpy's there, too.

Shape letters: N environments.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces

from polyak.arrays import joined, place, where
from polyak.nn.codec import ActionCodec
from polyak.nn.distributions.exploration_noise import ExplorationNoise
from polyak.nn.policies.base import Policy
from polyak.noise import ActionNoise, NormalActionNoise, VectorizedActionNoise

Arrays = dict[str, np.ndarray]


@dataclass
class ActingProgress:
    """Counters that exploration depends on. The training loop updates them, in this process or another."""

    steps: int = 0
    """Environment steps so far, over all environments."""
    epsilon: float = 0.0
    """Probability of a random action."""


class Exploration:
    """Base class of exploration, which changes nothing."""

    def begin(self, policy: Policy, rows: int) -> None:
        """Prepare for a collection in N environments."""

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        """Choose actions before the policy does.

        Args:
            policy: the policy that is about to act.
            starts: [N] bool, where an episode begins.
            masks: [N, M] bool, which choices are allowed; ``None``: all.

        Returns:
            actions [N, ...] in the network's units to take instead of the policy's, which skips further exploration; or
            ``None``.
        """
        return None

    def after(self, actions: np.ndarray) -> np.ndarray:
        """Returns the actions [N, ...] in the network's units, modified."""
        return actions

    def in_tensors(self, policy: Policy) -> "Exploration | None":
        """Returns this exploration for environments in tensors; ``None`` if there is none."""
        return None

    def made_for_tensors(self, policy: Policy) -> "Exploration":
        """Returns :meth:`in_tensors`.

        Raises:
            TypeError: there is none.
        """
        if (found := self.in_tensors(policy)) is None:
            raise TypeError(f"exploration: there is no {type(self).__name__} in tensors.")
        return found

    def state(self, policy: Policy) -> Arrays:
        """Returns the state that is needed to continue as if uninterrupted."""
        return {}

    def load_state(self, policy: Policy, state: Arrays) -> None:
        """Restore what :meth:`state` returned."""


class RandomActions:
    """Draws uniform actions.

    Args:
        space: action space.
        codec: converts to the network's units.
        device: of actions in tensors, drawn by its generator; ``None``: in numpy, drawn by the space's generator.
    """

    def __init__(self, space: spaces.Space, codec: ActionCodec, device: torch.device | None = None) -> None:
        self.space, self.codec, self.device = space, codec, device
        self.shape = tuple(space.shape or ())
        if device is not None and isinstance(space, spaces.Box):
            bounds = (-1.0, 1.0) if codec.squash else (space.low, space.high)
            self._low, high = (torch.as_tensor(bound, dtype=torch.float32, device=device) for bound in bounds)
            self._span = high - self._low
        elif device is not None and isinstance(space, spaces.MultiDiscrete):
            self._sizes = torch.as_tensor(space.nvec, device=device)

    def on(self, device: torch.device) -> "RandomActions":
        """Returns the same draws in tensors on a device."""
        return RandomActions(self.space, self.codec, device)

    def __call__(self, rows: int, masks: Any = None) -> Any:
        """Draws actions [N, ...] in the network's units, among those that ``masks`` [N, M] allow."""
        if masks is not None:
            return self._largest(masks)
        if self.device is None:
            return self.codec.from_env(np.array([self.space.sample() for _ in range(rows)]))
        shape = rows, *self.shape
        if isinstance(self.space, spaces.Discrete):
            return torch.randint(int(self.space.n), shape, device=self.device)
        if isinstance(self.space, spaces.MultiBinary):
            return torch.randint(2, shape, device=self.device)
        numbers = torch.rand(shape, device=self.device)
        if isinstance(self.space, spaces.MultiDiscrete):
            return (numbers * self._sizes).long()
        return self._low + numbers * self._span

    def _largest(self, masks: Any) -> Any:
        """Returns uniform allowed choices, as the argmax of random numbers."""
        space, shape = self.space, (len(masks), *self.shape)
        if self.device is None:
            draws: Any = np.where(masks, space.np_random.random(masks.shape), -1.0)
        else:
            draws = torch.rand(masks.shape, device=self.device).masked_fill(~masks, -1)
        if isinstance(space, spaces.Discrete):
            return draws.argmax(1)
        if isinstance(space, spaces.MultiBinary):
            return draws.reshape(*shape, 2).argmax(-1)
        assert isinstance(space, spaces.MultiDiscrete)
        ends = np.cumsum(space.nvec.reshape(-1)).tolist()
        parts = [draws[:, first:end].argmax(1)[:, None] for first, end in pairwise([0, *ends])]
        return joined(parts, 1).reshape(shape)


class WarmUp(Exploration):
    """Takes random actions before learning starts.

    Args:
        progress: counts the steps.
        until: steps at which the warm-up ends.
        random: draws the actions.
    """

    def __init__(self, progress: ActingProgress, until: int, random: RandomActions) -> None:
        self.progress, self.until, self.random = progress, until, random

    def in_tensors(self, policy: Policy) -> Exploration:
        return WarmUp(self.progress, self.until, self.random.on(policy.device))

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        return self.random(len(starts), masks) if self.progress.steps < self.until else None


class EpsilonGreedy(Exploration):
    """Takes random actions with probability epsilon, decided once a step for all environments.

    Args:
        progress: holds epsilon.
        random: draws the actions.
    """

    def __init__(self, progress: ActingProgress, random: RandomActions) -> None:
        self.progress, self.random = progress, random

    def in_tensors(self, policy: Policy) -> Exploration:
        return EpsilonGreedy(self.progress, self.random.on(policy.device))

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        return self.random(len(starts), masks) if np.random.rand() < self.progress.epsilon else None


class EpsilonGreedyEach(EpsilonGreedy):
    """Takes random actions with probability epsilon, decided for each environment separately."""

    _instead: tuple[Any, Any] | None = None

    def in_tensors(self, policy: Policy) -> Exploration:
        return EachOnDevice(self.progress, self.random.on(policy.device))

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        explores, self._instead = np.random.rand(len(starts)) < self.progress.epsilon, None
        if not explores.any():
            return None
        random = self.random(len(starts), masks)
        if explores.all():
            return random
        self._instead = explores, random
        return None

    def after(self, actions: np.ndarray) -> np.ndarray:
        if self._instead is None:
            return actions
        explores, random = self._instead
        return np.where(explores, random, actions)


class EachOnDevice(EpsilonGreedyEach):
    """:class:`EpsilonGreedyEach` in tensors: random actions are drawn for all environments, since the host does not
    read which of them take one."""

    def before(self, policy: Policy, starts: Any, masks: Any = None) -> None:
        explores = torch.rand(len(starts), device=starts.device) < self.progress.epsilon
        self._instead = explores, self.random(len(starts), masks)

    def after(self, actions: Any) -> Any:
        assert self._instead is not None
        return where(*self._instead, actions)


class AdditiveNoise(Exploration):
    """Adds noise to actions, clipped to [-1, 1]. The noise is reset with each episode.

    Args:
        noise: [...] for one environment, [N, ...] if vectorised.
    """

    def __init__(self, noise: ActionNoise) -> None:
        self.noise = noise

    def in_tensors(self, policy: Policy) -> Exploration | None:
        """Returns independent normal noise that is equal in all environments; ``None`` for other noise."""
        noise = self.noise.base_noise if isinstance(self.noise, VectorizedActionNoise) else self.noise
        if type(noise) is not NormalActionNoise:
            return None
        numbers = noise._mu, noise._sigma
        return NormalNoise(*(torch.as_tensor(part, dtype=torch.float32, device=policy.device) for part in numbers))

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        if True in starts.tolist():
            if isinstance(self.noise, VectorizedActionNoise):
                self.noise.reset(starts.nonzero()[0].tolist())
            else:
                self.noise.reset()
        return None

    def after(self, actions: np.ndarray) -> np.ndarray:
        # np.clip takes several times as long on arrays this small
        return np.minimum(np.maximum(actions + self.noise(), -1), 1)

    def state(self, policy: Policy) -> Arrays:
        return self.noise.state()

    def load_state(self, policy: Policy, state: Arrays) -> None:
        self.noise.load_state(state)


class NormalNoise(Exploration):
    """Adds independent normal noise to actions in tensors, clipped to [-1, 1].

    Args:
        mean, deviation: [A] mean and standard deviation
    """

    def __init__(self, mean: torch.Tensor, deviation: torch.Tensor) -> None:
        self.mean, self.deviation = mean, deviation

    def after(self, actions: Any) -> Any:
        return (actions + self.mean + self.deviation * torch.randn_like(actions)).clamp(-1, 1)


class MixedNoise(Exploration):
    """Adds normal noise to actions, clipped to [-1, 1]; its standard deviation is drawn for each episode.

    Args:
        least, most: bounds of the uniformly drawn standard deviations.
    """

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most
        self.sizes: Any = np.empty(0)
        """[N] standard deviations of the current episodes."""

    def in_tensors(self, policy: Policy) -> Exploration:
        return MixedOnDevice(self.least, self.most)

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        redrawn = starts if len(self.sizes) == len(starts) else np.ones(len(starts), bool)
        if redrawn.any():
            drawn = np.random.uniform(self.least, self.most, int(np.count_nonzero(redrawn)))
            if len(self.sizes) != len(starts):
                self.sizes = np.empty(len(starts))
            self.sizes[redrawn] = drawn
        return None

    def after(self, actions: np.ndarray) -> np.ndarray:
        sizes = self.sizes.reshape(-1, *[1] * (actions.ndim - 1))
        noisy = actions + sizes * np.random.standard_normal(actions.shape)
        return np.clip(noisy, -1, 1).astype(actions.dtype, copy=False)

    def state(self, policy: Policy) -> Arrays:
        return {"sizes": self.sizes}

    def load_state(self, policy: Policy, state: Arrays) -> None:
        self.sizes = np.array(state["sizes"])


class MixedOnDevice(MixedNoise):
    """:class:`MixedNoise` in tensors."""

    def before(self, policy: Policy, starts: Any, masks: Any = None) -> None:
        drawn = self.least + torch.rand(len(starts), device=starts.device) * (self.most - self.least)
        self.sizes = torch.where(starts, drawn, self.sizes) if len(self.sizes) == len(starts) else drawn

    def after(self, actions: Any) -> Any:
        sizes = self.sizes.view(-1, *[1] * (actions.ndim - 1))
        return (actions + sizes * torch.randn_like(actions)).clamp(-1, 1)

    def state(self, policy: Policy) -> Arrays:
        return {"sizes": place(self.sizes, None)}

    def load_state(self, policy: Policy, state: Arrays) -> None:
        self.sizes = torch.from_numpy(np.array(state["sizes"], np.float32)).to(policy.device)


class StateDependentExploration(Exploration):
    """Draws the exploration matrices of gSDE (arXiv:2005.05719) at the start of a collection, and every ``every``
    steps.

    Args:
        every: steps between two draws; -1 draws only at the beginning.
    """

    def __init__(self, every: int = -1) -> None:
        self.every, self.steps = every, 0

    def in_tensors(self, policy: Policy) -> Exploration:
        return self  # its matrices are tensors already

    def begin(self, policy: Policy, rows: int) -> None:
        policy.reset_noise(rows)
        self.steps = 0

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        if self.every > 0 and self.steps % self.every == 0:
            policy.reset_noise(len(starts))
        self.steps += 1
        return None

    def state(self, policy: Policy) -> Arrays:
        draws = {f"{name}/{kind}": draw for name, noise in _noises(policy) for kind, draw in noise.named_buffers()}
        return {"steps": np.array(self.steps), **{key: draw.numpy(force=True) for key, draw in draws.items()}}

    def load_state(self, policy: Policy, state: Arrays) -> None:
        self.steps = int(state["steps"])
        for name, noise in _noises(policy):
            policy.reset_noise(len(state[f"{name}/own"]))
            for kind, draw in noise.named_buffers():
                draw.copy_(torch.from_numpy(np.array(state[f"{name}/{kind}"])))


class EpisodicExploration(StateDependentExploration):
    """Draws an exploration matrix at the start of each episode (Rueckstiess, Felder and Schmidhuber 2008)."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices: dict[str, torch.Tensor] = {}
        """Name of the noise module -> matrices [N, L, A], kept here since learning draws into the modules' own tensors.
        """

    def begin(self, policy: Policy, rows: int) -> None:
        """Keeps the matrices between collections."""

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        for name, noise in _noises(policy):
            fresh = torch.randn(len(starts), *noise.shared.shape, device=noise.shared.device)
            kept = self.matrices.get(name)
            if kept is not None and kept.shape == fresh.shape:
                begun = torch.as_tensor(starts, device=fresh.device)
                fresh = torch.where(begun[:, None, None], fresh, kept)
            self.matrices[name] = fresh
            noise.put(fresh)
        return None

    def state(self, policy: Policy) -> Arrays:
        return {name: kept.numpy(force=True) for name, kept in self.matrices.items()}

    def load_state(self, policy: Policy, state: Arrays) -> None:
        self.matrices = {name: torch.from_numpy(np.array(kept)).to(policy.device) for name, kept in state.items()}


def gsde(use_sde: bool, sde_sample_freq: int | Literal["episode"]) -> dict[str, Exploration]:
    """Returns gSDE as exploration by name; empty without ``use_sde``."""
    if not use_sde:
        return {}
    if sde_sample_freq == "episode":
        return {"state_dependent": EpisodicExploration()}
    return {"state_dependent": StateDependentExploration(sde_sample_freq)}


def _noises(policy: Policy) -> list[tuple[str, ExplorationNoise]]:
    return [(name, module) for name, module in policy.named_modules() if isinstance(module, ExplorationNoise)]
