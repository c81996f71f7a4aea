"""An episode with everything that a connector piece may read and write."""

from __future__ import annotations

import copy
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.nested_spaces import is_composed
from polyak.hyperparameters.declaration import require

LOOKBACK = 1000
"""Steps of an endless episode; at most twice as many are kept."""


class SingleAgentEpisode:
    """A stretch of an episode: T steps and T + 1 observations.

    Args:
        id_: its name; ``None`` makes one.
        observations: [T + 1]; the first is that of the reset.
        observation_space: their space; fills in entries before the first one.
        action_space: fills in and encodes actions.
        infos: [T + 1]; ``None``: empty ones.
        actions: [T]
        rewards: [T]
        terminated, truncated: whether and how it has ended.
        t_started: steps of the episode before these.
        extra_model_outputs: name -> [T] further outputs of the module for the actions.
        kwargs: RLlib's other arguments, which must be ``None``.

    Attributes:
        seen: [T + 1] observations as the module got them, if pieces have changed them; else ``None``.
    """

    seen: list[Any] | None = None
    agent_id: Any = None
    module_id: Any = None
    multi_agent_episode_id: Any = None

    def __init__(
        self,
        id_: str | None = None,
        *,
        observations: Sequence[Any] | None = None,
        observation_space: spaces.Space | None = None,
        action_space: spaces.Space | None = None,
        infos: Sequence[Mapping[str, Any]] | None = None,
        actions: Sequence[Any] | None = None,
        rewards: Sequence[float] | None = None,
        terminated: bool = False,
        truncated: bool = False,
        t_started: int = 0,
        extra_model_outputs: Mapping[str, Any] | None = None,
        len_lookback_buffer: Any = None,
        **kwargs: Any,
    ) -> None:
        for name, value in kwargs.items():
            require(value is None, name, value, "an episode of one agent holds observations, actions and rewards.")
        fix = "nothing is kept from before the first observation. Leave it out."
        require(len_lookback_buffer in (None, 0, "auto"), "len_lookback_buffer", len_lookback_buffer, fix)
        self.id_ = id_ or uuid.uuid4().hex
        self.observation_space, self.action_space = observation_space, action_space
        self.observations, self.actions = list(observations or []), list(actions or [])
        self.rewards = [float(one) for one in rewards or []]
        self.infos = [dict(one) for one in infos or [{} for _ in self.observations]]
        self.is_terminated, self.is_truncated = terminated, truncated
        self.is_numpy = False
        self.t_started = t_started
        self.custom_data: dict[str, Any] = {}
        self.extra_model_outputs = {name: _rows(values) for name, values in (extra_model_outputs or {}).items()}
        steps = len(self.actions)
        fits = (len(self.rewards) == steps and len(self.observations) == steps + 1) or not (steps or self.rewards)
        fix = f"with {steps} actions there are as many rewards, and one observation more."
        require(fits, "rewards", f"{len(self.rewards)} rewards, {len(self.observations)} observations", fix)

    # -- growing -------------------------------------------------------------------------------------------------------

    def add_env_reset(self, observation: Any, infos: Mapping[str, Any] | None = None) -> None:
        """Begin with an observation.

        Raises:
            HyperparameterError: it has begun already.
        """
        require(not self.observations, "observation", observation, "the episode has begun already. Make another.")
        self.observations.append(observation)
        self.infos.append(dict(infos or {}))

    def add_env_step(
        self,
        observation: Any,
        action: Any,
        reward: Any,
        infos: Mapping[str, Any] | None = None,
        *,
        terminated: bool = False,
        truncated: bool = False,
        extra_model_outputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Appends a step and its successor observation."""
        self.observations.append(observation)
        self.actions.append(action)
        self.rewards.append(float(reward))
        self.infos.append(dict(infos or {}))
        self.is_terminated, self.is_truncated = bool(terminated), bool(truncated)
        for name, value in (extra_model_outputs or {}).items():
            self.extra_model_outputs.setdefault(name, []).append(value)

    def extended(self) -> SingleAgentEpisode:
        """Returns an episode with a further step, whose observation is the last one; it is truncated there, unless it
        ended."""
        other = copy.copy(self)
        for name in ("observations", "actions", "infos", "seen"):
            if (values := getattr(self, name)) is not None:
                setattr(other, name, [*values, values[-1]])
        other.rewards = [*self.rewards, 0.0]
        other.extra_model_outputs = {name: [*v, v[-1]] for name, v in self.extra_model_outputs.items()}
        other.is_truncated = not self.is_terminated
        return other

    def to_numpy(self) -> SingleAgentEpisode:
        """Returns itself; from then on several values are returned as one array."""
        self.is_numpy = True
        return self

    def cut(self, len_lookback_buffer: int = 0) -> SingleAgentEpisode:
        """Returns the next stretch, which begins with the last observation and ``len_lookback_buffer`` steps before
        it."""
        back = min(len_lookback_buffer, len(self))
        part = slice(len(self) - back, None)
        other = SingleAgentEpisode(
            self.id_,
            observations=self.observations[part],
            observation_space=self.observation_space,
            action_space=self.action_space,
            infos=self.infos[part],
            actions=self.actions[part],
            rewards=self.rewards[part],
            t_started=self.t - back,
            extra_model_outputs={name: values[part] for name, values in self.extra_model_outputs.items()},
        )
        other.custom_data = self.custom_data
        return other

    # -- properties ----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Returns the number of steps."""
        return len(self.actions)

    env_steps = agent_steps = __len__

    @property
    def t(self) -> int:
        """Steps of the whole episode so far."""
        return self.t_started + len(self)

    @property
    def is_done(self) -> bool:
        """Whether it has ended."""
        return self.is_terminated or self.is_truncated

    @property
    def is_reset(self) -> bool:
        """Whether it has begun."""
        return bool(self.observations)

    def get_return(self) -> float:
        """Sum of its rewards."""
        return sum(self.rewards)

    # -- reading and writing -------------------------------------------------------------------------------------------

    def get_observations(self, indices: Any = None, **how: Any) -> Any:
        """Returns observations at an index, a slice or a list of indices; ``None``: all.

        Args:
            indices: negative ones count from the end.
            how: ``neg_index_as_lookback``: negative indices are before the first observation. ``fill``: the value of
                missing entries; ``None``: an index must be in the episode. RLlib's others must not be set.
        """
        return self._got(self.observations, indices, self.observation_space, **how)

    def get_actions(self, indices: Any = None, *, one_hot_discrete: bool = False, **how: Any) -> Any:
        """Returns actions as the module chose them; choices as one-hot vectors with ``one_hot_discrete``: see
        :meth:`get_observations`."""
        return self._got(self.actions, indices, self.action_space, one_hot_discrete, **how)

    def get_rewards(self, indices: Any = None, **how: Any) -> Any:
        """Returns rewards: see :meth:`get_observations`."""
        return self._got(self.rewards, indices, None, **how)

    def get_extra_model_outputs(self, key: str | None = None, indices: Any = None, **how: Any) -> Any:
        """Returns the module's outputs under a name, or of all names in a dict: see :meth:`get_observations`."""
        names = list(self.extra_model_outputs) if key is None else [key]
        found = {name: self._got(self.extra_model_outputs[name], indices, None, **how) for name in names}
        return found if key is None else found[key]

    def get_infos(
        self, indices: Any = None, *, neg_index_as_lookback: bool = False, fill: Any = None, **kwargs: Any
    ) -> Any:
        """Returns a single info or a list of them: see :meth:`get_observations`."""
        at = _at(indices, len(self.infos), neg_index_as_lookback)
        if isinstance(at, int):
            return _one(self.infos, at, fill is not None, fill)
        return [_one(self.infos, index, fill is not None, fill) for index in at]

    def _got(
        self,
        values: list[Any],
        indices: Any,
        space: spaces.Space | None,
        hot: bool = False,
        *,
        neg_index_as_lookback: bool = False,
        fill: Any = None,
        **further: Any,
    ) -> Any:
        for name, value in further.items():
            require(value in (None, False), name, value, "there are indices, neg_index_as_lookback and fill.")
        blank = None if fill is None else _blank(fill, space, values, hot)
        at = _at(indices, len(values), neg_index_as_lookback)

        def one(index: int) -> Any:
            found = _one(values, index, fill is not None, blank)
            return one_hot(found, space) if hot and 0 <= index < len(values) else found

        if isinstance(at, int):
            return one(at)
        found = [one(index) for index in at]
        return stacked(found) if self.is_numpy else found

    def set_observations(self, *, new_data: Any, at_indices: Any = None, neg_index_as_lookback: bool = False) -> None:
        """Put others in the place of those at an index, a slice or a list of indices; ``None``: of all."""
        self._fixed(self.observations, "set_observations")
        _put(self.observations, new_data, at_indices, neg_index_as_lookback)

    def set_rewards(self, *, new_data: Any, at_indices: Any = None, neg_index_as_lookback: bool = False) -> None:
        """Sets rewards: see :meth:`set_observations`."""
        if not self.is_numpy:
            self._fixed(None, "set_rewards")
        _put(self.rewards, new_data, at_indices, neg_index_as_lookback)

    def set_actions(self, *, new_data: Any, at_indices: Any = None, neg_index_as_lookback: bool = False) -> None:
        """Refuse.

        Raises:
            NotImplementedError: always: it was done.
        """
        self._fixed(None, "set_actions")

    def _fixed(self, values: list[Any] | None, method: str) -> None:
        """Refuse to set values that nothing would read."""
        if self.is_numpy or values is None:
            allowed = "set_rewards" if self.is_numpy else "set_observations"
            raise NotImplementedError(
                f"{method}() would change nothing here: pieces "
                + ("of learner_connector change rewards" if self.is_numpy else "before a module change observations")
                + f", by {allowed}(new_data=..., at_indices=...)."
            )


def _rows(values: Any) -> list[Any]:
    """[T] values, which may be a dict of arrays [T, ...]."""
    if not isinstance(values, Mapping):
        return list(values)
    parts = {name: _rows(part) for name, part in values.items()}
    return [dict(zip(parts, row, strict=True)) for row in zip(*parts.values(), strict=True)]


def _at(indices: Any, length: int, lookback: bool) -> Any:
    """Returns one index from the start, or several; indices before the start are negative."""

    def absolute(index: int) -> int:
        return index if index >= 0 or lookback else index + length

    if indices is None:
        return range(length)
    if isinstance(indices, slice):
        start = 0 if indices.start is None else absolute(indices.start)
        stop = length if indices.stop is None else absolute(indices.stop)
        return range(start, stop, indices.step or 1)
    if isinstance(indices, int | np.integer):
        return absolute(int(indices))
    return [absolute(int(index)) for index in indices]


def _one(values: Sequence[Any], index: int, fills: bool, blank: Any) -> Any:
    if 0 <= index < len(values):
        return values[index]
    if fills:
        return blank
    raise IndexError(f"the episode has {len(values)} of them, and none at {index}. Give fill=... for what is missing.")


def _blank(fill: Any, space: spaces.Space | None, values: Sequence[Any], hot: bool) -> Any:
    """Returns ``fill`` in the shape of a value."""
    if hot and space is not None and not isinstance(space, spaces.Box):
        return np.full(spaces.flatdim(space), fill, np.float32)
    if values:
        return mapped_parts(values[-1], lambda part: np.full(np.shape(part), fill, np.asarray(part).dtype))
    if space is None:
        return float(fill)
    return mapped_parts(space.sample(), lambda part: np.full(np.shape(part), fill, np.asarray(part).dtype))


def mapped_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Applies a function to each part of a value, which may be a nested dict or tuple."""
    if isinstance(value, Mapping):
        return {name: mapped_parts(part, change) for name, part in value.items()}
    return tuple(mapped_parts(part, change) for part in value) if isinstance(value, tuple) else change(value)


def one_hot(value: Any, space: spaces.Space | None) -> Any:
    """Choices as a 1 among zeros; anything else as it is."""
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return np.asarray(spaces.flatten(space, np.asarray(value)), np.float32)
    fix = "its parts have no one encoding. Leave one_hot_discrete out."
    require(space is not None and not is_composed(space), "action_space", space, fix)
    return value


def stacked(values: Sequence[Any]) -> Any:
    """Stacks several values along a new first dimension: arrays, or dicts and tuples of them."""
    first = values[0] if len(values) else np.zeros(0)
    if isinstance(first, Mapping):
        return {name: stacked([one[name] for one in values]) for name in first}
    if isinstance(first, tuple):
        return tuple(stacked([one[index] for one in values]) for index in range(len(first)))
    return np.stack([np.asarray(one) for one in values]) if len(values) else first


def _put(values: list[Any], new: Any, indices: Any, lookback: bool) -> None:
    at = _at(indices, len(values), lookback)
    if isinstance(at, int):
        _one(values, at, False, None)
        values[at] = new
        return
    fix = f"there are {len(at)} of them to be replaced."
    require(not isinstance(new, Mapping) and len(new) == len(at), "new_data", f"{len(new)} values", fix)
    for index, one in zip(at, new, strict=True):
        _one(values, index, False, None)
        values[index] = one
