"""Where experience is collected and where it is learned from: in this process, or in others.

With ``num_env_runners`` and ``num_learners`` of 0 nothing imports Ray.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polyak.core.loops.on_policy import RolloutAlgorithm
from polyak.envs import VecEnv
from polyak.scale.config.base import AlgorithmConfig
from polyak.scale.environments import make_environments
from polyak.scale.errors import NotThereYetError
from polyak.scale.groups import LocalLearner, LocalRunner
from polyak.scale.processes.learners import RemoteLearners
from polyak.scale.processes.runners import RemoteRunners
from polyak.scale.processes.workers import Elsewhere, Spaces


def check_processes(config: AlgorithmConfig) -> None:
    """Refuse processes that nobody can make yet, before anything is made.

    Raises:
        NotThereYetError: naming the setting.
    """
    others = {name: getattr(config, name) for name in ("num_env_runners", "num_learners")}
    asked = {name: number for name, number in others.items() if number > 0}
    if asked and not issubclass(config.plain().algorithm, RolloutAlgorithm):
        name, number = next(iter(asked.items()))
        raise NotThereYetError(
            f"{name}={number} asks for other processes, which so far there are for PPO, IMPALA and APPO, that learn "
            f"from rollouts, and not for {config.name}. Use {name}=0, with several num_envs_per_env_runner, each in a "
            "process of its own with gym_env_vectorize_mode='async'."
        )
    if config.evaluation_num_env_runners > 0:
        raise NotThereYetError(
            f"evaluation_num_env_runners={config.evaluation_num_env_runners} asks for other processes that evaluate, "
            "and so far evaluation is done in this one, between two iterations. Use evaluation_num_env_runners=0."
        )
    if config.num_aggregator_actors_per_learner > 0:
        raise NotThereYetError(
            f"num_aggregator_actors_per_learner={config.num_aggregator_actors_per_learner}: so far batches are put "
            "together in this process. Use 0."
        )
    if asked and (config.torch_ddp_kwargs or config.create_env_on_local_worker):
        name = "torch_ddp_kwargs" if config.torch_ddp_kwargs else "create_env_on_local_worker"
        raise NotThereYetError(f"{name}={getattr(config, name)!r} is not carried out so far. Leave it out.")


def make_places(
    config: AlgorithmConfig, created: Callable[..., None] | None
) -> tuple[RemoteRunners | None, VecEnv, Spaces]:
    """Runners in other processes, if there are to be some; the environments as the model here sees them, and their
    spaces."""
    if config.num_env_runners == 0:
        env = make_environments(config, training=True, created=created)
        return None, env, Spaces.of(env)
    runners = RemoteRunners(config)
    return runners, Elsewhere(runners.spaces, config.num_env_runners * config.num_envs_per_env_runner), runners.spaces


def make_runners(remote: RemoteRunners | None, model: Any, told: Any, anew: bool) -> LocalRunner | RemoteRunners:
    """Who collects experience for a model: those in other processes, or this one."""
    return LocalRunner(model, told, anew) if remote is None else remote.serve(model, told, anew)


def make_learners(config: AlgorithmConfig, model: Any, spaces: Spaces) -> LocalLearner:
    """Who learns from it: with no ``num_learners`` this process."""
    return LocalLearner(model) if config.num_learners == 0 else RemoteLearners(config, model, spaces)
