"""polyak: reinforcement learning in PyTorch."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from polyak.algorithms.a2c import A2C
    from polyak.algorithms.ddpg import DDPG
    from polyak.algorithms.dqn import DQN
    from polyak.algorithms.ppo import PPO
    from polyak.algorithms.sac import SAC
    from polyak.algorithms.td3 import TD3
    from polyak.data import HerReplayBuffer

__all__ = ["A2C", "DDPG", "DQN", "PPO", "SAC", "TD3", "HerReplayBuffer", "__version__"]


def __getattr__(name: str) -> Any:
    from polyak.algorithms import REGISTRY, get

    if name.lower() in REGISTRY and name == (found := get(name)).__name__:
        return found
    if name == "HerReplayBuffer":
        from polyak.data import HerReplayBuffer

        return HerReplayBuffer
    raise AttributeError(f"module 'polyak' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
