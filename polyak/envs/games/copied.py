"""An environment that can be copied, as a game of one player for a search."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from polyak.envs.games.copying import as_objects, copied
from polyak.envs.games.game import NOT_OVER, Game
from polyak.envs.masks import holds_masks, mask_of
from polyak.envs.validation import MASKS, is_over


class Moment(NamedTuple):
    """An environment in one state; it is not stepped any more."""

    env: Any
    observation: Any
    reward: float
    """The reward of the step that led to this position."""
    over: bool
    mask: np.ndarray | None
    """The allowed moves; ``None``: all, or unknown."""


class CopiedEnv(Game):
    """One player's game in copies of a Gymnasium environment. A position is [B] objects, a :class:`Moment` each; moves
    count from 0, whatever number the first action has.

    A stochastic environment is searched as if the player knew its random draws, because its generator is copied with
    it. After a time limit there is no further value.

    Args:
        env: an environment with Discrete actions. Its action masks are applied (see :mod:`polyak.envs.masks`).
        gamma: discount factor.

    Raises:
        TypeError: it has other actions, or cannot be copied.
    """

    name = "environment"
    longest = 100
    observation_shape = ()

    def __init__(self, env: Any, gamma: float = 0.99) -> None:
        if not isinstance(env.action_space, spaces.Discrete):
            raise TypeError(f"a search needs Discrete actions, but env acts in {env.action_space}.")
        self.env, self.discount = env, float(gamma)
        self.n_moves, self.first = int(env.action_space.n), int(env.action_space.start)

    def position(self, env: Any, observation: Any = None) -> np.ndarray:
        """[1] the current position of an environment, which is copied.

        Raises:
            TypeError: it is not an environment, cannot be copied, or has its masks in observations and none is given.
        """
        if not (hasattr(env, "step") and hasattr(env, "unwrapped")):
            raise TypeError(
                f"observation={env!r:.80} does not hold the state of an environment: pass the environment itself."
            )
        silent = not env.has_wrapper_attr(MASKS) and holds_masks(env.observation_space, env.action_space)
        if observation is None and silent:
            raise TypeError(
                f"env={env!r:.80} has its action masks in observations, and no observation was given: give it a method "
                "action_masks(), with polyak.envs.ActionMasker."
            )
        return as_objects([Moment(copied(env), observation, 0.0, False, mask_of(env, observation, {}))])

    def start(self, n: int) -> np.ndarray:
        moments = []
        for _ in range(n):
            env = copied(self.env)
            observation, info = env.reset()
            moments.append(Moment(env, observation, 0.0, False, mask_of(env, observation, info)))
        return as_objects(moments)

    def legal(self, positions: np.ndarray) -> np.ndarray:
        legal = np.ones((len(positions), self.n_moves), bool)
        for i, moment in enumerate(positions):
            if moment.over:
                legal[i] = False
            elif moment.mask is not None:
                legal[i] = moment.mask
        return legal

    def play(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        self.refuse_illegal(moves, self.legal(positions))
        return as_objects([self._step(copied(at.env), int(move)) for at, move in zip(positions, moves, strict=True)])

    def as_actions(self, moves: np.ndarray) -> np.ndarray:
        return (moves + self.first).astype(self.env.action_space.dtype)

    def play_on(self, positions: np.ndarray, moves: np.ndarray) -> np.ndarray:
        return as_objects([self._step(moment.env, int(move)) for moment, move in zip(positions, moves, strict=True)])

    def _step(self, env: Any, move: int) -> Moment:
        observation, reward, terminated, truncated, info = env.step(move + self.first)
        over = is_over(env, terminated, truncated)
        return Moment(env, observation, float(reward), over, None if over else mask_of(env, observation, info))

    def outcome(self, positions: np.ndarray) -> np.ndarray:
        return np.array([0.0 if moment.over else NOT_OVER for moment in positions], np.float32)

    def rewards(self, positions: np.ndarray) -> np.ndarray:
        return np.array([moment.reward for moment in positions], np.float32)

    def observe(self, positions: np.ndarray) -> np.ndarray:
        return np.stack([np.asarray(moment.observation) for moment in positions])
