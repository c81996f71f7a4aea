"""The recent past as one flat observation: the last observations, oldest first, and then the actions between them."""

from __future__ import annotations

from collections import deque
from typing import Any, SupportsFloat

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from polyak.envs.sizes import MOST_FRAMES, check_size

KEY = "observation"
"""The part of a Dict observation that gets the past."""


class _Past:
    """The last `horizon` observations [D] and actions [A] as one array [horizon * (D + A)]; zeros before the start."""

    def __init__(self, wrapper: str, part: spaces.Space, actions: spaces.Space, horizon: int) -> None:
        check_size(f"{wrapper}: horizon", horizon, MOST_FRAMES)
        for what, space in (("observations", part), ("actions", actions)):
            if not isinstance(space, spaces.Box) or len(space.shape) != 1:
                raise ValueError(f"{wrapper} needs {what} in a Box of one dimension, got {space}.")
        assert isinstance(part, spaces.Box)
        assert isinstance(actions, spaces.Box)
        low, high = (
            np.concatenate([np.tile(getattr(box, bound), horizon) for box in (part, actions)]).astype(part.dtype)
            for bound in ("low", "high")
        )
        self.space = spaces.Box(low, high, dtype=part.dtype.type)
        self._first = (np.zeros(part.shape, part.dtype), np.zeros(actions.shape, part.dtype))
        self._observations: deque[np.ndarray] = deque(maxlen=horizon)
        self._actions: deque[np.ndarray] = deque(maxlen=horizon)

    def restart(self, observation: np.ndarray) -> np.ndarray:
        """Forget everything but the first observation of an episode."""
        for past, nothing in zip((self._observations, self._actions), self._first, strict=True):
            past.extend([nothing] * int(past.maxlen or 0))
        self._observations.append(observation)
        return self._joined()

    def add(self, observation: np.ndarray, action: Any) -> np.ndarray:
        """Add one step: the action, and the observation that followed it."""
        self._observations.append(observation)
        self._actions.append(np.asarray(action))
        return self._joined()

    def _joined(self) -> np.ndarray:
        return np.concatenate([*self._observations, *self._actions]).astype(self.space.dtype)


class HistoryWrapper(gym.Wrapper):
    """Observations become the last `horizon` observations and actions, oldest first, zeros before an episode's start.

    Args:
        env: its observations [D] and actions [A] are Boxes of one dimension.
        horizon: how many steps to show: observations get ``horizon * (D + A)`` entries.

    Raises:
        ValueError: other spaces, or a horizon below 1.
    """

    def __init__(self, env: gym.Env, horizon: int = 2) -> None:
        super().__init__(env)
        self._past = _Past(type(self).__name__, self._part(env.observation_space), env.action_space, horizon)
        self.observation_space = self._with(env.observation_space, self._past.space)

    def _part(self, whole: Any) -> Any:
        """Returns the part of an observation, or of its space, that is kept in the history."""
        return whole

    def _with(self, whole: Any, past: Any) -> Any:
        """An observation with the past in place of that, or its space."""
        return past

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        observation, info = self.env.reset(**kwargs)
        return self._with(observation, self._past.restart(self._part(observation))), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        past = self._past.add(self._part(observation), action)
        return self._with(observation, past), reward, terminated, truncated, info


class HistoryWrapperObsDict(HistoryWrapper):
    """:class:`HistoryWrapper` for Dict observations: the part under ``"observation"`` gets the past, others stay.

    Args:
        env: its observations are a Dict with a Box of one dimension under ``"observation"``, its actions such a Box.
        horizon: how many steps to show.

    Raises:
        ValueError: other spaces, or a horizon below 1.
    """

    def _part(self, whole: Any) -> Any:
        if isinstance(whole, spaces.Space) and not (isinstance(whole, spaces.Dict) and KEY in whole.spaces):
            raise ValueError(f"HistoryWrapperObsDict needs Dict observations with a part {KEY!r}, got {whole}.")
        return whole[KEY]

    def _with(self, whole: Any, past: Any) -> Any:
        parts = {**(whole.spaces if isinstance(whole, spaces.Dict) else whole), KEY: past}
        return spaces.Dict(parts) if isinstance(whole, spaces.Dict) else parts
