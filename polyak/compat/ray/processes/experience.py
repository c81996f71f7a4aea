"""Steps on their way from the runner that made them to the buffer that replays them.

Shapes: T steps of N environments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from polyak.compat.buffers import OwnArrays
from polyak.compat.ray.processes.fragments import Fragment
from polyak.data.base import BaseBuffer
from polyak.data.step import Step
from polyak.experience import Experience, arrays

_SENT = ("observations", "actions", "rewards", "next_observations", "dones", "truncated", "extras")
"""What of a step is replayed."""


class Outbox(OwnArrays):
    """A replay buffer in which steps wait until they are sent to another, and that replays none.

    Args:
        buffer_size, optimize_memory_usage, **options: of that other; not read.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space,
        action_space: spaces.Space,
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        **options: Any,
    ) -> None:
        BaseBuffer.__init__(self, 1, observation_space, action_space, device, n_envs)
        self._waiting: list[dict[str, Any]] = []

    def record(self, step: Step) -> None:
        """Keep one step until it is sent."""
        self._waiting.append({name: arrays.mapped(np.array, getattr(step, name)) for name in _SENT})

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not self._waiting

    def taken(self, version: int) -> Fragment:
        """All that waits, [T, N, ...] each."""
        steps, self._waiting = self._waiting, []
        return Fragment(Experience(arrays.mapped(lambda *several: np.stack(several), *steps)), {}, version)


def steps_in(fragment: Fragment) -> Iterator[Step]:
    """What was recorded, as far as a replay buffer wants to know of it."""
    length, envs = fragment.columns.lead
    nothing: list[dict[str, Any]] = [{}] * envs
    for t in range(length):
        row = fragment.columns[t]
        dones, truncated = row["dones"], row["truncated"]
        yield Step(
            env_actions=None,
            terminated=np.greater(dones, truncated),
            infos=nothing,
            new_obs=None,
            episode_starts=np.zeros(envs, bool),
            ended=bool(dones.any()),
            **row,
        )


class Lanes:
    """Which environments of a buffer the fragments of each runner are written to.

    A buffer sums rewards over successive rows of an environment. What is written to such a lane must therefore continue
    from what was written there before, or the episode must be cut.

    Args:
        blocks: how many fragments stand side by side.
    """

    def __init__(self, blocks: int) -> None:
        self._last: list[tuple[str, int] | None] = [None] * blocks

    def placed(self, fragments: Sequence[Fragment]) -> tuple[list[Fragment], list[int]]:
        """Put fragments side by side, as many as there are blocks.

        Returns:
            one for each block, and the blocks that another episode was under way in.
        """
        found: dict[int, Fragment] = {}
        strangers = []
        for fragment in fragments:
            name, number = fragment.source
            known = (name, number - 1)
            block = next((b for b, last in enumerate(self._last) if last == known and b not in found), None)
            if block is None:
                strangers.append(fragment)
            else:
                found[block] = fragment
        free = [block for block in range(len(self._last)) if block not in found]
        free.sort(key=lambda block: self._last[block] is not None)  # those first that hold nothing yet
        cut = [block for block, _ in zip(free, strangers, strict=True) if self._last[block] is not None]
        found |= dict(zip(free, strangers, strict=True))
        self._last = [found[block].source for block in range(len(self._last))]
        return [found[block] for block in range(len(self._last))], cut
