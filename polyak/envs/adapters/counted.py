"""Environments in tensors whose episodes are counted: on their device, and read when logs are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from polyak.arrays import copied
from polyak.envs.protocol import BatchedEnv, First, Outcome


class EpisodesInTensors:
    """The newest episodes of N environments. Noting a step reads no value.

    Args:
        n_envs: N.
        newest: how many ended episodes are kept.
        device: where.
    """

    def __init__(self, n_envs: int, newest: int, device: torch.device) -> None:
        self.n_envs, self.newest, self.device = n_envs, newest, device
        self.ended = torch.zeros((), dtype=torch.int64, device=device)
        """[] how many have ended."""
        self.kept = torch.zeros(newest + 1, 2, device=device)
        """Return and length of episode i in row ``i % newest``; the last row takes the values that are discarded."""
        self.seen = 0
        """Number of episodes that :meth:`read` has returned."""
        self.begin()

    def begin(self) -> None:
        """New episodes begin everywhere."""
        self.running = torch.zeros(self.n_envs, 2, device=self.device)
        """[N, 2] return and length so far of each running episode."""

    def note(self, rewards: Tensor, ended: Tensor) -> None:
        """Add a step: rewards [N], and whether it ended an episode [N] bool."""
        running = self.running + torch.stack([rewards, torch.ones_like(rewards)], 1)
        number = self.ended + ended.cumsum(0) - 1
        total = self.ended + ended.sum()
        kept = ended & (number >= total - self.newest)
        self.kept.index_copy_(0, torch.where(kept, number % self.newest, self.newest), running)
        self.ended, self.running = total, torch.where(ended[:, None], 0, running)

    def read(self) -> tuple[int, np.ndarray]:
        """Returns how many episodes have ended since the last call, and return and length of the newest of them, oldest
        first: [K, 2]. Only here the host waits for the device."""
        total = int(self.ended)
        fresh, self.seen = total - self.seen, total
        kept = self.kept.numpy(force=True)
        return fresh, kept[np.arange(max(total - self.newest, total - fresh), total) % self.newest]

    def state(self) -> dict[str, Any]:
        """Returns all counters and episodes, as tensors on the device."""
        return {"running": self.running, "kept": self.kept, "ended": self.ended, "seen": self.seen}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a :meth:`state` of as many environments; kept episodes are left out if their number differs."""
        self.running = state["running"]
        if state["kept"].shape == self.kept.shape:
            self.kept, self.ended, self.seen = state["kept"], state["ended"], int(state["seen"])


class Counted:
    """A :class:`~polyak.envs.protocol.BatchedEnv` of tensors, and its episodes.

    Args:
        batch: the environments.
        newest: how many ended episodes are kept.
        masks: whether to pass on which choices are allowed.
    """

    def __init__(self, batch: BatchedEnv, newest: int, masks: bool = True) -> None:
        self.batch, self.device, self.num_envs = batch, torch.device(batch.device), batch.num_envs
        self.observation_space, self.action_space = batch.observation_space, batch.action_space
        self.masked = masks and batch.masked
        self.episodes = EpisodesInTensors(batch.num_envs, newest, self.device)

    @property
    def resets(self) -> int:
        """How often all environments were reset, by any program."""
        return self.batch.resets

    def reset(self) -> First:
        """Begin new episodes everywhere."""
        first = self.batch.reset()
        self.episodes.begin()
        return first if self.masked else first._replace(masks=None)

    def step(self, actions: Any) -> Outcome:
        """Step each environment; with masks, also ``next_masks`` [N, M]: in a final state all is allowed."""
        outcome = self.batch.step(actions)
        self.episodes.note(outcome.rewards, outcome.dones)
        if not self.masked:
            return outcome if outcome.masks is None else outcome._replace(masks=None)
        after = {"next_masks": outcome.masks | outcome.dones[:, None], **outcome.extras}
        return outcome._replace(extras=after)

    def get_state(self) -> dict[str, Any]:
        """Returns everything that determines the environments' next steps, and the running episodes, as arrays."""
        return copied({"batch": self.batch.get_state(), "episodes": self.episodes.state()}, None)

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores a state that :meth:`get_state` returned."""
        self.batch.set_state(copied(state["batch"], self.device))
        self.episodes.load_state(copied(state["episodes"], self.device))
