"""Pieces before a learner: RLlib's default ones, which make columns of episodes, and a program's own among them.

Shapes: R rows, one for each step of the episodes, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from polyak.arrays import leaves, mapped
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID, Columns
from polyak.compat.rllib_face.connectors.base import Batch, ConnectorPipelineV2, ConnectorV2
from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode, stacked
from polyak.compat.rllib_face.connectors.pieces import Rewriting
from polyak.hyperparameters.declaration import require

_MADE = "columns of default pieces"
"""Their names are under this one in ``shared_data``."""


class DefaultPiece(ConnectorV2):
    """One of RLlib's own. This one does nothing itself: the algorithm does the work, where the piece stands."""

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        return batch


class AddOneTsToEpisodesAndTruncate(DefaultPiece):
    """Where RLlib adds a step to each episode, for the value of what follows. The algorithm has that value."""


class AddTimeDimToBatchAndZeroPad(DefaultPiece):
    """Where RLlib cuts rows into sequences, which the algorithm does."""


class AddStatesFromEpisodesToBatch(DefaultPiece):
    """Where RLlib adds recurrent states, which the algorithm holds."""


class GeneralAdvantageEstimation(DefaultPiece):
    """Where advantages are estimated, by the algorithm, of the rewards as they are here."""


class Adding(DefaultPiece):
    """Adds columns, but for those that pieces before it have put in."""

    def __call__(
        self, *, rl_module: Any, batch: Batch, episodes: list[Any], shared_data: Any = None, **kwargs: Any
    ) -> Batch:
        for name, values_of in self.columns().items():
            if name not in batch:
                shared_data.setdefault(_MADE, set()).add(name)
                for one in episodes:
                    self.add_n_batch_items(batch, name, values_of(one), len(one), one)
        return batch

    def columns(self) -> dict[str, Callable[[SingleAgentEpisode], Any]]:
        """Name -> its rows of an episode."""
        raise NotImplementedError


class AddObservationsFromEpisodesToBatch(Adding):
    """Adds what each step was chosen by."""

    def columns(self) -> dict[str, Callable[[SingleAgentEpisode], Any]]:
        return {Columns.OBS: lambda one: one.get_observations(slice(0, len(one)))}


class AddNextObservationsFromEpisodesToTrainBatch(Adding):
    """Adds what each step led to."""

    def columns(self) -> dict[str, Callable[[SingleAgentEpisode], Any]]:
        return {Columns.NEXT_OBS: lambda one: one.get_observations(slice(1, len(one) + 1))}


class AddColumnsFromEpisodesToTrainBatch(Adding):
    """Adds actions, rewards, and how episodes have ended."""

    def columns(self) -> dict[str, Callable[[SingleAgentEpisode], Any]]:
        return {
            Columns.ACTIONS: lambda one: one.get_actions(),
            Columns.REWARDS: lambda one: one.get_rewards().astype(np.float32),
            Columns.TERMINATEDS: lambda one: [False] * (len(one) - 1) + [one.is_terminated],
            Columns.TRUNCATEDS: lambda one: [False] * (len(one) - 1) + [one.is_truncated],
        }


class BatchIndividualItems(DefaultPiece):
    """Makes arrays [R, ...] of the items of episodes, which are from here on those of the only agent's module."""

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        def rows(column: Any) -> Any:
            by_episode = isinstance(column, Mapping) and all(isinstance(key, tuple) for key in column)
            if by_episode:
                column = [item for one in episodes for item in column.get((one.id_,), ())]
            return stacked(column) if isinstance(column, list) else column

        return {DEFAULT_MODULE_ID: {name: rows(column) for name, column in batch.items()}}


class NumpyToTensor(DefaultPiece):
    """Makes tensors of arrays, with observations as modules read them.

    Attributes:
        read: from observations of the environment to those of modules.
        device: where to put them.
        made: name of a column -> it, and how often it had been written to.
    """

    def __init__(self, *, device: Any = "cpu") -> None:
        super().__init__()
        self.read: Callable[[Any], Any] = lambda observations: observations
        self.device = device
        self.made: dict[str, tuple[Any, Any]] = {}

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        found: Batch = mapped(lambda column: torch.as_tensor(column, device=self.device), batch)
        for columns in found.values():
            columns |= {name: self.read(columns[name]) for name in (Columns.OBS, Columns.NEXT_OBS) if name in columns}
        self.made = {name: (column, _version(column)) for name, column in found[DEFAULT_MODULE_ID].items()}
        return found


def _version(column: Any) -> Any:
    """How often a tensor, or each of a dict, was written to."""
    return mapped(lambda part: part._version, column)


def default_pieces(device: Any) -> list[ConnectorV2]:
    """RLlib's pieces of every learner, new ones in their order."""
    return [NumpyToTensor(device=device) if kind is NumpyToTensor else kind() for kind in DEFAULT]


class Batched(NamedTuple):
    """What pieces make of episodes."""

    modules: dict[str, Batch]
    """Name of a module -> its columns, tensors [R, ...]."""
    others: set[str]
    """Columns of the only agent's module that are not the episodes' own: added, or written to, by a program's pieces.
    Rewards are never among them."""

    def rows(self, own: Batch, index: Any = None) -> dict[str, Batch]:
        """Name of a module -> the columns of some rows.

        Args:
            own: of the only agent's module, as the algorithm has them, which count where no piece has made others.
            index: [B] which rows those are; ``None``: all.
        """
        agents = self.modules[DEFAULT_MODULE_ID]
        found = {}
        for name, columns in self.modules.items():
            found[name] = dict(columns) if index is None else mapped(lambda part: part[index], columns)
            if columns is agents:
                changed = self.others | {Columns.REWARDS}
                found[name] |= {key: column for key, column in own.items() if key not in changed or key not in columns}
        return found


class LearnerConnectorPipeline(ConnectorPipelineV2):
    """Pieces between episodes and a learner: they change rewards and other columns, and make columns of modules that
    only the learner has."""

    @property
    def own(self) -> list[Any]:
        """A program's pieces, and not the default ones."""
        return [one for one in self.connectors if not isinstance(one, DefaultPiece)]

    def _named(self) -> dict[str, ConnectorV2]:
        return {f"{i:03d}_{type(one).__name__}": one for i, one in enumerate(self.own) if isinstance(one, ConnectorV2)}

    def leave_out_rewriting(self, before: list[Any]) -> None:
        """Leave out pieces whose work is done before the module.

        Args:
            before: the pieces there.

        Raises:
            HyperparameterError: one that rewrites observations, and none there does the same; or a filter.
        """
        for piece in self.own:
            fix = "filters stand in env_to_module_connector."
            require(isinstance(piece, ConnectorV2), "learner_connector", piece, fix)
            if isinstance(piece, Rewriting):
                same = piece.as_learner_connector and any(piece.same_as(one) for one in before)
                fix = "it learns from what the module was shown: put an equal piece into env_to_module_connector."
                require(same, "learner_connector", piece, fix)
        self.connectors = [one for one in self.connectors if not isinstance(one, Rewriting)]

    _closed = False

    def _respace(self) -> None:
        fix = (
            "the algorithm has been built: change them in build() of a learner_class, or in build_learner_connector()."
        )
        require(not self._closed, "learner_connector", [type(one).__name__ for one in self.connectors], fix)
        super()._respace()

    def check(self, learner: str) -> None:
        """Refuse an order of pieces in which a program's would do nothing, and changes from now on.

        Args:
            learner: name of the class that passes them.

        Raises:
            HyperparameterError: a default piece is missing or there twice, or a piece stands behind the last.
        """
        kinds = [type(one) for one in self.connectors]
        for kind in DEFAULT:
            fix = f"{learner} makes batches by RLlib's default pieces: let {kind.__name__} stand there once."
            require(kinds.count(kind) == 1, "learner_connector", [one.__name__ for one in kinds], fix)
        if GeneralAdvantageEstimation in kinds:
            behind = self.connectors[kinds.index(GeneralAdvantageEstimation) + 1 :]
            fix = "advantages have been estimated there: insert_before(GeneralAdvantageEstimation, piece)."
            require(not behind, "learner_connector", [type(one).__name__ for one in behind], fix)
        self._closed = True

    def batched(self, episodes: list[Any], device: Any, **given: Any) -> Batched:
        """What the pieces make of episodes.

        Args:
            episodes: of R steps together.
            device: where to put the columns.
            given: ``rl_module``, ``metrics``, and what else pieces are called with.

        Raises:
            HyperparameterError: a column has more rows or fewer, or is of a module that is not there.
        """
        for one in episodes:
            one.is_numpy = True
        (last,) = (one for one in self.connectors if type(one) is NumpyToTensor)
        last.device = device
        shared: dict[str, Any] = {}
        found = self(batch={}, episodes=episodes, explore=False, shared_data=shared, **given)
        rows = sum(len(one) for one in episodes)
        known = list(given["rl_module"])
        fix = "a piece has left it out of the batch. Return what was given."
        require(DEFAULT_MODULE_ID in found, "learner_connector", DEFAULT_MODULE_ID, fix)
        for name, columns in found.items():
            require(name in known, "learner_connector", name, f"a piece adds this to the batch: modules are {known}.")
            for key, column in columns.items():
                counts = {part.shape[0] if part.ndim else 0 for part in leaves(column)}
                fix = f"batch[{name!r}][{key!r}] must have {rows} rows, one for each step of the episodes."
                require(counts == {rows}, "learner_connector", f"{sorted(counts)} rows", fix)
        first, by_default = last.made, shared.get(_MADE, set())
        others = {
            key
            for key, column in found[DEFAULT_MODULE_ID].items()
            if key not in by_default or column is not first[key][0] or _version(column) != first[key][1]
        }
        return Batched(found, others - {Columns.REWARDS})


DEFAULT = (
    AddObservationsFromEpisodesToBatch,
    AddColumnsFromEpisodesToTrainBatch,
    AddTimeDimToBatchAndZeroPad,
    AddStatesFromEpisodesToBatch,
    BatchIndividualItems,
    NumpyToTensor,
)
"""RLlib's pieces of every learner, in their order."""
