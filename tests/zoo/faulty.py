"""An environment in which something goes wrong after some steps; importing this module registers it."""

import builtins
import os
import signal
from typing import Any

import gymnasium
import numpy as np

ENV_ID = "Faulty-v0"
SPEC = f"tests.zoo.faulty:{ENV_ID}"
LINE = "raise the_fault  # the line of the user's environment"


class Faulty(gymnasium.Env[Any, Any]):
    """Episodes of five steps through five states.

    Args:
        fault: the name of an exception to raise, ``"NaN"`` for such a reward, ``"killed"`` for SIGKILL, ``"deep"`` for
            functions that call themselves; empty for none.
        after: the fault comes in this step of the environment, counted over its episodes.
        in_reset: it comes in the first reset after that instead.
        at_close: closing raises, too.
    """

    observation_space = gymnasium.spaces.Discrete(5)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault: str = "", after: int = 50, in_reset: bool = False, at_close: bool = False) -> None:
        self.fault, self.after, self.in_reset, self.at_close = fault, after, in_reset, at_close
        self.steps = self.place = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        if self.in_reset and self.steps >= self.after:
            self._fail()
        self.place = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.place += 1
        reward = float(action)
        if self.steps >= self.after and not self.in_reset:
            reward += self._fail()
        return min(self.place, 4), reward, self.place >= 5, False, {}

    def close(self) -> None:
        if self.at_close and self.steps >= self.after:
            raise RuntimeError("it cannot be closed")

    def _fail(self) -> float:
        if self.fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "deep":
            return _deeper(self)
        if self.fault == "NaN":
            return float(np.nan)
        if self.fault:
            the_fault = getattr(builtins, self.fault)("a bad day")
            raise the_fault  # the line of the user's environment
        return 0.0


def _deeper(env: Faulty) -> float:
    return _deepest(env) + 1


def _deepest(env: Faulty) -> float:
    return _deeper(env) + 1


gymnasium.register(id=ENV_ID, entry_point="tests.zoo.faulty:Faulty", max_episode_steps=100)
