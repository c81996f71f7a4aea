"""Find the origin of a NaN or an infinity: the policy or an environment, and which."""

from __future__ import annotations

from typing import Any

import numpy as np

from polyak.envs.vec.vec_env import VecEnv, VecEnvObs, VecEnvStepReturn, VecEnvWrapper
from polyak.warning import warn_user


class VecCheckNan(VecEnvWrapper):
    """Checks actions, observations and rewards for NaN (and infinity), and reports the environment they came from.

    Args:
        venv: the VecEnv to wrap.
        raise_exception: raise ValueError; otherwise warn.
        warn_once: warn the first time only.
        check_inf: check for infinities too.
    """

    passes_on = ("observations", "rewards")

    def __init__(self, venv: VecEnv, raise_exception: bool = False, warn_once: bool = True, check_inf: bool = True):
        super().__init__(venv)
        self.raise_exception = raise_exception
        self.warn_once = warn_once
        self.check_inf = check_inf
        self._user_warned = False
        self._actions: Any = None

    def step_async(self, actions: Any) -> None:
        self._check("the RL model (its actions)", actions=actions)
        self._actions = actions
        self.venv.step_async(actions)

    def step_wait(self) -> VecEnvStepReturn:
        observations, rewards, dones, infos = self.venv.step_wait()
        self._check("the environment (its step)", observations=observations, rewards=rewards)
        for index in np.flatnonzero(dones):
            terminal = infos[index].get("terminal_observation")
            if terminal is not None:
                self._check(f"environment {index} (at the end of its episode)", terminal_observation=terminal)
        return observations, rewards, dones, infos

    def reset(self) -> VecEnvObs:
        self._actions = None
        observations = self.venv.reset()
        self._check("the environment (its reset)", observations=observations)
        return observations

    def check_array_value(self, name: str, value: np.ndarray) -> list[tuple[str, str]]:
        """Returns the findings in an array: ``(name, "nan")``, ``(name, "inf")``, both or none."""
        value = np.asarray(value)
        if not np.issubdtype(value.dtype, np.inexact) or np.isfinite(value).all():
            return []
        found = [(name, "nan")] if np.isnan(value).any() else []
        if self.check_inf and np.isinf(value).any():
            found.append((name, "inf"))
        return found

    def _check(self, source: str, **values: Any) -> None:
        if self._user_warned and self.warn_once and not self.raise_exception:
            return
        found = [
            _describe(name, kind, part)
            for argument, value in values.items()
            for name, part in _arrays(argument, value)
            for _, kind in self.check_array_value(name, part)
        ]
        if not found:
            return
        self._user_warned = True
        last = "after a reset" if self._actions is None else f"last given value was: \n\taction={self._actions}"
        message = f"Found {'; '.join(found)}. Originated from {source}, {last}"
        if self.raise_exception:
            raise ValueError(message)
        warn_user(message, UserWarning)


def _arrays(name: str, value: Any) -> list[tuple[str, np.ndarray]]:
    if isinstance(value, list) and value and isinstance(value[0], dict):  # actions of a Dict space
        value = {key: [row[key] for row in value] for key in value[0]}
    elif isinstance(value, list) and value and isinstance(value[0], tuple):
        value = tuple(map(list, zip(*value, strict=True)))
    if isinstance(value, dict):
        return [found for key, part in value.items() for found in _arrays(f"{name}[{key!r}]", part)]
    if isinstance(value, tuple):
        return [found for index, part in enumerate(value) for found in _arrays(f"{name}[{index}]", part)]
    return [(name, np.asarray(value))]


def _describe(name: str, kind: str, value: np.ndarray) -> str:
    where = np.isnan(value) if kind == "nan" else np.isinf(value)
    if name.startswith("terminal_observation"):
        return f"{kind} in {name}"
    indices = sorted({int(index) for index in np.nonzero(where)[0]})
    return f"{kind} in {name} of environment{'s' if len(indices) > 1 else ''} {', '.join(map(str, indices))}"
