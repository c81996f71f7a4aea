"""Whether numbers are finite: checked at every step, so by the cheapest way that is exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from gymnasium import spaces

TINY, SMALL = 8, 2_000
"""Entries up to which a sum in Python, and up to which a product of vectors, is faster than numpy's own function
does."""
_ZEROS: dict[tuple[int, np.dtype], np.ndarray] = {}
"""Arrays of zeros, by length and dtype."""


class NonFiniteError(ValueError):
    """Training stopped at a NaN or an infinity; the message names its place."""


def is_finite(array: np.ndarray) -> bool:
    """Whether an array holds no NaN and no infinity."""
    if array.dtype.kind != "f" or (array.size <= TINY and math.isfinite(sum(array.ravel().tolist()))):
        return True
    return _is_finite(array)


def _is_finite(array: np.ndarray) -> bool:
    """Whether floats are finite, if they are many or their sum may have overflowed."""
    if array.size > SMALL:
        return bool(np.isfinite(array).all())
    flat = array.reshape(-1)
    zeros = _ZEROS.get((flat.size, array.dtype))
    if zeros is None:
        zeros = _ZEROS[flat.size, array.dtype] = np.zeros_like(flat)
    return math.isfinite(flat.dot(zeros))  # nothing overflows, and NaN and infinities times 0 are NaN


def all_finite(observations: Any) -> bool:
    """:func:`is_finite` of an array, or of all arrays in a dict or tuple."""
    if type(observations) is np.ndarray:
        return is_finite(observations)
    parts = observations.values() if isinstance(observations, dict) else observations
    return all(is_finite(np.asarray(part)) for part in parts)


def shown(number: Any) -> str:
    """A number that is not finite in float32, in words. One that has become float32 may have been finite before."""
    if math.isnan(number) or (math.isinf(number) and np.asarray(number).dtype != np.float32):
        return f"{number}"
    limit = f"too large for float32 ({np.finfo(np.float32).max:.2g} at most)"
    return f"{number}, or a number {limit}" if math.isinf(number) else f"{number}, {limit}"


def check_finite(name: str, values: Any, step: int) -> None:
    """Raise an error that names the first number of a vectorised step that is not finite.

    Args:
        name: kind of the values: "observation", "reward" or "action".
        values: [N, ...], or a dict of such arrays.
        step: index of the step.

    Raises:
        NonFiniteError: there is one.
    """
    parts = values.items() if isinstance(values, dict) else [(None, values)]
    for key, array in parts:
        array = np.asarray(array)
        if is_finite(array):
            continue
        bad = np.argwhere(~np.isfinite(array))
        env, *index = (int(i) for i in bad[0])
        entry = f" at key {key!r}" if key is not None else ""
        entry += f", entry {index[0] if len(index) == 1 else tuple(index)}" if index else ""
        raise NonFiniteError(
            f"The {name} of environment {env} in step {step}{entry} is {shown(array[tuple(bad[0])])}. {_FIXES[name]}"
        )


class OutcomeCheck:
    """Checks the results of each step of a batch of environments, and counts the steps.

    Args:
        num_envs: number of environments.
        space: space of their observations.
    """

    def __init__(self, num_envs: int, space: spaces.Space) -> None:
        self.steps = 0
        numbers = num_envs * math.prod(space.shape) if isinstance(space, spaces.Box) else 0
        quick = numbers <= SMALL and space.dtype is not None and space.dtype.kind == "f"
        self._quick, self._tiny = quick and numbers > 0, numbers <= TINY
        self._zeros = np.zeros(numbers if quick else 0, space.dtype)

    def step(self, observations: Any, rewards: np.ndarray) -> None:
        """After a step.

        Raises:
            NonFiniteError: an observation or a reward is not finite.
        """
        self.steps += 1
        if self._quick:  # is_finite() of both at half the cost
            try:
                flat = observations.ravel()
                total = sum(flat.tolist()) if self._tiny else flat.dot(self._zeros)
                if math.isfinite(sum(rewards.tolist(), total)):
                    return
            except (AttributeError, TypeError, ValueError):
                pass  # a list, or another shape, which a buffer refuses with the reason
        self.values(observations, rewards, self.steps)

    def values(self, observations: Any, rewards: np.ndarray, step: int) -> None:
        """Check the observations and rewards of a step, of any shape.

        Raises:
            NonFiniteError: an observation or a reward is not finite.
        """
        if not (is_finite(np.asarray(rewards)) and all_finite(observations)):
            check_finite("reward", rewards, step)
            check_finite("observation", observations, step)

    def observations(self, observations: Any) -> None:
        """After a reset, or of the last ones of episodes that ended in the newest step.

        Raises:
            NonFiniteError: one is not finite.
        """
        if not all_finite(observations):
            check_finite("observation", observations, self.steps)


SCALE = (
    "Lower learning_rate, set max_grad_norm where there is one, or scale rewards and observations (VecNormalize): "
    "numbers have become too large."
)
"""The fix for errors about learned numbers that are not finite."""
_LOOK = "Correct the environment: wrapped in VecCheckNan(env, raise_exception=True) it stops where the value appears."
_FIXES = {
    "observation": _LOOK,
    "reward": _LOOK,
    "action": "The policy's parameters have become too large or are not finite: lower learning_rate, set "
    "max_grad_norm where there is one, or scale rewards and observations (VecNormalize).",
}
