"""The registry: one row per algorithm.

The package itself, the command line, the documentation and the conformance tests read it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyak.envs.names import did_you_mean

if TYPE_CHECKING:  # the same names for those who read types without running anything
    from polyak.algorithms.a2c import A2C as A2C
    from polyak.algorithms.actor_critic import ActorCritic as ActorCritic
    from polyak.algorithms.ars import ARS as ARS
    from polyak.algorithms.c51 import C51 as C51
    from polyak.algorithms.crossq import CrossQ as CrossQ
    from polyak.algorithms.ddpg import DDPG as DDPG
    from polyak.algorithms.deep_sarsa import DeepSARSA as DeepSARSA
    from polyak.algorithms.discrete_sac import DiscreteSAC as DiscreteSAC
    from polyak.algorithms.dqn import DQN as DQN
    from polyak.algorithms.droq import DroQ as DroQ
    from polyak.algorithms.fast_td3 import FastTD3 as FastTD3
    from polyak.algorithms.iqn import IQN as IQN
    from polyak.algorithms.maskable_ppo import MaskablePPO as MaskablePPO
    from polyak.algorithms.ppo import PPO as PPO
    from polyak.algorithms.pqn import PQN as PQN
    from polyak.algorithms.qrdqn import QRDQN as QRDQN
    from polyak.algorithms.rainbow import Rainbow as Rainbow
    from polyak.algorithms.recurrent_ppo import RecurrentPPO as RecurrentPPO
    from polyak.algorithms.redq import REDQ as REDQ
    from polyak.algorithms.reinforce import REINFORCE as REINFORCE
    from polyak.algorithms.sac import SAC as SAC
    from polyak.algorithms.sd3 import SD3 as SD3
    from polyak.algorithms.simba import SimBa as SimBa
    from polyak.algorithms.td3 import TD3 as TD3
    from polyak.algorithms.tqc import TQC as TQC
    from polyak.algorithms.trpo import TRPO as TRPO

REGISTRY = {
    "a2c": "polyak.algorithms.a2c:A2C",
    "actor_critic": "polyak.algorithms.actor_critic:ActorCritic",
    "ars": "polyak.algorithms.ars:ARS",
    "c51": "polyak.algorithms.c51:C51",
    "crossq": "polyak.algorithms.crossq:CrossQ",
    "ddpg": "polyak.algorithms.ddpg:DDPG",
    "deep_sarsa": "polyak.algorithms.deep_sarsa:DeepSARSA",
    "discrete_sac": "polyak.algorithms.discrete_sac:DiscreteSAC",
    "dqn": "polyak.algorithms.dqn:DQN",
    "droq": "polyak.algorithms.droq:DroQ",
    "fast_td3": "polyak.algorithms.fast_td3:FastTD3",
    "iqn": "polyak.algorithms.iqn:IQN",
    "maskable_ppo": "polyak.algorithms.maskable_ppo:MaskablePPO",
    "ppo": "polyak.algorithms.ppo:PPO",
    "pqn": "polyak.algorithms.pqn:PQN",
    "qrdqn": "polyak.algorithms.qrdqn:QRDQN",
    "rainbow": "polyak.algorithms.rainbow:Rainbow",
    "recurrent_ppo": "polyak.algorithms.recurrent_ppo:RecurrentPPO",
    "redq": "polyak.algorithms.redq:REDQ",
    "reinforce": "polyak.algorithms.reinforce:REINFORCE",
    "sac": "polyak.algorithms.sac:SAC",
    "sd3": "polyak.algorithms.sd3:SD3",
    "simba": "polyak.algorithms.simba:SimBa",
    "td3": "polyak.algorithms.td3:TD3",
    "tqc": "polyak.algorithms.tqc:TQC",
    "trpo": "polyak.algorithms.trpo:TRPO",
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
