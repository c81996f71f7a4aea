"""Rewards as the pieces of a learner make them, before advantages are estimated."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.compat.ray.columns import DEFAULT_MODULE_ID
from polyak.compat.ray.connectors.environments import ConnectedEnv
from polyak.compat.ray.models.multi import MultiRLModule
from polyak.hyperparameters.declaration import require


class RewardsByPieces:
    """Gives a rollout the rewards that pieces make of its episodes.

    Args:
        layer: which has kept the episodes.
    """

    def __init__(self, layer: ConnectedEnv) -> None:
        self._layer = layer

    def __call__(self, rollout: Any) -> None:
        """Rewrite ``rollout.rewards`` [T, N].

        Raises:
            NotImplementedError: a piece adds columns.
        """
        layer = self._layer
        assert layer.learner is not None
        stretches = layer.taken()
        episodes = [one for of_one in stretches for one in of_one]
        for one in episodes:
            one.is_numpy = True
        modules = MultiRLModule({DEFAULT_MODULE_ID: layer.rl_module})
        known = {"explore": False, "shared_data": {}, "metrics": layer.metrics}
        batch = layer.learner(rl_module=modules, batch={}, episodes=episodes, **known)
        if batch:
            raise NotImplementedError(
                f"pieces of learner_connector add the columns {sorted(batch)}, which no loss is given here. Let them "
                "change rewards: episode.set_rewards(new_data=..., at_indices=...)."
            )
        made = [np.concatenate([np.asarray(one.rewards, np.float32) for one in of_one]) for of_one in stretches]
        for index, rewards in enumerate(made):
            fix = f"the rollout has {len(rollout.rewards)} steps of each environment. Leave rewards as many."
            require(len(rewards) == len(rollout.rewards), "learner_connector", f"{len(rewards)} rewards", fix)
            rollout.rewards[:, index] = rewards
