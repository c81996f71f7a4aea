"""Tasks solved by repeating the observation, in which some other choices are forbidden, and others at each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from polyak.envs.masks import mask_size
from polyak.envs.testing.identity import IdentityEnv, T


class _InvalidActionEnv(IdentityEnv[T]):
    """:class:`IdentityEnv` with a method ``action_masks()``. The right action is always allowed.

    The forbidden actions are drawn from NumPy's global generator, as in sb3-contrib, so that seeded trainings agree.

    Args:
        space: space of states and actions.
        n_choices: number of choices in an action; the right one of each is always allowed.
        n_invalid_actions: number of False entries in the mask, which concatenates those of all choices.
        ep_length: steps until truncation.
        strict: a forbidden action is an error; otherwise its reward is 0, as for any wrong action.

    Raises:
        ValueError: ``n_invalid_actions`` is too large.
    """

    def __init__(self, space: spaces.Space, n_choices: int, n_invalid_actions: int, ep_length: int, strict: bool):
        size = mask_size(space)
        assert size is not None
        if not 0 <= n_invalid_actions <= size - n_choices:
            raise ValueError(
                f"n_invalid_actions={n_invalid_actions} leaves no valid action: of the {size} entries of a mask for "
                f"{space} at most {size - n_choices} can be forbidden."
            )
        self.n_invalid_actions, self.strict = n_invalid_actions, strict
        self.possible_actions = np.arange(size)
        self.invalid_actions: list[int] = []
        super().__init__(space=space, ep_length=ep_length)

    def _entries(self, action: Any) -> np.ndarray:
        """Returns the entries of a mask that belong to an action: [n_choices]"""
        raise NotImplementedError

    def _choose_next_state(self) -> None:
        super()._choose_next_state()
        wrong = np.ones(len(self.possible_actions), dtype=bool)
        wrong[self._entries(self.state)] = False
        others = self.possible_actions[wrong]
        self.invalid_actions = np.random.choice(others, self.n_invalid_actions, replace=False).tolist()

    def action_masks(self) -> list[bool]:
        """Returns the current mask, flat: see :mod:`polyak.envs.masks`."""
        allowed = np.ones(len(self.possible_actions), dtype=bool)
        allowed[self.invalid_actions] = False
        return allowed.tolist()

    def _get_reward(self, action: Any) -> float:
        if self.strict and not set(self._entries(action).tolist()).isdisjoint(self.invalid_actions):
            raise ValueError(f"action {action} is forbidden, as are all of the entries {self.invalid_actions}.")
        return super()._get_reward(action)


class InvalidActionEnvDiscrete(_InvalidActionEnv[int]):
    """The task is to repeat a number, while some others are forbidden.

    Args:
        dim: number of values; None for 1.
        ep_length: steps until truncation.
        n_invalid_actions: how many values are forbidden at each step; fewer than ``dim``.
        strict: a forbidden action is an error; otherwise its reward is 0, as for any wrong action.
    """

    def __init__(
        self, dim: int | None = None, ep_length: int = 100, n_invalid_actions: int = 0, *, strict: bool = False
    ):
        super().__init__(spaces.Discrete(1 if dim is None else dim), 1, n_invalid_actions, ep_length, strict)

    def _entries(self, action: Any) -> np.ndarray:
        return np.atleast_1d(action)


class InvalidActionEnvMultiDiscrete(_InvalidActionEnv[np.ndarray]):
    """The task is to repeat several numbers, while some others are forbidden.

    Args:
        dims: number of values of each; None for [1, 1].
        ep_length: steps until truncation.
        n_invalid_actions: how many values are forbidden at each step, in total.
        strict: a forbidden action is an error; otherwise its reward is 0, as for any wrong action.
    """

    def __init__(
        self,
        dims: Sequence[int] | None = None,
        ep_length: int = 100,
        n_invalid_actions: int = 0,
        *,
        strict: bool = False,
    ):
        sizes = [1, 1] if dims is None else list(dims)
        self._starts = np.cumsum([0, *sizes[:-1]])
        super().__init__(spaces.MultiDiscrete(sizes), len(sizes), n_invalid_actions, ep_length, strict)

    def _entries(self, action: Any) -> np.ndarray:
        return self._starts + action


class InvalidActionEnvMultiBinary(_InvalidActionEnv[np.ndarray]):
    """The task is to repeat some bits, while the opposites of some are forbidden.

    Args:
        dims: number of bits; None for 1.
        ep_length: steps until truncation.
        n_invalid_actions: how many bits leave no choice at each step.
        strict: a forbidden action is an error; otherwise its reward is 0, as for any wrong action.
    """

    def __init__(
        self, dims: int | None = None, ep_length: int = 100, n_invalid_actions: int = 0, *, strict: bool = False
    ):
        self.n_dims = 1 if dims is None else dims
        super().__init__(spaces.MultiBinary(self.n_dims), self.n_dims, n_invalid_actions, ep_length, strict)

    def _entries(self, action: Any) -> np.ndarray:
        return 2 * np.arange(self.n_dims) + np.asarray(action, np.int64)
