"""Arguments of models so small that everything can be tried with them in a second.

Those of a class are what its bases have here, and its own; classes of tests have theirs in ``small``. Arguments that a
class does not take fall away.
"""

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from gymnasium import spaces
from torch import nn

from polyak import TD3
from polyak.envs import InvalidActionEnvDiscrete
from polyak.experience import Dataset, collect
from polyak.fields.offline import OfflineAlgorithm

_MLP = {"policy": "MlpPolicy", "policy_kwargs": {"net_arch": [16, 16]}, "device": "cpu"}
_MANY_UPDATES = {"gradient_steps": 2, "n_critics": 3, "policy_delay": 2}
_MODEL = {"model_freq": 20, "model_gradient_steps": 10, "model_batch_size": 16, "rollout_length": 2, "n_rollouts": 20}


def after_the_pole(observation: np.ndarray) -> int:
    """An expert who plays CartPole."""
    return int(observation[2] > 0)


@lru_cache(maxsize=4)
def sample(env: str) -> Dataset:
    """A few hundred random steps."""
    return collect(env, None, 300, seed=0)


SMALL: dict[str, dict[str, Any] | Callable[[], dict[str, Any]]] = {
    "NetworkAlgorithm": _MLP,
    "OnPolicyAlgorithm": {"n_steps": 64},
    "AsynchronousAlgorithm": {"n_steps": 16, "asynchronous": False},
    "OffPolicyAlgorithm": {"buffer_size": 500, "learning_starts": 40, "batch_size": 16},
    "OfflineAlgorithm": {"batch_size": 16},
    "TableAlgorithm": {"env": "FrozenLake-v1"},
    "AdversarialImitation": lambda: {
        **_MLP,
        "env": "CartPole-v1",
        "demonstrations": collect("CartPole-v1", None, 100, seed=0),
        "generator_kwargs": {"n_steps": 64, "batch_size": 32, "n_epochs": 2},
        "demo_batch_size": 16,
    },
    "ActorCritic": {"n_steps": 1},
    "AlphaZero": {
        "env": "tictactoe",
        "n_games": 8,
        "simulations": 4,
        "learning_starts": 16,
        "batch_size": 16,
        "buffer_size": 200,
    },
    "ARS": {"env": "CartPole-v1", "n_delta": 2},
    "CQL": {"n_action_samples": 2, "bc_steps": 10},
    # Of a unit that a ReLU lets pass in all rows, the layer after it takes the bias away again: the gradient is 0 but
    # for rounding, of which Adam makes steps as long as any. No two programs agree on those.
    "CrossQ": {"policy_kwargs": {"net_arch": [16, 16], "activation_fn": nn.Tanh}},
    "DAgger": {
        "env": "CartPole-v1",
        "expert": after_the_pole,
        "buffer_size": 2000,
        "steps_per_round": 50,
        "episodes_per_round": 1,
        "updates_per_round": 4,
    },
    "DecisionTransformer": {"context_length": 5, "policy_kwargs": {"width": 16, "n_layers": 2}},
    "DroQ": _MANY_UPDATES,
    "EDAC": {"n_critics": 3},
    "FQE": lambda: {"target": TD3(**{**trial(TD3), "env": "Pendulum-v1"})},
    "FastTD3": {"batch_size": 16},
    "IQL": {"actor_learning_rate": 3e-4},
    "Imagining": {
        **_MODEL,
        "gradient_steps": 2,
        "imagined_size": 100,
        "real_share": 0.25,
        "model_kwargs": {"net_arch": [8, 8], "n_members": 3, "n_elites": 2},
    },
    "MaskablePPO": lambda: {"env": InvalidActionEnvDiscrete(dim=5, n_invalid_actions=2)},
    "PETS": {
        "horizon": 3,
        "n_candidates": 10,
        "n_top": 3,
        "n_iterations": 2,
        "n_particles": 4,
        "train_freq": 20,
        "gradient_steps": 10,
        "batch_size": 16,
        "policy_kwargs": {"net_arch": [8, 8], "n_members": 2},
    },
    "PQN": {"batch_size": 16},
    "QAC": {"n_steps": 8},
    "REDQ": _MANY_UPDATES,
    "REINFORCE": {"env": "CartPole-v1", "episodes_per_update": 2},
    "RecurrentPPO": {"batch_size": 64, "policy_kwargs": {"net_arch": [16], "memory_size": 8}},
    "TRPO": {"batch_size": 32},
}
"""Class -> arguments."""


def trial(cls: Any) -> dict[str, Any]:
    """Arguments of a small model of a class."""
    continuous = any(issubclass(spaces.Box, kind) for kind in cls.action_spaces)
    options: dict[str, Any] = {"seed": 3}
    if cls.steps_environments:
        options["env"] = "Pendulum-v1" if continuous else "CartPole-v1"
    for base in reversed(cls.__mro__):
        more: Any = getattr(base, "small", {}) if "small" in vars(base) else SMALL.get(base.__name__, {})
        options |= more() if callable(more) else more
    if issubclass(cls, OfflineAlgorithm) and "expert" not in known(cls):
        options["env"] = sample(options["env"])
    return {name: value for name, value in options.items() if name in known(cls)}


def known(cls: Any) -> set[str]:
    """Names of a class's hyper-parameters."""
    return {field.name for field in dataclasses.fields(cls)}
