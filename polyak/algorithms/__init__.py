"""The registry: one row per algorithm.

The package itself, the command line, the documentation and the conformance tests read it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyak.envs.names import did_you_mean

if TYPE_CHECKING:  # the same names for those who read types without running anything
    from polyak.algorithms.a2c import A2C as A2C
    from polyak.algorithms.crossq import CrossQ as CrossQ
    from polyak.algorithms.ddpg import DDPG as DDPG
    from polyak.algorithms.dqn import DQN as DQN
    from polyak.algorithms.ppo import PPO as PPO
    from polyak.algorithms.sac import SAC as SAC
    from polyak.algorithms.td3 import TD3 as TD3

REGISTRY = {
    "a2c": "polyak.algorithms.a2c:A2C",
    "crossq": "polyak.algorithms.crossq:CrossQ",
    "ddpg": "polyak.algorithms.ddpg:DDPG",
    "dqn": "polyak.algorithms.dqn:DQN",
    "ppo": "polyak.algorithms.ppo:PPO",
    "sac": "polyak.algorithms.sac:SAC",
    "td3": "polyak.algorithms.td3:TD3",
}
"""Name on the command line -> module and class."""


def class_names() -> dict[str, str]:
    """The name of each class -> its name in the registry."""
    return {entry.partition(":")[2]: name for name, entry in REGISTRY.items()}


def get(name: str) -> type[Any]:
    """The algorithm class called ``name``, in any case.

    Raises:
        ValueError: there is none; the message names the closest.
    """
    if name.lower() not in REGISTRY:
        hint = did_you_mean(name, REGISTRY)
        raise ValueError(f"algorithm {name!r} is unknown; there are {', '.join(REGISTRY)}.{hint}")
    module, _, attribute = REGISTRY[name.lower()].partition(":")
    return getattr(import_module(module), attribute)


def __getattr__(name: str) -> Any:
    if name in (names := class_names()):
        return get(names[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
