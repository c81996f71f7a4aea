"""What one step of the environments brings, from the runner through storage to the learner."""

from typing import Any, NamedTuple

import numpy as np

Observations = Any
"""np.ndarray [N, ...], or a dict of them."""
NO_EXTRAS: dict[str, Any] = {}
"""The extras of steps and batches that have none; stays empty."""
AFTER = "next_"
"""Extras whose names begin so are of the state after a row, as masks of the next choices are: of several rows that
become one transition the last one's count."""


class Step(NamedTuple):
    """One step of N environments."""

    observations: Observations
    """[N, ...] what was acted on (before normalisation, if the runner is ``raw``)."""
    actions: np.ndarray
    """[N, ...] in the network's units."""
    env_actions: Any
    """[N, ...] in the environment's units; of a Dict or Tuple space a list of N actions."""
    rewards: np.ndarray
    """[N] (before normalisation, if the runner is ``raw``)."""
    next_observations: Observations
    """[N, ...] the true successors, also of an episode's last step."""
    terminated: np.ndarray
    """[N] bool: an episode ended in a terminal state."""
    truncated: np.ndarray
    """[N] bool: an episode was cut short while its state was not terminal."""
    dones: np.ndarray
    """[N] bool: an episode ended, for whatever reason."""
    infos: Any
    """A sequence of N dicts: what the environments say besides, for callbacks and buffers of a user's own."""
    new_obs: Observations
    """[N, ...] what to act on next: as ``next_observations``, but after a reset where an episode ended."""
    episode_starts: np.ndarray
    """[N] bool: ``observations`` is the first of an episode."""
    ended: bool
    """Whether the host knows of a True in ``dones``; ``False`` in tensors, which it does not read."""
    extras: dict[str, np.ndarray] = NO_EXTRAS
    """Further columns by name, [N, ...] each: what the policy says of each row besides the action, and masks."""
    episodes: dict[str, np.ndarray] = NO_EXTRAS
    """Columns about the episodes that ended: see :class:`~polyak.envs.protocol.Outcome`."""
