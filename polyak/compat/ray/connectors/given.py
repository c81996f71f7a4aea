"""What the settings of connectors stand for."""

from __future__ import annotations

import inspect
from typing import Any

from polyak.compat.overrides import changed, is_ours, refuse
from polyak.compat.ray import not_called
from polyak.compat.ray.connectors.base import (
    ConnectorPipelineV2,
    ConnectorV2,
    EnvToModulePipeline,
    LearnerConnectorPipeline,
)
from polyak.compat.ray.connectors.pieces import Rewriting
from polyak.compat.ray.filters import MeanStdFilter, filter_of
from polyak.hyperparameters.declaration import require


def pieces_of(argument: str, given: Any, *known: Any) -> list[Any]:
    """The pieces that a setting stands for, new ones.

    Args:
        argument: its name.
        given: a function, or a filter.
        known: what the function is called with, as far as it has arguments.

    Raises:
        HyperparameterError: it stands for something else, or for a piece with a method that nothing would call.
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
        if is_ours(type(piece), ConnectorV2):
            refuse(argument, type(piece), ConnectorV2, not_called.CONNECTOR)
        else:
            filter_of(piece)
    return pieces


def _filters(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(one, MeanStdFilter) for one in given)


def _arguments(function: Any, most: int) -> int:
    """How many arguments by position a function can be given."""
    kinds = [one.kind for one in inspect.signature(function).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return most
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(most, sum(kind in by_place for kind in kinds))


def learner_pieces(config: Any, before: EnvToModulePipeline, own_actions: Any) -> LearnerConnectorPipeline | None:
    """The pieces of a learner; ``None``: there are none.

    Raises:
        HyperparameterError: one that rewrites observations, and none before the module that does the same.
    """
    for piece in before.connectors:
        fix = "it stands in env_to_module_connector: leave as_learner_connector out."
        here = not (isinstance(piece, Rewriting) and piece.as_learner_connector)
        require(here, "as_learner_connector", True, fix)
    pipeline = config.build_learner_connector(before.observation_space, own_actions)
    for piece in pipeline.connectors:
        fix = "filters stand in env_to_module_connector."
        require(isinstance(piece, ConnectorV2), "learner_connector", piece, fix)
        if isinstance(piece, Rewriting):
            same = piece.as_learner_connector and any(piece.same_as(one) for one in before.connectors)
            fix = "it learns from what the module was shown: put an equal piece into env_to_module_connector."
            require(same, "learner_connector", piece, fix)
    pipeline.connectors = [one for one in pipeline.connectors if not isinstance(one, Rewriting)]
    return pipeline if pipeline.connectors else None


def check_connectors(config: Any, base: type) -> None:
    """Refuse pieces where nothing would call them, without an environment.

    Args:
        config: whose settings.
        base: the class of configs, whose methods a subclass may override.

    Raises:
        HyperparameterError: naming the setting.
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
    fix = f"{config.name} reads rewards step by step: wrap the environment by gymnasium.RewardWrapper, or use PPO."
    require(config.rewards_may_follow, "learner_connector", behind, fix)
    for name in ("num_env_runners", "num_learners"):
        fix = f"pieces run in this process: set {name}=0, or wrap the environment by gymnasium.RewardWrapper."
        require(getattr(config, name) == 0, "learner_connector", behind, fix)


def _is_filter(given: Any) -> bool:
    """Whether a setting stands for a filter or for nothing, as far as that is known without environments."""
    try:
        filter_of(given)
    except Exception:  # a function that looks at environments makes pieces of its own
        return False
    return True
