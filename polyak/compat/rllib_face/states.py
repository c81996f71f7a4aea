"""What an algorithm has learned and counted, as nested dicts by RLlib's names of components, in memory.

=================================  =====================================================================================
``learner_group/learner/rl_module``  name of a module -> its arrays
``learner_group/learner/optimizer``  states of optimizers, what else the learner has, and what learning has moved
``env_runner``                       statistics of the filter, if there is one, and steps so far
``metrics_logger``                   episodes and counters; always there
``training_iteration``               always there
=================================  =====================================================================================

Files are :mod:`polyak.compat.rllib_face.checkpoints`'s.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from typing import Any

import torch

from polyak.checkpoint.parameters import load_optimizer
from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.connectors.learning import load_state_of_all, state_of_all
from polyak.compat.rllib_face.filters import filter_around
from polyak.compat.rllib_face.groups import beside
from polyak.distributed.statistics import moments_in, take_moments
from polyak.hyperparameters.declaration import require

MOVING = ("kl_coef", "_n_updates")
"""What learning moves of a model besides its learner."""
State = dict[str, Any]
Names = str | Collection[str] | None
MODULES = "learner_group/learner/rl_module"
COMPONENTS = (
    *("learner_group", "learner_group/learner", MODULES, f"{MODULES}/{DEFAULT_MODULE_ID}"),
    "learner_group/learner/optimizer",
    "env_runner",
    "env_runner/env_to_module_connector",
    "eval_env_runner",
)
"""What can be asked for, or left out, besides modules that only the learner has."""


class ComponentChoice:
    """Some of the components.

    Args:
        components: names of those that are wanted, with slashes between levels; ``None``: all.
        not_components: names of those that are not.
        learner_only: names of the modules that only the learner has.

    Raises:
        HyperparameterError: there is none of that name.
    """

    def __init__(self, components: Names, not_components: Names, learner_only: Collection[str] = ()) -> None:
        known = [*COMPONENTS, *(f"{MODULES}/{name}" for name in learner_only)]
        self._wanted = None if components is None else _listed("components", components, known)
        self._unwanted = _listed("not_components", not_components or (), known)

    def has(self, path: str) -> bool:
        """Whether a component is chosen, or a part of it."""
        if any(_within(path, one) for one in self._unwanted):
            return False
        return self._wanted is None or any(_within(path, one) or _within(one, path) for one in self._wanted)


def _listed(argument: str, given: Any, known: list[str]) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    for name in names:
        require(name in known, argument, name, f"there are {', '.join(known)}.")
    return names


def _within(path: str, above: str) -> bool:
    return path == above or path.startswith(above + "/")


# -- reading -----------------------------------------------------------------------------------------------------------


def state_of(algorithm: Any, choice: ComponentChoice) -> State:
    """See :meth:`Algorithm.get_state`."""
    algorithm.learner_group.settle()
    state: State = {}
    if choice.has("learner_group"):
        state["learner_group"] = {}
        if choice.has("learner_group/learner"):
            state["learner_group"]["learner"] = learner_state(algorithm, choice)
    if choice.has("env_runner"):
        state["env_runner"] = _of_runner(algorithm, choice)
    if choice.has("eval_env_runner"):
        state["eval_env_runner"] = {"evaluations": algorithm._counters["evaluations"]}
    state["metrics_logger"] = {
        "counters": dict(algorithm._counters),
        "num_episodes_lifetime": algorithm._episodes.lifetime,
        "episodes": [dict(episode) for episode in algorithm._episodes],
        "values": algorithm._hooks.metrics_logger.get_state(),
        "own": algorithm.metrics.get_state(),
    }
    state["training_iteration"] = algorithm.iteration
    return state


def learner_state(algorithm: Any, choice: ComponentChoice) -> State:
    """Of the learner: its modules, and what else it has learned."""
    found: State = {}
    if choice.has(MODULES):
        weights = algorithm.learner_group.get_weights()
        found["rl_module"] = {name: one for name, one in weights.items() if choice.has(f"{MODULES}/{name}")}
    if choice.has("learner_group/learner/optimizer"):
        model, learner = algorithm.model, algorithm.model.learner
        learner.adopt_optimizers()
        others = _other_networks(learner, [algorithm.get_module(), *beside(learner).values()])
        found["optimizer"] = {
            "states": {name: copy.deepcopy(one.state_dict()) for name, one in learner.optimizers.items()},
            "networks": {name: tensor.numpy(force=True).copy() for name, tensor in others.items()},
            "steps": learner.steps,
            "values": {name: getattr(model, name) for name in MOVING if hasattr(model, name)},
        }
    return found


def _other_networks(learner: Any, modules: list[Any]) -> dict[str, torch.Tensor]:
    """What a learner has learned that is not of its modules: target networks, a temperature."""
    own = {tensor.data_ptr() for module in modules for tensor in module._tensors().values()}
    return {name: tensor for name, tensor in learner.networks().items() if tensor.data_ptr() not in own}


def _of_runner(algorithm: Any, choice: ComponentChoice) -> State:
    model = algorithm.model
    found: State = {"num_env_steps_sampled_lifetime": model.num_timesteps, "weights_seq_no": float(model.learner.steps)}
    known = filter_around(model.get_env())
    if known is not None and choice.has("env_runner/env_to_module_connector"):
        found["env_to_module_connector"] = moments_in(known)
    if choice.has("env_runner/env_to_module_connector") and (pieces := state_of_all(model)):
        found["connectors"] = copy.deepcopy(pieces)
    return found


# -- putting back ------------------------------------------------------------------------------------------------------


def take_state(algorithm: Any, state: Mapping[str, Any]) -> None:
    """See :meth:`Algorithm.set_state`."""
    known = {"learner_group", "env_runner", "eval_env_runner", "metrics_logger", "training_iteration"}
    fix = f"get_state() returns {', '.join(sorted(known))}."
    require(isinstance(state, Mapping) and not state.keys() - known, "state", sorted(state), fix)
    algorithm.learner_group.settle()
    learner = state.get("learner_group", {}).get("learner", {})
    if "rl_module" in learner:
        algorithm.learner_group.set_weights(learner["rl_module"])
    if "optimizer" in learner:
        _learn_on(algorithm, learner["optimizer"])
    if "env_runner" in state:
        _run_on(algorithm.model, state["env_runner"])
    if "eval_env_runner" in state:
        algorithm._counters["evaluations"] = state["eval_env_runner"]["evaluations"]
    if "metrics_logger" in state:
        logged = state["metrics_logger"]
        algorithm._counters.update(logged["counters"])
        algorithm._episodes.clear()
        algorithm._episodes.extend(logged["episodes"])
        algorithm._episodes.lifetime = logged["num_episodes_lifetime"]
        algorithm._hooks.metrics_logger.set_state(logged["values"])
        algorithm.metrics.set_state(logged.get("own", ()))
    if "training_iteration" in state:
        algorithm.iteration = int(state["training_iteration"])
    algorithm.learner_group.follow()
    algorithm.env_runner_group.follow()


def _learn_on(algorithm: Any, state: Mapping[str, Any]) -> None:
    learner = algorithm.model.learner
    for name, kept in state["states"].items():
        require(name in learner.optimizers, "state", name, f"there are optimizers {sorted(learner.optimizers)}.")
        load_optimizer(learner, name, copy.deepcopy(kept))
    own = learner.networks()
    for name, array in state["networks"].items():
        fits = name in own and tuple(own[name].shape) == array.shape
        require(fits, "state", name, "it is of another algorithm or of other networks.")
        with torch.no_grad():
            own[name].copy_(torch.from_numpy(array.copy()))
    learner.steps = int(state["steps"])
    for name in state["values"].keys() & MOVING:  # files of earlier versions have more
        setattr(algorithm.model, name, state["values"][name])


def _run_on(model: Any, state: Mapping[str, Any]) -> None:
    model.num_timesteps = int(state["num_env_steps_sampled_lifetime"])
    known = filter_around(model.get_env())
    if known is not None and "env_to_module_connector" in state:
        take_moments(known, state["env_to_module_connector"])
    load_state_of_all(model, copy.deepcopy(state.get("connectors", {})))
