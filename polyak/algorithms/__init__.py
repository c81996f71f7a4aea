"""The registry: one row per algorithm.

The package itself, the command line, the documentation and the conformance tests read it.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from polyak.envs.names import did_you_mean

if TYPE_CHECKING:  # the same names for those who read types without running anything
    from polyak.algorithms.a2c import A2C as A2C
    from polyak.algorithms.actor_critic import ActorCritic as ActorCritic
    from polyak.algorithms.airl import AIRL as AIRL
    from polyak.algorithms.alphazero import AlphaZero as AlphaZero
    from polyak.algorithms.appo import APPO as APPO
    from polyak.algorithms.ars import ARS as ARS
    from polyak.algorithms.awac import AWAC as AWAC
    from polyak.algorithms.bc import BC as BC
    from polyak.algorithms.bcq import BCQ as BCQ
    from polyak.algorithms.c51 import C51 as C51
    from polyak.algorithms.cql import CQL as CQL
    from polyak.algorithms.crossq import CrossQ as CrossQ
    from polyak.algorithms.dagger import DAgger as DAgger
    from polyak.algorithms.ddpg import DDPG as DDPG
    from polyak.algorithms.decision_transformer import DecisionTransformer as DecisionTransformer
    from polyak.algorithms.deep_sarsa import DeepSARSA as DeepSARSA
    from polyak.algorithms.discrete_cql import DiscreteCQL as DiscreteCQL
    from polyak.algorithms.discrete_sac import DiscreteSAC as DiscreteSAC
    from polyak.algorithms.dqn import DQN as DQN
    from polyak.algorithms.droq import DroQ as DroQ
    from polyak.algorithms.edac import EDAC as EDAC
    from polyak.algorithms.fast_td3 import FastTD3 as FastTD3
    from polyak.algorithms.fqe import FQE as FQE
    from polyak.algorithms.gail import GAIL as GAIL
    from polyak.algorithms.impala import IMPALA as IMPALA
    from polyak.algorithms.iql import IQL as IQL
    from polyak.algorithms.iqn import IQN as IQN
    from polyak.algorithms.maskable_ppo import MaskablePPO as MaskablePPO
    from polyak.algorithms.ppo import PPO as PPO
    from polyak.algorithms.pqn import PQN as PQN
    from polyak.algorithms.qrdqn import QRDQN as QRDQN
    from polyak.algorithms.rainbow import Rainbow as Rainbow
    from polyak.algorithms.rebrac import ReBRAC as ReBRAC
    from polyak.algorithms.recurrent_ppo import RecurrentPPO as RecurrentPPO
    from polyak.algorithms.redq import REDQ as REDQ
    from polyak.algorithms.reinforce import REINFORCE as REINFORCE
    from polyak.algorithms.sac import SAC as SAC
    from polyak.algorithms.sd3 import SD3 as SD3
    from polyak.algorithms.simba import SimBa as SimBa
    from polyak.algorithms.tabular.double_q_learning import DoubleQLearning as DoubleQLearning
    from polyak.algorithms.tabular.dyna_q import DynaQ as DynaQ
    from polyak.algorithms.tabular.expected_sarsa import ExpectedSARSA as ExpectedSARSA
    from polyak.algorithms.tabular.monte_carlo_control import MonteCarloControl as MonteCarloControl
    from polyak.algorithms.tabular.policy_iteration import PolicyIteration as PolicyIteration
    from polyak.algorithms.tabular.q_learning import QLearning as QLearning
    from polyak.algorithms.tabular.sarsa import SARSA as SARSA
    from polyak.algorithms.tabular.soft_policy_iteration import SoftPolicyIteration as SoftPolicyIteration
    from polyak.algorithms.tabular.value_iteration import ValueIteration as ValueIteration
    from polyak.algorithms.td3 import TD3 as TD3
    from polyak.algorithms.td3_bc import TD3BC as TD3BC
    from polyak.algorithms.tqc import TQC as TQC
    from polyak.algorithms.trpo import TRPO as TRPO
    from polyak.core.algorithm import Algorithm

REGISTRY = {
    "a2c": "polyak.algorithms.a2c:A2C",
    "actor_critic": "polyak.algorithms.actor_critic:ActorCritic",
    "airl": "polyak.algorithms.airl:AIRL",
    "alphazero": "polyak.algorithms.alphazero:AlphaZero",
    "appo": "polyak.algorithms.appo:APPO",
    "ars": "polyak.algorithms.ars:ARS",
    "awac": "polyak.algorithms.awac:AWAC",
    "bc": "polyak.algorithms.bc:BC",
    "bcq": "polyak.algorithms.bcq:BCQ",
    "c51": "polyak.algorithms.c51:C51",
    "cql": "polyak.algorithms.cql:CQL",
    "crossq": "polyak.algorithms.crossq:CrossQ",
    "dagger": "polyak.algorithms.dagger:DAgger",
    "ddpg": "polyak.algorithms.ddpg:DDPG",
    "decision_transformer": "polyak.algorithms.decision_transformer:DecisionTransformer",
    "deep_sarsa": "polyak.algorithms.deep_sarsa:DeepSARSA",
    "discrete_cql": "polyak.algorithms.discrete_cql:DiscreteCQL",
    "discrete_sac": "polyak.algorithms.discrete_sac:DiscreteSAC",
    "double_q_learning": "polyak.algorithms.tabular.double_q_learning:DoubleQLearning",
    "dqn": "polyak.algorithms.dqn:DQN",
    "droq": "polyak.algorithms.droq:DroQ",
    "dyna_q": "polyak.algorithms.tabular.dyna_q:DynaQ",
    "expected_sarsa": "polyak.algorithms.tabular.expected_sarsa:ExpectedSARSA",
    "edac": "polyak.algorithms.edac:EDAC",
    "fast_td3": "polyak.algorithms.fast_td3:FastTD3",
    "fqe": "polyak.algorithms.fqe:FQE",
    "gail": "polyak.algorithms.gail:GAIL",
    "impala": "polyak.algorithms.impala:IMPALA",
    "iql": "polyak.algorithms.iql:IQL",
    "iqn": "polyak.algorithms.iqn:IQN",
    "maskable_ppo": "polyak.algorithms.maskable_ppo:MaskablePPO",
    "monte_carlo_control": "polyak.algorithms.tabular.monte_carlo_control:MonteCarloControl",
    "policy_iteration": "polyak.algorithms.tabular.policy_iteration:PolicyIteration",
    "ppo": "polyak.algorithms.ppo:PPO",
    "pqn": "polyak.algorithms.pqn:PQN",
    "q_learning": "polyak.algorithms.tabular.q_learning:QLearning",
    "qrdqn": "polyak.algorithms.qrdqn:QRDQN",
    "rainbow": "polyak.algorithms.rainbow:Rainbow",
    "rebrac": "polyak.algorithms.rebrac:ReBRAC",
    "recurrent_ppo": "polyak.algorithms.recurrent_ppo:RecurrentPPO",
    "redq": "polyak.algorithms.redq:REDQ",
    "reinforce": "polyak.algorithms.reinforce:REINFORCE",
    "sac": "polyak.algorithms.sac:SAC",
    "sarsa": "polyak.algorithms.tabular.sarsa:SARSA",
    "sd3": "polyak.algorithms.sd3:SD3",
    "simba": "polyak.algorithms.simba:SimBa",
    "soft_policy_iteration": "polyak.algorithms.tabular.soft_policy_iteration:SoftPolicyIteration",
    "td3": "polyak.algorithms.td3:TD3",
    "td3_bc": "polyak.algorithms.td3_bc:TD3BC",
    "tqc": "polyak.algorithms.tqc:TQC",
    "trpo": "polyak.algorithms.trpo:TRPO",
    "value_iteration": "polyak.algorithms.tabular.value_iteration:ValueIteration",
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


def load(path: Any, env: Any = None, device: Any = "auto", **options: Any) -> "Algorithm":
    """The model in a file, of whichever algorithm wrote it: as that algorithm's own ``load``.

    Args:
        path: a path or a file opened for reading, of polyak or of Stable-Baselines3.
        env: the environment to continue in.
        device: where to put the model.
        options: the others of :meth:`~polyak.core.algorithm.Algorithm.load`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not a model file, or of a class that only the program that wrote it has, or it does not fit ``env``.
    """
    from polyak.core.algorithm import Algorithm

    return Algorithm.load.__func__(class_of, path, env=env, device=device, **options)  # type: ignore[attr-defined]


def class_of(description: Mapping[str, Any]) -> type[Any]:
    """The class of the model that a file describes.

    Raises:
        ValueError: it is of a program's own.
    """
    name, bases = description["algorithm"], description.get("bases", ())
    if name in (known := class_names()):
        return get(known[name])
    nearest = next((base for base in bases if base in known), None)
    as_ours = f", or {nearest}.load(path) for what polyak knows of it" if nearest else ""
    raise ValueError(
        f"the file holds a model of {name!r}, which is not polyak's: it is a program's own. Use {name}.load(path)"
        f"{as_ours}."
    )


def __getattr__(name: str) -> Any:
    if name in (names := class_names()):
        return get(names[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
