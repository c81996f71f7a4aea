"""Environments that break, each in its own way, where other processes can import them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import gymnasium as gym


class Faulty(gym.Wrapper[Any, Any, Any, Any]):
    """CartPole, until the first runner has made so many steps; a file remembers that it has happened.

    Args:
        context: ``how``, ``after`` steps and ``once``, a path.
    """

    def __init__(self, context: Any) -> None:
        super().__init__(gym.make("CartPole-v1"))
        self.context, self.steps = context, 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        once = Path(self.context["once"])
        if self.context.worker_index == 1 and self.steps == self.context["after"] and not once.exists():
            once.touch()
            break_in(self.context["how"])
        return super().step(action)


def break_in(how: str) -> None:
    """Die, hang or raise."""
    if how == "dies":
        os._exit(1)
    if how == "hangs":
        time.sleep(3600)
    raise RuntimeError("the simulator has crashed")
