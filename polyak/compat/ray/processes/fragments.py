"""Rollouts on their way from one process to another: arrays, beside each other or in parts.

Shapes: T steps of N environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
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


def given_to(model: Any, fragments: Sequence[Fragment]) -> None:
    """Let a model's next ``train()`` learn from fragments; all but asynchronous algorithms learn from one."""
    if not isinstance(model, AsynchronousAlgorithm):
        (fragment,) = fragments
        _fill(model.rollout_buffer, fragment)
        return
    rollouts = []
    for fragment in fragments:
        buffer = model._make_rollout_buffer()
        _fill(buffer, fragment)
        last = fragment.last
        memory = {name: torch.as_tensor(value, device=model.device) for name, value in last["memory"].items()}
        rollouts.append(Rollout(buffer, last["observations"], last["starts"], memory, fragment.version, []))
    model.rollout_buffer = rollouts[-1].buffer
    model.take(rollouts)


def _fill(buffer: RolloutBuffer, fragment: Fragment) -> None:
    buffer.buffer_size = fragment.columns.lead[0]
    buffer.reset()
    for name, column in fragment.columns.map(np.array).items():
        setattr(buffer, name, column)
    buffer.pos, buffer.full = buffer.buffer_size, True


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


def split(fragment: Fragment, parts: int, whole: bool = False) -> list[Fragment]:
    """As many fragments of equally many environments; of whole episodes, of equally many rows.

    Where these cannot be dealt out evenly, some stand in two parts: learners that learn as one must all make the same
    steps, or they wait for each other for ever.
    """
    count = fragment.columns.lead[0 if whole else 1]
    width = -(-count // parts)
    places = [np.arange(part * width, (part + 1) * width) % count for part in range(parts)]
    return [(_of_steps if whole else of_envs)(fragment, these) for these in places]


def of_envs(fragment: Fragment, envs: np.ndarray) -> Fragment:
    """What some environments have brought."""
    columns = fragment.columns.map(partial(np.take, indices=envs, axis=1))
    last = arrays.mapped(partial(np.take, indices=envs, axis=0), fragment.last)
    return Fragment(columns, last, fragment.version)


def _of_steps(fragment: Fragment, steps: np.ndarray) -> Fragment:
    return Fragment(fragment.columns.map(partial(np.take, indices=steps, axis=0)), fragment.last, fragment.version)
