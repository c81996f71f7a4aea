"""What an algorithm has learned and counted, as nested dicts by RLlib's names of components, in memory.

=================================  =====================================================================================
``learner_group/learner/rl_module``  name of a module -> its arrays
``learner_group/learner/optimizer``  name of an optimizer -> its state; beside it ``learning``: what else there is of
                                   the learner, and what learning has moved
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

from polyak.compat.rllib_face.columns import DEFAULT_MODULE_ID
from polyak.compat.rllib_face.connectors.learning import load_state_of_all, state_of_all
from polyak.compat.rllib_face.filters import filter_around
from polyak.distributed.statistics import moments_in, take_moments
from polyak.hyperparameters.declaration import require

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
"""Names of components that can be selected or left out, besides learner-only modules."""


class ComponentChoice:
    """A selection of components.

    Args:
        components: names of components, with slashes between levels; ``None``: all.
        not_components: names of components to leave out.
        learner_only: names of the modules that only the learner has.
        above: prefix of the names, such as ``"learner_group/"``.

    Raises:
        HyperparameterError: there is no component of that name.
    """

    def __init__(
        self, components: Names, not_components: Names, learner_only: Collection[str] = (), above: str = ""
    ) -> None:
        everything = [*COMPONENTS, *(f"{MODULES}/{name}" for name in learner_only)]
        known = [name.removeprefix(above) for name in everything if name.startswith(above)]
        self._wanted = None if components is None else _listed("components", components, known)
        self._unwanted = _listed("not_components", not_components or (), known)

    def below(self, name: str) -> dict[str, Any]:
        """Returns the choice among the parts of a component that is chosen, by their names below it."""
        whole = self._wanted is None or any(_within(name, one) for one in self._wanted)
        wanted, unwanted = (
            [one.removeprefix(f"{name}/") for one in names if one.startswith(f"{name}/")]
            for names in (self._wanted or (), self._unwanted)
        )
        return {"components": None if whole else wanted, "not_components": unwanted}

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
        state["learner_group"] = algorithm.learner_group.get_state(**choice.below("learner_group"))
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
    if "learner_group" in state:
        algorithm.learner_group.set_state(state["learner_group"])
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


def _run_on(model: Any, state: Mapping[str, Any]) -> None:
    model.num_timesteps = int(state["num_env_steps_sampled_lifetime"])
    known = filter_around(model.get_env())
    if known is not None and "env_to_module_connector" in state:
        take_moments(known, state["env_to_module_connector"])
    load_state_of_all(model, copy.deepcopy(state.get("connectors", {})))
