"""Returns and lengths of episodes, added up on the device and read when logs are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor


class Episodes:
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
        """Return and length of episode i in row ``i % newest``; the last row takes what is not kept."""
        self.seen = 0
        """How many have been read."""
        self.begin()

    def begin(self) -> None:
        """New episodes begin everywhere."""
        self.running = torch.zeros(self.n_envs, 2, device=self.device)
        """[N, 2] return and length so far."""

    def note(self, rewards: Tensor, ended: Tensor) -> None:
        """Add a step: rewards [N], and whether an episode ended with it [N] bool."""
        running = self.running + torch.stack([rewards, torch.ones_like(rewards)], 1)
        number = self.ended + ended.cumsum(0) - 1
        total = self.ended + ended.sum()
        kept = ended & (number >= total - self.newest)
        self.kept.index_copy_(0, torch.where(kept, number % self.newest, self.newest), running)
        self.ended, self.running = total, torch.where(ended[:, None], 0, running)

    def read(self) -> tuple[int, np.ndarray]:
        """How many episodes have ended since the last time, and return and length of the newest of them, oldest first:
        [K, 2]. The one place where the host waits for the device."""
        total = int(self.ended)
        fresh, self.seen = total - self.seen, total
        kept = self.kept.numpy(force=True)
        return fresh, kept[np.arange(max(total - self.newest, total - fresh), total) % self.newest]

    def state(self) -> dict[str, Any]:
        """As arrays by name."""
        tensors = {"running": self.running, "kept": self.kept, "ended": self.ended}
        return {**{name: tensor.numpy(force=True) for name, tensor in tensors.items()}, "seen": np.array(self.seen)}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        """Take back a :meth:`state` of as many environments; of another number of kept episodes nothing but the running
        ones is taken."""
        self.running = torch.from_numpy(np.array(state["running"])).to(self.device)
        if state["kept"].shape == tuple(self.kept.shape):
            self.kept = torch.from_numpy(np.array(state["kept"])).to(self.device)
            self.ended = torch.from_numpy(np.array(state["ended"])).to(self.device)
            self.seen = int(state["seen"])
