"""Rollouts on their way from one process to another: arrays, or several beside each other.

Shapes: T steps of N environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from polyak.data import RolloutBuffer
from polyak.distributed.statistics import Report
from polyak.experience import Experience, arrays
from polyak.kinds.asynchronous import AsynchronousAlgorithm, Rollout


@dataclass
class Fragment:
    """A rollout of one runner, or several side by side."""

    columns: Experience
    """[T, N, ...], in numpy."""
    last: dict[str, Any]
    """Name -> [N, ...], or a dict of such: what there is after the last step, of algorithms that ask for it."""
    version: int
    """Of the weights that acted: the oldest of them."""
    infos: list[tuple[int, list[dict[str, Any]]]] = field(default_factory=list)
    """Steps in which episodes ended, with the infos of all environments."""
    source: tuple[str, int] = ("", 0)
    """Which runner made it, and how many it had made before: the next one continues where this one ends."""
    report: Report | None = None
    """What the runner says of the statistics of its filter, if it has one."""
    streams: Any = None
    """Random numbers to continue from, where those of one process are wanted."""
    dropped: int = 0
    """Environment steps that it leaves out, of episodes that had not ended."""

    @property
    def made(self) -> int:
        """Environment steps."""
        steps, envs = self.columns.lead
        return steps * envs + self.dropped


def taken_from(buffer: RolloutBuffer, version: int, rollout: Rollout | None = None) -> Fragment:
    """What a full buffer holds, before it is read; with what came after it, if that is known."""
    columns = buffer.collected.plus(advantages=buffer.advantages, returns=buffer.returns)
    last: dict[str, Any] = {}
    if rollout is not None:
        memory = {name: tensor.numpy(force=True) for name, tensor in rollout.memory.items()}
        last = {"observations": rollout.last_observations, "starts": rollout.episode_starts, "memory": memory}
    return Fragment(columns, last, version)


def given_to(model: Any, fragment: Fragment) -> None:
    """Let a model's next ``train()`` learn from a fragment."""
    ahead = isinstance(model, AsynchronousAlgorithm)
    buffer, last = model._make_rollout_buffer() if ahead else model.rollout_buffer, fragment.last
    buffer.buffer_size = fragment.columns.lead[0]
    buffer.reset()
    for name, column in fragment.columns.map(np.array).items():
        setattr(buffer, name, column)
    buffer.pos, buffer.full = buffer.buffer_size, True
    if ahead:
        memory = {name: torch.as_tensor(value, device=model.device) for name, value in last["memory"].items()}
        model.rollout_buffer = buffer
        model.take([Rollout(buffer, last["observations"], last["starts"], memory, fragment.version, [])])


def joined(fragments: Sequence[Fragment], whole: bool = False) -> Fragment:
    """Several of equal length side by side; those of whole episodes one after another."""
    if len(fragments) == 1:
        return fragments[0]
    columns = Experience.joined([one.columns for one in fragments], 0 if whole else 1)
    last = fragments[-1].last
    if not whole:
        last = arrays.mapped(lambda *several: np.concatenate(several), *(one.last for one in fragments))
    infos = [info for one in fragments for info in one.infos]
    dropped = sum(one.dropped for one in fragments)
    return Fragment(columns, last, min(one.version for one in fragments), infos, dropped=dropped)
