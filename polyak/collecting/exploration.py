"""What comes between a policy and its environments while experience is collected: one small picklable object each.

An :class:`~polyak.collecting.actor.Actor` asks its parts in order. Draws come from numpy's global generator, the
action space's and, for gSDE, torch's.

Shape letters: N environments.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from gymnasium import spaces

from polyak.nn.codec import ActionCodec
from polyak.nn.distributions.exploration_noise import ExplorationNoise
from polyak.nn.policies.base import Policy
from polyak.noise import ActionNoise, VectorizedActionNoise

Arrays = dict[str, np.ndarray]


@dataclass
class ActingProgress:
    """Numbers that exploration goes by. The training loop moves them, here or in another process."""

    steps: int = 0
    """Environment steps so far, over all environments."""
    epsilon: float = 0.0
    """Probability of a random action."""


class Exploration:
    """A part of exploration; this one changes nothing."""

    def begin(self, policy: Policy, rows: int) -> None:
        """A collection in N environments begins."""

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        """Before the policy acts.

        Args:
            policy: which is about to act.
            starts: [N] bool, where an episode begins.
            masks: [N, M] bool, which choices are allowed; ``None``: all.

        Returns:
            actions [N, ...] in the network's units to take instead of its own, so that no further part is asked.
        """
        return None

    def after(self, actions: np.ndarray) -> np.ndarray:
        """Actions [N, ...] in the network's units, with what is added to them."""
        return actions

    def state(self, policy: Policy) -> Arrays:
        """What it must know to continue as if it had not been interrupted."""
        return {}

    def load_state(self, policy: Policy, state: Arrays) -> None:
        """Take back what :meth:`state` returned."""


class RandomActions:
    """Uniform actions.

    Args:
        space: drawn from.
        codec: to the network's units.
    """

    def __init__(self, space: spaces.Space, codec: ActionCodec) -> None:
        self.space, self.codec = space, codec

    def __call__(self, rows: int, masks: np.ndarray | None = None) -> np.ndarray:
        """[N, ...] in the network's units, among what ``masks`` [N, M] allow."""
        if masks is None:
            return self.codec.from_env(np.array([self.space.sample() for _ in range(rows)]))
        draws = np.where(masks, self.space.np_random.random(masks.shape), -1.0)
        if isinstance(self.space, spaces.Discrete):
            return draws.argmax(1)
        if isinstance(self.space, spaces.MultiBinary):
            return draws.reshape(rows, -1, 2).argmax(2).astype(self.space.dtype)
        assert isinstance(self.space, spaces.MultiDiscrete)
        ends = np.cumsum(self.space.nvec.reshape(-1))[:-1]
        choices = np.stack([part.argmax(1) for part in np.split(draws, ends, axis=1)], axis=1)
        return choices.reshape(rows, *self.space.shape)


class WarmUp(Exploration):
    """Random actions before the first update.

    Args:
        progress: how many steps were made.
        until: steps at which it is over.
        random: the actions.
    """

    def __init__(self, progress: ActingProgress, until: int, random: RandomActions) -> None:
        self.progress, self.until, self.random = progress, until, random

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        return self.random(len(starts), masks) if self.progress.steps < self.until else None


class EpsilonGreedy(Exploration):
    """Random actions now and then, decided once a step for all environments.

    Args:
        progress: how often.
        random: the actions.
    """

    def __init__(self, progress: ActingProgress, random: RandomActions) -> None:
        self.progress, self.random = progress, random

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        return self.random(len(starts), masks) if np.random.rand() < self.progress.epsilon else None


class EpsilonGreedyEach(EpsilonGreedy):
    """Random actions now and then, decided for each environment by itself."""

    _instead: tuple[np.ndarray, np.ndarray] | None = None

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


class AdditiveNoise(Exploration):
    """Noise added to actions in [-1, 1], which stay there. It starts again with each episode.

    Args:
        noise: [...] for one environment, [N, ...] if vectorised.
    """

    def __init__(self, noise: ActionNoise) -> None:
        self.noise = noise

    def before(self, policy: Policy, starts: np.ndarray, masks: np.ndarray | None = None) -> np.ndarray | None:
        if True in starts.tolist():
            if isinstance(self.noise, VectorizedActionNoise):
                self.noise.reset(starts.nonzero()[0].tolist())
            else:
                self.noise.reset()
        return None

    def after(self, actions: np.ndarray) -> np.ndarray:
        # np.clip costs several times as much on arrays this small
        return np.minimum(np.maximum(actions + self.noise(), -1), 1)

    def state(self, policy: Policy) -> Arrays:
        return self.noise.state()

    def load_state(self, policy: Policy, state: Arrays) -> None:
        self.noise.load_state(state)


class MixedNoise(Exploration):
    """Normal noise added to actions in [-1, 1], which stay there; its size is drawn for each episode.

    Args:
        least, most: between which the standard deviations are drawn, uniformly.
    """

    def __init__(self, least: float, most: float) -> None:
        self.least, self.most = least, most
        self.sizes = np.empty(0)
        """[N] standard deviations of the running episodes."""

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


class StateDependentExploration(Exploration):
    """Draws the exploration matrices of gSDE (arXiv:2005.05719) when a collection begins, and every so many steps.

    Args:
        every: steps between two draws; -1 draws only at the beginning.
    """

    def __init__(self, every: int = -1) -> None:
        self.every, self.steps = every, 0

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
    """Draws an exploration matrix for each episode, where it begins (Rueckstiess, Felder and Schmidhuber 2008)."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices: dict[str, torch.Tensor] = {}
        """Of each noise of the policy [N, L, A]: learning draws into the same tensors."""

    def begin(self, policy: Policy, rows: int) -> None:
        """Matrices outlast a collection."""

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
    """gSDE by its name among the parts of exploration, if it is used."""
    if not use_sde:
        return {}
    if sde_sample_freq == "episode":
        return {"state_dependent": EpisodicExploration()}
    return {"state_dependent": StateDependentExploration(sde_sample_freq)}


def _noises(policy: Policy) -> list[tuple[str, ExplorationNoise]]:
    return [(name, module) for name, module in policy.named_modules() if isinstance(module, ExplorationNoise)]
