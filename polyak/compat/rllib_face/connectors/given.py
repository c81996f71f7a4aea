"""The conversion of connector settings to pieces."""

from __future__ import annotations

import inspect
from typing import Any

from polyak.compat.rllib_face import not_called
from polyak.compat.rllib_face.connectors.base import ConnectorPipelineV2, ConnectorV2
from polyak.compat.rllib_face.connectors.batches import DefaultPiece
from polyak.compat.rllib_face.filters import MeanStdFilter
from polyak.compat.sb3_face.overrides import changed, is_ours, refuse
from polyak.hyperparameters.declaration import require


def pieces_of(argument: str, given: Any, *known: Any) -> list[Any]:
    """Makes the pieces of a setting.

    Args:
        argument: name of the setting.
        given: a function, or a filter.
        known: arguments of the function, as far as it takes them.

    Raises:
        HyperparameterError: the setting has another value, or a piece has a method that nothing would call.
    """
    fix = "give a function that returns a ConnectorV2 or a list of them, so that each place has pieces of its own."
    require(not isinstance(given, ConnectorV2 | list | tuple) or _filters(given), argument, given, fix)
    if given is None:
        return []
    if given is MeanStdFilter or isinstance(given, MeanStdFilter | list | tuple):
        found: Any = MeanStdFilter() if given is MeanStdFilter else given
    else:
        require(callable(given), argument, given, fix)
        found = given(*known[: _arguments(given, len(known))])
    if isinstance(found, ConnectorPipelineV2):
        found = found.connectors
    pieces = list(found) if isinstance(found, list | tuple) else [found]
    for piece in pieces:
        require(isinstance(piece, ConnectorV2 | MeanStdFilter), argument, piece, fix)
        before = "polyak does its work before a module. Leave it out."
        require(argument == "learner_connector" or not isinstance(piece, DefaultPiece), argument, piece, before)
        if is_ours(type(piece), ConnectorV2):
            refuse(argument, type(piece), ConnectorV2, not_called.OF["connector"])
    return pieces


def filter_of(given: Any) -> MeanStdFilter | None:
    """Returns the filter in ``env_to_module_connector``; ``None`` without one.

    Raises:
        HyperparameterError: the setting has another value.
    """
    found = pieces_of("env_to_module_connector", given, None, None, None)
    fix = "there is MeanStdFilter: give one, or a function that returns one. All else is a wrapper of the environment."
    only = len(found) < 2 and all(isinstance(one, MeanStdFilter) for one in found)
    require(only, "env_to_module_connector", given, fix)
    return found[0] if found else None


def _filters(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(one, MeanStdFilter) for one in given)


def _arguments(function: Any, most: int) -> int:
    """Returns the number of positional arguments that a function can take."""
    kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return most
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(most, sum(kind in by_place for kind in kinds))


def check_connectors(config: Any, base: type) -> None:
    """Refuse pieces that nothing would call, without an environment.

    Args:
        config: the config.
        base: the class of configs, whose methods a subclass may override.

    Raises:
        HyperparameterError: there is one; the message names the setting.
    """
    before, acting, behind = config.env_to_module_connector, config.module_to_env_connector, config.learner_connector
    known = (("env_to_module_connector", before), ("module_to_env_connector", acting), ("learner_connector", behind))
    for name, given in known:
        if not callable(given) or isinstance(given, ConnectorV2 | type):
            pieces_of(name, given)
    own = bool(changed(type(config), base, ["build_env_to_module_connector"]))
    for name in ("num_env_runners", "evaluation_num_env_runners"):
        fix = f"pieces run in this process: set {name}=0, or wrap the environment. A MeanStdFilter runs everywhere."
        here = getattr(config, name) == 0 or not (own or not _is_filter(before))
        require(here, "env_to_module_connector", before or type(config), fix)
        here = getattr(config, name) == 0 or not config._passes_actions()
        fix = f"pieces run in this process: set {name}=0, or wrap the environment by gymnasium.ActionWrapper."
        require(here, "module_to_env_connector", acting or type(config), fix)
    if behind is None and not changed(type(config), base, ["build_learner_connector"]):
        return
    behind = behind or type(config)
    fix = f"the learner of {config.name} passes no pieces: use PPO or DQN, or gymnasium.RewardWrapper."
    require(config.shown_to_pieces is not None, "learner_connector", behind, fix)
    for name in ("num_env_runners", "num_learners"):
        fix = f"pieces run in this process: set {name}=0, or wrap the environment by gymnasium.RewardWrapper."
        require(getattr(config, name) == 0, "learner_connector", behind, fix)


def _is_filter(given: Any) -> bool:
    """Whether a setting gives a filter or nothing, as far as that is known without environments."""
    try:
        filter_of(given)
    except Exception:  # a function that reads environments makes its own pieces
        return False
    return True
