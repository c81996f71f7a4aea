"""Connector pieces of a program for actions, between a module and environments.

They get actions in the module's units, after exploration; their results are stored and executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.collecting.actor import Actor
from polyak.collecting.exploration import WarmUp
from polyak.collecting.runner import Acted
from polyak.compat.rllib_face.bases import BeforeAlgorithm
from polyak.compat.rllib_face.columns import Columns
from polyak.compat.rllib_face.connectors.environments import ConnectedEnv, layers_of
from polyak.envs.nested_spaces import as_named
from polyak.hyperparameters.declaration import require
from polyak.nn.codec import ActionCodec

_SHOWN = {Columns.ACTION_DIST_INPUTS: Columns.ACTION_DIST_INPUTS, "log_probs": Columns.ACTION_LOGP}
"""Stored columns -> the columns of a batch that pieces see."""


def passed(acted: Acted, codec: ActionCodec, layer: ConnectedEnv, explore: bool) -> Acted:
    """Passes actions [N, ...] through the pieces.

    Args:
        acted: the actor's outputs.
        codec: converts actions to the environment's units.
        layer: holds the pieces, and the episodes for them.
        explore: whether the module has explored.

    Raises:
        HyperparameterError: the pieces change another column than ``actions``, drop actions, or return actions outside
            of the space.
    """
    names = [(one.id_,) for one in layer.episodes]
    columns = {Columns.ACTIONS: acted.actions}
    columns |= {shown: acted.extras[name] for name, shown in _SHOWN.items() if name in acted.extras}
    batch = {name: {key: [row.copy()] for key, row in zip(names, rows, strict=True)} for name, rows in columns.items()}
    found = layer.acting(
        rl_module=layer.rl_module,
        batch=batch,
        episodes=layer.episodes,
        explore=explore,
        shared_data=layer.shared,
        metrics=layer.metrics,
    )
    same = found.keys() == columns.keys()
    fix = f"pieces behind the module change the column {Columns.ACTIONS!r}, and leave the others as they are."
    require(same, _SETTING, sorted(set(found) ^ set(columns)), fix)
    rows = {name: _rows(found, name, names) for name in columns}
    for name in columns.keys() - {Columns.ACTIONS}:
        require(np.array_equal(np.stack(rows[name]), columns[name], equal_nan=True), _SETTING, name, fix)
    actions = np.stack([_action(row, acted.actions[0], layer.action_space) for row in rows[Columns.ACTIONS]])
    return Acted(codec.to_env(actions), actions, acted.extras)


_SETTING = "module_to_env_connector"


def _rows(batch: dict[str, Any], name: str, keys: list[tuple[str]]) -> list[Any]:
    """Returns the items of a column, in the order of the episodes."""
    column = batch[name]
    fits = isinstance(column, dict) and all(len(column.get(key, ())) == 1 for key in keys)
    require(fits, _SETTING, name, "they must leave one item of this column for each episode.")
    return [column[key][0] for key in keys]


def _action(made: Any, before: np.ndarray, space: spaces.Space) -> np.ndarray:
    """Returns an action of the type and shape of the one before; choices must be such as the space has."""
    action = np.asarray(made)
    right = action.shape == before.shape and np.can_cast(action.dtype, before.dtype, "same_kind")
    fix = f"the module's are {before.dtype} {before.shape}, for {space}."
    require(right, _SETTING, f"{action.dtype} {action.shape}", fix)
    action = action.astype(before.dtype)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        require(bool(np.all((action >= 0) & (action < _choices(space)))), _SETTING, made, fix)
    return action


def _choices(space: Any) -> Any:
    return 2 if isinstance(space, spaces.MultiBinary) else getattr(space, "nvec", getattr(space, "n", None))


class ConnectedActor(Actor):
    """An actor that passes actions through pieces.

    Attributes:
        layer: holds the pieces; ``None``: there are none yet.
    """

    layer: ConnectedEnv | None = None

    def act(self, observations: Any, episode_starts: Any = None, masks: Any = None) -> Acted:
        acted = super().act(observations, episode_starts, masks)
        return acted if self.layer is None else passed(acted, self.codec, self.layer, not self.deterministic)


class ActsByPieces(BeforeAlgorithm):
    """Mixin of an algorithm whose actions pass through pieces, in training and in evaluation."""

    policy: Any
    observation_space: spaces.Space
    runner: Any
    _evaluator: ConnectedActor | None = None

    def make_actor(self) -> ConnectedActor:
        """Returns the algorithm's actor, with pieces behind it."""
        own = super().make_actor()
        assert isinstance(own, Actor)
        return ConnectedActor(own.policy, own.exploration, own.deterministic)

    @contextmanager
    def evaluated_in(self, env: Any, explore: bool) -> Iterator[None]:
        """While the block runs, predictions are for environments, and pass through their pieces."""
        parts = self._exploration() if explore else {}
        parts = {name: part for name, part in parts.items() if not isinstance(part, WarmUp)}
        self._evaluator = ConnectedActor(self.policy, parts, deterministic=not explore)
        self._evaluator.layer = next(iter(layers_of(env)), None)
        try:
            yield
        finally:
            self._evaluator = None

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False, **more: Any
    ) -> tuple[Any, Any]:
        if self._evaluator is None:
            return super().predict(observation, state, episode_start, deterministic, **more)
        read = self._as_learned(as_named(observation, self.observation_space))
        return self._evaluator.act(read, episode_start, more.get("action_masks")).env_actions, state
