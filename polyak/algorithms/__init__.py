"""The registry of algorithms: one row each.

The package itself, the command line, the documentation and the conformance tests read it. Other packages add their
algorithms with :func:`register`, or with an entry point of the group ``polyak.algorithms`` in their metadata:

.. code-block:: toml

    [project.entry-points."polyak.algorithms"]
    my_algorithm = "my_package.my_module:MyAlgorithm"
"""

import re
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from polyak.suggestions import did_you_mean
from polyak.warning import warn_user

if TYPE_CHECKING:  # for type checkers, without imports at run time
    from importlib.metadata import EntryPoint

    from polyak.algorithm import Algorithm
    from polyak.algorithms._classes import *  # noqa: F403  # a stub: docs/from_cards.py

REGISTRY = {
    # -- from rollouts and episodes
    "ppo": "polyak.algorithms.ppo:PPO",
    "maskable_ppo": "polyak.algorithms.maskable_ppo:MaskablePPO",
    "a2c": "polyak.algorithms.a2c:A2C",
    "actor_critic": "polyak.algorithms.actor_critic:ActorCritic",
    "qac": "polyak.algorithms.qac:QAC",
    "reinforce": "polyak.algorithms.reinforce:REINFORCE",
    "trpo": "polyak.algorithms.trpo:TRPO",
    "recurrent_ppo": "polyak.algorithms.recurrent_ppo:RecurrentPPO",
    "impala": "polyak.algorithms.impala:IMPALA",
    "appo": "polyak.algorithms.appo:APPO",
    "ars": "polyak.algorithms.ars:ARS",
    # -- values of discrete actions
    "dqn": "polyak.algorithms.dqn:DQN",
    "c51": "polyak.algorithms.c51:C51",
    "qrdqn": "polyak.algorithms.qrdqn:QRDQN",
    "iqn": "polyak.algorithms.iqn:IQN",
    "rainbow": "polyak.algorithms.rainbow:Rainbow",
    "deep_sarsa": "polyak.algorithms.deep_sarsa:DeepSARSA",
    "pqn": "polyak.algorithms.pqn:PQN",
    # -- continuous actions, from replay
    "ddpg": "polyak.algorithms.ddpg:DDPG",
    "td3": "polyak.algorithms.td3:TD3",
    "fast_td3": "polyak.algorithms.fast_td3:FastTD3",
    "hiro": "polyak.algorithms.hiro:HIRO",
    "sac": "polyak.algorithms.sac:SAC",
    "sac_v": "polyak.algorithms.sac_v:SACV",
    "tqc": "polyak.algorithms.tqc:TQC",
    "redq": "polyak.algorithms.redq:REDQ",
    "droq": "polyak.algorithms.droq:DroQ",
    "simba": "polyak.algorithms.simba:SimBa",
    "sd3": "polyak.algorithms.sd3:SD3",
    "discrete_sac": "polyak.algorithms.discrete_sac:DiscreteSAC",
    "crossq": "polyak.algorithms.crossq:CrossQ",
    # -- with a learned model of the environment
    "pets": "polyak.algorithms.pets:PETS",
    "mbpo": "polyak.algorithms.mbpo:MBPO",
    # -- with tables
    "value_iteration": "polyak.algorithms.tabular.value_iteration:ValueIteration",
    "policy_iteration": "polyak.algorithms.tabular.policy_iteration:PolicyIteration",
    "soft_policy_iteration": "polyak.algorithms.tabular.soft_policy_iteration:SoftPolicyIteration",
    "q_learning": "polyak.algorithms.tabular.q_learning:QLearning",
    "sarsa": "polyak.algorithms.tabular.sarsa:SARSA",
    "expected_sarsa": "polyak.algorithms.tabular.expected_sarsa:ExpectedSARSA",
    "double_q_learning": "polyak.algorithms.tabular.double_q_learning:DoubleQLearning",
    "monte_carlo_control": "polyak.algorithms.tabular.monte_carlo_control:MonteCarloControl",
    "dyna_q": "polyak.algorithms.tabular.dyna_q:DynaQ",
    # -- by search
    "alphazero": "polyak.algorithms.alphazero:AlphaZero",
    # -- from datasets
    "bc": "polyak.algorithms.bc:BC",
    "marwil": "polyak.algorithms.marwil:MARWIL",
    "td3_bc": "polyak.algorithms.td3_bc:TD3BC",
    "iql": "polyak.algorithms.iql:IQL",
    "cql": "polyak.algorithms.cql:CQL",
    "discrete_cql": "polyak.algorithms.discrete_cql:DiscreteCQL",
    "edac": "polyak.algorithms.edac:EDAC",
    "rebrac": "polyak.algorithms.rebrac:ReBRAC",
    "awac": "polyak.algorithms.awac:AWAC",
    "bcq": "polyak.algorithms.bcq:BCQ",
    "decision_transformer": "polyak.algorithms.decision_transformer:DecisionTransformer",
    "fqe": "polyak.algorithms.fqe:FQE",
    # -- from experts
    "dagger": "polyak.algorithms.dagger:DAgger",
    "gail": "polyak.algorithms.gail:GAIL",
    "airl": "polyak.algorithms.airl:AIRL",
}
"""Name on the command line -> module and class, in the order of the documentation. Everything else is in the
algorithm's file; ``python docs/from_cards.py`` writes the files that depend on it."""


GROUP = "polyak.algorithms"
"""Entry-point group for algorithms of other packages: name on the command line -> module and class."""

_REGISTERED: dict[str, type[Any]] = {}
"""Name on the command line -> class that the program registered."""

A = TypeVar("A")


def names() -> list[str]:
    """Returns the names that :func:`get` takes: of this registry, registered classes, and installed packages."""
    return list(dict.fromkeys([*REGISTRY, *_REGISTERED, *_offered()]))


def class_names() -> dict[str, str]:
    """Returns class name -> name in the registry, for polyak's and registered algorithms."""
    ours = {entry.partition(":")[2]: name for name, entry in REGISTRY.items()}
    return ours | {cls.__name__: name for name, cls in _REGISTERED.items()}


def get(name: str) -> type[Any]:
    """Returns the algorithm class of a name, in any case. A class of an installed package is imported.

    Raises:
        ValueError: the name is unknown; the message gives the closest one.
        ImportError: the package that defines it cannot be imported.
    """
    key = name.lower()
    if key in REGISTRY:
        module, _, attribute = REGISTRY[key].partition(":")
        return getattr(import_module(module), attribute)
    if key in _REGISTERED:
        return _REGISTERED[key]
    if key in (offered := _offered()):
        cls = _imported(offered[key])
        return cls if registered_as(cls) else register(cls, key)
    hint = did_you_mean(name, names())
    raise ValueError(f"algorithm {name!r} is unknown; there are {', '.join(names())}.{hint}")


def register(cls: type[A], name: str | None = None) -> type[A]:
    """Register an algorithm for :func:`get`, :func:`load` and ``--algo`` of the command line.

    Use it as a decorator, ``@polyak.register``, or as a function. A class that is defined again, as in a notebook,
    replaces the previous one.

    Args:
        cls: a class that derives from one of polyak's.
        name: its name on the command line, in lower case; ``None``: the name of the class.

    Returns:
        the class.

    Raises:
        ValueError: ``cls`` is not an algorithm class, or the name is taken or invalid.
    """
    from polyak.algorithm import Algorithm

    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise ValueError(
            f"cls={cls!r} is not a class of algorithms. Derive it from one of polyak's: class MyAlgorithm(polyak.PPO)."
        )
    key = cls.__name__.lower() if name is None else name
    if not re.fullmatch(r"[a-z][a-z0-9_]*", key):
        raise ValueError(
            f"name={key!r} cannot be typed on the command line. Give lower-case letters, digits and underscores: "
            f"register({cls.__name__}, name='my_algorithm')."
        )
    if key in REGISTRY or _place(_REGISTERED.get(key, cls)) != _place(cls):
        taken = REGISTRY.get(key) or _place(_REGISTERED[key])
        raise ValueError(f"name={key!r} is taken by {taken}. Give another: register({cls.__name__}, name='my_{key}').")
    if class_names().get(cls.__name__, key) != key:
        raise ValueError(
            f"cls={_place(cls)} is called like the class of {class_names()[cls.__name__]!r}, and saved models name "
            "their class. Give the class another name."
        )
    _REGISTERED[key] = cls
    return cls


def registered_as(cls: type[Any]) -> str | None:
    """Returns the registry name of exactly this class; ``None`` if it has none."""
    name = class_names().get(cls.__name__)
    return name if name is not None and _place(cls) == (REGISTRY.get(name) or _place(_REGISTERED[name])) else None


def load(path: Any, env: Any = None, device: Any = "auto", *, trust: bool = False, **options: Any) -> "Algorithm":
    """Load the model in a file, with the class of the algorithm that wrote it.

    Args:
        path: a path or a file opened for reading, of polyak or of Stable-Baselines3.
        env: the environment to continue in.
        device: where to put the model.
        trust: run code for the file: import the installed package that defines its algorithm, and load pickled values.
        options: further arguments of :meth:`~polyak.algorithm.Algorithm.load`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: not a model file, or of a class that is unknown here, or it does not fit ``env``.
    """
    from polyak.algorithm import Algorithm

    find = partial(class_of, trust=trust)
    return Algorithm.load.__func__(find, path, env=env, device=device, trust=trust, **options)  # type: ignore[attr-defined]


def class_of(description: Mapping[str, Any], trust: bool = False) -> type[Any]:
    """Returns the class of the model that a file describes. A file alone imports nothing but polyak.

    Args:
        description: content of the file's ``polyak.json``.
        trust: import the installed package that defines the algorithm, if there is one.

    Raises:
        ValueError: the class is not registered.
    """
    name, bases = description["algorithm"], description.get("bases", ())
    if name in (known := class_names()):
        return get(known[name])
    for key, point in _offered().items():
        if point.attr.rpartition(".")[2] == name:
            if trust:
                return get(key)
            raise ValueError(
                f"the file holds a model of {name!r}, of the installed package {point.module.partition('.')[0]!r}, "
                f"which a file alone does not make be imported. Call polyak.algorithms.get({key!r}) first, or pass "
                "trust=True."
            )
    nearest = next((base for base in bases if base in known), None)
    as_ours = f", or {nearest}.load(path) for what polyak knows of it" if nearest else ""
    raise ValueError(
        f"the file holds a model of {name!r}, which is not polyak's: it is a program's own. Use {name}.load(path)"
        f"{as_ours}; or polyak.register({name}) first."
    )


@cache
def _offered() -> "dict[str, EntryPoint]":
    """Returns the entry points of installed packages by name, without imports; names of polyak's algorithms are
    skipped."""
    from importlib.metadata import entry_points  # which takes longer than all of polyak

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        key = point.name.lower()
        if key in REGISTRY:
            warn_user(f"{point.value} is offered as algorithm {point.name!r}, which is polyak's own: left out.")
        else:
            found[key] = point
    return found


def _imported(point: "EntryPoint") -> type[Any]:
    try:
        return point.load()
    except Exception as error:
        raise ImportError(
            f"algorithm {point.name!r} is offered by an installed package as {point.value}, which cannot be imported: "
            f"{type(error).__name__}: {error}. Repair or uninstall that package."
        ) from error


def _place(cls: type[Any]) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def __getattr__(name: str) -> Any:
    if name in (known := class_names()):
        return get(known[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
