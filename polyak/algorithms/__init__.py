"""The registry: one line per algorithm. Command line, documentation and the conformance tests read it."""

from difflib import get_close_matches
from importlib import import_module
from typing import Any

REGISTRY = {
    "a2c": "polyak.algorithms.a2c:A2C",
    "ddpg": "polyak.algorithms.ddpg:DDPG",
    "dqn": "polyak.algorithms.dqn:DQN",
    "ppo": "polyak.algorithms.ppo:PPO",
    "sac": "polyak.algorithms.sac:SAC",
    "td3": "polyak.algorithms.td3:TD3",
}


def get(name: str) -> type[Any]:
    """The algorithm class called ``name``, in any case.

    Raises:
        ValueError: there is none; the message names the closest.
    """
    if name.lower() not in REGISTRY:
        close = get_close_matches(name.lower(), REGISTRY, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"algorithm {name!r} is unknown; there are {', '.join(REGISTRY)}.{hint}")
    module, _, attribute = REGISTRY[name.lower()].partition(":")
    return getattr(import_module(module), attribute)
