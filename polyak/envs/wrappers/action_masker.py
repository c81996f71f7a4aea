"""Action masks for environments that have none of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym


class ActionMasker(gym.Wrapper):
    """Adds the method ``action_masks()``, which returns the allowed choices: see :mod:`polyak.envs.masks`.

    Args:
        env: the environment.
        action_mask_fn: called with ``env``, gives the mask; or the name of a method of the environment that does,
            which is called with ``env`` too if it takes an argument.

    Raises:
        AttributeError: the environment has no method of that name.
        ValueError: neither a function nor a name.
    """

    def __init__(self, env: gym.Env, action_mask_fn: Callable[[gym.Env], Any] | str) -> None:
        super().__init__(env)
        method = env.get_wrapper_attr(action_mask_fn) if isinstance(action_mask_fn, str) else action_mask_fn
        if not callable(method):
            raise ValueError(
                f"action_mask_fn={action_mask_fn!r} cannot be called. Pass a function of the environment that gives "
                "its mask, or the name of one of its methods."
            )
        self._ask: Callable[..., Any] = partial(method, env) if _takes_one(method) else method

    def action_masks(self) -> Any:
        """Returns the current action mask."""
        return self._ask()


def _takes_one(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with one argument; where that is unknown, it is."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True
