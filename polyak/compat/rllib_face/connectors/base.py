"""Connector pieces, and pipelines of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from polyak.checkpoint.may_be_named import MayBeNamed
from polyak.compat.rllib_face.columns import Columns
from polyak.compat.rllib_face.connectors.episodes import SingleAgentEpisode, mapped_parts, stacked
from polyak.hyperparameters.declaration import require

Batch = dict[str, Any]


class ConnectorV2(MayBeNamed):
    """A connector piece. A subclass defines ``__call__``, and :meth:`recompute_output_observation_space` if it changes
    the observation space.

    Args:
        input_observation_space: space of its inputs; ``None``: filled in by its pipeline.
        input_action_space: space of the environment's actions.
        kwargs: none are read.
    """

    _input_observation_space: spaces.Space | None = None
    _input_action_space: spaces.Space | None = None
    _observation_space: spaces.Space | None = None
    _action_space: spaces.Space | None = None

    def __init__(
        self,
        input_observation_space: spaces.Space | None = None,
        input_action_space: spaces.Space | None = None,
        **kwargs: Any,
    ) -> None:
        fix = f"{type(self).__name__} has no such argument. Leave it out."
        require(not kwargs, "kwargs", sorted(kwargs), fix)
        self.input_action_space = input_action_space
        self.input_observation_space = input_observation_space

    def __call__(
        self,
        *,
        rl_module: Any,
        batch: Batch,
        episodes: list[Any],
        explore: bool | None = None,
        shared_data: dict[str, Any] | None = None,
        metrics: Any = None,
        **kwargs: Any,
    ) -> Batch:
        """Transforms a batch.

        Args:
            rl_module: the module, for pieces before or behind it; the learner's modules by name, for pieces before a
                learner.
            batch: the columns so far; before a module none at first; behind it ``actions``, and for a stochastic module
                ``action_dist_inputs`` and ``action_logp``, each ``{(episode's name,): [item]}``.
            episodes: each :class:`~polyak.compat.rllib_face.connectors.episodes.SingleAgentEpisode` with a new
                observation, which is its last; before a learner, all stretches of a rollout.
            explore: whether the module will explore.
            shared_data: data that pieces share, kept as long as the environments.
            metrics: the logger.
            kwargs: none so far.

        Returns:
            the batch.
        """
        raise NotImplementedError(f"{type(self).__name__} must write __call__(*, rl_module, batch, episodes, ...).")

    # -- spaces --------------------------------------------------------------------------------------------------------

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        """Returns the space of observations after it: here the same as before."""
        return input_observation_space

    def recompute_output_action_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        """Returns the space of actions after it: here the same as before."""
        return input_action_space

    @property
    def input_observation_space(self) -> Any:
        """The space of its inputs."""
        return self._input_observation_space

    @input_observation_space.setter
    def input_observation_space(self, space: Any) -> None:
        self._input_observation_space = space
        if space is not None:
            self._observation_space = self.recompute_output_observation_space(space, self.input_action_space)

    @property
    def input_action_space(self) -> Any:
        """The space of the environment's actions."""
        return self._input_action_space

    @input_action_space.setter
    def input_action_space(self, space: Any) -> None:
        self._input_action_space = space
        if space is not None:
            self._action_space = self.recompute_output_action_space(self.input_observation_space, space)

    @property
    def observation_space(self) -> Any:
        """The space of its outputs."""
        return self._observation_space

    @property
    def action_space(self) -> Any:
        """The space of actions after it."""
        return self._action_space

    # -- state ---------------------------------------------------------------------------------------------------------

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Returns the learned state, for checkpoints and for evaluators: nothing by default."""
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state that :meth:`get_state` returned."""

    # -- episodes and batches ------------------------------------------------------------------------------------------

    @staticmethod
    def single_agent_episode_iterator(
        episodes: Sequence[Any], agents_that_stepped_only: bool = True, zip_with_batch_column: Any = None
    ) -> Iterator[Any]:
        """Yields the episodes, each by itself, or with its entries of a column."""
        if zip_with_batch_column is None:
            yield from episodes
            return
        fix = f"it has {len(zip_with_batch_column)} entries for {len(episodes)} episodes."
        fits = len(zip_with_batch_column) == len(episodes)
        require(fits, "zip_with_batch_column", type(zip_with_batch_column), fix)
        if isinstance(zip_with_batch_column, Mapping):
            yield from ((one, zip_with_batch_column[(one.id_,)]) for one in episodes)
        else:
            yield from zip(episodes, zip_with_batch_column, strict=True)

    @staticmethod
    def add_batch_item(
        batch: Batch, column: str, item_to_add: Any, single_agent_episode: SingleAgentEpisode | None = None
    ) -> None:
        """Put an item at the end of a column: of the episode, or, where none is given, of all."""
        if single_agent_episode is None:
            batch.setdefault(column, []).append(item_to_add)
        else:
            batch.setdefault(column, {}).setdefault((single_agent_episode.id_,), []).append(item_to_add)

    @staticmethod
    def add_n_batch_items(
        batch: Batch,
        column: str,
        items_to_add: Any,
        num_items: int,
        single_agent_episode: SingleAgentEpisode | None = None,
    ) -> None:
        """Append ``num_items`` items to a column: a list of them, or arrays with one in each row."""
        items = items_to_add if isinstance(items_to_add, list) else _rows(items_to_add, num_items)
        fix = f"num_items is {num_items}."
        require(len(items) == num_items, "items_to_add", f"{len(items)} items", fix)
        for item in items:
            ConnectorV2.add_batch_item(batch, column, item, single_agent_episode)

    @staticmethod
    def foreach_batch_item_change_in_place(batch: Batch, column: Any, func: Callable[..., Any]) -> None:
        """Replace each item of a column, or of several together, by ``func(item, episode's name, None, None)``.

        Raises:
            HyperparameterError: there is no such column.
        """
        names = [column] if isinstance(column, str) else list(column)
        missing = [name for name in names if name not in batch]
        require(not missing, "column", column, f"the batch has {sorted(batch)}.")
        keyed = isinstance(batch[names[0]], Mapping)
        for key in list(batch[names[0]]) if keyed else [None]:
            lists = [batch[name][key] if keyed else batch[name] for name in names]
            for place, items in enumerate(zip(*lists, strict=True)):
                given = items[0] if isinstance(column, str) else items
                found = func(given, key[0] if key else None, None, None)
                for values, one in zip(lists, (found,) if isinstance(column, str) else found, strict=True):
                    values[place] = one


def _rows(items: Any, number: int) -> list[Any]:
    if isinstance(items, Mapping):
        parts = {name: _rows(part, number) for name, part in items.items()}
        return [{name: part[row] for name, part in parts.items()} for row in range(number)]
    return list(items)


class ConnectorPipelineV2(ConnectorV2):
    """A pipeline of pieces.

    Args:
        input_observation_space: space of the first piece's inputs.
        input_action_space: space of the environment's actions.
        connectors: the pieces.
    """

    def __init__(
        self,
        input_observation_space: Any = None,
        input_action_space: Any = None,
        *,
        connectors: Sequence[ConnectorV2] | None = None,
    ) -> None:
        self.connectors: list[Any] = list(connectors or [])
        super().__init__(input_observation_space, input_action_space)

    def __len__(self) -> int:
        return len(self.connectors)

    def recompute_output_observation_space(self, input_observation_space: Any, input_action_space: Any) -> Any:
        space = input_observation_space
        for piece in self.connectors:
            if isinstance(piece, ConnectorV2):
                piece.input_action_space, piece.input_observation_space = input_action_space, space
                space = piece.observation_space
        return space

    def __call__(self, *, rl_module: Any, batch: Batch, episodes: list[Any], **kwargs: Any) -> Batch:
        for piece in self.connectors:
            batch = piece(rl_module=rl_module, batch=batch, episodes=episodes, **kwargs)
            if not isinstance(batch, dict):
                raise TypeError(f"{type(piece).__name__}.__call__() must return the batch, a dict, got {batch!r:.80}.")
        return batch

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Returns the state of each piece that has one, by number and class."""
        named = {name: one.get_state() for name, one in self._named().items()}
        return {name: state for name, state in named.items() if state}

    def set_state(self, state: Mapping[str, Any]) -> None:
        own = self._named()
        for name, one in state.items():
            require(name in own, "state", name, f"the pieces are {sorted(own)}.")
            own[name].set_state(one)

    def _named(self) -> dict[str, ConnectorV2]:
        pieces = enumerate(self.connectors)
        return {f"{i:03d}_{type(one).__name__}": one for i, one in pieces if isinstance(one, ConnectorV2)}

    # -- changing it ---------------------------------------------------------------------------------------------------

    def append(self, connector: ConnectorV2) -> None:
        """Put a piece behind all."""
        self._insert(len(self.connectors), connector)

    def prepend(self, connector: ConnectorV2) -> None:
        """Put a piece before all."""
        self._insert(0, connector)

    def insert_before(self, name_or_class: Any, connector: ConnectorV2) -> ConnectorV2:
        """Put a piece before the one of a class or of a class's name; returns it."""
        self._insert(self._place(name_or_class), connector)
        return connector

    def insert_after(self, name_or_class: Any, connector: ConnectorV2) -> ConnectorV2:
        """Put a piece behind the one of a class or of a class's name; returns it."""
        self._insert(self._place(name_or_class) + 1, connector)
        return connector

    def remove(self, name_or_class: Any) -> None:
        """Take the first piece of a class or of a class's name out."""
        del self.connectors[self._place(name_or_class)]
        self._respace()

    def _place(self, name_or_class: Any) -> int:
        for place, piece in enumerate(self.connectors):
            if type(piece) is name_or_class or type(piece).__name__ == name_or_class:
                return place
        known = [type(piece).__name__ for piece in self.connectors]
        fix = f"the pieces are {known}."
        require(False, "name_or_class", name_or_class, fix)
        raise AssertionError

    def _insert(self, place: int, piece: Any) -> None:
        self.connectors.insert(place, piece)
        self._respace()

    def _respace(self) -> None:
        self.input_observation_space = self._input_observation_space


class EnvToModulePipeline(ConnectorPipelineV2):
    """Pieces between environments and a module. Called by a program, it returns the module's batch: observations as
    tensors [B, ...]."""

    def __call__(
        self, *, rl_module: Any, batch: Batch | None = None, episodes: list[Any], explore: Any = None, **kwargs: Any
    ) -> Batch:
        found = self.observations(rl_module=rl_module, episodes=episodes, explore=explore, **kwargs)
        return {Columns.OBS: mapped_parts(stacked(found), lambda part: torch.from_numpy(np.asarray(part)))}

    def observations(self, **given: Any) -> list[Any]:
        """Returns the pieces' output for the last observation of each episode.

        Raises:
            NotImplementedError: the pieces add other columns.
        """
        given.setdefault("shared_data", {})
        if given["shared_data"] is None:
            given["shared_data"] = {}
        batch = super().__call__(batch={}, **given)
        if other := sorted(set(batch) - {Columns.OBS}):
            raise NotImplementedError(
                f"pieces of env_to_module_connector add the columns {other}, which no module is given here. Put them "
                "into the observations, as a Dict."
            )
        made = batch.get(Columns.OBS, {})
        if isinstance(made, list):
            return made
        return [made[one.id_,][-1] if (one.id_,) in made else one.observations[-1] for one in given["episodes"]]


class ModuleToEnvPipeline(ConnectorPipelineV2):
    """Pieces between a module and environments: they change actions."""
