"""Pieces before a learner: RLlib's default ones, which make columns of episodes, and a program's own among them.

Shapes: R rows, one for each step of the episodes, in their order.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from polyak.arrays import leaves, mapped
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID, Columns
from polyak.compat.rllib_face.connectors.base import Batch, ConnectorPipelineV2, ConnectorV2
from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode, mapped_parts, stacked
from polyak.compat.rllib_face.connectors.pieces import Rewriting
from polyak.compat.rllib_face.models.parts import check_output
from polyak.experience.rollout_buffer import gae_by_torch
from polyak.hyperparameters.declaration import require


class DefaultPiece(ConnectorV2):
    """One of RLlib's default pieces. It marks a place; the algorithm does the work there."""

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        return batch


class Adding(DefaultPiece):
    """Adds columns, but for those that pieces before it have put in."""

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        there = set(batch)
        for one in episodes:
            for name, values in self.columns(one, rl_module).items():
                if name not in there:
                    self.add_n_batch_items(batch, name, values, len(one), one)
        return batch

    def columns(self, episode: SingleAgentEpisode, modules: Any) -> dict[str, Any]:
        """Name -> its rows of an episode."""
        raise NotImplementedError


def _at_last(value: bool, steps: int) -> list[bool]:
    return [False] * (steps - 1) + [bool(value)]


class AddOneTsToEpisodesAndTruncate(Adding):
    """Adds a step to each episode, whose observation has the value of the successor; losses skip it (``loss_mask``). A
    continuing episode is truncated there."""

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        episodes[:] = [one.extended() for one in episodes]
        for number, one in enumerate(episodes):
            one.id_ += f"_{number}"  # stretches of one episode stay apart
        return super().__call__(rl_module=rl_module, batch=batch, episodes=episodes, **kwargs)

    def columns(self, episode: SingleAgentEpisode, modules: Any) -> dict[str, Any]:
        steps = len(episode) - 1
        return {
            Columns.LOSS_MASK: [True] * steps + [False],
            Columns.TERMINATEDS: [*_at_last(episode.is_terminated, steps), False],
            Columns.TRUNCATEDS: [*_at_last(episode.is_truncated, steps), False],
        }


class AddTimeDimToBatchAndZeroPad(Adding):
    """Marks the steps that are none: rows of recurrent modules are cut into sequences of one length behind it."""

    def columns(self, episode: SingleAgentEpisode, modules: Any) -> dict[str, Any]:
        return {} if sequence_length(modules) is None else {Columns.LOSS_MASK: [True] * len(episode)}


class AddStatesFromEpisodesToBatch(Adding):
    """Adds the recurrent state before each step: that in which the module acted, or else its initial one."""

    def columns(self, episode: SingleAgentEpisode, modules: Any) -> dict[str, Any]:
        if sequence_length(modules) is None:
            return {}
        before, after = (episode.extra_model_outputs.get(name) for name in (Columns.STATE_IN, Columns.STATE_OUT))
        initial = mapped_parts(modules[DEFAULT_MODULE_ID].get_initial_state(), np.asarray)
        first = initial if before is None else before[0]
        return {Columns.STATE_IN: [first] * len(episode) if after is None else [first, *after[:-1]]}


def sequence_length(modules: Any) -> int | None:
    """Returns the steps of the sequences that the agent's module learns from; ``None`` if it is not recurrent."""
    module = modules[DEFAULT_MODULE_ID]
    if not module.is_stateful():
        return None
    options = module.model_config
    return int(options.get("max_seq_len", 20) if isinstance(options, Mapping) else options.max_seq_len)


class GeneralAdvantageEstimation(DefaultPiece):
    """Adds advantages, of mean 0 and standard deviation 1, and value targets.

    Args:
        gamma: discount factor.
        lambda_: trace decay.
        critic: whether there are state values; they are 0 otherwise.
    """

    def __init__(self, *, gamma: float = 0.99, lambda_: float = 1.0, critic: bool = True) -> None:
        super().__init__()
        self.gamma, self.lambda_, self.critic = gamma, lambda_, critic

    @torch.no_grad()
    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        columns, module = batch[DEFAULT_MODULE_ID], rl_module[DEFAULT_MODULE_ID]
        made = module.compute_values(columns)
        check_output(module, "compute_values(), state values", made, tuple(columns[Columns.REWARDS].shape))
        lengths, steps = [len(one) for one in episodes], sequence_length(rl_module)
        named = (Columns.REWARDS, Columns.TERMINATEDS, Columns.TRUNCATEDS, Columns.LOSS_MASK)
        values, rewards, ended, cut, real = (
            unpadded(part, lengths, steps).numpy(force=True) for part in (made, *(columns[name] for name in named))
        )
        values = values * self.critic
        then, ends = np.append(values[1:], 0).astype(np.float32), (ended | cut | ~real).astype(np.float32)
        known: Any = rewards.astype(np.float32), values, then, self.gamma * (1 - ended.astype(np.float32))
        of_one: list[np.ndarray] = [part[:, None] for part in known]
        found, targets = gae_by_torch(of_one[0], of_one[1], of_one[2], of_one[3], self.lambda_, ends[:, None])
        advantages = (found[:, 0] - found[real].mean()) / max(1e-4, float(found[real].std()))
        for name, column in (
            (Columns.ADVANTAGES, advantages),
            (Columns.VALUE_TARGETS, targets[:, 0]),
            (Columns.VF_PREDS, values),
        ):
            columns[name] = torch.as_tensor(padded(np.asarray(column, np.float32), lengths, steps), device=made.device)
        return batch


def padded(column: np.ndarray, lengths: list[int], steps: int | None) -> np.ndarray:
    """Pads rows [R, ...] of episodes to sequences [S, steps, ...] with zeros after the end of an episode; returns the
    rows themselves without ``steps``."""
    if steps is None:
        return column
    found, begin = [], 0
    for length in lengths:
        for first in range(begin, begin + length, steps):
            part = column[first : min(first + steps, begin + length)]
            found.append(np.pad(part, [(0, steps - len(part))] + [(0, 0)] * (part.ndim - 1)))
        begin += length
    return np.stack(found)


def unpadded(column: torch.Tensor, lengths: list[int], steps: int | None) -> torch.Tensor:
    """Inverts :func:`padded`."""
    if steps is None:
        return column
    counts = [-(-length // steps) for length in lengths]
    return torch.cat([part.flatten(0, 1)[:n] for part, n in zip(column.split(counts), lengths, strict=True)])


class AddObservationsFromEpisodesToBatch(Adding):
    """Adds the observation of each step."""

    def columns(self, episode: SingleAgentEpisode, modules: Any) -> dict[str, Any]:
        return {Columns.OBS: (episode.seen or episode.observations)[: len(episode)]}


class AddNextObservationsFromEpisodesToTrainBatch(Adding):
    """Adds the successor observation of each step."""

    def columns(self, episode: SingleAgentEpisode, modules: Any) -> dict[str, Any]:
        return {Columns.NEXT_OBS: (episode.seen or episode.observations)[1 : len(episode) + 1]}


class AddColumnsFromEpisodesToTrainBatch(Adding):
    """Adds actions, rewards, ends of episodes, and the module's further outputs."""

    def columns(self, episode: SingleAgentEpisode, modules: Any) -> dict[str, Any]:
        said = {k: v for k, v in episode.extra_model_outputs.items() if k not in (Columns.STATE_IN, Columns.STATE_OUT)}
        return {
            Columns.ACTIONS: episode.actions,
            Columns.REWARDS: [np.float32(one) for one in episode.rewards],
            Columns.TERMINATEDS: _at_last(episode.is_terminated, len(episode)),
            Columns.TRUNCATEDS: _at_last(episode.is_truncated, len(episode)),
            **said,
        }


class BatchIndividualItems(DefaultPiece):
    """Makes arrays [R, ...] of the items of episodes, which are from here on those of the only agent's module; of a
    recurrent one sequences [S, T, ...], and states [S, ...] at their beginnings."""

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        lengths, steps = [len(one) for one in episodes], sequence_length(rl_module)

        def rows(name: str, column: Any) -> Any:
            by_episode = isinstance(column, Mapping) and all(isinstance(key, tuple) for key in column)
            if not by_episode:
                return stacked(column) if isinstance(column, list) else column
            parts = [column.get((one.id_,), ()) for one in episodes]
            if name == Columns.STATE_IN:
                return stacked([item for part in parts for item in part[::steps]])
            made = stacked([item for part in parts for item in part])
            return mapped(lambda part: padded(part, lengths, steps), made)

        return {DEFAULT_MODULE_ID: {name: rows(name, column) for name, column in batch.items()}}


class NumpyToTensor(DefaultPiece):
    """Makes tensors of arrays, with observations as modules read them.

    Attributes:
        read: maps observations of the environment to those of modules.
        device: device of the tensors.
    """

    def __init__(self, *, device: Any = "cpu") -> None:
        super().__init__()
        self.read: Callable[[Any], Any] = lambda observations: observations
        self.device = device

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        found: Batch = mapped(lambda column: torch.as_tensor(column, device=self.device), batch)
        for columns in found.values():
            columns |= {name: self.read(columns[name]) for name in (Columns.OBS, Columns.NEXT_OBS) if name in columns}
        return found


def default_pieces(device: Any) -> list[ConnectorV2]:
    """RLlib's pieces of every learner, new ones in their order."""
    return [NumpyToTensor(device=device) if kind is NumpyToTensor else kind() for kind in DEFAULT]


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
            before: the pieces before the module.

        Raises:
            HyperparameterError: a piece rewrites observations, and no piece before the module does the same; or a
                filter.
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

    def batched(self, episodes: list[Any], device: Any, **given: Any) -> dict[str, Batch]:
        """Returns the pieces' output for episodes: name of a module -> its columns, tensors [R, ...].

        Args:
            episodes: the list is changed, the episodes are not.
            device: device of the columns.
            given: ``rl_module``, ``metrics``, and further arguments of pieces.

        Raises:
            HyperparameterError: a column has another number of rows, or belongs to an unknown module.
        """
        episodes[:] = [copy.copy(one).to_numpy() for one in episodes]
        (last,) = (one for one in self.connectors if type(one) is NumpyToTensor)
        last.device = device
        found: dict[str, Batch] = self(batch={}, episodes=episodes, explore=False, shared_data={}, **given)
        known = list(given["rl_module"])
        fix = "a piece has left it out of the batch. Return what was given."
        require(DEFAULT_MODULE_ID in found, "learner_connector", DEFAULT_MODULE_ID, fix)
        rows = len(found[DEFAULT_MODULE_ID][Columns.REWARDS])
        for name, columns in found.items():
            require(name in known, "learner_connector", name, f"a piece adds this to the batch: modules are {known}.")
            for key, column in columns.items():
                counts = {part.shape[0] if part.ndim else 0 for part in leaves(column)}
                fix = f"batch[{name!r}][{key!r}] must have {rows} rows, one for each step of the episodes."
                require(counts == {rows}, "learner_connector", f"{sorted(counts)} rows", fix)
        return found


DEFAULT = (
    AddObservationsFromEpisodesToBatch,
    AddColumnsFromEpisodesToTrainBatch,
    AddTimeDimToBatchAndZeroPad,
    AddStatesFromEpisodesToBatch,
    BatchIndividualItems,
    NumpyToTensor,
)
"""RLlib's pieces of every learner, in their order."""
