"""One step of the environments, as it passes from the runner through storage to the learner."""

from typing import Any, NamedTuple

import numpy as np

Observations = Any
"""``np.ndarray`` [N, ...], or a dict of them."""
NO_EXTRAS: dict[str, Any] = {}
"""The extras of steps and batches without any; stays empty."""
AFTER = "next_"
"""Prefix of extras that belong to the state after a row, such as masks of the next choices: if several rows become one
transition, the last one's are used."""


class Step(NamedTuple):
    """One step of N environments."""

    observations: Observations
    """[N, ...] the observations that the actions were chosen for (before normalisation, if the runner is ``raw``)."""
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
    """A sequence of N dicts: the environments' infos, for callbacks and user-defined buffers."""
    new_obs: Observations
    """[N, ...] the next observations to act on: ``next_observations``, but after the reset where an episode ended."""
    episode_starts: np.ndarray
    """[N] bool: ``observations`` is the first of an episode."""
    ended: bool
    """Whether an entry of ``dones`` is True, if the host has that value; ``False`` in tensors, which the host does not
    read."""
    extras: dict[str, np.ndarray] = NO_EXTRAS
    """Further columns by name, [N, ...] each: the policy's outputs besides the action, and masks."""
    episodes: dict[str, np.ndarray] = NO_EXTRAS
    """Columns about the episodes that ended: see :class:`~polyak.envs.protocol.Outcome`."""
