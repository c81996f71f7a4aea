"""One step of experience, as whoever steps the environments reports it and buffers record it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

NO_EXTRAS: dict[str, Any] = {}
"""The extras of steps and batches that have none; stays empty."""


class Step(NamedTuple):
    """One step of N environments."""

    observations: Any
    """[N, ...] what was acted on, or a dict of these (before normalisation, if the runner is ``raw``)."""
    actions: np.ndarray
    """[N, ...] in the network's units."""
    env_actions: np.ndarray
    """[N, ...] in the environment's units."""
    rewards: np.ndarray
    """[N] (before normalisation, if the runner is ``raw``)."""
    next_observations: Any
    """[N, ...] the true successors, also of an episode's last step."""
    terminated: np.ndarray
    """[N] bool: an episode ended in a terminal state, after which nothing comes."""
    truncated: np.ndarray
    """[N] bool: an episode was cut short while its state was not terminal."""
    dones: np.ndarray
    """[N] bool: ``terminated | truncated``."""
    infos: list[dict[str, Any]]
    """N dicts."""
    new_obs: Any
    """[N, ...] what to act on next: as ``next_observations``, but after a reset where an episode ended."""
    episode_starts: np.ndarray
    """[N] bool: ``observations`` is the first of an episode."""
    ended: bool
    """Whether ``dones`` has a True at all."""
    extras: dict[str, np.ndarray] = NO_EXTRAS
    """Name -> [N, ...]: the columns of the :class:`~polyak.data.schema.Schema`."""
