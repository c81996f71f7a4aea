"""The application of a learner's pieces to a rollout, before advantages are estimated, and to replayed rows."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

import numpy as np
from torch import Tensor

from polyak.arrays import mapped
from polyak.compat.rllib_face.columns import Columns
from polyak.compat.rllib_face.connectors.batches import LearnerConnectorPipeline
from polyak.compat.rllib_face.connectors.environments import (
    layers_of,
    load_state_of_pieces,
    state_of_pieces,
)
from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode


def episodes_of(columns: Mapping[str, Any]) -> list[SingleAgentEpisode]:
    """Replayed rows [B] as episodes of one step each."""
    arrays = mapped(lambda one: one.numpy(force=True) if isinstance(one, Tensor) else np.asarray(one), dict(columns))
    return [
        SingleAgentEpisode(
            str(row),
            observations=[mapped(itemgetter(row), arrays[name]) for name in (Columns.OBS, Columns.NEXT_OBS)],
            actions=[arrays[Columns.ACTIONS][row]],
            rewards=[arrays[Columns.REWARDS][row]],
            terminated=bool(arrays[Columns.TERMINATEDS][row]),
        )
        for row in range(len(arrays[Columns.REWARDS]))
    ]


def pieces_of_learner(model: Any) -> LearnerConnectorPipeline | None:
    """Returns the pieces of a model's learner; ``None`` if a program has none there."""
    pipeline = getattr(model.learner, "pipeline", None)
    return pipeline if pipeline is not None and pipeline.own else None


def state_of_all(model: Any) -> dict[str, Any]:
    """Returns the learned state of a model's pieces: ``env_to_module`` and ``learner``, where they exist."""
    pipeline = pieces_of_learner(model)
    return state_of_pieces(model.get_env()) | ({} if pipeline is None else {"learner": pipeline.get_state()})


def load_state_of_all(model: Any, state: Mapping[str, Any]) -> None:
    """Restore a state that :func:`state_of_all` returned, or parts of it."""
    load_state_of_pieces(model.get_env(), state)
    if "learner" in state and (pipeline := pieces_of_learner(model)) is not None:
        pipeline.set_state(state["learner"])


def check_pieces(model: Any) -> None:
    """Drop pieces of a model's learner whose work is done before the module, and refuse those that would do nothing.

    Raises:
        HyperparameterError: the message names the piece.
    """
    layers = layers_of(model.get_env())
    pipeline: LearnerConnectorPipeline = model.learner.pipeline
    pipeline.leave_out_rewriting(layers[0].whole.connectors if layers else [])
    pipeline.check(type(model.learner).__name__)
