"""polyak: reinforcement learning in PyTorch."""

from typing import TYPE_CHECKING, Any

from polyak.algorithms import class_names, get

__version__ = "0.1.0"

if TYPE_CHECKING:
    from polyak.algorithms import *  # noqa: F403  # as their registry lists them for those who read types
    from polyak.core.search.mcts import MCTS as MCTS
    from polyak.data import HerReplayBuffer as HerReplayBuffer

__all__ = sorted([*class_names(), "HerReplayBuffer", "MCTS", "__version__"])


def __getattr__(name: str) -> Any:
    if name in (names := class_names()):
        return get(names[name])
    if name == "HerReplayBuffer":
        from polyak.data import HerReplayBuffer

        return HerReplayBuffer
    if name == "MCTS":
        from polyak.core.search.mcts import MCTS

        return MCTS
    raise AttributeError(f"module 'polyak' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
